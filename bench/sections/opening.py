"""How long a program waits for `import` and for a new file to be opened and used once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from bench.arena import Arena, Entrant, Reading
from bench.savers import NO_THREAD

PROGRAM = """\
from time import perf_counter
start = perf_counter()
{opening}
assert saver.get_tuple({config!r}) is None
print(perf_counter() - start)
"""


ADAPTER = """\
import langgraph.checkpoint.base
from time import process_time
start = process_time()
import threadline.langgraph
print(process_time() - start)
"""


def imports(arena: Arena) -> Iterator[Reading]:
    """The time inside a new interpreter, its own start not counted; once unmeasured, for warmth."""

    # Installed packages are compiled; a checkout is too once its bytecode may be kept.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def printed(program: str, *arguments: str) -> float:
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return float(done.stdout)

    def open_in_new_process(entrant: Entrant) -> float:
        program = PROGRAM.format(opening=entrant.side.opening, config=NO_THREAD)
        return printed(program, str(arena.new_place(entrant)))

    arena.both(open_in_new_process)
    pair = arena.medians(arena.size.openings, open_in_new_process)
    yield Reading("open.import", pair.ours, pair.peer)
    if not arena.is_calibration:
        yield Reading("open.adapter", min(printed(ADAPTER) for _ in range(arena.size.openings)))
