"""The native straight line of a put: for whatever values, the same rows and chunks as without it, or the same error."""

import dataclasses
import datetime
import enum
import gc
import hashlib
import sys
import uuid
from collections import ChainMap, deque

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import threadline
from threadline.base.native import native
from threadline.chunks import growing
from threadline.chunks.digest import Digester
from threadline.chunks.encode import Batch, Encoder
from threadline.codec.codec import Codec
from threadline.codec.envelope import Envelope
from threadline.core import prepare, rows, straight
from threadline.errors import ThreadlineError
from threadline.langgraph import Checkpointer

pytestmark = pytest.mark.skipif(native is None, reason="the native module was not built: there is no C compiler")
MODULES = (growing, prepare, rows, straight)
LONG = "x" * 150


@pytest.fixture(params=["memory://", "sqlite"])
def both(request, tmp_path):
    """A saver that uses the native module, and one that does not; what they store has no times of its own."""

    def connect(name):
        url = request.param if request.param != "sqlite" else f"sqlite:///{tmp_path}/{name}.db"
        return threadline.connect(url)

    with connect("native") as one, connect("python") as other:
        yield one, other


def in_turns(savers, monkeypatch, act):
    """What an act gives on both savers: a result or an error, which must be alike."""
    outcomes = []
    for saver, module in zip(savers, (native, None), strict=True):
        with monkeypatch.context() as patched:
            for each in MODULES:
                patched.setattr(each, "native", module)
            patched.setattr("time.time", lambda: 1_700_000_000.0)
            try:
                outcomes.append(act(saver))
            except (ThreadlineError, TypeError, ValueError) as error:
                outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def stored(saver, thread_id="t"):
    """All rows and chunks of a thread."""

    async def read(backend):
        thread = await backend.thread(thread_id)
        if thread is None:
            return None
        sizes = await backend.chunk_sizes(thread.pool, b"", 1 << 40)
        names = [digest for digest, *_ in sizes]
        page = await backend.page(threadline.ports.checkpoints.Query(thread_id=thread_id, limit=1_000))
        return (
            [(one.row, one.writes) for one in page],
            sorted(await backend.chunks(thread.pool, names)),
            await backend.thread_writes(thread_id),
        )

    return saver._engine.run(read)


def checkpoint(number, values, versions, **more):
    return {
        "v": 4,
        "id": f"1f000000-0000-6000-8000-{number:012}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"node": dict(versions)},
        "updated_channels": sorted(versions),
        **more,
    }


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: str


def message(text, **more):
    return HumanMessage(text, id=f"id {text[:5]}", **more)


SCALARS = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**70),
    1.5,
    float("nan"),
    -0.0,
    "",
    "ä",
    "x" * 127,
    LONG,
    "\ud800",
    "ćšž" * 40,
]
OBJECTS = [
    message("a"),
    message(LONG),
    AIMessage(LONG, tool_calls=[{"name": "f", "args": {"a": 1}, "id": "1"}]),
    AIMessage("y" * 40_000),
    message("extra", additional_kwargs={"b": b"bytes"}),
    message("mutable", additional_kwargs={"b": bytearray(b"bytes")}),
    Point(1, LONG),
    Colour.RED,
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    uuid.UUID(int=7),
    (1, "two"),
    {1, 2},
    b"bytes",
    bytearray(b"bytes"),
    object(),
]
NESTED = [
    [],
    {},
    {"a": 1},
    {"a": LONG, "b": [1, 2]},
    {1: "key"},
    [1, [2, [3]]],
    ["x" * 140] * 3,
    [LONG, "short"],
    ["i"] * 40,
]
VALUES = [
    *SCALARS,
    *OBJECTS,
    *NESTED,
    *([one] for one in OBJECTS),
    OBJECTS[:2] * 5,
    [message(str(n) + LONG) for n in range(70)],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(value)[:20]!r}"[:40])
def test_a_value_becomes_the_same_bytes(both, monkeypatch, value):
    config = in_turns(
        both,
        monkeypatch,
        lambda saver: saver.put(
            {"configurable": {"thread_id": "t"}}, checkpoint(1, {"a": 1}, {"a": 1}), {"step": 1}, {"a": 1}
        ),
    )

    def write(saver):
        return saver.put_writes(config, [("a", value), ("__error__", value), ("b", [value])], "task", "path")

    def step(saver):
        return saver.put(
            config, checkpoint(2, {"a": value, "b": [value]}, {"a": 2, "b": 1}), {"step": 2}, {"a": 2, "b": 1}
        )

    in_turns(both, monkeypatch, write)
    in_turns(both, monkeypatch, step)
    one, other = map(stored, both)
    assert one == other


ITEMS = st.one_of(
    st.sampled_from([*SCALARS[:-1], *OBJECTS[:9], {"a": LONG}, {"a": 1}]),
    st.integers(0, 30).map(lambda n: f"{n} {LONG}"),
    st.integers(0, 30).map(lambda n: message(f"{n} {LONG}")),
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(ITEMS, min_size=1, max_size=4)),
        st.tuples(st.just("many"), st.integers(1, 40)),
        st.tuples(st.just("drop"), st.integers(1, 3)),
        st.tuples(st.just("slide"), st.integers(1, 3)),
        st.tuples(st.just("edit"), st.integers(0, 5)),
        st.tuples(st.just("same"), st.none()),
        st.tuples(st.just("copies"), st.none()),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES)
def test_a_list_in_its_course_becomes_the_same_chunks(changes):
    savers = threadline.connect("memory://"), threadline.connect("memory://")
    state, config = [], {"configurable": {"thread_id": "t"}}
    with pytest.MonkeyPatch.context() as monkeypatch:
        for number, (verb, what) in enumerate(changes, 1):
            if verb == "append":
                state = [*state, *what]
            elif verb == "many":
                state = [*state, *(f"{number} {at} {LONG}" for at in range(what))]
            elif verb == "drop":
                state = state[what:]
            elif verb == "slide":
                state = [*state[what:], *(message(f"{number} {at} {LONG}") for at in range(what))]
            elif verb == "edit" and state:
                state = [*state]
                state[what % len(state)] = f"edited {number} {LONG}"
            elif verb == "copies":
                state = [one.model_copy(deep=True) if isinstance(one, HumanMessage) else one for one in state]
            values = {"messages": state, "none": None, "number": number}
            versions = dict.fromkeys(values, number)

            def step(saver, config=config, values=values, versions=versions, number=number):
                return saver.put(config, checkpoint(number, values, versions), {"step": number}, versions)

            config = in_turns(savers, monkeypatch, step)
            one, other = map(stored, savers)
            assert one == other


def windows(width, drops):
    """The states of a list that is kept short: each step adds one or two messages and drops what is too much."""
    state, at = [], 0
    for step in range(40):
        added = [message(f"{number} {LONG}") for number in range(at, at + 1 + (step % 5 == 4))]
        at += len(added)
        state = [*state, *added][-width:] if step % drops == 0 else [*state, *added]
        yield state


@pytest.mark.parametrize("drops", [1, 3])
@pytest.mark.parametrize("width", [1, 2, 6, 7, 8, 9, 20, 40])
def test_a_list_that_is_kept_short_becomes_the_same_chunks(both, monkeypatch, width, drops):
    config = {"configurable": {"thread_id": "t"}}
    for number, state in enumerate(windows(width, drops), 1):
        given, versions = checkpoint(number, {"messages": state}, {"messages": number}), {"messages": number}
        config = in_turns(
            both,
            monkeypatch,
            lambda saver, config=config, g=given, v=versions: saver.put(config, g, {"step": 1}, v),
        )
    assert stored(both[0]) == stored(both[1])
    assert both[0].get(config)["channel_values"] == {"messages": state}


def test_a_window_of_few_messages_is_not_cut_anew(monkeypatch):
    """What stayed is recognised where it moved to, and only what is new is encoded."""
    cut, sequence = [], Encoder._sequence
    monkeypatch.setattr(Encoder, "_sequence", lambda *given: cut.append(given) or sequence(*given))
    with threadline.connect("memory://") as saver:
        config = {"configurable": {"thread_id": "t"}}
        for number, state in enumerate(windows(7, 1), 1):
            given = checkpoint(number, {"messages": state}, {"messages": number})
            config = saver.put(config, given, {"step": number}, {"messages": number})
    assert len(cut) <= 1  # the first, where a class was not met before


class Chain(ChainMap):
    pass


METADATA = [
    {},
    {"step": 3, "source": "loop", "run_id": "r", "parents": {}},
    {"step": -3},
    {"step": 2**80},
    {"step": True},
    {"source": "odd", "user": "u"},
    {"source": 7, "run_id": "x" * 600},
    {"text": "nul\0nul", "parents": {"": "above"}},
    {"number": float("inf"), "list": [1], "tuple": (1,)},
    {1: "key"},
    {"bytes": b"x"},
    {"parents": {"": "above", "deep": "nul\0"}},
    {"parents": {"nul\0": "above"}, "nested": {"a": {"b": "c"}}},
    {"parents": {1: "key"}, "numbers": {"a": 1}},
]
CONFIGS = [
    {},
    {"metadata": {"user": "u", "thread_id": "no", "langgraph_step": 1, "step": 9}},
    {"metadata": {"__private": 1, "flag": True, "none": None, "list": [1], "ü": 1, "nul": "a\0"}},
    {"metadata": None},
    {"metadata": 7},
    {"metadata": ChainMap({"user": "u", "thread_id": "no"})},
    {"metadata": ChainMap({"user": "first", "list": [1]}, {"user": "second", "more": 2}, {})},
    {"metadata": ChainMap({"user": "u"}, ChainMap({"more": 1}))},
    {"metadata": Chain({"user": "u"})},
    {"configurable": {"thread_id": "t", "checkpoint_ns": "inner", "user_id": "u", "__pregel": len, "n": 1.5}},
    {"configurable": {"thread_id": 7}},
    {"configurable": {"thread_id": "ü", "checkpoint_id": ""}},
    {"configurable": {"thread_id": ""}},
    {"configurable": {"thread_id": None}},
    {"configurable": None},
]
WRONG = [
    {},
    {"id": ""},
    {"id": 7},
    {"ts": 7},
    {"v": 5},
    {"v": True},
    {"v": 1, "pending_sends": []},
    {"channel_values": {1: 2}},
    {"channel_versions": {"a": None}},
    {"channel_versions": {"a": 1, "b": "2.5", "c": 1.5}},
    {"versions_seen": {"node": []}},
    {"versions_seen": {"node": {"a": b"x"}}},
    {"updated_channels": ("a",)},
    {"updated_channels": None},
    {"other": bytearray(b"x")},
]


@pytest.mark.parametrize("metadata", METADATA, ids=lambda said: str(said)[:60])
@pytest.mark.parametrize("more", CONFIGS, ids=lambda said: str(said)[:60])
def test_a_request_is_understood_alike(both, monkeypatch, metadata, more):
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}, **more}
    for number in (1, 2):
        in_turns(
            both,
            monkeypatch,
            lambda saver, n=number: saver.put(config, checkpoint(n, {"a": n}, {"a": n}), metadata, {"a": n}),
        )
    for name in ("t", "ü", "7"):
        one, other = stored(both[0], name), stored(both[1], name)
        assert one == other


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_checkpoint_is_checked_alike(both, monkeypatch, wrong):
    config = {"configurable": {"thread_id": "t"}}
    for number in (1, 2):
        given = {**checkpoint(number, {"a": 1}, {"a": 1}), **wrong}
        found = in_turns(
            both, monkeypatch, lambda saver, config=config, given=given: saver.put(config, given, {"step": 1}, {"a": 1})
        )
        if isinstance(found, dict):
            config = found
    assert stored(both[0]) == stored(both[1])


@pytest.mark.parametrize(
    ("writes", "task_id", "task_path"),
    [
        ([], "task", ""),
        ([("a", 1)], "", ""),
        ([("a", 1)], 7, ""),
        ([("a", 1)], "tüsk", "path"),
        ([("a", 1)], "task", None),
        ([["a", 1]], "task", ""),
        ((("a", 1), ("ü", 2)), "task", ""),
        ([("a",)], "task", ""),
        ([(1, 2)], "task", ""),
        ("ab", "task", ""),
        (deque([("a", [message(LONG)]), ("b", None)]), "task", "~path"),
        (deque([("a",)]), "task", ""),
        (deque(), "task", ""),
        ([("__interrupt__", ["asked"]), ("__resume__", 1), ("__scheduled__", None)], "task", "~"),
        ([(f"channel {at}", at) for at in range(300)], "task", "~"),
        ([("a", "x" * size) for size in (100, 127, 128, 300)], "task", "~"),
        ([("a" * 31, 1), ("a" * 32, 2), ("a" * 255, 3), ("a" * 256, 4)], "t" * 255, "~" * 256),
        ([("a" * 990, 1)], "task", ""),
        ([("a", 1)], "t" * 500, "~" * 500),
        ([("a", 1)], "t" * 70_000, ""),
    ],
)
def test_writes_are_understood_alike(both, monkeypatch, writes, task_id, task_path):
    config = in_turns(
        both, monkeypatch, lambda saver: saver.put({"configurable": {"thread_id": "t"}}, checkpoint(1, {}, {}), {}, {})
    )
    for _ in range(2):
        in_turns(both, monkeypatch, lambda saver: saver.put_writes(config, writes, task_id, task_path))
    assert stored(both[0]) == stored(both[1])


@pytest.mark.parametrize("lengths", [(31, 32), (255, 256), (480, 480), (490, 490), (1000, 1), (1, 1100)])
def test_long_ids_are_bound_alike(both, monkeypatch, lengths):
    """What a row is bound to has a bound of its own where it is made natively."""
    thread_id, namespace = "t" * lengths[0], "n" * lengths[1]
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    for number in (1, 2):
        given = checkpoint(number, {"a": ["x" * 200] * 3}, {"a": number})
        config = in_turns(
            both, monkeypatch, lambda saver, config=config, g=given: saver.put(config, g, {"step": 1}, {"a": 1})
        )
        in_turns(both, monkeypatch, lambda saver, config=config: saver.put_writes(config, [("a", 1)], "task"))
    assert stored(both[0], thread_id) == stored(both[1], thread_id)


def test_many_channels_make_the_same_row(both, monkeypatch):
    """A document that is long enough to be compressed, and one with versions of channels that have no value."""
    values = {f"channel {at}": at for at in range(300)}
    versions = {**dict.fromkeys(values, 1), "gone": 3}
    config = {"configurable": {"thread_id": "t"}}
    for number in (1, 2):
        new = versions if number == 1 else {"channel 7": 2}
        given = checkpoint(number, values, {**versions, **new})
        config = in_turns(
            both, monkeypatch, lambda saver, config=config, g=given, n=new: saver.put(config, g, {"step": 1}, n)
        )
    assert stored(both[0]) == stored(both[1])


class Strange(dict):
    """A dict with keys whose comparison runs code."""


class Key(str):
    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = str.__hash__


def test_code_of_the_caller_is_never_skipped_or_run_twice(both, monkeypatch):
    """Subclasses of dict and str go the careful way."""
    values = Strange(a=1)
    config = {"configurable": {"thread_id": "t"}}
    in_turns(
        both,
        monkeypatch,
        lambda saver: saver.put(config, checkpoint(1, values, {"a": 1}), Strange(step=1), Strange(a=1)),
    )
    assert stored(both[0]) == stored(both[1])


@pytest.mark.parametrize("key", [b"", b"k", bytes(range(32)), bytes(64)])
def test_items_have_the_names_that_hashlib_gives_them(key):
    """Of every length around the blocks of the hash."""
    encoder, batch = Encoder(Codec(), Digester(key)), Batch()
    texts = [chr(97 + at % 26) * at for block in (128, 256, 384, 2048, 32_640) for at in range(block - 20, block + 5)]
    for text in texts:
        made = growing.grown(None, [text], encoder.codec, batch, encoder.digester)
        assert (made is not None) == (128 <= len(ormsgpack.packb(text)) <= 32 * 1024)
    assert len(batch.chunks) > 90
    for name, (_, content) in batch.chunks.items():
        assert name == hashlib.blake2b(content, digest_size=16, person=b"item", key=key).digest()


def test_rows_have_the_checksums_that_hashlib_gives_them(both, monkeypatch):
    """For places and contents of every length around the blocks of the hash."""

    def put(saver):
        for length in (*range(1, 140), 200, 255, 256, 257):
            config = {"configurable": {"thread_id": "t" * length, "checkpoint_ns": ""}}
            there = saver.put(config, checkpoint(1, {"a": "x" * (length % 120)}, {"a": 1}), {"step": 1}, {"a": 1})
            saver.put_writes(there, [("a", "y" * (length % 100))], "task")
        return [stored(saver, "t" * length)[0] for length in (*range(1, 140), 200, 255, 256, 257)]

    in_turns(both, monkeypatch, put)
    for length in (1, 100, 139, 257):
        place = {"configurable": {"thread_id": "t" * length}}
        assert both[1].get_tuple(place) == both[0].get_tuple(place)


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_a_graph_goes_in_the_straight_line(url, tmp_path, monkeypatch):
    """What LangGraph's loop gives is of the usual kind: only puts that close runs or answer something need more."""
    careful, prepared = [], []
    put, prepare = straight._put_carefully, straight.prepare_writes
    monkeypatch.setattr(straight, "_put_carefully", lambda *args: careful.append(args) or put(*args))
    monkeypatch.setattr(straight, "prepare_writes", lambda *args: prepared.append(args) or prepare(*args))

    def answer(state):
        return {"messages": [AIMessage(LONG, id=str(len(state["messages"])))]}

    inner = StateGraph(MessagesState).add_node("deep", answer).add_edge(START, "deep").compile()
    builder = StateGraph(MessagesState).add_node("one", answer).add_node("inner", inner)
    builder.add_edge(START, "one").add_edge("one", "inner")
    saver = Checkpointer(url if url != "sqlite" else f"sqlite:///{tmp_path}/graph.db")
    graph = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t", "user_id": "u"}, "metadata": {"team": "blue"}}
    for turn in range(3):
        graph.invoke({"messages": [HumanMessage(LONG, id=f"asked {turn}")]}, config)
        if not turn:
            prepared.clear()  # writes may overtake the checkpoint with which the thread begins
    assert len(list(saver.list(config))) > 9
    # The first checkpoint of the subgraph in each turn begins a namespace of its own.
    assert len(careful) <= 3 * 2
    assert not prepared


def test_nothing_is_leaked():
    """References of all that a put handles are given back."""
    saver = threadline.connect("memory://")
    marks = [f"{at} {LONG}" for at in range(3)]
    value, written = [message(mark) for mark in marks], {"deep": marks}
    config = {"configurable": {"thread_id": "t"}}

    def round_trip(number):
        given = checkpoint(number, {"a": value, "b": marks, "c": 7}, dict.fromkeys("abc", number))
        there = saver.put(config, given, {"step": number}, dict.fromkeys("abc", number))
        saver.put_writes(there, [("a", value), ("b", marks[0]), ("c", written)], f"task {number}")
        values = {"a": [*value[1:], message("new")], "b": marks[1:], "c": 7}
        slid = checkpoint(number + 1000, values, dict.fromkeys("abc", number + 1))
        saver.put(there, slid, {"step": number + 1}, dict.fromkeys("abc", number + 1))
        saver.delete_thread("t")

    for number in range(1, 30):
        round_trip(number)
    saver.clear_cache()
    gc.collect()
    before = [sys.getrefcount(one) for one in (*marks, value, written, value[0])], sys.getrefcount(None)
    for number in range(30, 230):
        round_trip(number)
    saver.clear_cache()
    gc.collect()
    after = [sys.getrefcount(one) for one in (*marks, value, written, value[0])], sys.getrefcount(None)
    assert after[0] == before[0]
    assert sys.version_info >= (3, 12) or abs(after[1] - before[1]) < 100


@pytest.mark.parametrize("name", ["put", "place", "row", "writes", "grown"])
def test_wrong_arguments_are_errors(name):
    function = getattr(native, name)
    for count in (0, 1, 3, 30):
        with pytest.raises(TypeError):
            function(*[None] * count)


@pytest.mark.parametrize("part", ["the document", "the metadata"])
def test_an_interrupt_while_a_row_is_wrapped_stays_an_interrupt(monkeypatch, part):
    wrap = Envelope.wrap_row

    def interrupted(envelope, content, bound_to):
        if (b"document" in bound_to[:12]) == (part == "the document"):
            raise KeyboardInterrupt
        return wrap(envelope, content, bound_to)

    monkeypatch.setattr(Envelope, "wrap_row", interrupted)
    saver = threadline.connect("memory://")
    config, many = {"configurable": {"thread_id": "t"}}, {f"channel {at}": at for at in range(300)}
    with pytest.raises(KeyboardInterrupt):
        saver.put(config, checkpoint(1, many, dict.fromkeys(many, 1)), {"note": LONG * 20}, dict.fromkeys(many, 1))


def test_headers_that_were_held_are_given_back():
    saver = threadline.connect("memory://")
    config = {"configurable": {"thread_id": "t"}}
    value = [message(LONG)]
    config = saver.put(config, checkpoint(1, {"a": value}, {"a": 1}), {}, {"a": 1})
    headers = saver._tools.codec.alike.headers
    saver.put_writes(config, [("a", value), ("b", value[0])], "task")
    before = sys.getrefcount(headers[HumanMessage])
    for at in range(100):
        saver.put_writes(config, [("a", value), ("b", value[0])], f"task {at}")
    after = sys.getrefcount(headers[HumanMessage])  # on a line of its own: an assertion holds what it looks at
    assert after == before
