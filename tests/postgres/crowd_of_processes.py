"""Writers of one pool, while other processes prune, collect, fork, delete and read.

    python crowd_of_processes.py URL SCHEMA SECONDS

Exits with 0 when every process did its work without any error, and everything acknowledged is there.
"""

import asyncio
import os
import random
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "durability"))

import lives

import threadline


def main():
    url, schema, seconds = sys.argv[1:]
    until = time.time() + float(seconds)

    def opened():
        return threadline.connect(url, schema=schema, pool_size=2)

    saver = opened()
    saver.put(*lives.put_arguments("origin", 0))
    for name in ("kept", "pruned", "deleted"):
        saver.copy_thread("origin", name)
    works = [
        lambda: keep_writing(opened(), "kept", until),
        lambda: asyncio.run(keep_awriting(opened(), "pruned", until)),
        lambda: keep_pruning(opened(), until),
        lambda: keep_forking(opened(), until),
        lambda: keep_deleting(opened(), until),
        lambda: keep_reading(opened(), until),
    ]
    # This process has a pool and connections already: a child must not touch them.
    codes = side_by_side(works)
    if any(codes):
        sys.exit(f"exit codes {codes}")
    check_everything(saver)
    saver.close()


def side_by_side(works):
    children = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                work()
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        children.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


def arguments(name, step):
    config, *rest = lives.put_arguments("origin", step)
    config["configurable"]["thread_id"] = name
    return config, *rest


def keep_writing(saver, name, until):
    step = 0
    while time.time() < until:
        step += 1
        saver.put(*arguments(name, step))
        if step % 3 == 0:
            config, writes, task_id = lives.write_arguments("origin", step, "task-a")
            config["configurable"]["thread_id"] = name
            saver.put_writes(config, writes, task_id)
    found = [lives.check_copy(one, "origin") for one in saver.list(lives.config(name))]
    assert found == list(range(step, -1, -1)), f"of {step} puts {len(found)} are there"


async def keep_awriting(saver, name, until):
    step = 0
    while time.time() < until:
        step += 1
        await saver.aput(*arguments(name, step))
    assert lives.check_copy(await saver.aget_tuple(lives.config(name)), "origin") == step
    await saver.aclose()


def keep_pruning(saver, until):
    while time.time() < until:
        saver.prune(["pruned"])
        check_all(saver, "pruned")


def keep_forking(saver, until):
    turn = 0
    while time.time() < until:
        turn += 1
        saver.copy_thread(random.choice(["kept", "pruned"]), f"fork-{turn}")
        check_all(saver, f"fork-{turn}")
        if turn > 3:
            saver.delete_thread(f"fork-{turn - 3}")


def keep_deleting(saver, until):
    turn = 0
    while time.time() < until:
        turn += 1
        saver.delete_thread("deleted")
        for step in range(turn % 3 + 1):
            config, *rest = lives.put_arguments("origin", step)
            config["configurable"] = {"thread_id": "deleted", "checkpoint_ns": ""}
            saver.put(config, *rest)
        newest = saver.get_tuple(lives.config("deleted"))
        assert newest.checkpoint == lives.checkpoint("origin", turn % 3)


def keep_reading(saver, until):
    while time.time() < until:
        for name in ("kept", "pruned"):
            assert lives.check_copy(saver.get_tuple(lives.config(name)), "origin") >= 0
        check_all(saver, "pruned")


def check_all(saver, thread_id):
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


if __name__ == "__main__":
    main()
