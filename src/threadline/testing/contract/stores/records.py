"""Named records: what the Records port promises, tried through a saver's engine on any backend."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ....errors import InvalidRequest
from ....ports.records import (
    ABSENT,
    MOST_NAME_BYTES,
    PlainPuts,
    Record,
    RecordChange,
    RecordSpace,
    Scan,
    group_of,
    pack_name,
    split_name,
)
from ...half import Half
from ...raising import refused

__all__: list[str] = []

ITEM = RecordSpace.ITEM


async def test_a_record_comes_back_as_it_was_put(saver: Half, thread: str) -> None:
    put = record(
        thread, "users", "7", "", "likes", value=b"\0\xff tea", searchable='{"kind": "drink"}', expires=4e9, form=3
    )
    await write(saver, put)
    [found, missing] = await records(
        saver, "read_records", ITEM, [put.name, pack_name((thread, "users", "", "nobody"))]
    )
    assert found == put._replace(version=1)
    assert missing is None


async def test_a_second_put_keeps_the_time_of_creation_and_raises_the_version(saver: Half, thread: str) -> None:
    await write(saver, record(thread, "a", "", "k", value=b"1", created=10.0, updated=10.0))
    await write(saver, record(thread, "a", "", "k", value=b"2", created=20.0, updated=20.0))
    [found] = await records(saver, "read_records", ITEM, [pack_name((thread, "a", "", "k"))])
    assert (found.value, found.created, found.updated, found.version) == (b"2", 10.0, 20.0, 2)


async def test_of_several_puts_to_one_name_the_last_one_holds(saver: Half, thread: str) -> None:
    await write(saver, *[record(thread, "a", "", "k", value=b"%d" % number) for number in range(5)])
    [found] = await records(saver, "read_records", ITEM, [pack_name((thread, "a", "", "k"))])
    assert found.value == b"4"


async def test_a_batch_of_puts_is_what_its_puts_are_one_by_one(saver: Half, thread: str) -> None:
    for round_number, count in enumerate((1, 2, 7, 64, 65, 100, 131)):
        names = [pack_name((thread, f"b{round_number}", "", f"k{number}")) for number in range(count)]
        # Half of them are there, some of these with an end that the batch takes away or gives.
        there = [record(*split_name(name), value=b"before", expires=5e9, created=1.0) for name in names[::2]]
        await write(saver, *there)
        rounds: list[tuple[list[int], list[float | None]]] = [
            ([0] * count, [None] * count),
            ([1] * count, [4e9] * count),
            ([number % 2 for number in range(count)], [None if number % 5 else 4e9 for number in range(count)]),
        ]
        for forms, ends in rounds:
            values = [b"%d of %d" % (number, count) for number in range(count)]
            texts = [None if number % 3 else f'{{"n": {number}}}' for number in range(count)]
            assert (
                await records(saver, "write_records", PlainPuts(ITEM, 9.0, names, forms, values, texts, ends)) is None
            )
            found = await records(saver, "read_records", ITEM, names)
            assert [(one.name, one.form, one.value, one.updated, one.expires) for one in found] == [
                (name, form, value, 9.0, end) for name, form, value, end in zip(names, forms, values, ends, strict=True)
            ]
            assert [one.searchable is None for one in found] == [text is None for text in texts]
        # What is searchable goes with a batch that has nothing of that kind.
        await records(saver, "write_records", PlainPuts(ITEM, 9.0, names, forms, values, [None] * count, ends))
        found = await records(saver, "read_records", ITEM, names)
        assert [one.searchable for one in found] == [None] * count
        assert [(one.created, one.version) for one in found] == [(9.0, 4) if n % 2 else (1.0, 5) for n in range(count)]


async def test_a_condition_that_does_not_hold_refuses_all_changes(saver: Half, thread: str) -> None:
    first, second = record(thread, "a", "", "1", value=b"x"), record(thread, "a", "", "2", value=b"y")
    await write(saver, first)
    changes = [
        RecordChange(ITEM, second.name, second),
        RecordChange(ITEM, first.name, first._replace(value=b"z"), ABSENT),
    ]
    assert await records(saver, "write_records", changes) == 1
    [kept, absent] = await records(saver, "read_records", ITEM, [first.name, second.name])
    assert kept.value == b"x"
    assert absent is None


async def test_new_bytes_replace_those_that_are_there_still_and_nothing_else(saver: Half, thread: str) -> None:
    put = record(thread, "a", "", "k", value=b"old", searchable='{"kind": "drink"}', expires=4e9, form=2)
    await write(saver, put)
    [old] = await records(saver, "read_records", ITEM, [put.name])
    new = old._replace(form=4, value=b"new")
    await records(saver, "rewrap_records", ITEM, [(old, new)])
    assert await records(saver, "read_records", ITEM, [put.name]) == [new]
    # The record is another by now, and one that is not there is not made.
    gone = old._replace(name=pack_name((thread, "a", "", "gone")))
    await records(saver, "rewrap_records", ITEM, [(old, old._replace(value=b"late")), (gone, gone)])
    assert await records(saver, "read_records", ITEM, [put.name, gone.name]) == [new, None]
    assert (await records(saver, "forms"))[4] >= 1


async def test_of_two_writers_who_saw_the_same_version_one_succeeds(saver: Half, thread: str) -> None:
    item = record(thread, "a", "", "k", value=b"0")
    await write(saver, item)
    first = RecordChange(ITEM, item.name, item._replace(value=b"1"), 1)
    second = RecordChange(ITEM, item.name, item._replace(value=b"2"), 1)
    assert await records(saver, "write_records", [first]) is None
    assert await records(saver, "write_records", [second]) == 0
    [found] = await records(saver, "read_records", ITEM, [item.name])
    assert (found.value, found.version) == (b"1", 2)


async def test_of_two_writers_of_the_same_value_one_succeeds(saver: Half, thread: str) -> None:
    item = record(thread, "a", "", "k", value=b"0", created=10.0, updated=10.0)
    # Two that count one more, each at its own moment: were both told that they did, one would be lost.
    for expected, value in ((ABSENT, b"1"), (1, b"2")):
        first = RecordChange(ITEM, item.name, item._replace(value=value, updated=20.0 + expected), expected)
        second = RecordChange(ITEM, item.name, item._replace(value=value, updated=20.5 + expected), expected)
        assert await records(saver, "write_records", [first]) is None
        assert await records(saver, "write_records", [second]) == 0
        assert await records(saver, "write_records", [first]) is None
    [found] = await records(saver, "read_records", ITEM, [item.name])
    assert (found.value, found.updated, found.version) == (b"2", 21.0, 2)


async def test_the_same_conditional_change_again_is_harmless(saver: Half, thread: str) -> None:
    item = record(thread, "a", "", "k", value=b"0")
    for change in (
        RecordChange(ITEM, item.name, item, ABSENT),
        RecordChange(ITEM, item.name, item._replace(value=b"1"), 1),
    ):
        assert await records(saver, "write_records", [change]) is None
        assert await records(saver, "write_records", [change]) is None
    [found] = await records(saver, "read_records", ITEM, [item.name])
    assert (found.value, found.version) == (b"1", 2)
    for _ in range(2):
        assert await records(saver, "write_records", [RecordChange(ITEM, item.name, None, 2)]) is None
    assert await records(saver, "read_records", ITEM, [item.name]) == [None]


async def test_a_record_that_is_brought_over_has_the_version_it_had(saver: Half, thread: str) -> None:
    item = record(thread, "a", "", "k", value=b"0")._replace(version=7)
    brought = RecordChange(ITEM, item.name, item, ABSENT)
    for _ in range(2):
        assert await records(saver, "write_records", [brought]) is None
    assert await records(saver, "read_records", ITEM, [item.name]) == [item]
    later = item._replace(value=b"1", version=12)
    anew = [RecordChange(ITEM, item.name, None, 7), RecordChange(ITEM, item.name, later, ABSENT)]
    assert await records(saver, "write_records", anew) is None
    assert await records(saver, "read_records", ITEM, [item.name]) == [later]
    assert await records(saver, "write_records", [RecordChange(ITEM, item.name, item)]) is None
    [found] = await records(saver, "read_records", ITEM, [item.name])
    assert (found.value, found.version) == (b"0", 13)


async def test_spaces_do_not_see_each_other(saver: Half, thread: str) -> None:
    item = record(thread, "a", "", "k", value=b"item")
    await write(saver, item)
    change = RecordChange(RecordSpace.CACHE, item.name, item._replace(value=b"cached"))
    assert await records(saver, "write_records", [change]) is None
    assert await records(saver, "drop_records", RecordSpace.CACHE, pack_name((thread,))) == 1
    [found] = await records(saver, "read_records", ITEM, [item.name])
    assert found.value == b"item"


async def test_a_scan_gives_what_is_below_a_prefix_of_whole_segments_in_order(saver: Half, thread: str) -> None:
    paths = [
        ("tenant", "acme", "", "1"),
        ("tenant", "acme", "x", "", "2"),
        ("tenant", "acme-corp", "", "3"),
        ("b", "", "4"),
    ]
    await write(saver, *[record(thread, *path) for path in paths])
    found = await scan(saver, Scan(prefix=pack_name((thread, "tenant", "acme"))))
    assert [split_name(one.name)[1:] for one in found] == paths[:2]
    everything = [one.name for one in await scan(saver, Scan(pack_name((thread,))))]
    assert everything == sorted(pack_name((thread, *path)) for path in paths)
    pages: list[bytes] = []
    while page := await scan(saver, Scan(pack_name((thread,)), after=pages[-1] if pages else b"", limit=1)):
        pages += [one.name for one in page]
    assert pages == everything


async def test_what_has_expired_is_hidden_before_it_is_swept(saver: Half, thread: str) -> None:
    await write(
        saver,
        record(thread, "a", "", "old", expires=100.0),
        record(thread, "a", "", "new", expires=300.0),
        record(thread, "b", "", "k"),
    )
    assert [split_name(one.name)[-1] for one in await scan(saver, Scan(pack_name((thread,)), now=200.0, limit=1))] == [
        "new"
    ]
    assert await records(saver, "count_records", ITEM, pack_name((thread,)), 200.0) == 2
    assert await records(saver, "count_records", ITEM, pack_name((thread,))) == 3
    old = pack_name((thread, "a", "", "old"))
    assert (old, 100.0) in await records(saver, "expire_records", ITEM, 200.0, 1000)
    assert (old, 100.0) not in await records(saver, "expire_records", ITEM, 200.0, 1000)
    touched = [pack_name((thread, "a", "", "new")), pack_name((thread, "c"))]
    await records(saver, "touch_records", ITEM, touched, 150.0)
    assert [split_name(one.name)[-1] for one in await scan(saver, Scan(pack_name((thread,)), now=200.0))] == ["k"]
    await records(saver, "touch_records", ITEM, [pack_name((thread, "a", "", "new"))], None)
    assert [split_name(one.name)[-1] for one in await scan(saver, Scan(pack_name((thread,)), now=1e12))] == ["new", "k"]


async def test_groups_are_listed_to_a_depth(saver: Half, thread: str) -> None:
    paths = [("a", "", "1"), ("a", "", "2"), ("a", "b", "", "1"), ("a", "b", "c", "", "1"), ("d", "e", "", "1")]
    await write(saver, *[record(thread, *path) for path in paths])
    for depth, expected in (
        (1, [("a",), ("d",)]),
        (2, [("a",), ("a", "b"), ("d", "e")]),
        (9, [("a",), ("a", "b"), ("a", "b", "c"), ("d", "e")]),
    ):
        found = await records(saver, "record_prefixes", ITEM, pack_name((thread,)), depth + 1, b"", 100)
        assert [split_name(one)[1:] for one in found] == expected
        later = await records(saver, "record_prefixes", ITEM, pack_name((thread,)), depth + 1, found[0], 1)
        assert later == found[1:2]
    assert await records(saver, "record_prefixes", ITEM, pack_name((thread, "a", "b")), 9, b"", 1) == [
        pack_name((thread, "a", "b"))
    ]


async def test_dropping_a_prefix_leaves_its_neighbours(saver: Half, thread: str) -> None:
    await write(
        saver,
        *[record(thread, "a", "b", "", str(n)) for n in range(7)],
        record(thread, "a", "bc", "", "1"),
        record(thread, "a", "", "1"),
    )
    assert await records(saver, "drop_records", ITEM, pack_name((thread, "a", "b"))) == 7
    assert [split_name(one.name)[1:] for one in await scan(saver, Scan(pack_name((thread,))))] == [
        ("a", "", "1"),
        ("a", "bc", "", "1"),
    ]


async def test_names_hold_every_text_up_to_the_bound(saver: Half, thread: str) -> None:
    texts = ["%", "_", "*", "?", "[", "'\"\\", "\0", "a\0b", "\n", "é\U0010ffff", "x" * 1000]
    names = [pack_name((thread, one, "", other)) for one in texts for other in texts]
    await write(saver, *[record(thread, *split_name(name)[1:], value=name) for name in names])
    assert [one.name for one in await scan(saver, Scan(pack_name((thread,)), limit=500))] == sorted(names)
    assert [one.value for one in await records(saver, "read_records", ITEM, names)] == names
    longest = "y" * (MOST_NAME_BYTES - len(pack_name((thread, ""))))
    await write(saver, record(thread, longest))
    with refused(InvalidRequest):
        pack_name(
            (
                thread,
                longest + "y",
            )
        )


async def test_random_changes_match_a_plain_dict(saver: Half, thread: str) -> None:
    chance = random.Random(7)
    model: dict[bytes, bytes] = {}
    labels = ["a", "b", "ab", "a\0", "é"]
    for _ in range(60):
        changes = []
        for _ in range(chance.randint(1, 4)):
            path = (*chance.choices(labels, k=chance.randint(1, 3)), "", chance.choice(labels))
            item = record(thread, *path, value=b"%d" % chance.randint(0, 9))
            changes.append(RecordChange(ITEM, item.name, item if chance.random() < 0.8 else None))
        await records(saver, "write_records", changes)
        for change in changes:
            if change.record is None:
                model.pop(change.name, None)
            else:
                model[change.name] = change.record.value
    assert [(one.name, one.value) for one in await scan(saver, Scan(pack_name((thread,)), limit=500))] == sorted(
        model.items()
    )
    for depth in (1, 2, 3):
        found = await records(saver, "record_prefixes", ITEM, pack_name((thread,)), depth + 1, b"", 500)
        assert found == sorted({group_of(name, depth + 1)[0] for name in model})


def record(
    *path: str,
    value: bytes = b"",
    form: int = 0,
    searchable: str | None = None,
    created: float = 1.5,
    updated: float = 2.5,
    expires: float | None = None,
) -> Record:
    return Record(pack_name(path), form, value, searchable, created, updated, expires, 0)


async def write(saver: Half, *put: Record) -> None:
    changes = [RecordChange(ITEM, one.name, one) for one in put]
    assert await records(saver, "write_records", changes) is None


async def scan(saver: Half, wanted: Scan) -> Sequence[Record]:
    found: Sequence[Record] = await records(saver, "scan_records", ITEM, wanted)
    return found


async def records(saver: Half, method: str, *args: Any) -> Any:
    """A method of the port, in the half that is tried."""
    engine = saver.saver._engine
    if saver.is_async:
        return await engine.arun(lambda backend: getattr(backend, method)(*args))
    return engine.run(lambda backend: getattr(backend, method)(*args))
