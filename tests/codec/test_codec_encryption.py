"""A store under a key ring: nothing to read without a key, nothing to move, and keys can be changed."""

import sqlite3
import traceback
from contextlib import closing

import codec_kinds as kinds
import pytest
from codec_anatomy import anatomy
from codec_stores import in_thread, put, values_at
from codec_values import MAKERS

import threadline
from tests.stores import savers
from threadline import Corrupt, InvalidRequest, KeyRing, NotFound

OLD, NEW, OTHER = (
    b"old key of 32 bytes, all of them",
    b"new key of 32 bytes, all of them",
    b"not the key at all, but 32 bytes",
)
SECRETS = ("secret-channel", "secret-long " * 50, "secret-small", "secret-note", "secret-write", "secret-dict-key")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "threads.db"


@pytest.fixture
def sealed(path):
    """Opens savers on one file under a ring of these keys, the first of which seals."""
    with savers(path) as opening:
        yield lambda **keys: opening(encryption=KeyRing(keys) if keys else None)


def rows(path, query, *values):
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(query, values).fetchall()


def fill(saver, thread="thread", **metadata):
    """A checkpoint with values of all sizes, and its writes."""
    state = {
        "secret-channel": ["secret-long " * 50, "secret-small", *range(100)],
        "files": {"secret-dict-key": "secret-long " * 5000, "b": 1},
        "single": "secret-small",
    }
    config = put(saver, state, thread=thread, note="secret-note", **metadata)
    saver.put_writes(config, [("channel", "secret-write"), ("other", ["secret-long " * 50])], "task")
    return config, state


def everything(saver, config):
    found = saver.get_tuple(config)
    return anatomy([found.checkpoint, found.metadata, found.pending_writes])


# -- what can be read in the file


def test_nothing_of_state_metadata_and_writes_can_be_read_in_the_files(path, sealed):
    fill(sealed(old=OLD))
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert len(files) > 50_000
    for secret in SECRETS:
        assert secret.encode() not in files
    for key in (OLD, OLD.hex().encode()):
        assert key not in files


def test_without_encryption_the_same_can_be_read(path):
    """So that the test above is not empty."""
    fill(threadline.connect(path, compression=None))
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert all(secret.encode() in files for secret in SECRETS)


def test_only_the_metadata_that_was_named_is_readable(path):
    saver = threadline.connect(path, encryption=KeyRing({"old": OLD}), index_metadata=("user_id",))
    fill(saver, user_id="shown-user", tenant="secret-tenant")
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"shown-user" in files
    assert b"secret-tenant" not in files
    for filter in ({"user_id": "shown-user"}, {"tenant": "secret-tenant"}, {"note": "secret-note"}):
        assert len(list(saver.list(None, filter=filter))) == 1
    assert list(saver.list(None, filter={"tenant": "other"})) == []
    saver.close()


def test_equal_content_has_other_names_in_another_store(tmp_path):
    names = []
    for name in ("one.db", "two.db"):
        saver = threadline.connect(tmp_path / name, encryption=KeyRing({"old": OLD}))
        fill(saver)
        saver.close()
        names.append({digest for (digest,) in rows(tmp_path / name, "select digest from threadline_chunks")})
    assert len(names[0]) == len(names[1]) > 3
    assert not names[0] & names[1]


@pytest.mark.parametrize("size", [16, 24, 32])
def test_every_value_comes_back_from_under_a_seal(path, size):
    saver = threadline.connect(path, encryption=KeyRing({"k": bytes(size)}))
    config = put(saver, {"all": [make() for make in MAKERS.values()]})
    saver.clear_cache()
    found = values_at(saver, config)["all"]
    assert anatomy(found) == anatomy([make() for make in MAKERS.values()])
    saver.close()


def test_items_are_shared_under_a_seal_too(path, sealed):
    saver = sealed(old=OLD)
    items = [f"item {at} " * 40 for at in range(300)]
    config = put(saver, {"items": items})
    [(before,)] = rows(path, "select count(*) from threadline_chunks")
    saver.clear_cache()
    put(saver, {"items": [*items, "one more " * 40]}, after=config)
    [(after,)] = rows(path, "select count(*) from threadline_chunks")
    assert 0 < after - before < 8


# -- bytes that were moved or altered


def damaged(saver, config):
    saver.clear_cache()
    with pytest.raises(Corrupt) as caught:
        saver.get_tuple(config)
    assert "thread" in str(caught.value)


def test_chunks_that_changed_places_are_corrupt(path, sealed):
    saver = sealed(old=OLD)
    config = put(saver, {"a": "first " * 100, "b": "other " * 100})
    (one, sealed_one), (two, sealed_two) = rows(path, "select digest, data from threadline_chunks")
    for digest, data in ((one, sealed_two), (two, sealed_one)):
        rows(path, "update threadline_chunks set data = ? where digest = ?", data, digest)
    damaged(saver, config)


def test_equal_texts_of_two_threads_have_different_names(path, sealed):
    saver = sealed(old=OLD)
    for thread in ("mine", "other"):
        put(saver, {"a": "same " * 100}, thread=thread)
    [(one, _), (other, _)] = rows(path, "select digest, data from threadline_chunks order by pool")
    assert one != other


def test_a_chunk_of_another_thread_is_corrupt_even_under_the_same_name(path, sealed):
    saver = sealed(old=OLD)
    mine, other = put(saver, {"a": "same " * 100}, thread="mine"), put(saver, {"a": "same " * 100}, thread="other")
    [(_, first), (_, second)] = rows(path, "select digest, data from threadline_chunks order by pool")
    rows(path, "update threadline_chunks set data = case data when ? then ? else ? end", first, second, first)
    damaged(saver, mine)
    damaged(saver, other)


@pytest.mark.parametrize("column", ["document", "metadata"])
def test_rows_that_changed_places_are_corrupt(path, sealed, column):
    saver = sealed(old=OLD)
    configs = [put(saver, {"a": thread}, thread=thread) for thread in ("one", "two")]
    configs += [put(saver, {"a": "three"}, after=configs[0])]
    held = rows(path, f"select id, {column} from threadline_checkpoints order by id")
    moved = [data for _, data in held[1:] + held[:1]]
    for (checkpoint_id, _), data in zip(held, moved, strict=True):
        rows(path, f"update threadline_checkpoints set {column} = ? where id = ?", data, checkpoint_id)
    for config in configs:
        damaged(saver, config)


def test_writes_that_changed_places_are_corrupt(path, sealed):
    saver = sealed(old=OLD)
    config = put(saver, {"a": 1})
    saver.put_writes(config, [("a", "one"), ("b", "two")], "task")
    (one,), (two,) = rows(path, "select data from threadline_writes order by idx")
    rows(path, "update threadline_writes set data = case idx when 0 then ? else ? end", two, one)
    damaged(saver, config)


def test_parents_links_and_channels_cannot_be_exchanged(path, sealed):
    saver = sealed(old=OLD)
    config, _ = fill(saver)
    untouched = everything(saver, config)
    for column, value in (("parent", "someone else"), ("links", b"x" * 16), ("form", 4), ("form", 3)):
        [(before,)] = rows(path, f"select {column} from threadline_checkpoints")
        rows(path, f"update threadline_checkpoints set {column} = ?", value)
        damaged(saver, config)
        rows(path, f"update threadline_checkpoints set {column} = ?", before)
    rows(path, "update threadline_writes set channel = 'another' where channel = 'channel'")
    damaged(saver, config)
    rows(path, "update threadline_writes set channel = 'channel' where channel = 'another'")
    assert everything(saver, config) == untouched


def test_every_altered_or_missing_byte_of_a_sealed_row_is_corrupt(path, sealed):
    saver = sealed(old=OLD)
    config = put(saver, {"a": ["x" * 200]})
    for table, column in (("checkpoints", "document"), ("checkpoints", "metadata"), ("chunks", "data")):
        [(whole,)] = rows(path, f"select {column} from threadline_{table}")
        for at in (0, 5, 11, 12, len(whole) // 2, len(whole) - 1):
            for altered in (whole[:at], whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :]):
                rows(path, f"update threadline_{table} set {column} = ?", altered)
                damaged(saver, config)
        rows(path, f"update threadline_{table} set {column} = ?", whole)
    assert values_at(saver, config) == {"a": ["x" * 200]}


def test_plaintext_in_a_sealed_store_is_refused(path, sealed):
    saver = sealed(old=OLD)
    config = put(saver, {"a": "x" * 300, "b": 1})
    plain = threadline.connect("memory://")
    packed = plain._tools.codec.encode("x" * 300)
    rows(path, "update threadline_chunks set form = 0, data = ?", packed)
    damaged(saver, config)
    rows(path, "update threadline_checkpoints set form = 0, document = ?", b"\x96\x04\xa0\x80\xc2\x80\x80")
    damaged(saver, config)


# -- opening with the wrong keys, or with none


def test_a_sealed_store_is_not_opened_without_keys(path, sealed):
    config, _ = fill(sealed(old=OLD))
    before = rows(path, "select count(*), max(id) from threadline_checkpoints")
    for use in (
        lambda saver: saver.get_tuple(config),
        lambda saver: list(saver.list(None)),
        lambda saver: put(saver, {"a": 1}),
        lambda saver: put(saver, {"a": 1}, thread="new"),
        lambda saver: saver.put_writes(config, [("a", 1)], "t"),
        lambda saver: saver.open(),
        lambda saver: saver.rotate_keys(),
    ):
        with pytest.raises(InvalidRequest, match="encryption="):
            use(sealed())
    assert rows(path, "select count(*), max(id) from threadline_checkpoints") == before


async def _try(awaitable):
    return await awaitable


def test_a_sealed_store_is_not_opened_without_keys_by_the_async_half(path, sealed):
    import asyncio

    config, _ = fill(sealed(old=OLD))
    checkpoint = threadline.empty_checkpoint()
    for use in (
        lambda saver: saver.aget_tuple(config),
        lambda saver: saver.aput(in_thread(), checkpoint, {}, {}),
        lambda saver: saver.aput_writes(config, [("a", 1)], "t"),
    ):
        with pytest.raises(InvalidRequest, match="encryption="):
            asyncio.run(_try(use(sealed())))


def test_a_plain_store_is_not_taken_for_a_sealed_one(path, sealed):
    saver = sealed()
    config = put(saver, {"a": 1})
    for use in (lambda s: s.get_tuple(config), lambda s: put(s, {"a": 2})):
        with pytest.raises(InvalidRequest, match="plaintext"):
            use(sealed(old=OLD))
    assert values_at(sealed(), config) == {"a": 1}


def test_a_wrong_key_under_the_right_name_opens_and_writes_nothing(path, sealed):
    config, _ = fill(sealed(old=OLD))
    for use in (lambda s: s.get_tuple(config), lambda s: put(s, {"a": 2}), lambda s: list(s.list(None))):
        with pytest.raises(Corrupt, match="key"):
            use(sealed(old=OTHER))


def test_a_missing_key_is_named_by_its_id(path, sealed):
    config, _ = fill(sealed(old=OLD))
    for use in (lambda s: s.get_tuple(config), lambda s: put(s, {"a": 2})):
        with pytest.raises(NotFound, match="'old'"):
            use(sealed(new=NEW))


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ({}, {}),
        ({"a": b"short"}, {}),
        ({"a": b"x" * 33}, {}),
        ({"a": "x" * 32}, {}),
        ({"a": OLD}, {"current": "b"}),
        ({"": OLD}, {}),
        ({5: OLD}, {}),
    ],
)
def test_a_ring_that_could_not_seal_is_refused_without_showing_a_key(keys, options):
    with pytest.raises(InvalidRequest) as caught:
        KeyRing(keys, **options)
    assert "x" * 16 not in str(caught.value)


def test_encryption_takes_a_ring_and_nothing_else():
    for wrong in (OLD, OLD.hex(), {"old": OLD}, True):
        with pytest.raises(InvalidRequest, match="KeyRing") as caught:
            threadline.connect("memory://", encryption=wrong)
        assert "old key" not in str(caught.value)


def test_keys_show_in_no_text(path, sealed):
    saver = sealed(old=OLD, new=NEW)
    config, _ = fill(saver)
    texts = [
        repr(thing) for thing in (saver, KeyRing({"old": OLD}), saver._tools, saver._tools.envelope.ring, saver.serde)
    ]
    texts += [str(KeyRing({"old": OLD})), f"{KeyRing({'old': OLD})}"]
    for ring in ({"old": OTHER}, {"new": NEW}):
        try:
            sealed(**ring).get_tuple(config)
        except threadline.ThreadlineError as error:
            texts.append("".join(traceback.format_exception(error)) + repr(error))
    assert len(texts) == 9
    for text in texts:
        for key in (OLD, NEW, OTHER):
            assert key.decode() not in text
            assert key.hex() not in text
            assert repr(key) not in text


def test_the_key_of_langgraphs_environment_makes_a_ring(monkeypatch, path):
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "k" * 32)
    saver = threadline.connect(path, encryption=KeyRing.from_env())
    config = put(saver, {"a": kinds.Point(1)})
    saver.close()
    assert values_at(threadline.connect(path, encryption=KeyRing({"env": b"k" * 32})), config) == {"a": kinds.Point(1)}
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "too short")
    with pytest.raises(InvalidRequest) as caught:
        KeyRing.from_env()
    assert "too short" not in str(caught.value)
    monkeypatch.delenv("LANGGRAPH_AES_KEY")
    with pytest.raises(InvalidRequest, match="LANGGRAPH_AES_KEY"):
        KeyRing.from_env()


def test_a_generated_key_is_random_and_long_enough():
    keys = {KeyRing.generate() for _ in range(20)}
    assert len(keys) == 20
    assert {len(key) for key in keys} == {32}
