"""Work of tasks that is done together: each piece has its own outcome, whatever becomes of the others."""

import asyncio

import pytest

import threadline
from threadline.base.batching import TaskBatches


class Ledger:
    """Notes what was done together; refuses a group with `bad` in it."""

    def __init__(self):
        self.groups = []

    async def do(self, works):
        await asyncio.sleep(0)
        if any(name == "bad" for name, _ in works):
            raise ValueError(f"of {len(works)}")
        self.groups.append([number for _, number in works])


def gather(ledger, most=128):
    return TaskBatches(ledger.do, lambda work: work[0], most=most)


def test_what_tasks_ask_in_one_round_is_done_together():
    async def work():
        ledger = Ledger()
        together = gather(ledger)
        await asyncio.gather(*(together.ask((f"n{number}", number)) for number in range(5)))
        return ledger.groups

    assert asyncio.run(work()) == [[0, 1, 2, 3, 4]]


def test_two_pieces_for_one_name_are_done_one_after_the_other():
    async def work():
        ledger = Ledger()
        together = gather(ledger)
        await asyncio.gather(*(together.ask(("same" if number % 2 else f"n{number}", number)) for number in range(4)))
        return ledger.groups

    assert asyncio.run(work()) == [[0, 1, 2], [3]]


def test_no_group_is_larger_than_the_most():
    async def work():
        ledger = Ledger()
        together = gather(ledger, most=2)
        await asyncio.gather(*(together.ask((f"n{number}", number)) for number in range(5)))
        return ledger.groups

    assert asyncio.run(work()) == [[0, 1], [2, 3], [4]]


def test_one_that_fails_fails_alone():
    async def work():
        ledger = Ledger()
        together = gather(ledger)
        asked = [together.ask((name, number)) for number, name in enumerate(("a", "bad", "c"))]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        return [str(outcome) for outcome in outcomes], ledger.groups

    assert asyncio.run(work()) == (["None", "of 1", "None"], [[0], [2]])


def test_a_task_that_is_cancelled_takes_nobody_along():
    async def work():
        ledger = Ledger()
        together = gather(ledger)

        async def one(number):
            await together.ask((f"n{number}", number))

        tasks = [asyncio.create_task(one(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await together.finish()
        return [type(outcome).__name__ for outcome in outcomes], ledger.groups

    assert asyncio.run(work()) == (["NoneType", "CancelledError", "NoneType"], [[0, 1, 2]])


def test_each_loop_has_its_own_queue():
    ledger = Ledger()
    together = gather(ledger)

    async def work(number):
        await together.ask(("n", number))

    for number in range(3):
        asyncio.run(work(number))
    assert ledger.groups == [[0], [1], [2]]


def test_a_refused_put_does_not_fail_the_puts_beside_it(url):
    async def work():
        async with threadline.Store(url) as store:
            puts = [store.aput(("n",), str(number), {"n": number}) for number in range(20)]
            wrong = store.aput(("n",), "wrong", {"n": object()})
            outcomes = await asyncio.gather(*puts, wrong, return_exceptions=True)
            return outcomes, await store.acount()

    outcomes, count = asyncio.run(work())
    assert count == 20
    assert outcomes[:-1] == [None] * 20
    assert isinstance(outcomes[-1], threadline.InvalidRequest)


def test_a_closed_store_refuses_puts_of_tasks(url):
    async def work():
        store = threadline.Store(url)
        await store.aput(("n",), "k", {"n": 1})
        await store.aclose()
        await store.aput(("n",), "k", {"n": 2})

    with pytest.raises(threadline.Closed):
        asyncio.run(work())
