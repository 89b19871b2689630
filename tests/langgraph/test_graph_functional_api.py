"""Entrypoints and tasks: what has finished is not run again; a thread knows its last value."""

import time

import pytest
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt


def build_sum(saver):
    @entrypoint(checkpointer=saver)
    def running_sum(number: int, *, previous: int | None = None) -> int:
        return (previous or 0) + number

    return running_sum


def test_an_entrypoint_is_given_its_previous_value(half, reopen, thread):
    totals = [half.invoke(build_sum(reopen()), number, thread()) for number in (1, 2, 3, 4)]

    assert totals == [1, 3, 6, 10]
    assert half.invoke(build_sum(reopen()), 5, thread("other")) == 5


def test_what_is_saved_may_differ_from_what_is_returned(half, reopen, thread):
    def build(saver):
        @entrypoint(checkpointer=saver)
        def remember(word: str, *, previous: list | None = None) -> entrypoint.final[str, list]:
            words = [*(previous or []), word]
            return entrypoint.final(value=" ".join(words), save=words)

        return remember

    said = [half.invoke(build(reopen()), word, thread()) for word in ("one", "two", "three")]

    assert said == ["one", "one two", "one two three"]
    assert half.get_state(build(reopen()), thread()).values == "one two three"


def build_essay(saver, ran):
    @task
    def outline(topic: str) -> str:
        ran.append("outline")
        return f"outline of {topic}"

    @task
    def section(name: str) -> str:
        ran.append(name)
        return name.upper()

    @entrypoint(checkpointer=saver)
    def essay(topic: str) -> dict:
        plan = outline(topic).result()
        sections = [section(name) for name in ("beginning", "middle", "end")]
        written = [each.result() for each in sections]
        verdict = interrupt({"plan": plan, "written": written})
        return {"essay": " ".join(written), "verdict": verdict}

    return essay


def test_tasks_finished_before_a_question_are_not_run_after_it(half, reopen, thread):
    ran = []
    asked = half.invoke(build_essay(reopen(), ran), "tea", thread())
    assert asked["__interrupt__"][0].value == {
        "plan": "outline of tea",
        "written": ["BEGINNING", "MIDDLE", "END"],
    }
    assert sorted(ran) == ["beginning", "end", "middle", "outline"]

    ran.clear()
    final = half.invoke(build_essay(reopen(), ran), Command(resume="good"), thread())

    assert final == {"essay": "BEGINNING MIDDLE END", "verdict": "good"}
    assert ran == []


def test_only_the_failed_task_runs_again(half, reopen, thread):
    ran = []
    broken = [True]

    def build(saver):
        @task
        def fetch(page: int) -> int:
            if page == 2 and broken:
                raise ConnectionError("page 2 is away")
            ran.append(page)
            return page * 10

        @entrypoint(checkpointer=saver)
        def crawl(pages: list[int]) -> list[int]:
            return [fetch(page).result() for page in pages]

        return crawl

    with pytest.raises(ConnectionError):
        half.invoke(build(reopen()), [0, 1, 2, 3], thread())
    assert ran == [0, 1]

    broken.clear()
    final = half.invoke(build(reopen()), None, thread())

    assert final == [0, 10, 20, 30]
    assert ran == [0, 1, 2, 3]


def test_a_task_result_of_none_counts_as_finished(half, reopen, thread):
    ran = []

    def build(saver):
        @task
        def notify(who: str) -> None:
            ran.append(who)

        @entrypoint(checkpointer=saver)
        def flow(who: str) -> str:
            assert notify(who).result() is None
            return interrupt("sent?")

        return flow

    half.invoke(build(reopen()), "ann", thread())
    assert half.invoke(build(reopen()), Command(resume="yes"), thread()) == "yes"
    assert ran == ["ann"]


def test_an_interrupted_run_keeps_the_previous_value(half, reopen, thread):
    def build(saver):
        @entrypoint(checkpointer=saver)
        def collect(word: str, *, previous: list | None = None) -> list:
            answer = interrupt(f"keep {word}?") if word == "maybe" else "yes"
            return [*(previous or []), word] if answer == "yes" else list(previous or [])

        return collect

    half.invoke(build(reopen()), "first", thread())
    half.invoke(build(reopen()), "maybe", thread())
    half.invoke(build(reopen()), Command(resume="yes"), thread())

    assert half.invoke(build(reopen()), "last", thread()) == ["first", "maybe", "last"]


def test_tasks_side_by_side_are_all_kept(half, saver, thread):
    @task
    def square(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number * number

    @entrypoint(checkpointer=saver)
    def squares(count: int) -> list[int]:
        return [each.result() for each in [square(number) for number in range(count)]]

    assert half.invoke(squares, 20, thread()) == [number * number for number in range(20)]
