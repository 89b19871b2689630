"""Entrypoints and tasks: section 15."""

from typing import Any

from oracle_table import case
from oracle_trial import Trial


@case("15.1")
def an_entrypoint_with_tasks(t: Trial) -> Any:
    saver = t.saver()
    if t.is_async:

        @t.task
        async def double(x: int) -> int:
            return x * 2

        @t.entrypoint(checkpointer=saver)
        async def work(x: int) -> Any:
            futures = [double(i) for i in range(x)]
            return [await future for future in futures]
    else:

        @t.task
        def double(x: int) -> int:
            return x * 2

        @t.entrypoint(checkpointer=saver)
        def work(x: int) -> Any:
            return [future.result() for future in [double(i) for i in range(x)]]

    return {
        "out": t.invoke(work, 3, t.config()),
        "stream": t.stream(work, 2, t.config("2"), stream_mode=["updates", "values"], unordered=True),
        **t.everything(work, saver, t.config()),
    }


@case("15.2")
def previous_and_final(t: Trial) -> Any:
    saver = t.saver()

    def counted(x: int, *, previous: Any = None) -> Any:
        total = (previous or 0) + x
        return t.entrypoint.final(value=f"sum {total}", save=total)

    work = t.entrypoint(checkpointer=saver)(t.node(counted))
    outs = [t.invoke(work, i, t.config()) for i in (1, 2, 3)]
    return {"outs": outs, "state": t.state(work, t.config()), "stored": t.stored(saver, t.config())}


@case("15.3")
def tasks_are_not_repeated_on_resume(t: Trial) -> Any:
    saver = t.saver()
    ran: list[Any] = []

    if t.is_async:

        @t.task
        async def step(x: Any) -> Any:
            ran.append(x)
            return x

        @t.entrypoint(checkpointer=saver)
        async def work(x: Any) -> Any:
            one = await step("one")
            answer = t.interrupt("go?")
            two = await step("two")
            return [one, answer, two]
    else:

        @t.task
        def step(x: Any) -> Any:
            ran.append(x)
            return x

        @t.entrypoint(checkpointer=saver)
        def work(x: Any) -> Any:
            one = step("one").result()
            answer = t.interrupt("go?")
            two = step("two").result()
            return [one, answer, two]

    config = t.config()
    asked = t.stream(work, "in", config, stream_mode=["updates", "values"])
    waiting = t.everything(work, saver, config)
    answered = t.stream(work, t.Command(resume="yes"), config, stream_mode=["updates", "values"])
    return {"asked": asked, "waiting": waiting, "answered": answered, "ran": ran, **t.everything(work, saver, config)}


@case("15.3")
def an_error_of_a_task_is_raised_in_its_caller(t: Trial) -> Any:
    if t.is_async:

        @t.task
        async def bad(x: Any) -> Any:
            raise ArithmeticError("bad")

        @t.entrypoint()
        async def work(x: Any) -> Any:
            try:
                return await bad(1)
            except ArithmeticError:
                return "caught"

        @t.entrypoint()
        async def fails(x: Any) -> Any:
            return await bad(1)
    else:

        @t.task
        def bad(x: Any) -> Any:
            raise ArithmeticError("bad")

        @t.entrypoint()
        def work(x: Any) -> Any:
            try:
                return bad(1).result()
            except ArithmeticError:
                return "caught"

        @t.entrypoint()
        def fails(x: Any) -> Any:
            return bad(1).result()

    return [t.error(lambda: t.invoke(work, 1)), t.error(lambda: t.invoke(fails, 1))]


@case("15.4")
def a_question_inside_a_task(t: Trial) -> Any:
    saver = t.saver()
    if t.is_async:

        @t.task
        async def ask(x: Any) -> Any:
            return t.interrupt(x)

        @t.entrypoint(checkpointer=saver)
        async def work(x: Any) -> Any:
            return [await ask("one"), await ask("two")]
    else:

        @t.task
        def ask(x: Any) -> Any:
            return t.interrupt(x)

        @t.entrypoint(checkpointer=saver)
        def work(x: Any) -> Any:
            return [ask("one").result(), ask("two").result()]

    config = t.config()
    outs = [t.invoke(work, "in", config)]
    states = [t.everything(work, saver, config)]
    for answer in ("A", "B"):
        outs.append(t.invoke(work, t.Command(resume=answer), config))
        states.append(t.everything(work, saver, config))
    return {"outs": outs, "states": states}


@case("15.3")
def tasks_in_a_node(t: Trial) -> Any:
    from typing_extensions import TypedDict

    class State(TypedDict, total=False):
        a: Any

    if t.is_async:

        @t.task
        async def double(x: int) -> int:
            return x * 2

        async def act(state: Any) -> Any:
            return {"a": await double(4)}
    else:

        @t.task
        def double(x: int) -> int:
            return x * 2

        def act(state: Any) -> Any:
            return {"a": double(4).result()}

    saver = t.saver()
    graph = t.graph(State, {"x": act}, [(t.START, "x")], checkpointer=saver)
    return {
        "stream": t.stream(graph, {}, t.config(), stream_mode=["updates", "values"]),
        **t.everything(graph, saver, t.config()),
    }


@case("15.1")
def what_cannot_be_an_entrypoint(t: Trial) -> Any:
    def nothing() -> Any:
        return 1

    @t.task
    def lone(x: Any) -> Any:
        return x

    return [
        t.error(lambda: t.entrypoint()(nothing) and 1, 0),
        t.error(lambda: lone(1), 0),
    ]


def _the_task_ran_once(ours: Any, theirs: Any) -> None:
    assert ours == {"out": "done 1", "ran": ["step"], "tries": 2}
    assert theirs["ran"] == ["step", "step"]


@case("15.3", differs=_the_task_ran_once)
def a_retried_caller_keeps_its_tasks(t: Trial) -> Any:
    ran: list[str] = []
    tries = [0]
    policy = t.RetryPolicy(initial_interval=0.001, jitter=False)
    if t.is_async:

        @t.task
        async def step() -> int:
            ran.append("step")
            return len(ran)

        @t.entrypoint(checkpointer=t.saver(), retry_policy=policy)
        async def work(x: Any) -> Any:
            done = await step()
            tries[0] += 1
            if tries[0] == 1:
                raise ConnectionError("again")
            return f"done {done}"
    else:

        @t.task
        def step() -> int:
            ran.append("step")
            return len(ran)

        @t.entrypoint(checkpointer=t.saver(), retry_policy=policy)
        def work(x: Any) -> Any:
            done = step().result()
            tries[0] += 1
            if tries[0] == 1:
                raise ConnectionError("again")
            return f"done {done}"

    return {"out": t.invoke(work, 1, t.config()), "ran": ran, "tries": tries[0]}
