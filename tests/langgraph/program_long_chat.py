"""A long chat that forgets its oldest messages, and now and then all of them."""

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES


class Chat(MessagesState):
    summary: str


def reply(state):
    count = len(state["messages"])
    return {
        "messages": [
            AIMessage(f"reply to {state['messages'][-1].content} of {count}", id=f"r{count}-{state['messages'][-1].id}")
        ]
    }


def trim(state):
    messages = state["messages"]
    if len(messages) > 12:
        removed = [RemoveMessage(id=one.id) for one in messages[:-6]]
        return {"messages": removed, "summary": f"{state.get('summary', '')}{len(removed)};"}
    return {}


def build():
    builder = StateGraph(Chat)
    builder.add_node("reply", reply)
    builder.add_node("trim", trim)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", "trim")
    return builder


async def program(saver, face):
    graph = build().compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "chat"}}
    for turn in range(25):
        await face.invoke(graph, {"messages": [HumanMessage(f"turn {turn}", id=f"h{turn}")]}, config)
    before = await face.get_state(graph, config)
    gone = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("anew", id="anew")]
    await face.update_state(graph, config, {"messages": gone})
    final = await face.invoke(graph, {"messages": [HumanMessage("last", id="last")]}, config)
    history = await face.all(graph, "get_state_history", config)
    return [before, final, [(len(one.values.get("messages", [])), one.next, one.metadata) for one in history]]
