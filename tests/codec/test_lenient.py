"""A lenient codec rebuilds what its rules allow, and shows the rest by its structure."""

import dataclasses
import sys
import types

import pytest

from threadline.codec.allowed import TypeRules, register, registry
from threadline.codec.codec import Codec
from threadline.codec.structural import StructuralCodec, Structure, lenient
from threadline.errors import NotSerializable


@pytest.fixture
def shop():
    module = types.ModuleType("lenient_shop")
    module.Order = dataclasses.make_dataclass("Order", [("item", str), ("parts", object)])
    module.Order.__module__ = module.__name__
    sys.modules[module.__name__] = module
    yield module
    sys.modules.pop(module.__name__, None)


@dataclasses.dataclass
class Here:
    value: object


def test_what_is_not_here_is_a_structure_and_what_is_here_is_rebuilt(shop):
    packed = Codec().encode([Here(shop.Order("bike", [1])), shop.Order("bell", (2,)), {3}])
    del sys.modules[shop.__name__]
    codec = lenient(Codec())
    here, order, numbers = codec.decode(packed)
    assert type(here) is Here
    assert numbers == {3}
    assert (here.value.type_name, here.value.item, here.value.parts) == ("lenient_shop:Order", "bike", [1])
    assert (order.item, order.parts) == ("bell", (2,))
    # What was read is stored again as it was.
    assert codec.encode([here, order, numbers]) == packed
    sys.modules[shop.__name__] = shop
    assert codec.decode(packed)[1] == shop.Order("bell", (2,))


def test_a_state_that_the_class_does_not_take_is_a_structure(shop):
    def refuse(state):
        raise RuntimeError("an older program made this")

    register(shop.Order, name="lenient.Order", encode=lambda order: [order.item], decode=refuse)
    try:
        found = lenient(Codec()).decode(Codec().encode([shop.Order("bike", None)]))
        assert (type(found[0]), found[0].state) == (Structure, ["bike"])
    finally:
        for held in (registry.by_name, registry.by_class):
            for key in [key for key, value in held.items() if value.cls is shop.Order]:
                del held[key]


def test_rules_still_say_what_may_be_stored():
    codec = lenient(Codec(TypeRules("strict")))
    with pytest.raises(NotSerializable):
        codec.encode(Here(1))
    assert isinstance(codec.decode(Codec().encode(Here(1))), Structure)


def test_a_codec_that_is_lenient_stays_what_it_is():
    made = lenient(Codec())
    assert lenient(made) is made
    structural = StructuralCodec()
    assert lenient(structural) is structural
