"""Work under a limit that a test cannot set for itself: another user's rights, or a bound on the size of files.

    python limited.py nobody|size:BYTES SCENARIO PATH sync|async

Prints the class and the message of the error that the scenario ran into, or `no error`.
"""

import asyncio
import os
import resource
import sys
import urllib.parse  # noqa: F401 - what is loaded later must be readable to the other user, too

import threadline


def main():
    limit, scenario, path, half = sys.argv[1:]
    warm_up(half)
    if limit == "nobody":
        if os.getuid() == 0:  # anybody else has no rights to give up, and is refused as they are
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
    else:
        size = int(limit.removeprefix("size:"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        SCENARIOS[scenario](path, half)
    except threadline.ThreadlineError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("no error")


def warm_up(half):
    """Load all that is loaded on first use: another user may not be able to read this one's Python."""
    saver = threadline.connect(":memory:")
    call(saver, half, "put", config("t"), checkpoint(1), {"step": 1}, {"text": 1})
    call(saver, half, "get_tuple", config("t"))
    list(saver.list(config("t")))


def call(saver, half, verb, *arguments):
    if half == "sync":
        return getattr(saver, verb)(*arguments)

    async def awaited():
        return await getattr(saver, f"a{verb}")(*arguments)

    return asyncio.run(awaited())


def config(thread_id):
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def checkpoint(number):
    return {
        "v": 4,
        "id": f"{number:08d}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"text": os.urandom(30_000)},
        "channel_versions": {"text": number},
        "versions_seen": {},
    }


def put(path, half):
    call(threadline.connect(path, timeout=2.0), half, "put", config("new"), checkpoint(1), {"step": 1}, {"text": 1})


def get(path, half):
    """Open like any program that only reads, without saying that it only reads."""
    found = call(threadline.connect(path, timeout=2.0), half, "get_tuple", config("kept"))
    assert found is not None


def read_only(path, half):
    saver = threadline.connect(path, timeout=2.0, read_only=True)
    found = call(saver, half, "get_tuple", config("kept"))
    assert found is not None


def fill(path, half):
    """Put until there is no room; what was acknowledged before is readable afterwards, in this process too."""
    saver = threadline.connect(path, timeout=2.0)
    acknowledged = []
    try:
        for number in range(1, 10_000):
            call(saver, half, "put", config("filling"), checkpoint(number), {"step": number}, {"text": number})
            acknowledged.append(f"{number:08d}")
    finally:
        listed = [
            dict(found.checkpoint["channel_values"]) and found.checkpoint["id"]
            for found in saver.list(config("filling"))
        ]
        assert listed == acknowledged[::-1], (len(listed), len(acknowledged))
        print(len(acknowledged))


SCENARIOS = {work.__name__: work for work in (put, get, read_only, fill)}

if __name__ == "__main__":
    main()
