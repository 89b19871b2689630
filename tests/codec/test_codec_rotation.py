"""Keys change while the store is used: names stay, sharing survives, and an old key can be retired."""

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
from codec_stores import put, values_at

import threadline
from tests.stores import savers
from threadline import InvalidRequest, KeyRing, NotFound

OLD, NEW, NEXT = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
# Checkpoints and writes of what `fill` makes, with the root, a pack and the open run of each pool's items.
FEWEST_ROWS = 20
ITEMS = [f"item {at} " * 30 for at in range(120)]


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request, tmp_path):
    """Opens savers on one store under a ring of these keys, the first of which seals."""
    url = f"memory://{tmp_path.name}-{request.node.name}" if request.param == "memory" else tmp_path / "threads.db"
    with savers(url) as opening:

        def open_saver(**keys):
            return opening(encryption=KeyRing(keys))

        open_saver.url = url
        yield open_saver


def fill(saver):
    """Threads with forks, writes, a subgraph's namespace, and writes whose checkpoint never came."""
    configs = []
    for thread in ("one", "two"):
        config = put(saver, {"items": ITEMS, "n": 1}, thread=thread, note="x" * 3000)
        saver.put_writes(config, [("n", 2), ("items", ITEMS[:20])], "task")
        configs += [config, put(saver, {"items": [*ITEMS, "more"], "n": 2}, after=config)]
    inner = {"configurable": {"thread_id": "one", "checkpoint_ns": "child:1"}}
    configs.append(put(saver, {"inner": [1, "y" * 500]}, after=inner))
    saver.copy_thread("one", "fork")
    configs.append({"configurable": {"thread_id": "fork", "checkpoint_ns": ""}})
    early = {
        "configurable": {
            "thread_id": "one",
            "checkpoint_ns": "",
            "checkpoint_id": "1f999999-0000-6000-8000-000000000000",
        }
    }
    saver.put_writes(early, [("n", "early " * 100)], "task")
    return configs


def rows_under(saver, key_id):
    """How many rows are sealed under a key; a checkpoint counts twice if its metadata is sealed apart."""
    uses = {key.id: key.rows for key in saver.keys()}  # noqa: SIM118 (a saver is no dict)
    return uses[key_id]


def everything(saver, configs):
    saver.clear_cache()
    return [saver.get_tuple(config) for config in configs]


def test_rotating_seals_everything_under_the_current_key(sealed):
    configs = fill(sealed(old=OLD))
    saver = sealed(new=NEW, old=OLD)
    before = everything(saver, configs)
    assert saver.keys_in_use() == {"old"}
    rows, seen = rows_under(saver, "old"), []
    count = saver.rotate_keys(seen.append)
    assert count > FEWEST_ROWS
    assert seen == sorted(seen)
    assert seen[-1] == count
    assert (rows_under(saver, "old"), rows_under(saver, "new")) == (0, rows)
    assert saver.keys_in_use() == {"new"}
    assert everything(saver, configs) == before


def test_a_retired_key_is_needed_no_more(sealed):
    configs = fill(sealed(old=OLD))
    before = everything(sealed(old=OLD), configs)
    sealed(new=NEW, old=OLD).rotate_keys()
    alone = sealed(new=NEW)
    assert everything(alone, configs) == before
    put(alone, {"items": ITEMS}, after=configs[1])
    with pytest.raises(NotFound, match="'new'"):
        sealed(old=OLD).get_tuple(configs[0])


def test_a_second_rotation_finds_nothing_to_do(sealed):
    fill(sealed(old=OLD))
    saver = sealed(new=NEW, old=OLD)
    saver.rotate_keys()
    assert saver.rotate_keys() == 0


def test_keys_rotate_again_and_back(sealed):
    configs = fill(sealed(old=OLD))
    before = everything(sealed(old=OLD), configs)
    sealed(new=NEW, old=OLD).rotate_keys()
    sealed(next=NEXT, new=NEW).rotate_keys()
    last = sealed(next=NEXT)
    assert last.keys_in_use() == {"next"}
    assert everything(last, configs) == before
    sealed(old=OLD, next=NEXT).rotate_keys()
    assert everything(sealed(old=OLD), configs) == before


def test_both_keys_are_in_use_until_all_is_rotated(sealed):
    configs = fill(sealed(old=OLD))
    saver = sealed(new=NEW, old=OLD)
    put(saver, {"items": ITEMS}, after=configs[1])
    assert saver.keys_in_use() == {"old", "new"}
    assert sealed(old=OLD, new=NEW).keys_in_use() == {"old", "new"}


def test_a_named_current_key_seals_wherever_it_stands(sealed):
    saver = threadline.connect(sealed.url, encryption=KeyRing({"old": OLD, "new": NEW}, current="new"))
    put(saver, {"a": 1})
    assert saver.keys_in_use() == {"new"}
    saver.close()


def test_names_of_chunks_stay_and_sharing_survives(tmp_path):
    path = tmp_path / "threads.db"

    def chunks():
        with closing(sqlite3.connect(path)) as database:
            return dict(database.execute("select digest, data from threadline_chunks").fetchall())

    saver = threadline.connect(path, encryption=KeyRing({"old": OLD}))
    config = put(saver, {"items": ITEMS})
    saver.close()
    before = chunks()
    saver = threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD}))
    saver.rotate_keys()
    after = chunks()
    assert after.keys() == before.keys()
    assert all(after[digest] != before[digest] for digest in before)
    saver.clear_cache()
    config = put(saver, {"items": [*ITEMS, "one more"]}, after=config)
    assert len(chunks()) - len(after) < 6
    assert values_at(saver, config)["items"] == [*ITEMS, "one more"]
    saver.close()


def test_packs_and_the_pointers_into_them_are_sealed_anew(tmp_path):
    path = tmp_path / "threads.db"

    def chunks():
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("select digest, links, form, data from threadline_chunks").fetchall()
        return {digest: row for digest, *row in found}

    with threadline.connect(path, encryption=KeyRing({"old": OLD})) as saver:
        configs = [put(saver, {"items": ITEMS[:1]})]
        for count in range(2, 100):
            configs.append(put(saver, {"items": ITEMS[:count]}, after=configs[-1]))
        items = {saver._tools.digesters.of(1).item(saver._tools.codec.encode(item)) for item in ITEMS}
    before = chunks()
    pointers = {digest: row[0] for digest, row in before.items() if digest in items and row[0]}
    assert len(pointers) > 8
    assert before.keys() >= set(pointers.values())
    with threadline.connect(path, encryption=KeyRing({"new": NEW, "old": OLD})) as saver:
        saver.rotate_keys()
    after = chunks()
    assert {digest: row[0] for digest, row in after.items()} == {digest: row[0] for digest, row in before.items()}
    for digest in {*pointers, *pointers.values()}:
        assert before[digest][1:] != after[digest][1:]
        assert before[digest][1] != after[digest][1]
    with threadline.connect(path, encryption=KeyRing({"new": NEW})) as saver:
        assert [values_at(saver, config)["items"] for config in configs] == [ITEMS[:count] for count in range(1, 100)]
        assert saver.fsck().ok


def test_a_process_that_opened_before_a_new_key_came_reads_what_it_sealed(sealed):
    early = sealed(old=OLD, new=NEW)
    config = put(early, {"items": ITEMS})
    late = sealed(new=NEW, old=OLD)
    config = put(late, {"items": [*ITEMS, "from the other"]}, after=config)
    late.put_writes(config, [("items", ["written"])], "task")
    assert values_at(early, config)["items"][-1] == "from the other"
    assert early.get_tuple(config).pending_writes[0][2] == ["written"]
    assert len(list(early.list(None))) == 2
    late.rotate_keys()
    early.clear_cache()
    assert values_at(early, config)["items"][-1] == "from the other"


def test_writers_go_on_while_keys_are_rotated(sealed):
    fill(sealed(old=OLD))
    writer, rotator = sealed(new=NEW, old=OLD), sealed(new=NEW, old=OLD)
    stop, configs = threading.Event(), []

    def write():
        config = put(writer, {"items": ITEMS}, thread="busy")
        while not stop.is_set() or len(configs) < 3:
            config = put(writer, {"items": [*ITEMS, str(len(configs))]}, after=config)
            configs.append(config)

    thread = threading.Thread(target=write)
    thread.start()
    rotator.rotate_keys()
    stop.set()
    thread.join(30)
    rotator.rotate_keys()
    assert rotator.keys_in_use() == {"new"}
    reader = sealed(new=NEW)
    for at, config in enumerate(configs):
        assert values_at(reader, config)["items"][-1] == str(at)


def test_the_async_half_rotates_too(sealed):
    configs = fill(sealed(old=OLD))
    before = everything(sealed(old=OLD), configs)
    saver = sealed(new=NEW, old=OLD)
    rows = rows_under(saver, "old")

    async def rotate():
        count = await saver.arotate_keys()
        return count, await saver.akeys_in_use()

    count, in_use = asyncio.run(rotate())
    assert count > FEWEST_ROWS
    assert (rows_under(saver, "old"), rows_under(saver, "new")) == (0, rows)
    assert in_use == {"new"}
    assert everything(sealed(new=NEW), configs) == before


def test_a_plain_store_has_no_keys_to_rotate():
    saver = threadline.connect("memory://")
    put(saver, {"a": 1})
    assert saver.keys_in_use() == set()
    with pytest.raises(InvalidRequest, match="not encrypted"):
        saver.rotate_keys()
