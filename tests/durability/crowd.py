"""Many processes on one store, started together: each role is a function, each process a fork.

    python crowd.py ROLE URL OPTIONS [ARGUMENT …]

OPTIONS are those of `threadline.connect`, as JSON. Prints nothing and exits with 0 when every process did its
work without any error. `crowd_checks.py` starts it, and checks what it left.
"""

import asyncio
import json
import os
import random
import sys
import time
import traceback

import lives

import threadline
from threadline.base.drive import run_now

PROCESSES = 8
HALVES = {"sync": run_now, "async": asyncio.run}


def main():
    role, url, options, *arguments = sys.argv[1:]
    ROLES[role](lambda suffix="": threadline.connect(url + suffix, **json.loads(options)), *arguments)


def side_by_side(*works):
    """Run each work in a process of its own, let go at one moment; exits when one of them failed."""
    gate, opener = os.pipe()
    children = []
    for work, *arguments in works:
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            os.read(gate, 1)
            code = 0
            try:
                work(*arguments)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        children.append(pid)
    os.close(opener)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if any(codes):
        sys.exit(f"exit codes {codes}")


def in_half(name, work, *arguments):
    """Run a work that reaches its saver by `call` alone."""
    HALVES[name](work(name, *arguments))


async def call(half, saver, verb, *arguments):
    """What `saver.verb(…)` gives, or its `a` twin; a `list` is read to its end."""
    found = getattr(saver, verb if half == "sync" else f"a{verb}")(*arguments)
    if verb == "list":
        return list(found) if half == "sync" else [each async for each in found]
    return found if half == "sync" else await found


def alternating(number):
    return tuple(HALVES)[number % 2]


def puts(connect, count):
    """Every process puts its own thread, every second one by the async half; all meet in one more thread."""
    side_by_side(
        *((in_half, alternating(n), put_many, connect, f"writer-{n}", int(count)) for n in range(PROCESSES)),
    )


async def put_many(half, connect, thread_id, count):
    saver = connect()
    for step in range(count):
        await call(half, saver, "put", *lives.put_arguments(*place(thread_id, step)))


def place(thread_id, step):
    """Every tenth put goes to the thread that all share."""
    return ("shared", step // 10, thread_id) if step % 10 == 9 else (thread_id, step - step // 10)


def openings(connect, half, turns):
    """All processes open a store that does not exist, several times over."""
    for turn in range(int(turns)):
        side_by_side(*((in_half, half, open_and_put, connect, turn, f"opener-{n}") for n in range(PROCESSES)))


async def open_and_put(half, connect, turn, thread_id):
    await put_and_read(half, connect(f"-{turn}"), thread_id)


def setups(connect, count):
    """All processes set up and use a store that does not exist, every second one by the async half."""
    side_by_side(*((in_half, alternating(n), set_up_and_put, connect, f"opener-{n}") for n in range(int(count))))


async def set_up_and_put(half, connect, thread_id):
    saver = connect()
    await call(half, saver, "setup")
    await put_and_read(half, saver, thread_id)
    await call(half, saver, "close")


async def put_and_read(half, saver, thread_id):
    await call(half, saver, "put", *lives.put_arguments(thread_id, 0))
    assert lives.check(await call(half, saver, "get_tuple", lives.config(thread_id)), thread_id) == 0


def race(connect, acks, seconds):
    """Writers of one pool, while others prune, collect, fork, delete and read."""
    begin(connect).close()
    contend(connect, acks, seconds, "sync")


def race_of_children(connect, acks, seconds):
    """The same, while the parent has connections that no child may touch; one writer is async.

    In the end the parent reads all, and deletes it.
    """
    saver = begin(connect)
    contend(connect, acks, seconds, "async")
    check_everything(saver)
    saver.close()


def begin(connect):
    saver = connect()
    saver.put(*lives.put_arguments("origin", 0))
    for name in ("kept", "pruned", "deleted"):
        saver.copy_thread("origin", name)
    return saver


def contend(connect, acks, seconds, half):
    until = time.time() + float(seconds)
    side_by_side(
        (in_half, "sync", keep_writing, connect, "kept", f"{acks}.kept", until),
        (in_half, half, keep_writing, connect, "pruned", f"{acks}.pruned", until),
        (keep_pruning, connect, until),
        (keep_forking, connect, until),
        (keep_deleting, connect, until),
        (keep_reading, connect, until),
    )


async def keep_writing(half, connect, name, path, until):
    """Write steps of `origin` into one of its forks; remember how far that went, and find it there."""
    saver, step = connect(), 0
    with open(path, "w") as acks:
        while time.time() < until:
            step += 1
            config, *rest = lives.put_arguments("origin", step)
            config["configurable"]["thread_id"] = name
            await call(half, saver, "put", config, *rest)
            if step % 3 == 0:
                config, writes, task_id = lives.write_arguments("origin", step, "task-a")
                config["configurable"]["thread_id"] = name
                await call(half, saver, "put_writes", config, writes, task_id)
            acks.write(f"{step}\n")
            acks.flush()
    newest = await call(half, saver, "get_tuple", lives.config(name))
    check_written(name, step, newest, await call(half, saver, "list", lives.config(name)))
    await call(half, saver, "close")


def check_written(name, last, newest, found):
    """The last step that was acknowledged is the newest, and where nobody prunes, all before it are there."""
    assert lives.check_copy(newest, "origin") == last
    steps = [lives.check_copy(one, "origin") for one in found]
    assert max(steps) == last
    if name == "kept":
        assert steps == list(range(last, -1, -1)), f"of {last} puts {len(steps)} are there"


def keep_pruning(connect, until):
    saver = connect()
    while time.time() < until:
        saver.prune(["pruned"])
        check_all(saver, "pruned")


def keep_forking(connect, until):
    saver, turn = connect(), 0
    while time.time() < until:
        turn += 1
        saver.copy_thread(random.choice(["kept", "pruned"]), f"fork-{turn}")
        check_all(saver, f"fork-{turn}")
        if turn > 3:
            saver.delete_thread(f"fork-{turn - 3}")


def keep_deleting(connect, until):
    """Delete a thread and begin it anew, over and over: with the very values that others collect."""
    saver, turn = connect(), 0
    while time.time() < until:
        turn += 1
        saver.delete_thread("deleted")
        for step in range(turn % 3 + 1):
            config, *rest = lives.put_arguments("origin", step)
            config["configurable"] = {"thread_id": "deleted", "checkpoint_ns": ""}
            saver.put(config, *rest)
        newest = saver.get_tuple(lives.config("deleted"))
        assert newest.checkpoint == lives.checkpoint("origin", turn % 3)


def keep_reading(connect, until):
    saver = connect()
    while time.time() < until:
        for name in ("kept", "pruned"):
            assert lives.check_copy(saver.get_tuple(lives.config(name)), "origin") >= 0
        check_all(saver, "pruned")


def check_all(saver, thread_id):
    """Everything a list yields is whole."""
    for found in saver.list(lives.config(thread_id)):
        lives.check_copy(found, "origin")


def check_everything(saver):
    """All is readable; when every thread is deleted, no chunk is left."""
    for info in list(saver.threads()):
        found = list(saver.list(info.config))
        assert found, info.thread_id
        for one in found:
            if info.thread_id == "deleted":  # its checkpoints were put without a parent
                assert dict(one.checkpoint["channel_values"]) == lives.values("origin", one.metadata["step"])
            else:
                lives.check_copy(one, "origin")
    for info in list(saver.threads()):
        saver.delete_thread(info.thread_id)
    left = saver._engine.run(lambda backend: backend.pools(0, 100))
    assert left == [], f"pools left behind: {left}"


ROLES = {
    "puts": puts,
    "openings": openings,
    "setups": setups,
    "race": race,
    "race_of_children": race_of_children,
}

if __name__ == "__main__":
    main()
