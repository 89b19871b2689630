"""A ReAct agent with tools that run side by side, over two turns."""

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from scripted import ScriptedModel


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def lookup(city: str) -> dict:
    """Say what is known of a city."""
    return {"city": city, "people": len(city) * 1000, "tags": ["big", "old"]}


SCRIPT = [
    [{"name": "add", "args": {"a": 2, "b": 3}}, {"name": "lookup", "args": {"city": "Köln"}}],
    [{"name": "lookup", "args": {"city": "Bonn"}}],
    "done",
]


async def program(saver, face):
    from langchain.agents import create_agent

    agent = create_agent(ScriptedModel(script=SCRIPT), [add, lookup], checkpointer=saver, system_prompt="be brief")
    config = {"configurable": {"thread_id": "react"}}
    first = await face.invoke(agent, {"messages": [HumanMessage("go", id="h1")]}, config)
    second = await face.invoke(agent, {"messages": [HumanMessage("again", id="h2")]}, config)
    history = await face.all(agent, "get_state_history", config)
    return [first, second, history]
