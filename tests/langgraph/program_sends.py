"""A fan-out whose Sends carry models; one of them asks a person, one fails first."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel


class Job(BaseModel):
    number: int
    labels: list[str]
    parent: "Job | None" = None


class State(TypedDict):
    jobs: list[Job]
    done: Annotated[list[str], operator.add]


async def program(saver, face):
    failed = []

    def work(job):
        if job.number == 2:
            answer = interrupt({"job": job.number})
            return {"done": [f"{job.number} {answer}"]}
        if job.number == 3 and not failed:
            failed.append(job.number)
            raise ValueError("the third job has a cold")
        return {"done": [f"{job.number} {'+'.join(job.labels)} {job.parent.number if job.parent else '-'}"]}

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"jobs": state["jobs"]})
    builder.add_node("work", work)
    builder.add_node("join", lambda state: {"done": [f"joined {len(state['done'])}"]})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("work", job) for job in state["jobs"]], ["work"])
    builder.add_edge("work", "join")
    graph = builder.compile(checkpointer=saver, interrupt_before=["work"])
    config = {"configurable": {"thread_id": "sends"}}
    root = Job(number=0, labels=["root"])
    jobs = [Job(number=at, labels=[f"l{at}", "all"], parent=root) for at in range(5)]
    results = [await face.invoke(graph, {"jobs": jobs, "done": []}, config)]
    results.append(await face.get_state(graph, config))
    graph = builder.compile(checkpointer=saver)
    try:
        await face.invoke(graph, None, config)
    except ValueError as error:
        results.append(error)
    results.append(await face.invoke(graph, None, config))
    results.append(await face.invoke(graph, Command(resume="yes"), config))
    return [*results, (await face.get_state(graph, config)).values, failed]
