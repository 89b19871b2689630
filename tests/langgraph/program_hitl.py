"""A person approves, edits and rejects the tool calls of an agent, through LangChain's middleware."""

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.types import Command
from scripted import ScriptedModel


@tool
def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"paid {cents} for {order}"


@tool
def look(order: str) -> str:
    """Look at an order."""
    return f"{order} is late"


SCRIPT = [
    [{"name": "look", "args": {"order": "o-1"}}],
    [
        {"name": "refund", "args": {"order": "o-1", "cents": 500}},
        {"name": "refund", "args": {"order": "o-2", "cents": 7}},
    ],
    [{"name": "refund", "args": {"order": "o-3", "cents": 900}}],
    "done",
]
EDITED = {"name": "refund", "args": {"order": "o-1", "cents": 100}}
ANSWERS = [
    {"decisions": [{"type": "edit", "edited_action": EDITED}, {"type": "approve"}]},
    {"decisions": [{"type": "reject", "message": "too much"}]},
]


async def program(saver, face):
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    asks = HumanInTheLoopMiddleware(interrupt_on={"refund": True, "look": False})
    agent = create_agent(ScriptedModel(script=SCRIPT), [refund, look], middleware=[asks], checkpointer=saver)
    config = {"configurable": {"thread_id": "hitl"}}
    results = [await face.invoke(agent, {"messages": [HumanMessage("go", id="h1")]}, config)]
    for answer in ANSWERS:
        results.append(await face.get_state(agent, config))
        results.append(await face.invoke(agent, Command(resume=answer), config))
    return [*results, await face.all(agent, "get_state_history", config)]
