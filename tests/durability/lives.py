"""Histories that can be made again: what a thread holds at a step follows from its name and the step alone.

So a test that was told of a put by a process which is dead by now knows, byte by byte, what must be there.
`messages` changes at every step, `files` at every fifth, `count` is small and lives in the document.
"""

import random
from functools import lru_cache

WINDOW = 40
TASKS = ("task-a", "task-b")


def config(thread_id, checkpoint_id=None, namespace=""):
    configurable = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def id_of(step):
    return f"10000000-0000-6000-8000-{step:012d}"


def step_of(checkpoint_id):
    return int(checkpoint_id.rpartition("-")[2])


@lru_cache(maxsize=20_000)
def text(*seed):
    return random.Random(repr(seed)).randbytes(150).hex()


def message(thread_id, number):
    return {"id": f"{thread_id}/{number}", "content": text(thread_id, number), "tokens": number}


def values(thread_id, step):
    return {
        "messages": [message(thread_id, number) for number in range(max(0, step - WINDOW), step + 1)],
        "files": {f"file-{n}": text(thread_id, "file", n, step // 5 if n == step // 5 % 4 else 0) for n in range(4)},
        "count": step,
    }


def versions(step):
    return {"messages": step + 1, "files": step // 5 + 1, "count": step + 1}


def checkpoint(thread_id, step):
    return {
        "v": 4,
        "id": id_of(step),
        "ts": f"2026-01-01T00:00:00.{step:06d}+00:00",
        "channel_values": values(thread_id, step),
        "channel_versions": versions(step),
        "versions_seen": {"node": versions(step)},
        "updated_channels": None,
    }


def changed(step):
    """The versions that are new at a step; the others are taken over from its parent."""
    before = versions(step - 1) if step else {}
    return {name: version for name, version in versions(step).items() if before.get(name) != version}


def put_arguments(thread_id, step, namespace=""):
    parent = id_of(step - 1) if step else None
    metadata = {"source": "loop", "step": step, "note": text(thread_id, "note", step)[:20]}
    return config(thread_id, parent, namespace), checkpoint(thread_id, step), metadata, changed(step)


def written(thread_id, step, task_id):
    """What a task writes at a step: one value in chunks, one small, one special."""
    return [
        ("messages", [message(thread_id, step), text(thread_id, task_id, step)]),
        ("count", {"step": step, "task": task_id}),
        ("__interrupt__", [f"{thread_id} waits at {step}"]),
    ]


def write_arguments(thread_id, step, task_id, namespace=""):
    return config(thread_id, id_of(step), namespace), written(thread_id, step, task_id), task_id


def check(found, thread_id):
    """A tuple that was read is exactly what was put, and its writes are whole; returns its step."""
    assert found.config["configurable"]["thread_id"] == thread_id
    step = step_of(found.checkpoint["id"])
    _, expected, metadata, _ = put_arguments(thread_id, step)
    assert {**found.checkpoint, "channel_values": dict(found.checkpoint["channel_values"])} == expected
    assert found.metadata == metadata
    parent = found.parent_config and found.parent_config["configurable"]["checkpoint_id"]
    assert parent == (id_of(step - 1) if step else None)
    check_writes(found.pending_writes, thread_id, step)
    return step


def check_writes(pending, thread_id, step):
    """Of each task all writes are there, or none; returns the tasks that have written."""
    by_task = {}
    for task_id, channel, value in pending or ():
        by_task.setdefault(task_id, {})[channel] = value
    for task_id, found in by_task.items():
        assert found == dict(written(thread_id, step, task_id))
    return set(by_task)


def check_copy(found, origin):
    """A tuple of a copied thread is exactly what its origin was given."""
    configurable = {**found.config["configurable"], "thread_id": origin}
    return check(found._replace(config={"configurable": configurable}), origin)
