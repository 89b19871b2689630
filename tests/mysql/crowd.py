"""Many processes on one store, started together: each role is a function, each process a fork.

    python crowd.py ROLE URL PREFIX [ARGUMENT …]

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


def main():
    role, url, prefix, *arguments = sys.argv[1:]
    ROLES[role](lambda: threadline.connect(url, table_prefix=prefix, pool_size=3), *arguments)


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


def openings(connect, count):
    """All processes set up and use a store that does not exist, every second one by the async half."""
    side_by_side(*((open_and_put, connect, f"opener-{n}", n % 2) for n in range(int(count))))


def open_and_put(connect, thread_id, is_async):
    saver = connect()
    if not is_async:
        saver.setup()
        saver.put(*lives.put_arguments(thread_id, 0))
        found = saver.get_tuple(lives.config(thread_id))
    else:

        async def put():
            await saver.asetup()
            await saver.aput(*lives.put_arguments(thread_id, 0))
            found = await saver.aget_tuple(lives.config(thread_id))
            await saver.aclose()
            return found

        found = asyncio.run(put())
    assert lives.check(found, thread_id) == 0


def race(connect, acks, seconds):
    """Writers of one pool, while others prune, collect, fork, delete and read."""
    until = time.time() + float(seconds)
    saver = connect()
    saver.put(*lives.put_arguments("origin", 0))
    for name in ("kept", "pruned", "deleted"):
        saver.copy_thread("origin", name)
    saver.close()
    side_by_side(
        (keep_writing, connect, "kept", f"{acks}.kept", until),
        (keep_writing, connect, "pruned", f"{acks}.pruned", until),
        (keep_pruning, connect, until),
        (keep_forking, connect, until),
        (keep_deleting, connect, until),
        (keep_reading, connect, until),
    )


def keep_writing(connect, name, path, until):
    """Write steps of `origin` into one of its forks; remember how far that went."""
    saver, step = connect(), 0
    with open(path, "w") as acks:
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


ROLES = {"openings": openings, "race": race}

if __name__ == "__main__":
    main()
