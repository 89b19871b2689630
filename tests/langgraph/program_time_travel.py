"""Going back: reading, replaying and branching from earlier checkpoints, and searching them."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class Story(TypedDict):
    lines: Annotated[list[str], operator.add]
    mood: str


def build():
    builder = StateGraph(Story)
    for name, after in (("open", START), ("turn", "open"), ("close", "turn")):
        builder.add_node(name, lambda state, name=name: {"lines": [f"{name} {state['mood']} {len(state['lines'])}"]})
        builder.add_edge(after, name)
    return builder


async def program(saver, face):
    graph = build().compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "story"}, "metadata": {"who": "ann", "tags": ["a", "b"]}}
    results = [await face.invoke(graph, {"lines": ["once"], "mood": "dark"}, config)]
    history = await face.all(graph, "get_state_history", config)
    opened = next(one for one in history if one.next == ("turn",))
    results.append(await face.get_state(graph, opened.config))
    results.append(await face.invoke(graph, None, opened.config))
    branch = await face.update_state(graph, opened.config, {"mood": "bright", "lines": ["then"]})
    results.append(await face.invoke(graph, None, branch))
    jumped = await face.update_state(graph, opened.config, {"lines": ["jump"]}, as_node="turn")
    results.append(await face.invoke(graph, None, jumped))
    results.append(await face.all(graph, "get_state_history", config))
    limited = {"filter": {"source": "update"}, "before": jumped, "limit": 2}
    results.append(await face.all(graph, "get_state_history", config, **limited))
    results.append(await face.all(graph, "get_state_history", config, filter={"who": "ann", "step": 1}))
    return results
