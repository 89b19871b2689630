"""Many small threads travel together, and each arrives as if it had travelled alone."""

import pytest
from house import INTERRUPT, config, grow, is_sound, picture, put

from threadline.backends.layers.retry import RetryLayer
from threadline.core.moving.small import SmallThreads
from threadline.core.paging import walk
from threadline.ports.checkpoints import CheckpointKey

COUNT = 60


def _fill(saver, count=COUNT):
    for number in range(count):
        name = f"t{number:03}"
        if number % 10 == 4:
            saver.thread(name).create(metadata={"org": name})
        at = grow(saver, config(name), 0, 1 + number % 3)
        if number % 2:
            saver.put_writes(at, [("count", number), ("messages", ["x" * 3000])], "task-1")
        if number % 10 == 3:
            saver.put_writes(at, [(INTERRUPT, [{"value": "go on?", "id": f"q{number}"}])], "task-2")
        if number % 10 == 4:
            saver.thread(name).tag("good")
        if number % 20 == 13:
            put(saver, at, {"count": 1}, 9)  # the question waits no longer
    put(saver, config("t005", "child:1"), {"text": "\0 and \1 " * 50}, 0)
    return saver


@pytest.fixture
def applied(monkeypatch):
    """How many changes each transaction had that a copy made; those of the source come before it."""
    sizes = []
    wrapped = RetryLayer.wrapped

    def counting(self, name, mark, call):
        inner = wrapped(self, name, mark, call)
        if name != "apply":
            return inner

        async def apply(changes):
            sizes.append(len(changes))
            return await inner(changes)

        return apply

    monkeypatch.setattr(RetryLayer, "wrapped", counting)
    return sizes


@pytest.mark.parametrize("target", ["sqlite", "postgres", "mysql", "sealed sqlite", "sealed postgres"])
@pytest.mark.parametrize("source", ["sqlite", "sealed postgres"])
def test_many_small_threads_share_a_transaction(house, half, applied, source, target):
    old, new = _fill(house(source)), house(target)
    applied.clear()
    report = half.call(old, "copy_to", new)
    assert report.is_complete, report.problems
    assert report.threads == COUNT
    assert len(applied) < COUNT / 4
    assert picture(new) == picture(old)
    assert is_sound(new)
    again = half.call(old, "copy_to", new)
    assert (again.checkpoints.copied, again.writes.copied, again.chunks) == (0, 0, 0)
    assert (again.threads, again.checkpoints.present) == (COUNT, report.checkpoints.copied)


@pytest.mark.parametrize("target", ["sqlite", "postgres", "redis"])
def test_a_thread_that_is_another_one_does_not_stop_the_others(house, target):
    old, new = _fill(house("sqlite")), house(target)
    grow(new, config("t007"), 0, 2)
    new.thread("t008").put({"count": 1})
    new.delete_thread("t008")
    report = old.copy_to(new)
    assert [problem.split(":")[0] for problem in report.problems] == [
        "thread 't007' exists in the target and is another one"
    ]
    assert report.threads == COUNT - 1
    other, own = picture(new)[0], picture(old)[0]
    assert {name: one for name, one in other.items() if name != "t007"} == {
        name: one for name, one in own.items() if name != "t007"
    }
    assert old.copy_to(new, merge=True).renamed.keys() == {"t007"}
    assert is_sound(new)


def test_a_damaged_chunk_is_named_and_leaves_out_its_checkpoint_alone(house):
    import sqlite3

    old, new = _fill(house("sqlite")), house("postgres")
    with sqlite3.connect(old.url.removeprefix("sqlite:///")) as database:
        [(pool,)] = database.execute("SELECT pool FROM threadline_threads WHERE thread_id = 't009'")
        database.execute("UPDATE threadline_chunks SET data = x'00' WHERE pool = ?", (pool,))
    report = old.copy_to(new)
    assert report.problems
    assert all("'t009'" in problem for problem in report.problems)
    own, other = picture(new)[0], picture(old, "t00")[0]
    assert {name: one for name, one in own.items() if name in other and name != "t009"} == {
        name: one for name, one in other.items() if name != "t009"
    }
    assert is_sound(new)


@pytest.mark.parametrize("target", ["sqlite", "postgres", "sealed postgres"])
def test_a_thread_that_was_begun_and_not_filled_is_completed(house, monkeypatch, target):
    old, new = _fill(house("sqlite"), 12), house(target)
    sending = SmallThreads._send

    async def stopped(self, wholes):
        await sending(self, wholes[:5])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SmallThreads, "_send", stopped)
        old.copy_to(new)
    assert is_sound(new)
    assert len(picture(new)[0]) == 5
    assert old.copy_to(new).is_complete
    assert picture(new) == picture(old)


def test_what_was_read_back_otherwise_than_sent_is_a_problem(house, monkeypatch):
    old, new = _fill(house("sqlite"), 12), house("sqlite")
    reading = SmallThreads._wholes

    async def altered(self, store, names):
        found = await reading(self, store, names)
        if store is self._target and "t003" in found:
            chunks = found["t003"].chunks
            chunks[0] = chunks[0]._replace(data=b"other")
        return found

    monkeypatch.setattr(SmallThreads, "_wholes", altered)
    report = old.copy_to(new)
    assert len(report.problems) == 1
    assert "'t003'" in report.problems[0]
    assert "read back" in report.problems[0]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
def test_whole_threads_are_what_their_parts_are(house, kind):
    saver = _fill(house(kind), 12)
    saver.delete_thread("t002")
    saver.thread("t003").fork(to="fork")

    async def compare(store):
        found = {
            one.thread.thread_id: one for one in await store.backend.wholes(["t001", "t002", "t003", "fork", "no"])
        }
        assert found.keys() == {"t001", "t002", "t003", "fork"}
        for name, whole in found.items():
            assert whole.thread == await store.thread(name)
            assert whole.checkpoints == [one.row for one in await walk(store, name, None, 100)]
            assert sorted(whole.writes) == sorted(await store.thread_writes(name))
            digests = [row[0] for row in await store.backend.chunk_sizes(whole.thread.pool, b"", 1000)]
            rows = await store.chunks(whole.thread.pool, digests)
            assert sorted(whole.chunks) == sorted(rows) or name == "t002"
        assert found["t002"].checkpoints == []

    saver.run(compare)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "mysql", "redis"])
def test_an_outline_is_the_walk_without_what_checkpoints_hold(house, kind):
    saver = _fill(house(kind), 12)
    grow(saver, config("t005"), 3, 9)

    async def compare(store):
        rows = [found.row for found in await walk(store, "t005", None, 100)]
        wanted = [(row.namespace, row.id, row.parent, row.step, row.source, row.created) for row in rows]
        assert len({row.namespace for row in rows}) == 2
        for page in (1, 4, 100):
            found, after = [], None
            while part := await store.backend.outline("t005", after, page):
                found += map(tuple, part)
                after = CheckpointKey(*part[-1][:2])
            assert found == wanted
        assert await store.backend.outline("nobody", None, 10) == []

    saver.run(compare)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "mysql", "redis"])
def test_threads_are_swapped_each_only_if_it_is_what_it_was(house, kind):
    saver = _fill(house(kind), 3)

    async def swap(store):
        rows = [await store.thread(f"t{number:03}") for number in range(3)]
        wanted = [row._replace(status="archived") for row in rows]
        stale = rows[1]._replace(tags='["another"]')
        made = await store.backend.swap_threads([(rows[2], wanted[2]), (stale, wanted[1]._replace(expires=1.0))])
        assert made == [True, False]
        # The same again, after an answer that never came, is harmless.
        assert await store.backend.swap_threads([(rows[2], wanted[2])]) == [True]
        assert await store.backend.swap_threads([]) == []
        found = [(await store.thread(row.thread_id)).status for row in rows]
        assert found == ["active", "active", "archived"]

    saver.run(swap)
