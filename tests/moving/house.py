"""A store with something of everything that must survive a move, and a picture of all that callers can see of it."""

import threadline
from threadline.core.lifecycle import living

ROOT = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
INTERRUPT = "__interrupt__"


def config(thread_id, namespace="", checkpoint_id=None):
    place = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return {"configurable": {**place, **({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}}


def put(saver, at, values, step, **metadata):
    """Put a checkpoint after the one that `at` names; gives its config."""
    made = threadline.empty_checkpoint()
    made["channel_values"] = dict(values)
    made["channel_versions"] = {name: step + 1 for name in values}
    return saver.put(at, made, {"source": "loop", "step": step, **metadata}, made["channel_versions"])


def grow(saver, at, first, steps, edits=()):
    """Let a list grow by one message a step, so that packs and pointers come about."""
    words = [f"{n}: " + f"word {n} " * 30 for n in range(first)]
    for step in range(first, first + steps):
        words = [*words, f"{step}: " + f"word {step} " * 30]
        if step in edits:
            words[step // 2] = f"edited at {step}"
        at = put(saver, at, {"messages": words, "count": step}, step, user="ann" if step % 2 else "bob")
    return at


def furnish(saver, steps=90):
    """Fill a store: long lists, an edit in the middle, large values, a subgraph, writes, a fork, tags, an archive."""
    at = grow(saver, ROOT, 0, steps, edits=(steps - 3,))
    saver.put_writes(at, [("count", 7), ("messages", ["x" * 5000])], "task-1", "~path, 1")
    saver.put_writes(at, [(INTERRUPT, [{"value": "go on?", "id": "q1"}])], "task-2")
    root_id = at["configurable"]["checkpoint_id"]
    large = {"blob": "0123456789" * 9000, "deep": {"rows": [{"n": n, "t": "text " * 20} for n in range(300)]}}
    below = put(saver, config("a", "child:1"), large, 0, parents={"": root_id})
    saver.put_writes(below, [("blob", "y")], "task-3")
    fork = saver.thread("a").fork("head~3", to="a-fork")
    assert fork is not None
    grow(saver, config("a-fork"), 3, 2)
    saver.thread("a").tag("good", at="head~1")
    saver.thread("a").pin(at="head~2")
    saver.thread("b").create(metadata={"org": "x", "weight": 3}, ttl=86400 * 365)
    grow(saver, config("b"), 0, 3)
    grow(saver, config("org-1/c"), 0, 2)
    saver.thread("org-1/c").archive()
    # Writes that overtook a checkpoint which never came.
    saver.put_writes(config("d", "", "1f0f0000-0000-6000-8000-000000000000"), [("count", 1)], "task-9")
    return saver


def shown(found):
    value = found.checkpoint
    return (
        found.config["configurable"],
        found.parent_config["configurable"] if found.parent_config else None,
        {**value, "channel_values": dict(value["channel_values"])},
        found.metadata,
        [(task, channel, repr(written)) for task, channel, written in found.pending_writes or ()],
    )


def picture(saver, prefix=""):
    """All that callers see of a store's threads, with every time and id."""
    threads = {}
    for info in saver.threads(prefix=prefix):
        threads[info.thread_id] = (
            (info.status, info.created, info.last_active, info.expires, info.forked_from, dict(info.metadata)),
            [shown(found) for found in saver.list({"configurable": {"thread_id": info.thread_id}})],
            saver.run(living, info.thread_id).tags,
        )
    asked = [(one.thread_id, one.checkpoint_id, one.interrupt_id, one.value) for one in saver.interrupts(prefix=prefix)]
    return threads, asked


def is_sound(saver):
    """Whether every checkpoint, write and chunk of a store can be read."""
    report = saver.fsck()
    assert report.ok, str(report)
    return True
