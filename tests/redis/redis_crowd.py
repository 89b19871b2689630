"""The roles of tests/durability/crowd.py on a Redis store: many processes, started together.

    python redis_crowd.py URL KEY_PREFIX ROLE PATH [ARGUMENT …]

PATH is where writers note what was acknowledged.
"""

import sys

import crowd

import threadline

real_connect = threadline.connect


def main():
    url, prefix, role, path, *arguments = sys.argv[1:]
    crowd.threadline.connect = lambda _: real_connect(url, key_prefix=prefix)
    crowd.ROLES[role](path, *arguments)


if __name__ == "__main__":
    main()
