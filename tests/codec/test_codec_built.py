"""Objects built by the native module: the very objects that Python builds, and no code of a class runs."""

import gc
import sys
import weakref

import codec_kinds as kinds
import pytest
from codec_anatomy import anatomy
from codec_values import MAKERS
from langchain_core.messages import HumanMessage
from pydantic import BaseModel

import threadline
from threadline.base.native import native
from threadline.codec import Codec
from threadline.codec import uniform as building
from threadline.codec.allowed import registry
from threadline.codec.data_classes import shape_of

pytestmark = pytest.mark.skipif(native is None, reason="the native module was not built: there is no C compiler")


def plan_of(cls):
    return shape_of(cls).build.plan


def both_ways(monkeypatch, values):
    """What comes back of these values, built by the native module and by Python."""
    codec = Codec()
    items = [codec.encode(value) for value in values]
    found = codec.decode_items(items)
    with monkeypatch.context() as patch:
        patch.setattr(building, "native", None)
        patch.setattr(Codec, "_reads_natively", False)
        return found, codec.decode_items(items)


@pytest.mark.parametrize("name", MAKERS)
def test_both_ways_build_the_same(monkeypatch, name):
    native_ones, python_ones = both_ways(monkeypatch, [MAKERS[name](), MAKERS[name]()])
    assert [anatomy(one) for one in native_ones] == [anatomy(one) for one in python_ones]
    for one, other in zip(native_ones, python_ones, strict=True):
        if hasattr(one, "__dict__"):
            assert list(vars(one)) == list(vars(other))


def test_each_object_has_parts_of_its_own():
    codec = Codec()
    one, other = codec.decode_items([codec.encode(kinds.Open(a=1))] * 2)
    assert one.__pydantic_extra__ is not other.__pydantic_extra__
    assert one.__dict__ is not other.__dict__
    assert one.__pydantic_fields_set__ is not other.__pydantic_fields_set__
    one.__pydantic_fields_set__.add("more")
    assert "more" not in other.__pydantic_fields_set__


def test_a_state_with_other_fields_is_left_to_python():
    codec = Codec()
    message = codec.encode(HumanMessage("a", id="1"))
    point = codec.encode(kinds.Point(1, 2))
    assert [anatomy(one) for one in codec.decode_items([message, point])] == [
        anatomy(HumanMessage("a", id="1")),
        anatomy(kinds.Point(1, 2)),
    ]
    plans = {b"p": plan_of(kinds.Point)}
    for state in ({"x": 1}, {"x": 1, "z": 2}, {"x": 1, "y": 2, "z": 3}, [], None, {"x": 1, 2: 3}, {}):
        assert native.built([b"p", b"p"], [{"x": 1, "y": 2}, state], plans) is None


def test_no_code_of_a_class_runs():
    ran = []

    class Loud(BaseModel):
        text: str = ""

        def __init__(self, **values):
            ran.append("init")
            super().__init__(**values)

        def __new__(cls, *_, **__):
            ran.append("new")
            return super().__new__(cls)

        def __setattr__(self, name, value):
            ran.append(name)
            super().__setattr__(name, value)

        def model_post_init(self, _):
            ran.append("post")

    [made] = native.built(["n"], [{"text": "t"}], {"n": plan_of(Loud)})
    assert (type(made), made.text, ran) == (Loud, "t", [])


class Colour:
    """A key that is equal to a field, and tells when it is compared."""

    compared = 0

    def __hash__(self):
        return hash("x")

    def __eq__(self, other):
        Colour.compared += 1
        return other == "x"


def test_a_key_that_is_no_text_is_never_compared():
    assert native.built(["p"], [{Colour(): 1, "y": 2}], {"p": plan_of(kinds.Point)}) is None
    assert Colour.compared == 0


def test_what_cannot_be_made_plainly_has_no_plan():
    assert plan_of(kinds.ListWithFields) is None
    for odd in (kinds.Numbers, kinds.Secretive):
        assert plan_of(odd) is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ([], []),
        ((), [], {}),
        ([], (), {}),
        ([], [], []),
        (["n"], [{}], {}),
        (["n"], [{}], {"n": None}),
        (["n"], [{}], {"n": (1,) * 8}),
        (["n"], [{}], {"n": (dict, frozenset(), dict, None, None, None, None, None)}),
        (["n"], [], {}),
        ([[]], [{}], {}),
    ],
)
def test_wrong_arguments_are_errors(arguments):
    with pytest.raises((TypeError, ValueError)):
        native.built(*arguments)


def test_a_plan_of_another_class_sets_nothing():
    """The descriptors look at what they set: those of a model do not write into a dataclass."""
    _, _, held, *slots, given, has_extra = plan_of(HumanMessage)
    forged = (kinds.Point, frozenset(("x", "y")), held, *slots, given, has_extra)
    with pytest.raises(TypeError):
        native.built(["n"], [{"x": 1, "y": 2}], {"n": forged})


def test_nothing_is_leaked():
    plans = {"m": plan_of(HumanMessage), "p": plan_of(kinds.Point)}
    message = {name: None for name in HumanMessage.model_fields}
    marker = object()
    before = sys.getrefcount(marker)
    for _ in range(50):
        native.built(["m", "p", "m"], [message | {"content": marker}, {"x": marker, "y": 1}, dict(message)], plans)
        assert native.built(["p", "p"], [{"x": marker, "y": 1}, {"x": marker}], plans) is None
    gc.collect()
    assert sys.getrefcount(marker) == before
    [made] = native.built(["p"], [{"x": 1, "y": 2}], plans)
    gone = weakref.ref(made)
    del made
    assert gone() is None


def test_objects_are_collected_as_others_are():
    """Built objects are tracked: a cycle through one goes."""
    [made] = native.built(["p"], [{"x": 1, "y": 2}], {"p": plan_of(kinds.Point)})
    made.x = made
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


def test_a_finalizer_that_changes_the_lists_is_survived():
    """The garbage collector may run while objects are made, and with it any code."""
    plans, names = {"p": plan_of(kinds.Point)}, ["p"] * 3_000
    states = [{"x": 1, "y": 2} for _ in names]

    class Clearing:
        def __del__(self):
            states.clear()

    before = gc.get_threshold()
    gc.disable()
    cycle = [Clearing()]
    cycle.append(cycle)
    del cycle
    gc.set_threshold(gc.get_count()[0] + 100)
    gc.enable()
    try:
        with pytest.raises(RuntimeError, match="changed"):
            native.built(names, states, plans)
    finally:
        gc.set_threshold(*before)
    assert states == []


class Itinerary:
    """A class of a program, registered with itself as its decoder, whose attributes have names of ours."""

    plan = "by train"
    build_all = "everything"

    def __init__(self, stops):
        self.stops = stops


@pytest.fixture
def registered():
    threadline.register(Itinerary, encode=lambda one: one.stops, decode=Itinerary)
    yield
    registry.by_class.pop(Itinerary, None)


def test_attributes_of_a_registered_decoder_are_the_programs_own(registered):
    codec = Codec()
    for content in (
        codec.encode_alone([Itinerary([1]), Itinerary([2])]),
        codec.encode([Itinerary([1]), Itinerary([2])]),
    ):
        assert [one.stops for one in codec.decode(content)] == [[1], [2]]
    found = codec.decode_items([codec.encode(Itinerary([1])), codec.encode(Itinerary([2]))])
    assert [one.stops for one in found] == [[1], [2]]
