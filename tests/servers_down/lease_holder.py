"""A process that others stop or kill: it takes part in a race for heads, or holds a lease.

    python lease_holder.py race URL NAME sync|async
    python lease_holder.py hold URL TTL

It does one thing for each line it reads, and answers each with one line: what its put came to.
"""

import asyncio
import sys

import threadline
from threadline.testing.making import checkpoint, place


def main():
    role, url, *rest = sys.argv[1:]
    if role == "race":
        race(threadline.connect(url, fencing=True), *rest)
    else:
        hold(threadline.connect(url), float(rest[0]))


def race(saver, name, half):
    """Read the head at `read`, put its child at `put`."""
    loop = asyncio.new_event_loop()

    def call(verb, *arguments):
        if half == "sync":
            return getattr(saver, verb)(*arguments)
        return loop.run_until_complete(getattr(saver, f"a{verb}")(*arguments))

    head = None
    for line in sys.stdin:
        if line.strip() == "read":
            head = call("get_tuple", place("raced"))
            say("read")
        else:
            say(put(call, "raced", head, name))
    call("close")
    loop.close()


def hold(saver, ttl):
    """Hold a lease, and put a child of the head for every line."""

    def call(verb, *arguments):
        return getattr(saver, verb)(*arguments)

    with saver.lock("leased", ttl=ttl):
        say(put(call, "leased", None, "holder"))
        for _ in sys.stdin:
            say(put(call, "leased", saver.get_tuple(place("leased")), "holder"))


def put(call, thread, head, name):
    """Put a child of what was read as the head; the answer is its id, or the error's name."""
    words = [*head.checkpoint["channel_values"]["words"], name] if head else [name]
    made = checkpoint({"words": words}, {"words": len(words)})
    at = head.config if head else place(thread)
    try:
        call("put", at, made, {"source": "loop", "step": len(words)}, made["channel_versions"])
    except threadline.Conflict:
        return "Conflict"
    return made["id"]


def say(word):
    print(word, flush=True)


if __name__ == "__main__":
    main()
