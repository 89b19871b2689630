"""Writers of items that are killed: forks children, and ends each with SIGKILL at a random moment.

    python item_writer.py URL ACKS KILLS SEED [OPTIONS]

OPTIONS is JSON of options for the store. Each life puts numbers under its keys, alone and in batches with a history,
and appends a line to ACKS after each call that returned. The last line printed is the number of kills.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import traceback

import threadline
from threadline import PutOp

KEYS = ("alpha", "beta", "gamma")


def main():
    path, acks, kills, seed = sys.argv[1:5]
    options = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    dice = random.Random(int(seed))
    for life in range(int(kills)):
        written = os.path.getsize(acks) if os.path.exists(acks) else 0
        pid = os.fork()
        if pid == 0:
            live(path, acks, options)
        if dice.random() < 0.8:
            wait_for_growth(acks, written)
        time.sleep(dice.uniform(0, 0.012))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"life {life} failed by itself, with exit code {os.waitstatus_to_exitcode(status)}")
    print(kills)


def wait_for_growth(acks, size):
    deadline = time.monotonic() + 20
    while not os.path.exists(acks) or os.path.getsize(acks) <= size:
        if time.monotonic() > deadline:
            sys.exit("a writer wrote nothing for 20 seconds")
        time.sleep(0.0005)


def live(path, acks, options):
    """One life; never returns."""
    try:
        log = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        store = threadline.Store(path, keep_versions=3, index_fields=("n",), **options)
        for key in KEYS:
            threading.Thread(target=guarded, args=(write, store, key, log)).start()
        time.sleep(60)
    except BaseException:
        traceback.print_exc()
    os._exit(3)


def guarded(work, *arguments):
    try:
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(3)


def write(store, key, log):
    """Go on from the number that is there; a batch puts the same number under two names."""
    there = store.get(("numbers",), key)
    number = there.value["n"] + 1 if there is not None else 0
    while True:
        copy = {"n": number, "pad": "x" * 3000}
        store.batch([PutOp(("numbers",), key, {"n": number}), PutOp(("copies", key), "same", copy)])
        os.write(log, f"{key} {number}\n".encode())
        number += 1


if __name__ == "__main__":
    main()
