"""Programs of many kinds have the same results on LangGraph's savers and on ours."""

import asyncio

import program_caching
import program_cancellation
import program_classes
import program_fastapi
import program_files
import program_functional
import program_hitl
import program_long_chat
import program_os_threads
import program_react
import program_sends
import program_states
import program_store
import program_streams
import program_time_travel
import pytest
from graph_pairs import WHERE, Face, comparable, opened

PROGRAMS = {
    "a ReAct agent": program_react.program,
    "a person in the loop": program_hitl.program,
    "a long chat": program_long_chat.program,
    "every stream mode": program_streams.program,
    "the functional API": program_functional.program,
    "time travel": program_time_travel.program,
    "three kinds of states": program_states.program,
    "a web application": program_fastapi.program,
    "OS threads": program_os_threads.program,
    "files and subagents": program_files.program,
    "own classes": program_classes.program,
    "cached nodes": program_caching.program,
    "a store beside it": program_store.program,
    "sends with models": program_sends.program,
    "a cancelled run": program_cancellation.program,
}
# Only a task can be cancelled.
ASYNC_ONLY = {"a cancelled run"}


@pytest.fixture
def both(request, tmp_path):
    """Runs a program on LangGraph's saver and on ours; gives both results, comparable."""

    def run(program, where, half):
        results = []
        for whose in ("original", "ours"):
            at = request.getfixturevalue("postgres").url if where == "postgres" else str(tmp_path / f"{whose}.db")

            async def on_one(whose=whose, at=at):
                async with opened(whose, where, half, at) as saver:
                    return comparable(await program(saver, Face(half)))

            results.append(asyncio.run(on_one()))
        return results

    return run


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("name", "half"),
    [(name, half) for name in PROGRAMS for half in ("sync", "async") if half == "async" or name not in ASYNC_ONLY],
)
def test_a_program_does_the_same_on_both(name, where, half, both):
    original, ours = both(PROGRAMS[name], where, half)
    assert ours == original


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("where", WHERE)
def test_a_class_that_is_defined_in_a_function_comes_back(where, half, both):
    original, ours = both(program_classes.program_with_a_local_class, where, half)
    assert ours == original
