"""What waits for an answer: found from the pending writes at the newest checkpoint, whatever happened before."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...base.checkpoint import empty_checkpoint
from ..half import Half
from ..making import checkpoint, id_of, place, put
from ..marks import two_savers
from ..raising import refused

__all__: list[str] = []


async def test_a_question_waits_until_the_thread_goes_on(saver: Half, thread: str) -> None:
    first = await _asking(saver, thread, "ask-1")
    assert await _waiting(saver, thread) == [(thread, "ask-1")]
    second = await put(saver, first, {"turn": 2})
    assert await _waiting(saver, thread) == []
    await _ask(saver, second, "ask-2")
    assert await _waiting(saver, thread) == [(thread, "ask-2")]
    await _ask(saver, second, "ask-3", task="another")
    assert await _waiting(saver, thread) == [(thread, "ask-3"), (thread, "ask-2")]


async def test_a_question_waits_again_when_what_followed_is_deleted(saver: Half, thread: str) -> None:
    first = await _asking(saver, thread, "ask")
    second = await put(saver, first, {"turn": 2})
    assert await _waiting(saver, thread) == []
    await saver.delete_checkpoint(second)
    assert await _waiting(saver, thread) == [(thread, "ask")]
    await saver.of(thread).answer({"ask": "yes"})
    assert await _waiting(saver, thread) == []


async def test_a_question_that_came_before_its_checkpoint_waits(saver: Half, thread: str) -> None:
    first = await _asking(saver, thread, "ask-1")
    made = checkpoint({"turn": 2}, {"turn": 10**6})
    coming = place(thread, made["id"])
    await _ask(saver, coming, "ask-2")
    # Until that checkpoint is there, what was asked at the newest one is what waits.
    assert await _waiting(saver, thread) == [(thread, "ask-1")]
    await saver.put(first, made, {"source": "loop", "step": 1}, {"turn": 10**6})
    assert await _waiting(saver, thread) == [(thread, "ask-2")]


async def test_a_question_in_the_trash_does_not_wait_and_waits_again_when_it_is_restored(
    saver: Half, thread: str
) -> None:
    await _asking(saver, thread, "ask")
    await saver.of(thread).delete(trash="7d")
    assert await _waiting(saver, thread) == []
    [entry] = [one for one in await saver.trash() if one.thread_id == thread]
    await saver.restore_trash(entry.id)
    assert await _waiting(saver, thread) == [(thread, "ask")]
    await saver.of(thread).answer({"ask": "yes"})
    assert await _waiting(saver, thread) == []


async def test_forks_copies_and_rollbacks_ask_what_their_origin_asks(saver: Half, thread: str) -> None:
    config = await _asking(saver, thread, "ask")
    await saver.copy_thread(thread, f"{thread}-copied")
    await saver.of(thread).fork(to=f"{thread}-forked")
    followed = await put(saver, config, {"turn": 2})
    assert await _waiting(saver, thread) == [(f"{thread}-copied", "ask"), (f"{thread}-forked", "ask")]
    await saver.delete_thread(f"{thread}-copied")
    assert await _waiting(saver, thread) == [(f"{thread}-forked", "ask")]
    await saver.of(f"{thread}-forked").answer({"ask": "yes"})
    assert await _waiting(saver, thread) == []
    assert id_of(followed) == (await saver.of(thread).at()).id


async def test_a_thread_that_begins_anew_asks_nothing(saver: Half, thread: str) -> None:
    await _asking(saver, thread, "ask-1")
    await saver.delete_thread(thread)
    assert await _waiting(saver, thread) == []
    await put(saver, place(thread), {"turn": 1})
    assert await _waiting(saver, thread) == []
    await _asking(saver, thread, "ask-2")
    assert await _waiting(saver, thread) == [(thread, "ask-2")]


async def test_a_pruned_thread_still_asks(saver: Half, thread: str) -> None:
    config = place(thread)
    for turn in range(3):
        config = await put(saver, config, {"turn": turn})
        await _ask(saver, config, f"ask-{turn}")
    await saver.prune([thread])
    assert await _waiting(saver, thread) == [(thread, "ask-2")]
    await put(saver, config, {"turn": 3})
    assert await _waiting(saver, thread) == []


@two_savers
async def test_who_did_not_know_of_a_question_ends_it_all_the_same(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"turn": 1})
    other = saver.another()
    await _ask(other, config, "ask")
    assert await _waiting(saver, thread) == [(thread, "ask")]
    # This saver put the checkpoint, and never read what was asked there.
    await put(saver, config, {"turn": 2})
    assert await _waiting(saver, thread) == await _waiting(other, thread) == []


async def test_a_question_without_an_id_is_listed(saver: Half, thread: str) -> None:
    config = await put(saver, place(thread), {"turn": 1})
    await saver.put_writes(config, [("__interrupt__", "really?")], "task")
    [waiting] = [one async for one in saver.interrupts(prefix=thread)]
    assert (waiting.interrupt_id, waiting.value, waiting.task_id) == (None, "really?", "task")
    assert (await saver.of(thread).info()).status == "suspended"
    with refused(KeyError):
        await saver.of(thread).answer({"ask": "yes"})


async def test_threads_that_wait_are_listed_by_id(saver: Half, thread: str) -> None:
    names = [f"{thread}/{number:02d}" for number in range(12)]
    for number, name in enumerate(names):
        config = await put(saver, place(name), {"turn": 1})
        if number % 3 == 0:
            await _ask(saver, config, f"ask-{number}")
    await saver.of(names[3]).archive()
    expected = [names[0], names[6], names[9]]
    assert [info.thread_id async for info in saver.threads(prefix=thread, status="suspended")] == expected
    listed = [info async for info in saver.threads(prefix=thread, status="suspended", after=names[0], limit=1)]
    assert [(info.thread_id, info.status) for info in listed] == [(names[6], "suspended")]
    active = [info.thread_id async for info in saver.threads(prefix=thread, status="active")]
    assert active == [name for name in names if name not in (*expected, names[3])]
    # What is archived is no less asked.
    asking = names[::3]
    assert [one.thread_id async for one in saver.interrupts(prefix=thread)] == asking
    view = saver.view(saver.saver.within(f"{thread}/0"))
    assert [one.thread_id async for one in view.interrupts()] == asking
    assert [one.thread_id async for one in view.interrupts(prefix=names[6])] == [names[6]]


async def test_a_question_within_a_subgraph_is_answered_where_it_was_raised(saver: Half, thread: str) -> None:
    head = await put(saver, place(thread), {"turn": 1})
    below = await put(saver, place(thread), {"inner": 1}, ns="sub:1", parents={"": id_of(head)})
    for config, task in ((head, "task"), (below, "inner-task")):
        await _ask(saver, config, "ask", task=task)
    old = await put(saver, place(thread), {"inner": 1}, ns="sub:0", parents={"": empty_checkpoint()["id"]})
    await _ask(saver, old, "long ago")
    assert await _waiting(saver, thread) == [(thread, "ask")]
    with refused(KeyError, saying="long ago"):
        await saver.of(thread).answer({"long ago": "no"})
    await saver.of(thread).answer({"ask": "yes"})
    written = (await saver.get_tuple(below)).pending_writes
    assert ("inner-task", "__resume__", ["yes"]) in written
    assert await _waiting(saver, thread) == []


class _Interrupt(NamedTuple):
    """What a graph asks, in the shape that LangGraph gives it."""

    id: str
    value: Any


async def _ask(saver: Half, config: Any, interrupt_id: str, task: str = "task") -> None:
    await saver.put_writes(config, [("__interrupt__", [_Interrupt(interrupt_id, "ok?")])], task)


async def _asking(saver: Half, thread: str, interrupt_id: str) -> Any:
    config = await put(saver, place(thread), {"turn": 1})
    await _ask(saver, config, interrupt_id)
    return config


async def _waiting(saver: Half, prefix: str) -> list[tuple[str, str | None]]:
    """What waits by every way to see it: the list of questions, the list of threads, and each thread itself."""
    found = [(one.thread_id, one.interrupt_id) async for one in saver.interrupts(prefix=prefix)]
    suspended = [info.thread_id async for info in saver.threads(prefix=prefix, status="suspended")]
    assert suspended == sorted({thread_id for thread_id, _ in found})
    for info in [info async for info in saver.threads(prefix=prefix)]:
        status = (await saver.of(info.thread_id).info()).status
        assert status == ("suspended" if info.thread_id in suspended else "active")
    return found
