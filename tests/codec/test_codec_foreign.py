"""Serializers of others, passed as `serde=`: called item by item, their bytes kept as they are."""

import io
import json
import os
import sqlite3
from contextlib import closing

import codec_kinds as kinds
import pytest
from codec_stores import in_thread, put, values_at
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import threadline
from threadline import Corrupt, InvalidRequest, KeyRing, NotSerializable, Serializer


class Recording:
    """A serializer of LangGraph's protocol that notes what it is asked."""

    def __init__(self):
        self.dumped, self.loaded = [], []

    def dumps_typed(self, value):
        self.dumped.append(value)
        return "of mine", json.dumps(value).encode()

    def loads_typed(self, typed):
        tag, packed = typed
        assert tag == "of mine"
        self.loaded.append(packed)
        return json.loads(packed)


class Shifting:
    """A cipher for tests: like a real one it gives other bytes each time, unlike one it is no secret."""

    def __init__(self, shift=7):
        self.shift = shift

    def encrypt(self, plaintext):
        nonce = os.urandom(8)
        keyed = bytes((byte + self.shift + nonce[at % 8]) % 256 for at, byte in enumerate(b"check" + plaintext))
        return "shift", nonce + keyed

    def decrypt(self, name, ciphertext):
        assert name == "shift"
        nonce, keyed = ciphertext[:8], ciphertext[8:]
        plain = bytes((byte - self.shift - nonce[at % 8]) % 256 for at, byte in enumerate(keyed))
        if plain[:5] != b"check":
            raise ValueError("another key")
        return plain[5:]


def items(count):
    return [
        {"at": at, "text": f"an item long enough to be stored as a chunk of its own: {at} " * 3} for at in range(count)
    ]


@pytest.mark.parametrize(
    "make",
    [JsonPlusSerializer, lambda: json, Recording, Serializer, lambda: EncryptedSerializer(Shifting())],
    ids=["jsonplus", "json", "protocol", "ours", "encrypted"],
)
def test_values_come_back_through_any_serializer(connect, make):
    saver = connect(serde=make())
    state = {
        "messages": items(50),
        "files": {"a": "x" * 5000, "b": "y"},
        "count": 5,
        "none": None,
        "empty": [],
        "no": {},
    }
    config = put(saver, state, note={"n": 1})
    saver.put_writes(config, [("messages", items(2)), ("count", 6)], "task")
    for reader in (saver, connect(serde=make())):
        reader.clear_cache()
        found = reader.get_tuple(config)
        assert dict(found.checkpoint["channel_values"]) == state
        assert [(channel, value) for _, channel, value in found.pending_writes] == [
            ("messages", items(2)),
            ("count", 6),
        ]
        assert found.metadata["note"] == {"n": 1}


def test_a_serializer_is_called_item_by_item(connect):
    serde = Recording()
    saver = connect(serde=serde)
    messages = items(40)
    config = put(saver, {"messages": messages})
    assert all(message in serde.dumped for message in messages)
    assert messages not in serde.dumped
    saver.clear_cache()
    assert values_at(saver, config)["messages"] == messages
    assert len(serde.loaded) == 40


def test_only_new_items_are_stored_whatever_the_serializer(connect):
    for serde in (JsonPlusSerializer(), json, Recording(), EncryptedSerializer(Shifting())):
        saver = (
            connect(serde=serde)
            if not isinstance(serde, EncryptedSerializer)
            else threadline.connect("memory://", serde=serde)
        )
        thread = type(serde).__name__
        config = put(saver, {"messages": items(300)}, thread=thread)
        before = saver.stats().bytes_stored
        put(saver, {"messages": items(301)}, after=config)
        assert saver.stats().bytes_stored - before < before / 10


def test_jsonplus_keeps_what_it_keeps_of_objects(connect):
    saver = connect(serde=JsonPlusSerializer())
    config = put(saver, {"objects": [kinds.Point(1, 2), kinds.Person(name="n")], "one": kinds.Pair(1, 2)})
    saver.clear_cache()
    assert values_at(saver, config) == {"objects": [kinds.Point(1, 2), kinds.Person(name="n")], "one": kinds.Pair(1, 2)}


def test_what_jsonplus_wrote_is_read_by_a_saver_without_it(connect):
    config = put(connect(serde=JsonPlusSerializer()), {"objects": [kinds.Point(1, 2)] * 20, "one": {"a": {1, 2}}})
    assert values_at(connect(), config) == {"objects": [kinds.Point(1, 2)] * 20, "one": {"a": {1, 2}}}


def test_a_saver_with_a_serializer_reads_what_was_stored_without_it(connect):
    config = put(connect(), {"objects": [kinds.Point(1, (2,))] * 20, "one": {"a": {1, 2}}})
    saver = connect(serde=JsonPlusSerializer())
    assert values_at(saver, config) == {"objects": [kinds.Point(1, (2,))] * 20, "one": {"a": {1, 2}}}


def test_what_another_serializer_wrote_is_refused_by_its_tag(connect):
    config = put(connect(serde=Recording()), {"a": [1]})
    with pytest.raises(threadline.NotAllowed, match="of mine"):
        connect().get_tuple(config)


@pytest.mark.parametrize("serde", [json, JsonPlusSerializer(), Recording()], ids=["json", "jsonplus", "protocol"])
def test_what_a_serializer_refuses_is_named_by_its_place(connect, serde):
    saver = connect(serde=serde)
    with pytest.raises(NotSerializable) as caught:
        put(saver, {"good": 1, "bad": [1, {"deep": io.BytesIO()}]})
    assert caught.value.path.startswith("bad[1]")
    assert saver.get_tuple(in_thread()) is None


def test_what_a_serializer_cannot_read_is_corrupt(connect):
    class Forgetful(Recording):
        def loads_typed(self, typed):
            raise RuntimeError("I forgot how")

    config = put(connect(serde=Recording()), {"channel": [1, 2]}, thread="thread 7")
    with pytest.raises(Corrupt, match=r"thread 7.*channel.*I forgot how"):
        connect(serde=Forgetful()).get_tuple(config)


@pytest.mark.parametrize(
    "serde", [object(), 5, "json", type("Half", (), {"dumps": 1})()], ids=["object", "number", "text", "half"]
)
def test_what_is_no_serializer_is_refused(serde):
    with pytest.raises(InvalidRequest, match="serde"):
        threadline.connect("memory://", serde=serde)


def test_a_serializer_of_ours_brings_its_rules(connect):
    saver = connect(serde=Serializer(allowed_types=[kinds.Point]))
    config = put(saver, {"a": kinds.Point(1)})
    assert values_at(saver, config) == {"a": kinds.Point(1)}
    with pytest.raises(NotSerializable):
        put(saver, {"a": kinds.FrozenPoint(1)})
    picklish = connect(serde=Serializer(pickle_fallback=True))
    config = put(picklish, {"a": kinds.Opaque(5)})
    assert values_at(picklish, config)["a"].value == 5


def test_two_sets_of_rules_are_one_too_many():
    with pytest.raises(InvalidRequest):
        threadline.connect("memory://", serde=Serializer(), allowed_types="strict")


# -- LangGraph's EncryptedSerializer


def test_an_encrypting_serializer_is_taken_apart_so_that_chunks_are_shared(tmp_path):
    path = tmp_path / "threads.db"
    saver = threadline.connect(path, serde=EncryptedSerializer(Shifting()))
    config = put(saver, {"messages": items(200)})
    with closing(sqlite3.connect(path)) as database:
        [(before,)] = database.execute("select count(*) from threadline_chunks")
    for count in range(201, 206):
        saver.clear_cache()
        config = put(saver, {"messages": items(count)}, after=config)
    with closing(sqlite3.connect(path)) as database:
        [(after,)] = database.execute("select count(*) from threadline_chunks")
    assert after - before < 40
    saver.clear_cache()
    assert values_at(saver, config)["messages"] == items(205)
    saver.close()


def test_nothing_of_the_state_can_be_read_in_a_file_under_an_encrypting_serializer(tmp_path):
    saver = threadline.connect(tmp_path / "threads.db", serde=EncryptedSerializer(Shifting()))
    config = put(saver, {"secret-channel": ["secret-value" * 20, "secret-small"]}, note="secret-note")
    saver.put_writes(config, [("channel", "secret-write")], "task")
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    saver.close()
    for secret in (b"secret-channel", b"secret-value", b"secret-small", b"secret-note", b"secret-write"):
        assert secret not in files


def test_another_key_of_an_encrypting_serializer_opens_nothing(connect):
    config = put(connect(serde=EncryptedSerializer(Shifting(7))), {"a": ["secret"] * 20})
    with pytest.raises(Corrupt):
        connect(serde=EncryptedSerializer(Shifting(8))).get_tuple(config)
    with pytest.raises(InvalidRequest):
        connect().get_tuple(config)


def test_a_cipher_and_a_key_ring_are_one_too_many():
    with pytest.raises(InvalidRequest, match="not both"):
        threadline.connect("memory://", serde=EncryptedSerializer(Shifting()), encryption=KeyRing({"a": b"k" * 32}))


def test_the_cipher_of_langgraph_itself_is_taken(tmp_path):
    """With pycryptodome, as LangGraph's users have it."""
    path = tmp_path / "threads.db"
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 32)
    saver = threadline.connect(path, serde=serde)
    config = put(saver, {"messages": items(20)})
    saver.close()
    assert b"an item long enough" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert values_at(threadline.connect(path, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 32)), config)
    with pytest.raises(Corrupt):
        threadline.connect(path, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"x" * 32)).get_tuple(config)
