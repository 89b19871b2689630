"""The results for people: lines while it runs, a table at the end, and `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Mapping

from bench.arena import Reading, Size
from bench.goals import goal_lines
from bench.results import Result, ratio_of, show, show_range, show_ratio, show_target, show_verdict
from bench.targets import CODEC, LANGGRAPH, MEMORY, MYSQL, OURS_ON_POSTGRES, POSTGRES, ROWS, Row

ROW_OF = {row.key: row for row in ROWS}

GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Short threads",
        "Threads of 1, 10 and 100 checkpoints with small states: a message of 200 characters a step, a short todo, "
        "branch channels. Both savers of a backend stay open and play the same few threads by turns; a figure is the "
        "median of all calls in threads of that length. `get` reads the head on the saver that wrote it, looked at. A "
        "turn is one of two invocations of a graph of five nodes on a new thread.",
        ("short",),
    ),
    (
        "Python calls on short threads",
        "Functions that an operation calls in a thread of 10 small checkpoints, counted as "
        "[docs/design/calls.md](design/calls.md) says.",
        ("calls",),
    ),
    (
        "A long chat on SQLite",
        "{chat_steps:,} checkpoints in one thread: 1.1 messages of 1.4 KB a step, 20 files of 2 KB of "
        "which one changes every 5 steps, todos, branch channels as a real graph has them; the state "
        "is read back every 11 steps, and what was read is built upon. *Looked at* means that every "
        "value is decoded and touched. The peer decodes always, so one figure of it serves three rows.",
        ("disk", "compact", "put", "get", "list"),
    ),
    (
        "Many at once on SQLite",
        "States of 10 KB (a window of 7 messages that moves by one each step), one thread_id for each "
        "task or OS thread, one file, one saver. A put and a put of writes count as one operation each.",
        ("tasks", "threads"),
    ),
    (
        "A real graph on SQLite",
        "An agent of {turns} turns with `add_messages`, two tool calls a turn, 20 files of 2 KB: "
        "7 checkpoints and 6 messages a turn, through `graph.invoke`. The last rows put the same graph on "
        "the peer with `DeltaChannel`, which stores writes instead of values; ours runs the unchanged graph.",
        ("graph",),
    ),
    (
        "Import and open",
        "In a new process, without the start of the interpreter: import, open a new SQLite file, ask for a thread.",
        ("open",),
    ),
    (
        "In memory",
        "The long chat on `memory://` and on InMemorySaver. Bytes are what tracemalloc sees retained "
        "when the work is done.",
        ("memory",),
    ),
    (
        "The codec",
        "`dumps_typed` and `loads_typed` alone. Dataclasses and models have the same seven fields: texts, "
        "numbers, a list, an Enum, a datetime. Plain data is no slower when it is within 5 %.",
        ("codec",),
    ),
    (
        "PostgreSQL",
        "The same work, each side in databases of its own on one server that was started for it, with the sizes and "
        "the flushing that it has by default; the peer is langgraph-checkpoint-postgres, on one connection, or on a "
        "pool of 10 for many at once. Bytes are those of all tables and indexes after `VACUUM`.",
        ("postgres",),
    ),
    (
        "MySQL and MariaDB",
        "The same on MariaDB; the peer is langgraph-checkpoint-mysql (PyMySQLSaver, and AIOMySQLSaver on a pool of "
        "10, where aiomysql 0.3 is given back the function that PyMySQL 1.2 withdrew from it). `group_concat_max_len` "
        "is raised, because the peer cannot read a state above it, which is 1 MB by default. On MariaDB the peer takes "
        "seconds to read a long state: here the chat is put without reading it back, and its head is read once. "
        "Bytes are `data_length + index_length` after `ANALYZE TABLE`.",
        ("mysql",),
    ),
    (
        "Redis",
        "Redis with `appendfsync always`, which flushes before it acknowledges. langgraph-checkpoint-redis needs "
        "the modules for search and JSON, which the Redis measured here does not have: so the peer in this table is "
        "Threadline itself on PostgreSQL. Bytes are `MEMORY USAGE` of all keys; the peer's are those of its tables.",
        ("redis",),
    ),
    (
        "Looking back over a history",
        "Ours alone, measured in one round: {history_threads:,} threads of {history_steps} small checkpoints "
        "({history_checkpoints:,} in all), {many_threads:,} threads for `threads(limit=50)`, one thread of "
        "{long_thread:,} messages for `diff` (3 of them changed) and `fork`, the long chat and one thread of "
        "{prune_checkpoints:,} checkpoints for `prune`. Each figure is that of a new saver, which remembers nothing. "
        "The key is named by `index_metadata`; the rows looked for are the oldest. "
        "What a fork adds is the growth of the store on disk over 50 forks.",
        ("history",),
    ),
    (
        "Moving house",
        "Ours alone, measured in one round: {moved_checkpoints:,} checkpoints of chats of 100 messages copied from "
        "SQLite to PostgreSQL, each read back, and told as the time of 1,000 of them; the same again with nothing new; "
        "as many threads of one checkpoint; the export of one thread of 1,000 steps to a file, and opening that.",
        ("moving",),
    ),
    (
        "The runtime",
        "`threadline.graph` with Threadline's savers beside LangGraph with its own: one node that loops 200 times, 100 "
        "tasks sent side by side and a join, a chain of 50 nodes compiled, a chat of {runtime_turns:,} turns with "
        "`add_messages` (measured in one round). The best of {runtime_repeats} runs of each, taken by turns. Import "
        "and resident memory are those of a new process.",
        ("runtime",),
    ),
    (
        "Store and Cache",
        "`threadline.langgraph`'s stores and caches beside LangGraph's own on the same backend, both called through "
        "LangGraph's interface, by turns. A value has four fields and 250 bytes. The search finds ten of the items of "
        "one user in {store_items:,} items of 1,000 users; ours has `index_fields`. 64 tasks put five items each.",
        ("store",),
    ),
    (
        "Metrics",
        "A small put on SQLite that flushes nothing, by the processor's time of one thread: 50 puts at a time, in "
        "turns with savers that have no metrics. The second row is what chance alone makes of two such savers.",
        ("metrics",),
    ),
    (
        "The cold tier",
        "Threads whose chunks are in objects (docs/tiers.md). The head is read from SeaweedFS on this machine. The "
        "share in the database is of all stored bytes, after everything was moved: of the long chat, where documents, "
        "links and small chunks stay, and of 20 files of 1 MB. Puts are measured as with metrics.",
        ("tiers",),
    ),
    (
        "The page",
        "Server time of `threadline web`, as its answers tell it: the list of {many_threads:,} threads and a long "
        "one, by activity and by id; the tree of a thread of twice {long_thread:,} checkpoints; and the share of the "
        "chunks of two states of {long_thread:,} messages that the page of their difference reads. Measured in one "
        "round.",
        ("web",),
    ),
)

OPENING = """\
# Benchmarks

Threadline side by side with LangGraph's own savers, in one run on one machine: `make bench`.

Both sides do the same work one right after the other, equally durable (WAL, `synchronous=FULL`),
and what is read back is compared with what was put. Figures are medians of {rounds} round(s); a
ratio is taken within each round, and the median of those is shown with its range. Above 1 is
in our favour. Absolute figures belong to this machine; the ratios are what counts.

Servers flush before they acknowledge, for both sides: PostgreSQL with `fsync` and `synchronous_commit`, MariaDB with
`innodb_flush_log_at_trx_commit=1`, Redis with `appendfsync always`.

![put and file size as a thread grows, and all ratios](benchmarks.svg)
"""

CLOSING = """\
## How to read and repeat it

- `make bench` runs everything and writes this page; `python -m bench --quick` is a short look that
  writes nothing; `--only put,list` runs some sections (`--quick --only short` takes about a
  minute); `--rounds 5` takes longer and wavers less.
- `python -m bench --calibrate` puts the peer on both sides: what is not 1.0 there is noise.
- *Bytes that changed*: each new message, changed file and changed list of todos, counted once, as
  LangGraph's own serializer writes it: {changed_megabytes:.2f} MB in this work.
- Bytes on disk are those of the closed database file; on a server, those that the server counts.
- The servers are started for the run, from the programs that the machine has (PostgreSQL, MariaDB, Redis), and removed
  after it. A section whose server cannot be started is left out, and says so.
- The targets live in `bench/targets.py`. One that is missed is shown here as missed.
"""


PREFIXES = {
    MEMORY: "memory: ",
    CODEC: "codec: ",
    POSTGRES: "PostgreSQL: ",
    MYSQL: "MySQL: ",
    OURS_ON_POSTGRES: "Redis: ",
    LANGGRAPH: "runtime: ",
}


def progress_line(reading: Reading) -> str:
    row = ROW_OF[reading.key]
    ours, peer = show(reading.ours, row.unit), show(reading.peer, row.unit)
    ratio = show_ratio(ratio_of(row, reading))
    return f"    {short_title(row):<66} {ours:>12} {peer:>12} {ratio:>9}"


def short_title(row: Row) -> str:
    """The title, with what tells rows of one title apart."""
    prefix = PREFIXES.get(row.peer or "", "") if row.section != "short" else ""
    suffix = " (peer: DeltaChannel)" if "delta" in row.key else ""
    return f"{prefix}{row.title}{suffix}".replace("`", "")


def console_table(results: list[Result]) -> str:
    lines = [
        f"{'':<66} {'ours':>12} {'peer':>12} {'ratio':>9}  {'reached':<17} target",
        *(_console_line(result) for result in results),
    ]
    judged = [result for result in results if result.reached is not None]
    reached = sum(1 for result in judged if result.reached)
    goals = [f"{title:<66} {measured:>28}  {yes:<17} {target}" for title, measured, target, yes in goal_lines(results)]
    return "\n".join([*lines, "", f"{reached} of {len(judged)} targets reached", "", *goals])


def page(
    results: list[Result],
    facts: dict[str, str],
    size: Size,
    rounds: int,
    changed_bytes: int,
    skipped: Mapping[str, str],
) -> str:
    """The whole of `docs/benchmarks.md`; `skipped` says of sections why they were not measured."""
    blocks = [OPENING.format(rounds=rounds), _summary(results), _goals(results)]
    for title, text, sections in GROUPS:
        rows = [result for result in results if result.row.section in sections]
        reasons = [f"Not measured: {skipped[section]}.\n" for section in sections if section in skipped]
        if rows or reasons:
            tables = [_table(rows)] if rows else []
            blocks.append("\n".join([f"## {title}\n", _told(text, size) + "\n", *reasons, *tables]))
    machine = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    blocks.append(f"## The machine\n\n| | |\n|---|---|\n{machine}\n")
    blocks.append(CLOSING.format(changed_megabytes=changed_bytes / 1e6))
    return "\n".join(blocks)


def _told(text: str, size: Size) -> str:
    return text.format(
        chat_steps=size.chat_steps,
        turns=size.turns,
        history_threads=size.history_threads,
        history_steps=size.history_steps,
        history_checkpoints=size.history_threads * size.history_steps,
        moved_checkpoints=size.moved_checkpoints,
        many_threads=size.many_threads,
        long_thread=size.long_thread,
        prune_checkpoints=size.prune_checkpoints,
        runtime_repeats=size.runtime_repeats,
        runtime_turns=size.runtime_turns,
        store_items=size.store_items,
    )


def _console_line(result: Result) -> str:
    row = result.row
    return (
        f"{short_title(row):<66} {show(result.ours, row.unit):>12} {show(result.peer, row.unit):>12} "
        f"{show_ratio(result.ratio):>9}  {show_verdict(result):<17} {show_target(row)}"
    )


def _summary(results: list[Result]) -> str:
    missed = [result for result in results if result.reached is False]
    judged = [result for result in results if result.reached is not None]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets are reached."
    if missed:
        text += " Missed: " + "; ".join(short_title(result.row) for result in missed) + "."
    return text + "\n"


def _goals(results: list[Result]) -> str:
    lines = ["## At every size\n", "| | measured | at least | reached |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(line)} |" for line in goal_lines(results))]) + "\n"


def _table(results: list[Result]) -> str:
    if all(result.ratio is None for result in results):
        return _table_of_ours(results)
    lines = ["| | Threadline | peer | ratio (range) | target | reached |", "|---|--:|--:|--:|---|---|"]
    for result in results:
        row = result.row
        ratio = f"**{show_ratio(result.ratio)}** {show_range(result)}".strip()
        title = row.title + (" (peer with DeltaChannel)" if "delta" in row.key else "")
        lines.append(
            f"| {title} | {show(result.ours, row.unit)} | {show(result.peer, row.unit)} "
            f"| {ratio} | {show_target(row)} | {show_verdict(result)} |"
        )
    return "\n".join(lines) + "\n"


def _table_of_ours(results: list[Result]) -> str:
    lines = ["| | Threadline | target | reached |", "|---|--:|---|---|"]
    for result in results:
        row = result.row
        lines.append(f"| {row.title} | {show(result.ours, row.unit)} | {show_target(row)} | {show_verdict(result)} |")
    return "\n".join(lines) + "\n"
