"""Runs a graph in children that are killed. Reads `thread log` lines; a child writes to the log what it did.

The interpreter imports everything once and forks for each run, so that a kill at a random time hits the run and not the
imports. Nothing is open in it when it forks.
"""

from __future__ import annotations

import operator
import os
import sys
import time
from typing import Annotated, Any

from typing_extensions import TypedDict

import threadline
from threadline.graph import START, Runtime, StateGraph

NODES = ("n1", "n2", "n3", "n4", "n5")


class State(TypedDict, total=False):
    l: Annotated[list, operator.add]


def note(path: str, line: str) -> None:
    """Append a line in one write: a kill leaves all of it or nothing."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def noting(saver: Any, log: str) -> Any:
    """The saver, which notes what it has acknowledged: tasks by what they wrote to the state."""

    class Noting(type(saver)):  # type: ignore[misc]
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            super().put_writes(config, writes, task_id, task_path)
            for channel, value in writes:
                if channel == "l" and value:
                    note(log, f"stored {value[0]}")

        def put_batch(self, items: Any) -> None:
            super().put_batch(items)
            for item in items:
                for channel, value in item[2] if item[0] == "put_writes" else ():
                    if channel == "l" and value:
                        note(log, f"stored {value[0]}")

    if not hasattr(type(saver), "put_batch"):
        del Noting.put_batch
    saver.__class__ = Noting
    return saver


def build(saver: Any, log: str) -> Any:
    def node(name: str) -> Any:
        def act(state: State, runtime: Runtime) -> Any:
            note(log, f"ran {name}")
            runtime.once("effect", lambda: note(log, f"effect {name}"))
            note(log, f"kept {name}")
            time.sleep(0.003)
            return {"l": [name]}

        return act

    builder = StateGraph(State)
    for name in NODES:
        builder.add_node(name, node(name))
    # Two side by side in the middle, so that a kill also finds a step half done.
    for source, target in ((START, "n1"), ("n1", "n2"), ("n1", "n3"), ("n4", "n5")):
        builder.add_edge(source, target)
    builder.add_edge(["n2", "n3"], "n4")
    return builder.compile(checkpointer=saver)


def run(url: str, thread: str, log: str) -> None:
    saver = noting(threadline.connect(url), log)
    graph = build(saver, log)
    config = {"configurable": {"thread_id": thread}}
    begun = graph.get_state(config).created_at is not None
    output = graph.invoke(None if begun else {"l": []}, config, durability="sync")
    note(log, f"done {' '.join(output['l'])}")


def main(url: str) -> None:
    build(None, "/dev/null")
    for line in sys.stdin:
        thread, log = line.split()
        child = os.fork()
        if child == 0:
            try:
                run(url, thread, log)
            except BaseException as error:
                note(log, f"failed {type(error).__name__} {error}")
                os._exit(1)
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
