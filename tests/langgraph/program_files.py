"""An agent with files and a to-do list in its state, which hands work to a subagent, as deep agents do."""

from typing import Annotated, Literal, TypedDict

from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from scripted import ScriptedModel
from typing_extensions import NotRequired


class Todo(TypedDict):
    content: str
    status: Literal["pending", "done"]


class FileData(TypedDict):
    content: list[str]
    encoding: str


def merge_files(left, right):
    """Files that are written replace others of their name; None deletes one."""
    merged = {**(left or {}), **(right or {})}
    return {name: held for name, held in merged.items() if held is not None}


class Deep(MessagesState):
    files: Annotated[NotRequired[dict[str, FileData]], merge_files]
    todos: NotRequired[list[Todo]]


SCRIPT = [
    [{"name": "todos", "args": {"todos": ["plan", "write"]}}],
    [
        {"name": "write", "args": {"path": "/plan.md", "lines": 40}},
        {"name": "write", "args": {"path": "/tmp.md", "lines": 2}},
    ],
    [{"name": "delegate", "args": {"path": "/report.md"}}],
    [{"name": "delete", "args": {"path": "/tmp.md"}}],
    "done",
]
model = ScriptedModel(script=SCRIPT)


def think(state):
    return {"messages": [model.invoke(state["messages"])]}


def write(path, lines):
    return {path: {"content": [f"line {at} of {path}" for at in range(lines)], "encoding": "utf-8"}}


def build_subagent():
    builder = StateGraph(Deep)
    builder.add_node("work", lambda state: {"files": write("/report.md", len(state["files"]["/plan.md"]["content"]))})
    builder.add_edge(START, "work")
    return builder.compile()


subagent = build_subagent()


def use_tools(state):
    update = {"messages": [], "files": {}}
    for call in state["messages"][-1].tool_calls:
        args = call["args"]
        if call["name"] == "todos":
            update["todos"] = [{"content": one, "status": "pending"} for one in args["todos"]]
        elif call["name"] == "write":
            update["files"] |= write(args["path"], args["lines"])
        elif call["name"] == "delete":
            update["files"][args["path"]] = None
            update["todos"] = [{**one, "status": "done"} for one in state["todos"]]
        else:
            update["files"] |= subagent.invoke({"messages": [], "files": state["files"]})["files"]
        update["messages"].append(ToolMessage("ok", tool_call_id=call["id"], id=f"tool-{call['id']}"))
    return Command(update=update, goto="think")


def build():
    builder = StateGraph(Deep)
    builder.add_node("think", think)
    builder.add_node("tools", use_tools, destinations=("think",))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    return builder


async def program(saver, face):
    graph = build().compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "deep"}}
    final = await face.invoke(graph, {"messages": [HumanMessage("go", id="h1")]}, config)
    edited = {"files": write("/plan.md", 3)}
    await face.update_state(graph, config, edited)
    again = await face.invoke(graph, {"messages": [HumanMessage("more", id="h2")]}, config)
    return [final, again, await face.all(graph, "get_state_history", config)]
