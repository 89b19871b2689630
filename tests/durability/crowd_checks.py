"""Starts programs of this folder, above all crowd.py, and checks what a crowd left in its store."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import crowd
import lives

import threadline

HERE = Path(__file__).parent
PACKAGE_ROOT = Path(threadline.__file__).resolve().parents[1]

# PyMySQL prints this when an interrupt met the constructor of a result, which its destructor takes for whole.
_DRIVERS_OWN = re.compile(
    r"Exception ignored in: <function MySQLResult\.__del__ .*?AttributeError: [^\n]*\n", re.DOTALL
)


def run_script(name, *arguments, seconds=120):
    """Runs a script of this folder in a new interpreter; what it printed, or a failure that shows why."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(PACKAGE_ROOT)])}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(HERE / name), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{name} {arguments}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    assert "Traceback" not in _DRIVERS_OWN.sub("", done.stderr), done.stderr[-6000:]
    return done.stdout


def run_crowd(role, url, *arguments, seconds=120, **options):
    """Runs a role of crowd.py on the store that `url` and these options name."""
    run_script("crowd.py", role, url, json.dumps(options), *arguments, seconds=seconds)


def check_openings(saver, processes):
    """Each of so many processes has begun a thread, and no other is there."""
    names = [f"opener-{n}" for n in range(processes)]
    assert sorted(info.thread_id for info in saver.threads()) == sorted(names)
    for name in names:
        assert lives.check(saver.get_tuple(lives.config(name)), name) == 0


def check_puts(saver, count):
    """Each process of the role `puts` put so many times, and all is there."""
    for writer in range(crowd.PROCESSES):
        thread_id = f"writer-{writer}"
        own = [lives.check(found, thread_id) for found in saver.list(lives.config(thread_id))]
        met = [lives.check(found, "shared") for found in saver.list(lives.config("shared", namespace=thread_id))]
        assert own == list(range(count * 9 // 10 - 1, -1, -1))
        assert met == list(range(count // 10 - 1, -1, -1))
        assert len(own) + len(met) == count


def check_race(saver, acks, at_least):
    """What the writers of the role `race` were told is there, and everything is readable."""
    for name in ("kept", "pruned"):
        acknowledged = [int(line) for line in acks.with_name(f"{acks.name}.{name}").read_text().split()]
        assert len(acknowledged) > at_least
        newest = saver.get_tuple(lives.config(name))
        crowd.check_written(name, acknowledged[-1], newest, saver.list(lives.config(name)))
    for info in saver.threads():
        # A deleted thread that was begun anew has no parent at its first step.
        if info.thread_id != "deleted":
            assert [lives.check_copy(found, "origin") for found in saver.list(lives.config(info.thread_id))]
