"""Copies a store into another until it is killed: `python killed_copy.py SOURCE TARGET`."""

import sys

import threadline

if __name__ == "__main__":
    with threadline.connect(sys.argv[1]) as source, threadline.connect(sys.argv[2], synchronous="OFF") as target:
        target.setup()
        print("begin", flush=True)
        source.copy_to(target)
    print("end", flush=True)
