"""Values without a stored form are refused with their path; classes that are gone are refused by name."""

import dataclasses
import io
import socket
import sys
import threading
import types

import pytest

import threadline


class NoForm:
    """Nothing says how to store it."""


@dataclasses.dataclass
class Holder:
    held: object


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def selfish():
    value = {"name": "loop"}
    value["self"] = value
    return value


# A value for the channel `text`, and the path by which the error must name what is wrong with it.
UNSTORABLE = {
    "bare": (NoForm(), "text"),
    "in a list": ([1, {"a": NoForm()}], "text[1]['a']"),
    "late in a long list": ([*range(500), NoForm()], "text[500]"),
    "in a dict": ({"a": {"b": [0, NoForm()]}}, "text['a']['b'][1]"),
    "under an odd key": ({"a/b 'c'": NoForm()}, "text[\"a/b 'c'\"]"),
    "as a key": ({NoForm(): 1}, "text"),
    "in a set": ({1, NoForm()}, "text"),
    "in a tuple": ((1, NoForm()), "text"),
    "in a dataclass": (Holder(NoForm()), "text"),
    "a function": ([lambda: 1], "text[0]"),
    "a generator": ({"g": (n for n in ())}, "text['g']"),
    "a module": ([sys], "text[0]"),
    "a lock": ([threading.Lock()], "text[0]"),
    "a file": ([io.StringIO()], "text[0]"),
    "a class": ([NoForm], "text[0]"),
    "itself": (selfish(), "text"),
    "too deep": (deep(5000), "text"),
}


def test_an_unstorable_value_is_refused_with_its_path(each, refused, make):
    def check(case):
        value, path = UNSTORABLE[case]
        put = make.checkpoint(3, text=value, small=3)
        error = refused(
            threadline.NotSerializable, path, "put", make.config("kept", "00000002"), put, {"step": 3}, {"text": 3}
        )
        assert error.path.startswith(path)
        refused(threadline.NotSerializable, path, "put", make.config("new"), put, {"step": 3}, {"text": 3})
        writes = [("good", 1), ("text", value)]
        refused(threadline.NotSerializable, path, "put_writes", make.config("kept", "00000002"), writes, "task-2")

    each(UNSTORABLE, check)


@pytest.mark.parametrize("case", ["bare", "in a list", "too deep", "itself", "as a key"])
def test_unstorable_metadata_is_refused_with_its_path(refused, make, case):
    value, _ = UNSTORABLE[case]
    # What never ends is named by where it was found to have no end.
    path = "metadata" if case in ("too deep", "itself") else "metadata['extra']['value']"
    metadata = {"step": 3, "extra": {"value": value}}
    refused(threadline.NotSerializable, path, "put", make.config("kept"), make.checkpoint(3), metadata, {"text": 3})


def test_an_object_that_fails_while_it_is_encoded_is_refused_with_its_path(refused, make):
    class Failing:
        @property
        def __class__(self):
            raise RuntimeError("not today")

    with socket.socket() as open_socket:
        for value in (open_socket, Failing(), types.SimpleNamespace(a=NoForm())):
            put = make.checkpoint(3, text=[value])
            refused(threadline.NotSerializable, "text[0]", "put", make.config("kept"), put, {"step": 3}, {"text": 3})


def test_a_failing_put_is_forgotten_by_the_next_one(saver, half, connect, url, make):
    """What a refused put had encoded already is not taken for stored."""
    items = [f"{n} " * 100 for n in range(300)]
    half_good = make.checkpoint(3, text=items, broken=NoForm())
    with pytest.raises(threadline.NotSerializable, match="broken"):
        half.call(saver, "put", make.config("kept", "00000002"), half_good, {"step": 3}, {"text": 3, "broken": 3})
    good = make.checkpoint(3, text=items)
    half.call(saver, "put", make.config("kept", "00000002"), good, {"step": 3}, {"text": 3})
    assert half.call(connect(url), "get_tuple", make.config("kept")).checkpoint == good


@pytest.fixture
def vanishing():
    """A dataclass in a module that can be taken away again."""
    module = types.ModuleType("a_module_that_goes")
    exec("import dataclasses\n@dataclasses.dataclass\nclass Note:\n    text: str\n", module.__dict__)
    sys.modules[module.__name__] = module
    module.Note.__module__ = module.__name__
    yield module
    sys.modules.pop(module.__name__, None)


def test_a_class_that_no_longer_exists_is_named_with_its_place(saver, connect, url, half, make, vanishing):
    put = make.checkpoint(3, note=vanishing.Note("x"), text="y" * 300)
    half.call(saver, "put", make.config("kept", "00000002"), put, {"step": 3}, {"note": 3, "text": 3})
    half.call(saver, "put", make.config("kept", "00000003"), make.checkpoint(4), {"step": 4}, {"text": 4})
    del sys.modules["a_module_that_goes"]
    reader = connect(url)
    with pytest.raises(threadline.NotAllowed) as caught:
        half.call(reader, "get_tuple", make.config("kept", "00000003"))
    for word in ("kept", "00000003", "'note'", "a_module_that_goes:Note"):
        assert word in str(caught.value)
    listed = half.listed(reader, make.config("kept"))
    assert [one.checkpoint["id"] for one in listed] == ["00000004", "00000003", "00000002", "00000001"]
    assert listed[1].checkpoint["channel_values"]["text"] == "y" * 300
    with pytest.raises(threadline.NotAllowed, match="a_module_that_goes:Note"):
        listed[1].checkpoint["channel_values"]["note"]


@pytest.mark.parametrize("where", ["a pending write", "the metadata"])
def test_a_class_that_no_longer_exists_elsewhere_does_not_end_a_list(saver, connect, url, half, make, vanishing, where):
    metadata = {"step": 3, "note": vanishing.Note("x")} if where == "the metadata" else {"step": 3}
    half.call(saver, "put", make.config("kept", "00000002"), make.checkpoint(3), metadata, {"text": 3})
    if where == "a pending write":
        half.call(saver, "put_writes", make.config("kept", "00000003"), [("note", vanishing.Note("x"))], "task")
    del sys.modules["a_module_that_goes"]
    reader = connect(url)
    with pytest.raises(threadline.NotAllowed) as caught:
        half.call(reader, "get_tuple", make.config("kept", "00000003"))
    for word in ("kept", "00000003", "a_module_that_goes:Note"):
        assert word in str(caught.value)
    listed = [one.checkpoint["id"] for one in half.listed(reader, make.config("kept"))]
    assert listed[-2:] == ["00000002", "00000001"]


def test_an_allowlist_brings_nothing_back_that_was_refused(connect, url, half, make):
    """Under strict rules a data class that could not be loaded again is refused by put, not by get."""
    strict = connect(url, allowed_types="strict")
    put = make.checkpoint(1, note=[Holder("x")])
    with pytest.raises(threadline.NotSerializable, match=r"note\[0\]"):
        half.call(strict, "put", make.config("t"), put, {"step": 1}, {"note": 1})
    assert half.call(strict, "get_tuple", make.config("t")) is None
    allowed = strict.with_allowlist([Holder])
    half.call(allowed, "put", make.config("t"), put, {"step": 1}, {"note": 1})
    assert half.call(allowed, "get_tuple", make.config("t")).checkpoint == put
    with pytest.raises(threadline.NotAllowed, match="Holder"):
        half.call(strict, "get_tuple", make.config("t"))
