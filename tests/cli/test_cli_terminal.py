"""On a real terminal of 80 columns, and in real pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli_process import settings
from langgraph.types import Interrupt
from rich.cells import cell_len

import threadline
from tests.commands import Run

OnTerminal = Callable[..., str]


def widest(shown: str) -> int:
    return max(cell_len(line) for line in shown.splitlines())


def test_the_tree_fits_a_terminal_and_its_ids_can_be_typed(on_terminal: OnTerminal, run: Run, store: Path) -> None:
    run("tag", "trip", "the-one-that-everybody-agreed-on", "head~1")
    run("rollback", "trip", "head~1")
    shown = on_terminal("log", "trip")
    assert widest(shown) <= 80
    lines = shown.splitlines()
    assert [line[:5].rstrip() for line in lines] == ["*", "|", "| *", "| | *", "| |/", "| *", "| |", "|/", "*"]
    assert "[tag the-one-that-everybody-agreed-on]" in shown
    assert "…" in shown
    first = next(word for word in lines[0].split() if word[:1].isdigit())
    assert 8 <= len(first) < 36
    assert first in run("show", "trip", first)[0]


def test_state_fits_a_terminal_and_all_of_it_can_be_had(on_terminal: OnTerminal, store: Path) -> None:
    with threadline.connect(store) as saver:
        checkpoint = threadline.empty_checkpoint()
        checkpoint["channel_values"] = {"many": [f"number {n} " * 20 for n in range(100)], "wide": "日本語" * 60}
        checkpoint["channel_versions"] = {"many": 1, "wide": 1}
        saver.put({"configurable": {"thread_id": "long"}}, checkpoint, {"note": "x" * 300}, {"many": 1, "wide": 1})
    shown = on_terminal("show", "long")
    assert widest(shown) <= 80
    assert "… 83 more (--all shows them)" in shown
    assert "[99]" in shown
    whole = on_terminal("show", "long", "--all")
    assert "[50] 'number 50 number 50" in whole
    assert "…" not in whole


def test_lists_fit_a_terminal(on_terminal: OnTerminal, store: Path) -> None:
    with threadline.connect(store) as saver:
        saver.thread("wordy").create(metadata={"note": "w" * 200})
    for command in (["threads"], ["writes", "trip"], ["rm", "trip"]):
        assert widest(on_terminal(*command)) <= 80, command


def test_long_ids_cost_no_figure_and_no_question(on_terminal: OnTerminal, run: Run, store: Path) -> None:
    thread = "0f8fad5b-d9cb-469f-a165-70867728950e-and-what-the-application-adds"
    with threadline.connect(store) as saver:
        config = saver.thread(thread).put({"notes": ["x" * 50]}).config
        asked = Interrupt(value="shall the flight be booked?", id="8cf1b7a6c294bbbeb1aabd6a86843f2f")
        saver.put_writes(config, [("__interrupt__", [asked])], "task")
    shown = on_terminal("threads").splitlines()
    assert max(map(cell_len, shown)) <= 80
    _, status, size, unit, count, day, moment = run("threads", "--prefix", thread)[0].split()
    assert shown[shown.index(thread) + 1].split() == [status, size, unit, count, day, moment[:-4] + "Z"]
    shown = on_terminal("interrupts").splitlines()
    place = next(at for at, line in enumerate(shown) if line.startswith(thread))
    assert shown[place] == f"{thread}  {asked.id}"
    assert "shall the flight be booked?" in shown[place + 1]


def test_an_empty_list_says_so_on_a_terminal_only(on_terminal: OnTerminal, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    threadline.connect(url).thread("t").put({"n": 1})
    commands = {
        "threads --prefix u": "no threads",
        "interrupts": "nothing waits for an answer",
        "locks": "no thread is locked",
    }
    commands |= {"store ls": "no items", "store search users": "no items", "tag t": "no tags"}
    commands["writes t"] = "no writes follow this checkpoint; head~1 has those that made the newest one"
    for command, sentence in commands.items():
        assert on_terminal(*command.split(), "--url", url).split("\n")[0].strip() == sentence
        piped = in_a_pipe(*command.split(), "--url", url)
        assert (piped.stdout, piped.stderr) == ("", "")


def test_a_bar_moves_on_a_terminal_only(on_terminal: OnTerminal) -> None:
    assert "sweeping" in on_terminal("sweep", "--keep-last", "1")
    piped = in_a_pipe("sweep", "--keep-last", "1")
    assert (piped.returncode, piped.stderr) == (0, "")


def test_help_fits_a_terminal_and_names_every_command(store: Path) -> None:
    done = in_a_pipe("--help")
    assert widest(done.stdout) <= 80
    assert "--install-completion" in done.stdout


def test_completion_is_offered(store: Path) -> None:
    environment = {
        **settings(),
        "_THREADLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": "threadline ro",
        "COMP_CWORD": "1",
    }
    command = [sys.executable, "-m", "threadline"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["rollback"]


def test_a_reader_that_goes_away_is_no_error(store: Path) -> None:
    command = f"{sys.executable} -m threadline show trip --json | head -n 1"
    done = subprocess.run(command, shell=True, env=settings(), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_complaints_are_one_line_in_a_pipe_and_plain(store: Path) -> None:
    done = in_a_pipe("show", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "threadline: there is no thread 'nobody'; `threadline threads` lists those there are\n"


def in_a_pipe(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "threadline", *arguments]
    return subprocess.run(command, env=settings(), capture_output=True, text=True, timeout=60)
