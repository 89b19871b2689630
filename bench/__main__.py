"""`python -m bench`: run the rounds, print as it goes, write the page and the plot."""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench import machine, plot, report
from bench.arena import QUICK, Arena, ChatFiles, Reading, Size, Skipped
from bench.chat import ChatWork, chat_work
from bench.results import summarise
from bench.savers import OURS, PEER, Side
from bench.sections import SECTIONS

CHAT_SECTIONS = frozenset({"disk", "put", "get", "list", "compact"})


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    size = QUICK if options.quick else Size()
    rounds = options.rounds or (1 if options.quick else 3)
    ours = PEER if options.calibrate else OURS
    started = perf_counter()
    with tempfile.TemporaryDirectory(prefix="threadline-bench-", dir=options.workdir) as made:
        directory = Path(made)
        facts = machine.facts(directory)
        print("\n".join(f"{name:>28}  {value}" for name, value in facts.items()))
        if warning := machine.load():
            print(f"\n{warning}")
        work = chat_work(size.chat_steps)
        readings, files, skipped = _run_rounds(ours, options.only, rounds, size, work, directory)
    results = summarise(readings)
    print(f"\n{report.console_table(results)}")
    print(f"{rounds} round(s) in {perf_counter() - started:.0f} s")
    if options.quick:
        print("a quick run: the targets are meant for the full one")
    docs = options.docs or _default_docs(options)
    if docs is not None:
        page = report.page(results, facts, size, rounds, work.changed_bytes, skipped)
        _write_docs(docs, page, plot.draw(results, files))
    return 0


def _run_rounds(
    ours: Side, chosen: Sequence[str], rounds: int, size: Size, work: ChatWork, directory: Path
) -> tuple[list[Reading], ChatFiles | None, dict[str, str]]:
    """All readings, the chat files of the last round for the curves of the plot, and why sections were skipped."""
    readings: list[Reading] = []
    skipped: dict[str, str] = {}
    files: ChatFiles | None = None
    for number in range(rounds):
        place = directory / f"round-{number}"
        place.mkdir()
        arena = Arena(ours=ours, peer=PEER, size=size, work=work, directory=place, round_number=number)
        for section in chosen:
            print(f"\n  round {number + 1} of {rounds}: {section}", flush=True)
            try:
                with _old_objects_left_alone():
                    for reading in SECTIONS[section](arena):
                        readings.append(reading)
                        print(report.progress_line(reading), flush=True)
            except Skipped as reason:
                skipped[section] = str(reason)
                print(f"    skipped: {reason}", flush=True)
        if CHAT_SECTIONS & set(chosen):
            files = arena.chat_files
        shutil.rmtree(place)
    return readings, files, skipped


@contextmanager
def _old_objects_left_alone() -> Iterator[None]:
    """A section is measured as if it ran alone: garbage is collected again and again, and what earlier sections left in
    memory need not be gone through each time, which would empty the processor's caches before a call of a moment."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _default_docs(options: argparse.Namespace) -> Path | None:
    """Only a full and honest run rewrites the page."""
    is_partial = options.quick or options.calibrate or options.only != list(SECTIONS)
    return None if is_partial else Path("docs")


def _write_docs(docs: Path, page: str, drawing: str) -> None:
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.md").write_text(page, encoding="utf-8")
    (docs / "benchmarks.svg").write_text(drawing, encoding="utf-8")
    print(f"wrote benchmarks.md and benchmarks.svg to {docs}")


def _sections(text: str) -> list[str]:
    chosen = text.split(",")
    unknown = sorted(set(chosen) - set(SECTIONS))
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return [section for section in SECTIONS if section in chosen]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Threadline side by side with LangGraph's savers."
    )
    parser.add_argument("--quick", action="store_true", help="200 checkpoints, one round")
    parser.add_argument("--rounds", type=int, help="rounds to run (3, or 1 when quick)")
    parser.add_argument(
        "--only",
        type=_sections,
        default=list(SECTIONS),
        metavar="SECTION,…",
        help=f"some of: {','.join(SECTIONS)}",
    )
    parser.add_argument("--calibrate", action="store_true", help="the peer on both sides")
    parser.add_argument("--docs", type=Path, help="where to write the page and the plot")
    parser.add_argument("--workdir", type=Path, help="on which disk to measure")
    return parser


if __name__ == "__main__":
    sys.exit(main())
