"""What stored bytes may become. Nothing is imported, and no code runs, because bytes say so."""

import importlib.util
import os
import subprocess
import sys
import types

import codec_kinds as kinds
import ormsgpack
import pytest
from codec_anatomy import anatomy
from codec_stores import put, values_at

import threadline
from threadline import InvalidRequest, NotAllowed, NotSerializable, Serializer, register
from threadline.codec import Codec, TypeRules
from threadline.codec.codec import OBJECT


def forged(name, state=None):
    """Bytes that name any type, as somebody with access to the database could write them."""
    encoded = name.encode()
    return ormsgpack.packb(ormsgpack.Ext(OBJECT, bytes((len(encoded),)) + encoded + ormsgpack.packb(state or {})))


def codec_with(allowed):
    return Codec(TypeRules(allowed))


DATA = [kinds.Point(1), kinds.Person(name="n"), kinds.Pair(1), kinds.Plain.RED, kinds.OldAddress(street="s")]
each_data_class = pytest.mark.parametrize("value", DATA, ids=lambda value: type(value).__name__)


# -- the default rules


@each_data_class
def test_by_default_a_data_class_of_an_imported_module_is_rebuilt(value):
    assert anatomy(Codec().decode(Codec().encode(value))) == anatomy(value)


@pytest.mark.parametrize(
    "name",
    [
        *("os:system", "builtins:eval", "subprocess:Popen", "builtins:object", "builtins:type", "io:StringIO"),
        *("codec_kinds:Opaque", "codec_kinds:ran", "codec_kinds:Missing", "codec_kinds:Outer", "codec_kinds:T"),
        *("codec_kinds:Closing", "codec_kinds:Outer.Inner.value", "codec_kinds:", ":Point", "codec_kinds", "", ":"),
        *(
            "codec_kinds:Point.__class__",
            "codec_kinds:Point.__init__.__globals__",
            "codec_kinds:..",
            "codec_kinds:Grumpy",
        ),
        *("codec_kinds.Point", "sys:modules", "threadline:KeyRing", "threadline.errors:Corrupt", "pickle", "?1", "@2"),
    ],
)
def test_what_is_no_data_class_of_an_imported_module_is_refused(name):
    with pytest.raises(NotAllowed):
        Codec().decode(forged(name))


def test_nothing_is_imported_because_bytes_name_it(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text(
        "import os, dataclasses\nos.environ['NEVER'] = '1'\n@dataclasses.dataclass\nclass Point:\n    x: int = 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("never_imported") is not None
    for name in ("never_imported:Point", "never_imported", "never_imported.deep:Point"):
        for read in (Codec().decode, codec_with([("never_imported", "Point")]).decode, Serializer().loads):
            with pytest.raises(NotAllowed):
                read(forged(name, {"x": 1}))
    assert "never_imported" not in sys.modules
    assert "NEVER" not in os.environ


def test_a_module_that_loads_its_parts_when_asked_is_not_asked():
    asked = []
    module = types.ModuleType("lazy_parts")
    module.__getattr__ = lambda name: asked.append(name) or kinds.Point
    sys.modules["lazy_parts"] = module
    try:
        for name in ("lazy_parts:Point", "lazy_parts:Point.Inner", "lazy_parts:__path__"):
            with pytest.raises(NotAllowed):
                Codec().decode(forged(name, {"x": 1, "y": 2}))
    finally:
        del sys.modules["lazy_parts"]
    assert asked == []


def test_a_module_that_loads_itself_when_touched_is_not_touched(tmp_path):
    path = tmp_path / "late_module.py"
    path.write_text("import sys\nsys.late_module_ran = True\n")
    spec = importlib.util.spec_from_file_location("late_module", path)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["late_module"] = module
    spec.loader.exec_module(module)
    try:
        with pytest.raises(NotAllowed):
            Codec().decode(forged("late_module:Point"))
    finally:
        del sys.modules["late_module"]
    assert not hasattr(sys, "late_module_ran")


def test_an_object_that_answers_to_every_name_is_not_asked():
    asked = []

    class Answering:
        def __getattribute__(self, name):
            asked.append(name)
            return {"Point": kinds.Point} if name == "__dict__" else kinds.Point

    kinds.answering = Answering()
    sys.modules["answering_module"] = kinds.answering
    try:
        for name in ("codec_kinds:answering.Point", "answering_module:Point"):
            with pytest.raises(NotAllowed):
                Codec().decode(forged(name, {"x": 1, "y": 2}))
    finally:
        del kinds.answering, sys.modules["answering_module"]
    assert asked == []


def test_forged_fields_run_no_code_and_reach_no_other_attribute(ran):
    for state in ({"x": 1, "y": 2, "__class__": 3}, {"x": 1, "y": 2, "__dict__": {}}, {"x": 1, "y": 2, "z": 3}):
        found = Codec().decode(forged("codec_kinds:Point", state))
        assert type(found) is kinds.Point
        assert vars(found) == {"x": 1, "y": 2}
        found = Codec().decode(forged("codec_kinds:SlottedPoint", state))
        assert found == kinds.SlottedPoint(1, 2)
    assert ran == []


def test_a_name_in_bytes_cannot_call_a_method_of_langgraphs_table():
    """LangGraph's bytes name a class and a method; only the classes of our table are ever called."""
    for code in range(7):
        for target in (("os", "system"), ("builtins", "eval"), ("subprocess", "run"), ("codec_kinds", "Opaque")):
            packed = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb([*target, ["true"], "__call__"])))
            with pytest.raises(threadline.ThreadlineError):
                Serializer().loads_typed(("msgpack", packed))


# -- strict rules, and lists


@each_data_class
def test_strict_rules_refuse_what_nobody_named_when_reading_and_when_writing(value):
    packed = Codec().encode(value)
    strict = codec_with("strict")
    with pytest.raises(NotAllowed, match=type(value).__name__):
        strict.decode(packed)
    with pytest.raises(NotSerializable) as caught:
        strict.encode({"deep": [value]}, "state")
    assert caught.value.path == "state['deep'][0]"


@each_data_class
@pytest.mark.parametrize("by", ["class", "pair", "registration", "allowlist", "clone"])
def test_strict_rules_allow_what_was_named(value, by):
    cls = type(value)
    if by == "class":
        codec = codec_with([cls])
    elif by == "pair":
        codec = codec_with([(cls.__module__, cls.__qualname__)])
    elif by == "registration":
        register(cls)
        codec = codec_with("strict")
    elif by == "allowlist":
        codec = codec_with("strict").with_allowlist([cls])
    else:
        codec = Serializer(allowed_types="strict").with_msgpack_allowlist([(cls.__module__, cls.__name__)]).codec
    assert anatomy(codec.decode(codec.encode(value))) == anatomy(value)
    with pytest.raises(NotSerializable):
        codec.encode(kinds.FrozenPoint(1))


def test_strict_rules_still_allow_everything_built_in():
    import numpy

    strict = codec_with("strict")
    for value in ((1, {2}), 2**70, "\ud800", {1: 2}, numpy.arange(3), ValueError("x")):
        strict.decode(strict.encode(value))


def test_a_list_of_types_allows_what_their_fields_are_declared_to_hold():
    codec = codec_with([kinds.Person])
    person = kinds.Person(name="n", address=kinds.Address(street="s"), friends=[kinds.Person(name="m")])
    assert codec.decode(codec.encode(person)) == person
    with pytest.raises(NotSerializable):
        codec.encode(kinds.Person(name="n", extra_data=kinds.Point(1)))


def test_nested_classes_are_named_by_their_whole_name():
    for entry in (kinds.Outer.Inner, ("codec_kinds", "Outer", "Inner"), ("codec_kinds", "Outer.Inner")):
        codec = codec_with([entry])
        assert codec.decode(codec.encode(kinds.Outer.Inner(1))) == kinds.Outer.Inner(1)


def test_registering_never_narrows_what_was_allowed():
    codec = Codec()
    register(kinds.Point, name="point")
    for value in (kinds.Point(1), kinds.FrozenPoint(1), kinds.Person(name="n")):
        assert codec.decode(codec.encode(value)) == value


def test_an_allowlist_widens_default_rules_to_nothing_less():
    widened = Codec().with_allowlist([kinds.Point])
    assert widened.decode(widened.encode(kinds.FrozenPoint(1))) == kinds.FrozenPoint(1)


def test_a_clone_with_an_allowlist_leaves_the_original_as_it_was():
    strict = codec_with("strict")
    strict.with_allowlist([kinds.Point])
    with pytest.raises(NotSerializable):
        strict.encode(kinds.Point(1))


@pytest.mark.parametrize("allowed", ["everything", "", ["codec_kinds:Point"], [5], [()], [("codec_kinds",)], True])
def test_rules_that_mean_nothing_are_refused(allowed):
    with pytest.raises(InvalidRequest):
        threadline.connect("memory://", allowed_types=allowed)


@pytest.mark.parametrize(("setting", "is_strict"), [("1", 1), ("true", 1), ("YES", 1), ("0", 0), ("", 0), ("no", 0)])
def test_the_environment_of_langgraph_sets_the_rules(monkeypatch, setting, is_strict):
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", setting)
    codec = Serializer().codec
    if is_strict:
        with pytest.raises(NotSerializable):
            codec.encode(kinds.Point(1))
    else:
        assert codec.decode(codec.encode(kinds.Point(1))) == kinds.Point(1)
    told = Serializer(allowed_types="imported").codec
    assert told.decode(told.encode(kinds.Point(1))) == kinds.Point(1)


def test_the_environment_of_langgraph_is_heard_by_a_new_process(run_script, tmp_path):
    config = put(threadline.connect(tmp_path / "threads.db"), {"channel": kinds.Point(1)})
    script = f"""
        import codec_kinds, threadline
        try:
            found = threadline.connect({str(tmp_path / "threads.db")!r}).get_tuple({config!r})
            print(found.checkpoint["channel_values"])
        except threadline.NotAllowed as error:
            print("refused:", "codec_kinds:Point" in str(error))
    """
    assert run_script(script, LANGGRAPH_STRICT_MSGPACK="true") == "refused: True"
    assert run_script(script, LANGGRAPH_STRICT_MSGPACK="") == "{'channel': Point(x=1, y=0)}"


# -- through a saver


@each_data_class
def test_a_saver_refuses_to_put_what_it_could_not_load_again(connect, value):
    saver = connect(allowed_types="strict")
    with pytest.raises(NotSerializable, match="channel"):
        put(saver, {"channel": [1, {"deep": value}]})
    assert list(saver.list(None)) == []


def test_a_saver_with_other_rules_refuses_to_read_and_names_thread_and_channel(connect):
    config = put(connect(), {"good": 1, "bad channel": [kinds.Point(1)]}, thread="thread 7")
    with pytest.raises(NotAllowed) as caught:
        connect(allowed_types="strict").get_tuple(config)
    for part in ("thread 7", "bad channel", "codec_kinds:Point", config["configurable"]["checkpoint_id"]):
        assert part in str(caught.value)


def test_a_clone_of_a_saver_reads_what_its_allowlist_names(connect):
    config = put(connect(), {"channel": [kinds.Point(1), kinds.Point(2)] * 10})
    strict = connect(allowed_types="strict")
    clone = strict.with_allowlist([kinds.Point])
    assert values_at(clone, config)["channel"][0] == kinds.Point(1)
    put(clone, {"channel": [kinds.Point(3)]}, after=config)
    with pytest.raises(NotAllowed):
        strict.get_tuple(config)
    with pytest.raises(NotSerializable):
        put(strict, {"channel": [kinds.Point(3)]})


def test_registered_types_are_read_by_strict_savers(connect):
    register(kinds.Opaque, name="opaque", encode=lambda o: o.value, decode=kinds.Opaque)
    saver = connect(allowed_types="strict")
    config = put(saver, {"channel": [kinds.Opaque((1, 2))]})
    assert values_at(connect(allowed_types="strict"), config)["channel"][0].value == (1, 2)


def test_rare_types_are_known_by_their_names_before_they_are_loaded():
    from threadline.codec.builtin import RARE_MODULES, RARE_NAMES
    from threadline.codec.builtin_rare import RARE

    assert {row.name for row in RARE} == RARE_NAMES
    assert {row.type.__module__.partition(".")[0] for row in RARE} <= RARE_MODULES


def test_opening_a_store_loads_nothing_that_few_programs_need(tmp_path):
    program = (
        "import sys; before = set(sys.modules); import threadline\n"
        f"saver = threadline.connect({str(tmp_path / 'new.db')!r})\n"
        "assert saver.get_tuple({'configurable': {'thread_id': 'nobody'}}) is None\n"
        "rare = {'asyncio', 'decimal', 'hashlib', 'ipaddress', 'pathlib', 'zoneinfo'}\n"
        "print(sorted(rare & set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
