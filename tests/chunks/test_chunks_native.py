"""The native comparison of long lists: exact, and without it everything is the same, only slower."""

import copy
import dataclasses
import gc
import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
import threading

import codec_kinds as kinds
import pytest
from chunks_mutations import MUTATIONS
from codec_anatomy import anatomy
from codec_stores import put, values_at
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

import threadline
from threadline.base.native import native
from threadline.chunks import unchanged as comparing
from threadline.chunks.digest import Digester
from threadline.codec import packing
from threadline.codec.codec import Codec

needs_native = pytest.mark.skipif(native is None, reason="the native module was not built: there is no C compiler")
MODULES = (comparing, packing)


@pytest.fixture(params=["native", "python"])
def way(request, monkeypatch):
    """Each test runs with the native module and without it."""
    if request.param == "python":
        for module in MODULES:
            monkeypatch.setattr(module, "native", None)
    elif native is None:
        pytest.skip("the native module was not built: there is no C compiler")
    return request.param


def messages(count, start=0):
    return [HumanMessage(f"text {at} " * 20, id=str(at)) for at in range(start, start + count)]


def test_it_is_built_where_there_is_a_compiler():
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or os.environ.get("THREADLINE_NATIVE") == "0":
        pytest.skip(f"there is no {compiler} here, or the native module is not wanted")
    assert native is not None, "run `make lint`, which installs: the C file did not compile, or was never built"


def test_it_can_be_left_out():
    program = (
        "from threadline.base.native import native; import threadline\n"
        "saver = threadline.connect('memory://'); saver.thread('t').put({'a': list(range(100))})\n"
        "print(native, saver.thread('t').state()['a'] == list(range(100)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "THREADLINE_NATIVE": "0"}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "None True", done.stderr


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_change_in_place_of_an_item_of_a_long_list_is_stored(way, connect, name):
    """The list is put twice before, so that its parts are remembered; then it grows and shrinks."""
    saver, reader = connect(), connect()
    make, mutate = MUTATIONS[name]
    value, changed = make(), make()
    mutate(changed)
    channel = [*messages(70), value, *messages(10, 70)]
    configs = [put(saver, {"channel": channel})]
    for at in range(2):
        channel = [*channel, *messages(1, 90 + at)]
        configs.append(put(saver, {"channel": channel}, after=configs[-1]))
    mutate(value)
    configs.append(put(saver, {"channel": channel}, after=configs[-1]))
    configs.append(put(saver, {"channel": [*channel, *messages(1, 99)]}, after=configs[-1]))
    configs.append(put(saver, {"channel": channel[:-1]}, after=configs[-1]))
    saver.clear_cache()
    found = [values_at(reader, config)["channel"] for config in configs]
    assert [len(each) for each in found] == [81, 82, 83, 83, 84, 82]
    assert [anatomy(each[70]) for each in found] == [anatomy(make())] * 3 + [anatomy(changed)] * 3
    assert all(anatomy(each[:70]) == anatomy(messages(70)) for each in found)


def test_lists_of_objects_that_are_new_each_time_are_recognised(way, connect):
    saver = connect()
    config, sizes = None, []
    for at in range(8):
        config = put(saver, {"channel": messages(100 + at)}, after=config)
        sizes.append(saver.stats().bytes_stored)
    assert anatomy(values_at(connect(), config)["channel"]) == anatomy(messages(107))
    assert max(after - before for before, after in itertools.pairwise(sizes)) < 20_000


def test_a_registration_between_two_puts_is_noticed(way, connect):
    """The same objects have another name then, and another state."""
    saver = connect()

    class Note:
        def __init__(self, text):
            self.text = text

    threadline.register(Note, name="native-note", encode=lambda note: note.text, decode=Note)
    items = [*({"n": at} for at in range(80)), Note("kept")]
    config = put(saver, {"items": items})
    config = put(saver, {"items": items}, after=config)
    threadline.register(Note, name="native-note-2", encode=lambda note: note.text * 2, decode=Note)
    config = put(saver, {"items": [*items, {"n": 81}]}, after=config)
    saver.clear_cache()
    assert values_at(connect(), config)["items"][80].text == "keptkept"


def test_threads_that_change_a_list_while_it_is_put_never_tear_an_item(way, connect):
    """Each stored item is one that the program had at some moment."""
    saver = connect()
    items = [{"n": [at, at]} for at in range(200)]
    ended = threading.Event()

    def change():
        number = 1000
        while not ended.is_set():
            number += 1
            items[number % 200]["n"] = [number, number]

    changing = threading.Thread(target=change)
    changing.start()
    try:
        config = None
        for _ in range(30):
            config = put(saver, {"items": items}, after=config)
            assert all(len(set(item["n"])) == 1 for item in values_at(saver, config)["items"])
    finally:
        ended.set()
        changing.join()


@needs_native
def test_shots_that_are_of_no_use_are_taken_less_and_less_often(monkeypatch, connect):
    """And again at once where a program comes to keep its objects."""
    taken = []

    class Counting:
        unchanged, slot_offset = native.unchanged, native.slot_offset

        @staticmethod
        def packed(values, types, states, classes, start, end, *how):
            if start == 0:
                taken.append(0)
            taken[-1] += end - start
            return native.packed(values, types, states, classes, start, end, *how)

    monkeypatch.setattr(comparing, "native", Counting)
    saver, config = connect(), None
    if saver._tools.is_in_memory:
        assert saver._tools.sole_encoder.holds_parts is False
        return
    for at in range(100):
        config = put(saver, {"channel": messages(100 + at)}, after=config)
    assert 5 <= len(taken) <= 8
    kept = messages(200)
    for at in range(100):
        kept = [*kept, *messages(1, 200 + at)]
        config = put(saver, {"channel": kept}, after=config)
    assert taken[-20:] == [1] * 20
    for turn in range(5):
        # Read anew, as a graph does for each turn.
        kept, before = messages(len(kept)), len(taken)
        for _ in range(4):
            kept = [*kept, *messages(1, len(kept))]
            config = put(saver, {"channel": kept}, after=config)
        assert taken[before:] == [len(kept) - 3, 1, 1, 1], turn


def test_a_change_that_another_thread_makes_in_the_middle_of_a_put_is_stored_by_the_next(way, connect, monkeypatch):
    """The put under way stores the value of before or after; what was not stored is noticed later."""
    saver, items = connect(), messages(100)
    config = put(saver, {"channel": items[:-1]})
    config = put(saver, {"channel": items[:-1]}, after=config)
    named, changes = Digester.item, iter(["changed " * 20])

    def interrupted(self, content):
        if b"text 99" in content:
            for text in changes:
                items[99].content = text
        return named(self, content)

    monkeypatch.setattr(Digester, "item", interrupted)
    config = put(saver, {"channel": items}, after=config)
    assert next(changes, None) is None
    for more in range(3):
        items = [*items, *messages(1, 100 + more)]
        config = put(saver, {"channel": items}, after=config)
        saver.clear_cache() if more == 1 else None
        assert values_at(connect(), config)["channel"][99].content == "changed " * 20


def test_fields_that_are_not_in_the_dict_of_an_instance_are_compared(way, connect):
    """A dataclass may lack a field, which then is its class's, or keep it by a property."""

    @dataclasses.dataclass
    class Fallen:
        text: str = "one"
        number: int = 0

    threadline.register(Fallen, name="native-fallen")
    saver, items, config = connect(), [Fallen() for _ in range(80)], None
    for each in items:
        del each.__dict__["text"]
    for _ in range(3):
        items = [*items, Fallen()]
        config = put(saver, {"items": items}, after=config)
    Fallen.text = "two"
    config = put(saver, {"items": [*items, Fallen()]}, after=config)
    saver.clear_cache()
    assert values_at(connect(), config)["items"][0].text == "two"


# -- the module itself

CLASSES: dict[type, tuple[int, int]] = {}


def classes():
    if not CLASSES:
        codec = Codec()
        codec.states(messages(2))
        codec.states([AIMessage("a"), SystemMessage("b")])
        codec.states([kinds.Point(1)])
        CLASSES.update(codec.alike.comparable)
    return CLASSES


def take(values, states=None, types=None):
    """Shots of values, packed by a function that packs nothing."""
    states = states or [vars(value) if type(value) in classes() else value for value in values]
    types = types or [type(value) for value in values]
    packed, shots, held = native.packed(values, types, states, classes(), 0, len(values), lambda *given: b"", None, 0)
    assert packed == b""
    assert shots is None or held >= 16 * len(values)
    return shots


def is_unchanged(shots, values):
    return native.unchanged(shots, values, classes()) == len(values)


@needs_native
@pytest.mark.parametrize("name", MUTATIONS)
def test_what_was_changed_in_place_is_never_called_unchanged(name):
    make, mutate = MUTATIONS[name]
    value = make()
    shots = take([value])
    if shots is None:
        return  # such a value is left to the comparison of bytes
    assert is_unchanged(shots, [value])
    mutate(value)
    assert not is_unchanged(shots, [value])


@needs_native
def test_messages_are_among_the_values_that_it_knows():
    values = [*messages(3), AIMessage("a", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}]), {"a": [1, None]}]
    assert set(map(type, values[:4])) <= classes().keys()
    shots = take(values)
    assert len(shots) == 5
    assert is_unchanged(shots, values)
    assert is_unchanged(shots, [copy.copy(each) for each in values])
    assert native.unchanged(shots, values[:3], classes()) == 3
    assert native.unchanged(shots, [*values, "more"], classes()) == 5
    assert native.unchanged(shots, [values[1], *values[1:]], classes()) == 0


@needs_native
@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        bytearray(b"b"),
        {1: 2},
        {1, 2},
        object(),
        kinds.Colour.RED if hasattr(kinds, "Colour") else 1j,
        [[b"x"]],
    ],
)
def test_what_it_does_not_know_is_left_to_bytes(value):
    assert take([value]) is None
    assert take(["sound", value]) is None


@needs_native
def test_deep_and_wide_values_are_left_to_bytes():
    deep = []
    for _ in range(100):
        deep = [deep]
    assert take([deep]) is None
    assert take([list(range(10_000))]) is None
    assert take([list(range(900))]) is not None
    loop: list = []
    loop.append(loop)
    assert take([loop]) is None


@needs_native
def test_a_shot_holds_the_parts_and_lets_them_go():
    texts = [f"a text of its own {at}" for at in range(50)]
    counts = [sys.getrefcount(text) for text in texts]
    shots = take([{"text": text} for text in texts])
    assert [sys.getrefcount(text) for text in texts] == [count + 1 for count in counts]
    assert take([*texts, object()]) is None
    del shots
    gc.collect()
    assert [sys.getrefcount(text) for text in texts] == counts


@needs_native
def test_a_value_that_is_not_what_was_packed_has_no_shot():
    """Another thread may change its class or its `__dict__` after its state was made."""
    message, note = HumanMessage("text"), {"a": 1}
    assert take([message, note]) is not None
    assert take([message], states=[dict(vars(message))]) is None
    assert take([message], types=[AIMessage]) is None
    assert take([note], states=[{"a": 1}]) is None
    message.__dict__ = dict(vars(message))
    assert take([message]) is not None


@needs_native
def test_nothing_else_runs_between_a_shot_and_the_packing():
    """The garbage collector rests, so that it runs no finalizer; it is as it was afterwards, whatever happens."""
    values, seen = [{"a": 1}], []

    def packed(pack, given=values):
        return native.packed(given, [type(one) for one in given], given, classes(), 0, len(given), pack, None, 0)

    def failing(*given):
        raise ValueError("not to be packed")

    for collects in (True, False):
        (gc.enable if collects else gc.disable)()
        try:
            assert packed(lambda *given: seen.append(gc.isenabled()) or b"x")[0] == b"x"
            assert packed(lambda *given: b"y", [object()])[:2] == (b"y", None)
            with pytest.raises(ValueError, match="not to be packed"):
                packed(failing)
            assert gc.isenabled() is collects
        finally:
            gc.enable()
    assert seen == [False, False]


@needs_native
def test_what_shots_hold_is_counted_among_what_is_remembered(connect):
    """Numbers take many times the memory that their bytes take; texts up to four times."""
    saver = connect()
    if saver._tools.is_in_memory:
        return
    for name, item in (("numbers", lambda at: [at % 100] * 400), ("wide", lambda at: "\U0001f600" * 300)):
        config = put(saver, {"items": [{"n": item(at)} for at in range(100)]}, thread=name)
        put(saver, {"items": [{"n": item(at)} for at in range(101)]}, after=config)
        source = saver._tools.lines.of((name, "")).line.sources["items"]
        assert source.shots.held > (600_000 if name == "numbers" else 120_000)
        assert source.cost_bytes > source.size + source.shots.held


@needs_native
def test_a_class_that_refers_to_its_saver_can_be_collected(connect):
    """Shots hold no class: what holds them does, where the garbage collector can see it."""
    saver = connect()
    if saver._tools.is_in_memory:
        return

    @dataclasses.dataclass
    class Owned:
        text: str

    Owned.saver = saver
    threadline.register(Owned, name="native-owned")
    items = [Owned(str(at)) for at in range(100)]
    config = put(saver, {"items": items})
    put(saver, {"items": [*items, Owned("more")]}, after=config)
    assert saver._tools.lines.of(("thread", "")).line.sources["items"].shots is not None
    [shot] = native.packed([items[0]], [Owned], [vars(items[0])], {Owned: (0, 0)}, 0, 1, lambda *_: b"", None, 0)[1]
    before = sys.getrefcount(Owned)
    del shot
    assert sys.getrefcount(Owned) == before


def test_a_module_of_another_version_is_not_used(tmp_path):
    """It may lie beside the source from an earlier installation."""
    program = (
        "import sys, types\n"
        "stale = types.ModuleType('threadline.base.compiled'); stale.INTERFACE = 0\n"
        "sys.modules['threadline.base.compiled'] = stale\n"
        "from threadline.base.native import native\n"
        "print(native)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "None", done.stderr


@needs_native
def test_wrong_arguments_are_errors():
    how = (lambda *given: b"", None, 0)
    for arguments in ((), ([], [], [], {}, 0, 0), ((), [], [], {}, 0, 0, *how), ([], [], [], [], 0, 0, *how)):
        with pytest.raises(TypeError):
            native.packed(*arguments)
    for start, end in ((-1, 0), (0, 2), (1, 0), (5, 6)):
        with pytest.raises(ValueError, match="stretch"):
            native.packed([1], [int], [1], {}, start, end, *how)
    with pytest.raises(ValueError, match="one length"):
        native.packed([1], [], [1], {}, 0, 1, *how)
    for arguments in ((), ([1], [1], {}), ((), [], {}), ([], [], [])):
        with pytest.raises(TypeError):
            native.unchanged(*arguments)
    with pytest.raises(TypeError):
        native.slot_offset(int.real)
    with pytest.raises(TypeError):
        native.Shot()


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=2), inside, max_size=3),
    max_leaves=12,
)


@needs_native
@settings(max_examples=300, deadline=None)
@given(st.lists(plain, max_size=4), st.lists(plain, max_size=4))
def test_unchanged_values_have_the_same_bytes(before, after):
    """Small values are equal by chance often, and share objects: whatever is called unchanged packs alike."""
    shots = take(before)
    assert shots is not None
    assert is_unchanged(shots, before)
    same = native.unchanged(shots, after, classes())
    codec = Codec()
    assert [codec.encode(value) for value in before[:same]] == [codec.encode(value) for value in after[:same]]


hiding = st.recursive(
    st.none() | st.integers() | st.binary(max_size=2) | st.binary(max_size=2).map(bytearray) | st.text(max_size=2),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=2), inside, max_size=3),
    max_leaves=8,
)


@needs_native
@settings(max_examples=300, deadline=None)
@given(hiding)
def test_both_ways_find_the_same_mutable_bytes(value):
    def looks(value):
        if isinstance(value, (bytearray, memoryview)):
            return True
        inside = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        return any(map(looks, inside))

    assert native.holds_mutable_bytes(value) == looks(value)
    if not looks(value):
        assert Codec().decode(Codec().encode(value)) == value


@needs_native
def test_mutable_bytes_below_a_thousand_levels_are_found_by_python(monkeypatch):
    deep = bytearray(b"x")
    for _ in range(1500):
        deep = [deep]
    with pytest.raises(RecursionError):
        native.holds_mutable_bytes(deep)
    monkeypatch.setattr(packing, "_suspects", lambda value: [value])  # ormsgpack packs nothing as deep
    assert packing.hides_mutable_bytes(deep)
