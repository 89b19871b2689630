"""What must not cross over: an answer into the next question, an effect into another key, a cancel into lost writes."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from graph_making import CONFIG, START, Recorder, State, chain, halves, run

import threadline
from threadline import graph as room
from threadline.graph.storing.writer import LoopWriter, ThreadWriter


class Killed(BaseException):
    """The process ends here."""


# -- answers


@halves
def test_an_answer_by_id_leaves_no_room_for_an_earlier_answer(is_async: bool) -> None:
    def act(state: Any) -> Any:
        return {"l": [room.interrupt("one?"), room.interrupt("two?"), room.interrupt("three?")]}

    graph = chain(threadline.connect("memory://"), x=act)
    run(graph, is_async, {"l": []}, CONFIG)
    second = run(graph, is_async, room.Command(resume="first"), CONFIG)["__interrupt__"][0]
    found = run(graph, is_async, room.Command(resume={second.id: "second"}), CONFIG)
    assert [one.value for one in found["__interrupt__"]] == ["three?"]
    assert run(graph, is_async, room.Command(resume="third"), CONFIG) == {"l": ["first", "second", "third"]}


def _asking_twice(saver: Any, second: Any = None) -> Any:
    def one(state: Any) -> Any:
        return {"l": [room.interrupt("one?")]}

    def two(state: Any) -> Any:
        return {"l": [room.interrupt("two?")]}

    inner = room.StateGraph(State).add_node("one", one).add_node("two", second or two)
    sub = inner.add_edge(START, "one").add_edge("one", "two").compile()
    return room.StateGraph(State).add_node("sub", sub).add_edge(START, "sub").compile(checkpointer=saver)


@halves
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_the_next_question_of_a_subgraph_does_not_get_the_answer_to_the_one_before(
    is_async: bool, durability: str
) -> None:
    graph = _asking_twice(threadline.connect("memory://"))
    run(graph, is_async, {"l": []}, CONFIG, durability=durability)
    run(graph, is_async, room.Command(resume="first"), CONFIG, durability=durability)
    found = run(graph, is_async, None, CONFIG, durability=durability)
    assert [one.value for one in found["__interrupt__"]] == ["two?"]
    answered = run(graph, is_async, room.Command(resume="second"), CONFIG, durability=durability)
    assert answered == {"l": ["first", "second"]}


@halves
def test_a_crash_behind_an_answer_in_a_subgraph_does_not_give_it_to_the_next_question(is_async: bool) -> None:
    saver = threadline.connect("memory://")
    crashes = [True]

    def two(state: Any) -> Any:
        if crashes.pop() if crashes else False:
            raise Killed
        return {"l": [room.interrupt("two?")]}

    graph = _asking_twice(saver, two)
    run(graph, is_async, {"l": []}, CONFIG)
    with pytest.raises(Killed):
        run(graph, is_async, room.Command(resume="first"), CONFIG)
    found = run(graph, is_async, None, CONFIG)
    assert [one.value for one in found["__interrupt__"]] == ["two?"]
    assert run(graph, is_async, room.Command(resume="second"), CONFIG) == {"l": ["first", "second"]}


def test_a_question_behind_a_subgraph_does_not_get_the_answer_that_the_subgraph_took() -> None:
    inner = room.StateGraph(State).add_node("one", lambda state: {"l": [room.interrupt("one?")]})
    sub = inner.add_edge(START, "one").compile()
    crashes = [True]

    def act(state: Any) -> Any:
        found = sub.invoke({"l": []})["l"]
        if crashes.pop() if crashes else False:
            raise Killed
        return {"l": [*found, room.interrupt("two?")]}

    graph = chain(threadline.connect("memory://"), x=act)
    crashes.clear()
    graph.invoke({"l": []}, CONFIG)
    crashes.append(True)
    with pytest.raises(Killed):
        graph.invoke(room.Command(resume="first"), CONFIG)
    for _ in range(2):
        assert [one.value for one in graph.invoke(None, CONFIG)["__interrupt__"]] == ["two?"]
    assert graph.invoke(room.Command(resume="second"), CONFIG) == {"l": ["first", "second"]}


@halves
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_answer_reaches_the_question_behind_a_subgraph_that_asked(is_async: bool, durability: str) -> None:
    inner = room.StateGraph(State).add_node("one", lambda state: {"l": [room.interrupt("one?")]})
    sub = inner.add_edge(START, "one").compile()

    def act(state: Any) -> Any:
        return {"l": [*sub.invoke({"l": []})["l"], room.interrupt("two?")]}

    graph = chain(threadline.connect("memory://"), x=act)
    run(graph, is_async, {"l": []}, CONFIG, durability=durability)
    run(graph, is_async, room.Command(resume="first"), CONFIG, durability=durability)
    answered = run(graph, is_async, room.Command(resume="second"), CONFIG, durability=durability)
    assert answered == {"l": ["first", "second"]}


class FailingOnce(Recorder):
    """A saver whose n-th put or write fails, before or after it was stored."""

    def __init__(self, place: int, *, after: bool) -> None:
        super().__init__()
        self.place = place
        self.after = after
        self.count = 0

    def _once(self, method: Any, *args: Any) -> Any:
        self.count += 1
        if self.count != self.place:
            return method(*args)
        if self.after:
            method(*args)
        raise OSError("once")

    def put(self, *args: Any) -> Any:
        return self._once(self.inner.put, *args)

    def put_writes(self, *args: Any) -> Any:
        return self._once(self.inner.put_writes, *args)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_store_that_fails_once_never_mixes_up_answers(durability: str, after: bool) -> None:
    answers = {"one?": "first", "two?": "second", "three?": "third", "four?": "fourth"}

    def drive(place: int) -> tuple[Any, int]:
        saver = FailingOnce(place, after=after)
        inner = room.StateGraph(State).add_node("one", lambda state: {"l": [room.interrupt("one?")]})
        sub = inner.add_node("pass", lambda state: {"l": ["pass"]}).add_edge(START, "one").add_edge("one", "pass")
        compiled = sub.compile()
        graph = chain(
            saver,
            x=lambda state: {"l": [*compiled.invoke({"l": []})["l"], room.interrupt("two?")]},
            y=lambda state: {"l": [room.interrupt("three?"), room.interrupt("four?")]},
        )
        given: Any = {"l": []}
        for _ in range(10):
            try:
                found = graph.invoke(given, CONFIG, durability=durability)
            except OSError:
                given = None if saver.inner.get_tuple(CONFIG) else {"l": []}
                continue
            if "__interrupt__" not in found:
                return found, saver.count
            given = room.Command(resume=answers[found["__interrupt__"][0].value])
        raise AssertionError("the graph does not end")

    expected, count = drive(0)
    assert expected == {"l": ["first", "pass", "second", "third", "fourth"]}
    for place in range(1, count + 1):
        assert drive(place)[0] == expected


@pytest.mark.parametrize("stored", ["text", 5, [{"id": 1}], [room.Interrupt("v", id=["odd"])]])
def test_a_stored_question_that_is_none_does_not_stop_its_thread(stored: Any) -> None:
    saver = threadline.connect("memory://")
    graph = chain(saver, x=lambda state: {"l": [room.interrupt("sure?")]})
    graph.invoke({"l": []}, CONFIG)
    found = graph.get_state(CONFIG)
    saver.put_writes(found.config, [("__interrupt__", stored)], found.tasks[0].id)
    assert graph.invoke(None, CONFIG)["__interrupt__"][0].value == "sure?"
    assert graph.invoke(room.Command(resume="yes"), CONFIG) == {"l": ["yes"]}


def test_what_is_no_send_is_not_told_in_the_log(caplog: Any) -> None:
    saver = threadline.connect("memory://")
    graph = chain(saver, x=lambda state: {"l": [room.interrupt("sure?")]})
    graph.invoke({"l": []}, CONFIG)
    saver.put_writes(graph.get_state(CONFIG).config, [("__pregel_tasks", ["secret"])], room.constants.NULL_TASK_ID)
    graph.invoke(None, CONFIG)
    assert "unknown node name str" in caplog.text
    assert "secret" not in caplog.text


# -- effects


class Losing(Recorder):
    """A saver whose process dies: from then on nothing is stored."""

    def __init__(self) -> None:
        super().__init__(0.005)
        self.is_dead = False

    def _note(self, what: str, checkpoint_id: str) -> None:
        super()._note(what, checkpoint_id)
        if self.is_dead:
            raise Killed


@halves
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("is_inside", [False, True], ids=["root", "subgraph"])
def test_a_crash_in_an_effect_leaves_its_idempotency_key(is_async: bool, durability: str, is_inside: bool) -> None:
    saver = Losing()
    keys: list[str] = []

    def act(state: Any, runtime: room.Runtime) -> Any:
        def pay() -> str:
            keys.append(runtime.idempotency_key("charge"))
            if len(keys) == 1:
                saver.is_dead = True
                raise Killed
            return "paid"

        return {"l": [runtime.once("charge", pay)]}

    inner = room.StateGraph(State).add_node("act", act).add_edge(START, "act")
    graph = chain(saver, x=lambda state: {"l": []}, y=inner.compile() if is_inside else act)
    with pytest.raises(Killed):
        run(graph, is_async, {"l": []}, CONFIG, durability=durability)
    saver.is_dead = False
    assert run(graph, is_async, None, CONFIG, durability=durability) == {"l": ["paid"]}
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_an_effect_that_the_store_did_not_take_is_stored_by_the_next_attempt() -> None:
    saver = threadline.connect("memory://")
    effects: list[str] = []
    fails = [True]
    real = saver.put_writes

    def put_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if writes[0][0] == "__return__" and fails and fails.pop():
            raise ConnectionError("lost")
        real(config, writes, task_id, task_path)

    saver.put_writes = put_writes  # type: ignore[method-assign]

    def act(state: Any, runtime: room.Runtime) -> Any:
        paid = runtime.once("charge", lambda: effects.append("paid") or "paid")
        found = saver.get_tuple(CONFIG).pending_writes
        assert ("__return__", "paid") in [(channel, value) for _, channel, value in found]
        return {"l": [paid]}

    policy = room.RetryPolicy(initial_interval=0.0, jitter=False)
    graph = chain(saver, x=(act, {"retry_policy": policy}))
    assert graph.invoke({"l": []}, CONFIG, durability="sync") == {"l": ["paid"]}
    assert effects == ["paid"]


@halves
def test_an_effect_asked_for_side_by_side_happens_once(is_async: bool) -> None:
    effects: list[int] = []

    async def pay_later() -> int:
        effects.append(1)
        await asyncio.sleep(0.01)
        return len(effects)

    def pay() -> int:
        effects.append(1)
        time.sleep(0.01)
        return len(effects)

    async def act_async(state: Any, runtime: room.Runtime) -> Any:
        return {"l": list(await asyncio.gather(*[runtime.aonce("charge", pay_later) for _ in range(3)]))}

    def act(state: Any, runtime: room.Runtime) -> Any:
        with ThreadPoolExecutor(3) as pool:
            return {"l": list(pool.map(lambda _: runtime.once("charge", pay), range(3)))}

    graph = chain(threadline.connect("memory://"), x=act_async if is_async else act)
    assert run(graph, is_async, {"l": []}, CONFIG) == {"l": [1, 1, 1]}
    assert effects == [1]


# -- writers


def test_writes_that_wait_for_room_survive_a_cancel() -> None:
    saver = Recorder()
    stored: list[str] = []

    async def main() -> None:
        gate = asyncio.Event()

        async def aput_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            await gate.wait()
            stored.append(task_id)

        saver.aput_writes = aput_writes  # type: ignore[method-assign]
        writer = LoopWriter(saver, background=True)
        adding = [asyncio.create_task(writer.add("put_writes", {}, [], str(number))) for number in range(40)]
        await asyncio.sleep(0)
        waiting = [one for one in adding if not one.done()]
        assert waiting
        for one in waiting:
            one.cancel()
        await asyncio.gather(*adding, return_exceptions=True)
        gate.set()
        await writer.close()

    asyncio.run(main())
    assert sorted(map(int, stored)) == list(range(40))


def test_what_is_added_after_the_end_is_stored() -> None:
    saver = Recorder(0.002)

    async def fill(writer: ThreadWriter) -> None:
        for number in range(10):
            await writer.add("put_writes", {"configurable": {"checkpoint_id": str(number)}}, [], "t")

    saver.inner.put_writes = lambda *args: None  # type: ignore[method-assign]
    writer = ThreadWriter(saver)

    async def late() -> None:
        await writer.add("put_writes", {"configurable": {"checkpoint_id": "late"}}, [], "t")
        await writer.settle()

    asyncio.run(fill(writer))
    asyncio.run(writer.close())
    for thread in threading.enumerate():
        if thread.name == "threadline-writer":
            thread.join(5)
    adding = threading.Thread(target=lambda: asyncio.run(late()), daemon=True)
    adding.start()
    adding.join(5)
    assert not adding.is_alive()
    assert saver.log[-1] == ("writes", "late")


def test_a_run_that_is_cancelled_while_it_takes_the_lease_leaves_the_thread_free() -> None:
    saver = threadline.connect("memory://")
    real = saver.lock

    class Lease:
        """A lease that takes a while."""

        is_lost = False

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.lease = real(*args, **kwargs)

        async def __aenter__(self) -> Any:
            await self.lease.__aenter__()
            await asyncio.sleep(0.01)

        async def __aexit__(self, *args: Any) -> None:
            await self.lease.__aexit__(*args)

    saver.lock = Lease  # type: ignore[assignment, method-assign]
    graph = chain(saver, options={"exclusive": True}, x=lambda state: {"l": ["x"]})

    async def main() -> Any:
        cancelled = asyncio.create_task(graph.ainvoke({"l": []}, CONFIG))
        await asyncio.sleep(0.005)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return await graph.ainvoke({"l": []}, CONFIG)

    assert asyncio.run(main()) == {"l": ["x"]}


def test_an_answer_may_be_an_array() -> None:
    numpy = pytest.importorskip("numpy")

    def act(state: Any) -> Any:
        return {"l": [room.interrupt("one?").tolist(), room.interrupt("two?")]}

    graph = chain(threadline.connect("memory://"), x=act)
    graph.invoke({"l": []}, CONFIG)
    graph.invoke(room.Command(resume=numpy.arange(3)), CONFIG)
    assert graph.invoke(None, CONFIG)["__interrupt__"][0].value == "two?"
    assert graph.invoke(room.Command(resume="yes"), CONFIG) == {"l": [[0, 1, 2], "yes"]}
