"""Many processes on one file, started together: each role is a function, each process a fork.

    python crowd.py ROLE DATABASE [ARGUMENT …]

Prints nothing and exits with 0 when every process did its work without any error.
"""

import asyncio
import os
import random
import sys
import time
import traceback

import lives

import threadline

PROCESSES = 8


def main():
    role, path, *arguments = sys.argv[1:]
    ROLES[role](path, *arguments)


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


def puts(path, count):
    """Every process puts its own thread, every second one by the async half; all meet in one more thread."""
    side_by_side(*((put_many, path, f"writer-{n}", int(count), ("sync", "async")[n % 2]) for n in range(PROCESSES)))


def put_many(path, thread_id, count, half):
    saver = threadline.connect(path)
    if half == "sync":
        for step in range(count):
            saver.put(*lives.put_arguments(*place(thread_id, step)))
        return

    async def put():
        for step in range(count):
            await saver.aput(*lives.put_arguments(*place(thread_id, step)))

    asyncio.run(put())


def place(thread_id, step):
    """Every tenth put goes to the thread that all share."""
    return ("shared", step // 10, thread_id) if step % 10 == 9 else (thread_id, step - step // 10)


def openings(path, half):
    """All processes open a file that does not exist, several times over."""
    for turn in range(6):
        side_by_side(*((open_and_put, f"{path}-{turn}", f"opener-{n}", half) for n in range(PROCESSES)))


def open_and_put(path, thread_id, half):
    saver = threadline.connect(path)
    if half == "sync":
        saver.put(*lives.put_arguments(thread_id, 0))
        found = saver.get_tuple(lives.config(thread_id))
    else:

        async def put():
            await saver.aput(*lives.put_arguments(thread_id, 0))
            return await saver.aget_tuple(lives.config(thread_id))

        found = asyncio.run(put())
    assert lives.check(found, thread_id) == 0


def race(path, seconds):
    """Writers of one pool, while others prune, collect, fork, delete and read."""
    until = time.time() + float(seconds)
    saver = threadline.connect(path)
    saver.put(*lives.put_arguments("origin", 0))
    for name in ("kept", "pruned", "deleted"):
        saver.copy_thread("origin", name)
    saver.close()
    side_by_side(
        (keep_writing, path, "kept", until),
        (keep_writing, path, "pruned", until),
        (keep_pruning, path, until),
        (keep_forking, path, until),
        (keep_deleting, path, until),
        (keep_reading, path, until),
    )


def keep_writing(path, name, until):
    """Write steps of `origin` into one of its forks; remember how far that went."""
    saver, step = threadline.connect(path), 0
    with open(f"{path}.{name}", "w") as acks:
        while time.time() < until:
            step += 1
            config, *rest = lives.put_arguments("origin", step)
            config["configurable"]["thread_id"] = name
            saver.put(config, *rest)
            if step % 3 == 0:
                config, writes, task_id = lives.write_arguments("origin", step, "task-a")
                config["configurable"]["thread_id"] = name
                saver.put_writes(config, writes, task_id)
            acks.write(f"{step}\n")
            acks.flush()


def keep_pruning(path, until):
    saver = threadline.connect(path)
    while time.time() < until:
        saver.prune(["pruned"])
        check_all(saver, "pruned")


def keep_forking(path, until):
    saver, turn = threadline.connect(path), 0
    while time.time() < until:
        turn += 1
        saver.copy_thread(random.choice(["kept", "pruned"]), f"fork-{turn}")
        check_all(saver, f"fork-{turn}")
        if turn > 3:
            saver.delete_thread(f"fork-{turn - 3}")


def keep_deleting(path, until):
    """Delete a thread and begin it anew, over and over: with the very values that others collect."""
    saver, turn = threadline.connect(path), 0
    while time.time() < until:
        turn += 1
        saver.delete_thread("deleted")
        for step in range(turn % 3 + 1):
            config, *rest = lives.put_arguments("origin", step)
            config["configurable"] = {"thread_id": "deleted", "checkpoint_ns": ""}
            saver.put(config, *rest)
        newest = saver.get_tuple(lives.config("deleted"))
        assert newest.checkpoint == lives.checkpoint("origin", turn % 3)


def keep_reading(path, until):
    saver = threadline.connect(path)
    while time.time() < until:
        for name in ("kept", "pruned"):
            assert lives.check_copy(saver.get_tuple(lives.config(name)), "origin") >= 0
        check_all(saver, "pruned")


def check_all(saver, thread_id):
    """Everything a list yields is whole."""
    for found in saver.list(lives.config(thread_id)):
        lives.check_copy(found, "origin")


ROLES = {"puts": puts, "openings": openings, "race": race}

if __name__ == "__main__":
    main()
