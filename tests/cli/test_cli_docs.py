"""The pages of commands: one each, with every option, and with examples that show what they really show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from cli_pages import DOCS, PAGES, copied, examples_of, make_the_store, run_examples, without_chance

from threadline.cli.app import COMMANDS, make_app

# These have their page tested beside their command.
ELSEWHERE = {"diff", "doctor", "fsck", "keys", "metrics", "tier"}
WITH_EXAMPLES = sorted(page for page in PAGES.glob("*.md") if examples_of(page) and page.stem not in ELSEWHERE)


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("langgraph.graph", reason="the store of the examples is a graph's")
    folder = tmp_path_factory.mktemp("examples")
    make_the_store(folder)
    return folder


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_example_shows_what_the_page_says(
    page: Path, example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        told = capsys.readouterr()
        return told.out + told.err

    shown = run_examples(page, copied(example, tmp_path), monkeypatch, said)
    for (command, expected), (_, told) in zip(examples_of(page), shown, strict=True):
        assert without_chance(told) == without_chance(expected), command


def test_nearly_every_command_has_an_example() -> None:
    assert set(COMMANDS) - {page.stem for page in WITH_EXAMPLES} == {"demo", "import", "web", *ELSEWHERE}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_names_every_argument_and_option(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    command: Any = typer.main.get_command(make_app([name]))
    for one in command.commands[name].params:
        word = one.opts[0] if one.param_type_name == "option" else one.metavar
        assert word == "--help" or f"| `{word}" in page, word


def test_the_page_of_all_commands_leads_to_each() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f"(cli/{name}.md)" not in text]
