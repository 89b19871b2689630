"""Programs that fork with a saver open.

    python forking.py SCENARIO URL sync|async

Exits with 0 when parent and children could do what a user would expect of them.
"""

import asyncio
import faulthandler
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback

import lives

import threadline


def main():
    scenario, url, half = sys.argv[1:]
    saver = threadline.connect(url, timeout=5.0)
    SCENARIOS[scenario](saver, Steps(saver, half))


class Steps:
    """Puts and reads through one half of a saver."""

    def __init__(self, saver, half):
        self.saver, self.half = saver, half

    def write(self, thread_id, first, last):
        if self.half == "sync":
            for step in range(first, last):
                self.saver.put(*lives.put_arguments(thread_id, step))
                self.saver.put_writes(*lives.write_arguments(thread_id, step, "task-a"))
            return

        async def write():
            for step in range(first, last):
                await self.saver.aput(*lives.put_arguments(thread_id, step))
                await self.saver.aput_writes(*lives.write_arguments(thread_id, step, "task-a"))

        asyncio.run(write())

    def check(self, thread_id, steps):
        if self.half == "sync":
            listed = list(self.saver.list(lives.config(thread_id)))
        else:

            async def collect():
                return [found async for found in self.saver.alist(lives.config(thread_id))]

            listed = asyncio.run(collect())
        assert [lives.check(found, thread_id) for found in listed] == list(reversed(range(steps)))


def in_child(work, *arguments):
    """Fork a child that does this and ends at once, as a worker of a pool does; gives its process id."""
    pid = os.fork()
    if pid:
        return pid
    faulthandler.dump_traceback_later(15, exit=True)
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def wait_for(*pids):
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(codes):
        sys.exit(f"children ended with {codes}")


def both_write(saver, steps):
    """Parent and children write at the same time; each sees its own, and in the end all see all."""
    steps.write("before", 0, 5)

    def child(name):
        steps.write(name, 0, 15)
        steps.check(name, 15)
        steps.check("before", 5)

    pids = [in_child(child, f"child-{n}") for n in range(3)]
    steps.write("parent", 0, 15)
    wait_for(*pids)
    for name in ("parent", "child-0", "child-1", "child-2"):
        steps.check(name, 15)
    steps.write("child-0", 15, 20)
    steps.check("child-0", 20)


def parent_closes(saver, steps):
    """The parent closes its saver; what its children are told afterwards is stored all the same."""
    steps.write("parent", 0, 5)
    ready, say_ready = os.pipe()
    gate, open_gate = os.pipe()

    def child():
        steps.write("child", 0, 5)
        os.write(say_ready, b".")
        os.read(gate, 1)
        steps.write("child", 5, 10)
        steps.check("child", 10)

    pid = in_child(child)
    os.read(ready, 1)
    saver.close()
    os.write(open_gate, b".")
    wait_for(pid)
    steps.saver = threadline.connect(sys.argv[2])
    steps.check("parent", 5)
    steps.check("child", 10)


def killed_child(saver, steps):
    """A child is killed while it writes; the parent goes on, and what the child was told is there."""
    steps.write("parent", 0, 5)
    told, tell = os.pipe()

    def child():
        for step in range(10_000):
            steps.write("child", step, step + 1)
            os.write(tell, b".")

    pid = in_child(child)
    acknowledged = sum(len(os.read(told, 1)) for _ in range(5))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    steps.write("parent", 5, 10)
    steps.check("parent", 10)
    for found in saver.list(lives.config("child")):
        acknowledged = max(acknowledged, lives.check(found, "child"))
    steps.write("child", acknowledged, acknowledged + 2)
    steps.check("child", acknowledged + 2)


def child_exits(saver, steps):
    """A child that ends like any program, with all that closes at exit, takes nothing from its parent."""
    steps.write("parent", 0, 5)
    pid = os.fork()
    if not pid:
        steps.write("child", 0, 5)
        sys.exit(0)
    steps.write("parent", 5, 10)
    wait_for(pid)
    steps.write("parent", 10, 15)
    for reader in (steps, Steps(threadline.connect(sys.argv[2]), steps.half)):
        reader.check("parent", 15)
        reader.check("child", 5)


def fork_while_writing(saver, steps):
    """Children forked in the middle of other threads' puts and reads can write and read at once."""
    steps.write("before", 0, 3)
    stop = threading.Event()
    errors = []

    def keep_writing(name):
        step = 0
        try:
            while not stop.is_set():
                saver.put(*lives.put_arguments(name, step))
                lives.check(saver.get_tuple(lives.config(name)), name)
                step += 1
        except BaseException as error:
            errors.append(error)

    def child(name):
        steps.write(name, 0, 3)
        steps.check(name, 3)
        steps.check("before", 3)

    writers = [threading.Thread(target=keep_writing, args=(f"writer-{n}",)) for n in range(3)]
    for writer in writers:
        writer.start()
    pids = []
    for n in range(10):
        time.sleep(0.007)
        pids.append(in_child(child, f"child-{n}"))
    try:
        wait_for(*pids)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not errors, errors
    if saver._engine.url.startswith("sqlite"):
        for n in range(10):
            steps.check(f"child-{n}", 3)
    else:
        assert all(info.thread_id.startswith(("before", "writer-")) for info in saver.threads())


def interrupted_fork(saver, steps):
    """Ctrl-C while a fork waits for a commit, which waits for another process: parent and child go on."""
    steps.write("parent", 0, 2)
    other = sqlite3.connect(sys.argv[2].removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=steps.write, args=("writer", 0, 1))
    writer.start()
    while not saver._engine._commit._turn.locked():
        time.sleep(0.001)

    def strike():
        while not saver._engine._commit._door.locked():
            time.sleep(0.001)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        other.execute("ROLLBACK")

    striking = threading.Thread(target=strike)
    striking.start()
    pid = in_child(lambda: steps.write("child", 0, 2))
    striking.join()
    writer.join()
    wait_for(pid)

    async def put():
        await saver.aput(*lives.put_arguments("parent", 2))

    asyncio.run(put())
    for name, count in (("parent", 3), ("child", 2), ("writer", 1)):
        steps.check(name, count)


SCENARIOS = {
    work.__name__: work
    for work in (both_write, parent_closes, killed_child, child_exits, fork_while_writing, interrupted_fork)
}

if __name__ == "__main__":
    main()
