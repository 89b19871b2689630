"""Writers that are killed: forks children of one small interpreter, and ends each with SIGKILL at a random moment.

    python crash_writer.py DATABASE ACKS sync|async write|prune KILLS SEED

A child appends a line to the file ACKS after each call that returned; the line outlives it. It reads and
checks the head of every thread before it goes on, so a life also inspects what the kill before it left.
The last line printed is the number of kills.
"""

import asyncio
import os
import random
import signal
import sys
import threading
import time
import traceback

import lives

import threadline

THREADS = ("alpha", "beta", "gamma")


def main():
    path, acks, half, mode, kills, seed = sys.argv[1:]
    dice = random.Random(int(seed))
    newest = dict.fromkeys(THREADS, -1)  # the last step of each thread that was acknowledged so far
    for life in range(int(kills)):
        written_before = os.path.getsize(acks) if os.path.exists(acks) else 0
        pid = os.fork()
        if pid == 0:
            live(path, acks, half, mode, life, newest)
        # One life in five may be killed while it opens the database; the others have written for a while, which is
        # counted in calls that returned: how long these take is the machine's business.
        if dice.random() < 0.8:
            wait_for_growth(acks, written_before, pid, dice.randint(1, 9))
        time.sleep(dice.uniform(0, 0.012))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"life {life} failed by itself, with exit code {os.waitstatus_to_exitcode(status)}")
        note_acknowledged(acks, written_before, newest)
    print(kills)


def wait_for_growth(acks, size, pid, lines):
    """Wait until the child was told of so many calls, or has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if os.path.exists(acks) and lines_after(acks, size) >= lines:
            return
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.0005)
    sys.exit("a writer wrote nothing for 20 seconds")


def lines_after(acks, start):
    with open(acks, "rb") as file:
        file.seek(start)
        return file.read().count(b"\n")


def note_acknowledged(acks, start, newest):
    if os.path.exists(acks):
        with open(acks) as lines:
            lines.seek(start)
            for kind, thread_id, step, *_ in map(str.split, lines):
                if kind == "put":
                    newest[thread_id] = max(newest[thread_id], int(step))


def live(path, acks, half, mode, life, newest):
    """One life; never returns."""
    try:
        log = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        saver = threadline.connect(path)
        if mode == "prune":
            threading.Thread(target=guarded, args=(tidy, saver, life)).start()
        if half == "sync":
            for name in THREADS:
                threading.Thread(target=guarded, args=(write, saver, name, log, newest)).start()
            time.sleep(60)
        else:
            asyncio.run(write_all(saver, log, newest))
    except BaseException:
        traceback.print_exc()
    os._exit(3)


def guarded(work, *arguments):
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(3)


def write(saver, thread_id, log, newest):
    head = saver.get_tuple(lives.config(thread_id))
    step = next_step(head, thread_id, newest)
    while True:
        if step % 2:  # writes may come before their checkpoint
            saver.put_writes(*lives.write_arguments(thread_id, step, "task-a"))
            acknowledge(log, "write", thread_id, step, "task-a")
        saver.put(*lives.put_arguments(thread_id, step))
        acknowledge(log, "put", thread_id, step)
        saver.put_writes(*lives.write_arguments(thread_id, step, "task-b"))
        acknowledge(log, "write", thread_id, step, "task-b")
        step += 1


def next_step(head, thread_id, newest):
    """Where to go on. The head is whole, and not before what an earlier life was told."""
    step = lives.check(head, thread_id) if head else -1
    assert step >= newest[thread_id], f"{thread_id}: step {newest[thread_id]} was acknowledged, the head is {step}"
    return step + 1


async def write_all(saver, log, newest):
    await asyncio.gather(*(awrite(saver, name, log, newest) for name in THREADS))


async def awrite(saver, thread_id, log, newest):
    head = await saver.aget_tuple(lives.config(thread_id))
    step = next_step(head, thread_id, newest)
    while True:
        if step % 2:
            await saver.aput_writes(*lives.write_arguments(thread_id, step, "task-a"))
            acknowledge(log, "write", thread_id, step, "task-a")
        await saver.aput(*lives.put_arguments(thread_id, step))
        acknowledge(log, "put", thread_id, step)
        await saver.aput_writes(*lives.write_arguments(thread_id, step, "task-b"))
        acknowledge(log, "write", thread_id, step, "task-b")
        step += 1


def tidy(saver, life):
    """Prune, fork and delete for as long as the life lasts."""
    for turn in range(10_000):
        copied = f"copy-{life}-{turn}"
        try:
            saver.copy_thread("alpha", copied)
        except threadline.NotFound:
            time.sleep(0.001)
            continue
        saver.prune(["alpha", copied])
        if turn % 2:
            saver.delete_thread(copied)


def acknowledge(log, *words):
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


if __name__ == "__main__":
    main()
