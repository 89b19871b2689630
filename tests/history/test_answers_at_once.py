"""Two people answer one question at the same moment, and writes that overtake a put which is refused."""

from typing import Any, NamedTuple

import pytest

import threadline
from threadline.core import interrupts as answers
from threadline.core.prepare import prepare_put
from threadline.core.put import put_all
from threadline.testing.making import checkpoint, place


class Interrupt(NamedTuple):
    id: str
    value: Any


@pytest.fixture
def asked(connect, url):
    """A saver whose thread waits for two answers, and another saver of the same store."""
    saver = connect(url)
    config = saver.put(place("t"), checkpoint({"a": 1}), {"source": "loop", "step": 0}, {"a": 1})
    for task in ("one", "two"):
        saver.put_writes(config, [("__interrupt__", [Interrupt(f"ask-{task}", "?")])], task)
    return saver, connect(url), config


def between(monkeypatch, act):
    """Let `act` happen once, after an answer has looked at the questions and before it is stored."""
    acts = [act]

    async def late(*args):
        if acts:
            acts.pop()()
        await put_all(*args)

    monkeypatch.setattr(answers, "put_all", late)


def resumed(saver, config):
    return [(task, value) for task, channel, value in saver.get_tuple(config).pending_writes if channel == "__resume__"]


def test_the_second_of_two_answers_at_once_is_a_conflict(asked, half, monkeypatch):
    saver, other, config = asked
    between(monkeypatch, lambda: other.thread("t").answer({"ask-one": "first"}))
    with pytest.raises(threadline.Conflict, match=r"'ask-one' was answered (already|by somebody else)"):
        half.call(saver.thread("t"), "answer", {"ask-one": "second"})
    assert resumed(saver, config) == [("one", ["first"])]


def test_an_answer_that_comes_a_moment_later_is_a_conflict_too(asked, half):
    saver, other, config = asked
    other.thread("t").answer({"ask-one": "first"})
    for second in ({"ask-one": "second"}, {"ask-two": "second", "ask-one": "second"}):
        with pytest.raises(threadline.Conflict, match=r"'ask-one' was answered (already|by somebody else)"):
            half.call(saver.thread("t"), "answer", second)
    with pytest.raises(threadline.NotFound, match="'ask-nobody'; it waits for ask-two"):
        half.call(saver.thread("t"), "answer", {"ask-nobody": "?"})
    assert resumed(saver, config) == [("one", ["first"])]


def test_a_call_with_several_answers_stores_all_or_none(asked, half, monkeypatch):
    saver, other, config = asked
    between(monkeypatch, lambda: other.thread("t").answer({"ask-two": "first"}))
    with pytest.raises(threadline.Conflict, match="ask-two"):
        half.call(saver.thread("t"), "answer", {"ask-one": "second", "ask-two": "second"})
    assert resumed(saver, config) == [("two", ["first"])]
    assert [one.interrupt_id for one in saver.interrupts()] == ["ask-one"]


def test_answers_to_different_questions_at_once_are_both_stored(asked, half, monkeypatch):
    saver, other, config = asked
    between(monkeypatch, lambda: other.thread("t").answer({"ask-two": "theirs"}))
    half.call(saver.thread("t"), "answer", {"ask-one": "mine"})
    assert sorted(resumed(saver, config)) == [("one", ["mine"]), ("two", ["theirs"])]


def test_writes_that_overtake_a_put_which_will_be_refused_are_refused_too(connect, url, half):
    saver, other = connect(url), connect(url)
    config = saver.put(place("t"), checkpoint({"a": 1}), {"source": "loop", "step": 0}, {"a": 1})
    made = checkpoint({"a": 2}, {"a": 2})
    coming = prepare_put(saver._tools, config, made, {"source": "loop", "step": 1}, {"a": 2}, now=0.0)
    other.delete_thread("t")
    with pytest.raises(threadline.Conflict, match="deleted"):
        half.call(saver, "put_writes", place("t", made["id"]), [("a", 3)], "task")
    assert list(saver.threads()) == []
    with pytest.raises(threadline.Conflict, match="deleted"):
        saver._run(put_all, [coming], 0.0)
    assert list(saver.threads()) == []
