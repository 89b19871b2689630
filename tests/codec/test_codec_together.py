"""Objects that are encoded or built together: the bytes and the objects are those of each alone."""

import dataclasses
import sys
import types

import codec_kinds as kinds
import ormsgpack
import pytest
from codec_anatomy import anatomy
from codec_values import MAKERS
from langchain_core.messages import AIMessage, HumanMessage

import threadline
from threadline import NotSerializable
from threadline.codec import Codec
from threadline.codec.codec import OBJECT, OPTIONS
from threadline.codec.framing import ext_frame
from threadline.codec.packing import may_hold_bytes
from threadline.codec.uniform import built


def encode_items(codec, values):
    """The bytes of each value, of their states taken together; None where they must be encoded by themselves."""
    heads, states = codec.states(values)
    try:
        packed = [ormsgpack.packb(state, codec.pack_within, OPTIONS) for state in states]
    except (TypeError, ValueError, RecursionError):
        return None
    if any(map(may_hold_bytes, packed)):
        return None
    return [ext_frame(OBJECT, head, state) if head else state for head, state in zip(heads, packed, strict=True)]


def without(instance, name):
    del instance.__dict__[name]
    return instance


def caching():
    model = kinds.Caching(value=1)
    assert model.double == 2
    assert "double" in vars(model)
    return model


# What has more or less than its fields, and what is inside of it.
ODD = {
    "a lost field": lambda: without(kinds.Point(1, 2), "y"),
    "a new attribute": lambda: vars(point := kinds.Point(1, 2)).update(more=3) or point,
    "another attribute instead": lambda: vars(point := without(kinds.Point(1, 2), "y")).update(z=3) or point,
    "a bytearray": lambda: kinds.Point(1, [{"deep": bytearray(b"b")}]),
    "bytes": lambda: kinds.Point(1, [{"deep": b"b"}]),
    "a float that looks like bytes": lambda: kinds.Point(1, 1 / 3 + 0.77),
    "a large number": lambda: kinds.Point(1, 2**70),
    "a surrogate": lambda: kinds.Point(1, "\ud800"),
    "other keys": lambda: kinds.Point(1, {1: 2}),
    "an object inside": lambda: kinds.Point(1, kinds.Point(2, kinds.Person(name="n"))),
    "few fields given": lambda: kinds.Person(name="n"),
    "all fields given": lambda: kinds.Person(name="n", age=1, address=None, friends=[], extra_data=1),
    "a model without a field": lambda: without(kinds.Person(name="n"), "age"),
    "what a model has cached": caching,
    "extra fields": lambda: kinds.Open(more=1),
    "no extra fields": lambda: kinds.Open(),
    "private attributes": lambda: kinds.Secretive(),
    "an attribute of a message": lambda: HumanMessage("x", more=1),
    "slots": lambda: kinds.SlottedPoint(1, 2),
}


@pytest.mark.parametrize("name", [*ODD, *MAKERS])
def test_each_has_the_bytes_it_has_alone(codec, name):
    make = ODD.get(name) or MAKERS[name]
    for values in (
        [make() for _ in range(3)],
        [kinds.Point(1, 2), make(), kinds.Point(3, 4)],
        [HumanMessage("x"), make(), AIMessage("y")],
        [kinds.Person(name="a", age=1), make(), kinds.Person(name="b")],
    ):
        alone = [codec.encode(value) for value in values]
        together = encode_items(codec, values)
        assert together is None or together == alone
        assert anatomy(codec.decode_items(alone)) == anatomy([codec.decode(item) for item in alone])
        if type(values[1]) is not list:
            assert anatomy(codec.decode(codec.encode_alone(values))) == anatomy(codec.decode(codec.encode(values)))


@pytest.mark.parametrize("make", [lambda at: kinds.Point(at, [at]), lambda at: kinds.Person(name=str(at)), kinds.Order])
def test_models_and_dataclasses_are_encoded_together(codec, make):
    values = [make(at) for at in range(50)]
    assert encode_items(codec, values) == [codec.encode(value) for value in values]
    assert codec.alike.take_apart(values, list(map(type, values))) is not None


def test_nothing_of_a_class_runs(codec, ran):
    for values in ([kinds.Order(at) for at in range(5)], [kinds.Guarded(value=at) for at in range(5)]):
        items, group = encode_items(codec, values), codec.encode_alone(values)
        ran.clear()
        assert anatomy(Codec().decode_items(items)) == anatomy(values)
        assert anatomy(Codec().decode(group)) == anatomy(values)
        assert ran == []


def test_an_object_that_was_never_set_up_is_named(codec):
    values = [kinds.Person(name="n"), object.__new__(kinds.Person)]
    assert encode_items(codec, values) is None
    with pytest.raises(NotSerializable) as caught:
        codec.encode_alone(values)
    assert caught.value.path.startswith("[1]")


def test_objects_built_together_share_nothing(codec):
    people = codec.decode_items(encode_items(codec, [kinds.Person(name="n") for _ in range(3)]))
    people[0].age = 5
    assert [person.model_fields_set for person in people] == [{"name", "age"}, {"name"}, {"name"}]
    opened = codec.decode_items(encode_items(codec, [kinds.Open() for _ in range(3)]))
    opened[0].more = 1
    assert [model.__pydantic_extra__ for model in opened] == [{"more": 1}, {}, {}]
    points = codec.decode_items(encode_items(codec, [kinds.Point(1, 2) for _ in range(3)]))
    points[0].x = 9
    assert [point.x for point in points] == [9, 1, 1]


def test_registered_classes_are_encoded_under_their_names_and_upgraded_when_they_are_read():
    @dataclasses.dataclass
    class Local:
        n: int

    threadline.register(Local, name="test.together")
    items = encode_items(Codec(), [Local(1), Local(2)])
    assert items == [Codec().encode(Local(1)), Codec().encode(Local(2))]
    assert b"test.together" in items[0]
    threadline.register(Local, name="test.together", version=2, upgrade=lambda state, version: {"n": state["n"] * 10})
    assert Codec().decode_items(items) == [Local(10), Local(20)]


def test_a_class_that_was_defined_again_takes_the_place_of_the_former(monkeypatch):
    module = types.ModuleType("codec_notebook")
    monkeypatch.setitem(sys.modules, "codec_notebook", module)
    codec = Codec()
    for turn in range(3):
        exec("import dataclasses\n@dataclasses.dataclass\nclass Cell:\n    x: int", vars(module))
        values = [module.Cell(turn) for _ in range(5)]
        assert codec.decode_items(encode_items(codec, values)) == values
        assert codec.decode(codec.encode_alone(values)) == values


def test_names_and_states_belong_together():
    builders = {0: str, 1: lambda state: [state]}
    assert built([0, 1, 0], [1, 2, 3], builders) == ["1", [2], "3"]
    assert built([], [], builders) == []
    with pytest.raises(ValueError, match="more names than states"):
        built([0], [1, 2], builders)
    with pytest.raises(KeyError):
        built([0, 2], [1, 2], builders)
