"""Data classes are taken apart and put together by their fields; none of their own code runs."""

import pickle

import codec_kinds as kinds
import pytest
from codec_anatomy import anatomy
from codec_stores import put, values_at

from threadline import InvalidRequest, NotSerializable, register, register_module
from threadline.codec import Codec, TypeRules


def again(value):
    codec = Codec()
    return codec.decode(codec.encode(value))


# -- what runs, and what does not


def test_no_constructor_no_validator_and_no_hook_runs_when_a_value_is_read(codec, ran):
    watched = [
        kinds.Order(3),
        kinds.Guarded(value=1),
        kinds.OldPerson(name="n"),
        kinds.Watched.KNOWN,
        kinds.WatchedFlag.A | kinds.WatchedFlag.C,
    ]
    packed = codec.encode(watched)
    ran.clear()
    found = Codec().decode(packed)
    assert ran == []
    assert anatomy(found) == anatomy(watched)


def test_no_code_of_a_class_runs_when_a_value_is_stored_and_read_by_a_saver(connect, ran):
    saver = connect()
    config = put(saver, {"items": [kinds.Guarded(value=1), kinds.Order(2), kinds.OldPerson(name="o")]})
    ran.clear()
    saver.clear_cache()
    values_at(saver, config)
    assert ran == []


def test_flags_that_this_process_never_combined_are_found_without_asking_the_class(run_script):
    script = """
        import codec_kinds as kinds
        from threadline.codec import Codec, TypeRules
        combined = kinds.WatchedFlag.A | kinds.WatchedFlag.C
        print(Codec().encode(combined).hex())
    """
    packed = run_script(script)
    read = f"""
        import codec_kinds as kinds
        from threadline.codec import Codec, TypeRules
        found = Codec().decode(bytes.fromhex("{packed}"))
        print(kinds.ran, found.value, type(found).__name__)
    """
    assert run_script(read) == "[] 5 WatchedFlag"


def test_a_value_that_the_class_would_refuse_comes_back_as_it_was_stored():
    person = kinds.Person(name="n")
    person.age = "old"
    person.friends = None
    assert anatomy(again(person)) == anatomy(person)
    point = kinds.FrozenPoint("not a number")
    assert again(point) == point


def test_a_frozen_instance_that_came_back_is_still_frozen():
    with pytest.raises(AttributeError):
        again(kinds.FrozenPoint(1)).x = 2
    with pytest.raises(ValueError, match="frozen"):
        again(kinds.FrozenModel(value=1)).value = 2


def test_an_instance_that_came_back_works_like_any_other():
    person = again(kinds.Person(name="n"))
    person.age = 4
    assert person.model_fields_set == {"name", "age"}
    assert person.model_copy(update={"age": 5}).age == 5
    assert person.model_dump() == kinds.Person(name="n", age=4).model_dump()
    assert pickle.loads(pickle.dumps(person)) == person
    secretive = again(kinds.Secretive())
    secretive._count += 1
    assert secretive._count == 6
    opened = again(kinds.Open(more=1))
    opened.even_more = 2
    assert opened.model_extra == {"more": 1, "even_more": 2}


def test_two_instances_that_came_back_share_nothing(codec):
    packed = codec.encode(kinds.Point(1, [2]))
    one, other = codec.decode(packed), codec.decode(packed)
    one.y.append(3)
    assert other.y == [2]


# -- fields that were never set


def test_a_field_without_a_value_comes_back_without_a_value():
    for unfinished in (kinds.Unfinished(1), kinds.SlottedUnfinished(1), [kinds.Unfinished(2)]):
        assert anatomy(again(unfinished)) == anatomy(unfinished)
    finished = kinds.SlottedUnfinished(1)
    finished.later = 2
    assert again(finished) == finished


def test_a_model_that_was_constructed_without_a_required_field_comes_back_without_it():
    partial = kinds.Person.model_construct(age=1)
    assert not hasattr(again(partial), "name")
    assert anatomy(again(partial)) == anatomy(partial)


# -- pydantic


def test_which_fields_were_given_is_kept():
    for model in (
        kinds.Person(name="n"),
        kinds.Person(name="n", age=0),
        kinds.Person(name="n", friends=[]),
        kinds.Person(name="n", age=1, address=None, friends=[], extra_data=None),
        kinds.Aliased(firstValue=1),
        kinds.Open(),
        kinds.Open(a=1, more=1),
        kinds.Open(more=1, even_more=2),
        kinds.Numbers([1]),
    ):
        found = again(model)
        assert found.model_fields_set == model.model_fields_set
        assert found.model_dump(exclude_unset=True) == model.model_dump(exclude_unset=True)


def test_an_extra_field_that_was_not_given_is_kept_as_such():
    model = kinds.Open.model_construct(_fields_set={"a"}, a=1, hidden="extra")
    assert anatomy(again(model)) == anatomy(model)
    assert again(model).model_fields_set == {"a"}


def test_private_attributes_are_kept_with_those_that_have_no_value():
    model = kinds.Secretive()
    model._log.append("entry")
    found = again(model)
    assert (found._count, found._log) == (5, ["entry"])
    assert not hasattr(found, "_unset")
    model._unset = 3
    assert again(model)._unset == 3


def test_private_attributes_of_old_models_are_kept():
    model = kinds.OldPerson(name="n")
    model._count = 8
    assert again(model)._count == 8
    assert again(model).__fields_set__ == {"name"}


def test_a_cached_property_is_no_part_of_a_model(codec):
    model = kinds.Caching(value=2)
    plain = codec.encode(model)
    assert model.double == 4
    assert codec.encode(model) == plain
    assert codec.decode(plain).double == 4


def test_a_root_model_comes_back_equal(codec):
    model = kinds.Numbers([1, 2])
    found = again(model)
    assert found == model
    assert found.__dict__ == model.__dict__
    assert codec.encode(found) == codec.encode(model)


def test_a_model_is_not_taken_for_another_of_equal_fields():
    for pair in ((kinds.Open(a=1, b=2), kinds.Open), (kinds.Address(street="s"), kinds.Address)):
        assert type(again(pair[0])) is pair[1]


# -- what is no data class


def test_a_class_with_a_destructor_is_refused(codec, ran):
    with pytest.raises(NotSerializable, match="Closing"):
        codec.encode(kinds.Closing())


def test_a_data_class_that_is_also_a_list_comes_back_whole_or_is_refused():
    value = kinds.ListWithFields("n")
    value.extend([1, 2])
    try:
        packed = Codec().encode(value)
    except NotSerializable:
        return
    found = Codec().decode(packed)
    assert list(found) == [1, 2]
    assert found.name == "n"


def test_a_class_of_any_kind_can_be_registered_with_two_functions(ran):
    register(kinds.Opaque, name="app.opaque", encode=lambda value: [value.value], decode=lambda s: kinds.Opaque(*s))
    found = again({"deep": [kinds.Opaque({1, 2})]})["deep"][0]
    assert type(found) is kinds.Opaque
    assert found.value == {1, 2}


def test_registering_returns_the_class_and_serves_as_a_decorator():
    assert register(kinds.Point) is kinds.Point
    assert again(kinds.Point(1)) == kinds.Point(1)


def test_a_registered_subclass_of_a_basic_type_is_kept():
    register(kinds.TextOfMine, name="mine", encode=str, decode=kinds.TextOfMine)
    assert type(again(kinds.TextOfMine("t"))) is kinds.TextOfMine
    assert type(again(["t", kinds.TextOfMine("t")])[1]) is kinds.TextOfMine


def test_a_registered_class_with_a_destructor_is_accepted():
    register(kinds.Closing, name="closing", encode=lambda value: value.handle, decode=kinds.Closing)
    assert again(kinds.Closing(7)).handle == 7


def test_a_whole_module_can_be_registered():
    found = register_module("codec_kinds")
    assert {kinds.Point, kinds.Person, kinds.Pair, kinds.Text, kinds.OldAddress} <= set(found)
    assert kinds.Opaque not in found
    assert kinds.Closing not in found
    strict = Codec(TypeRules("strict"))
    assert strict.decode(strict.encode(kinds.Point(1))) == kinds.Point(1)


@pytest.mark.parametrize(
    "options",
    [
        {"encode": str},
        {"decode": str},
        {"name": ""},
        {"name": "a@2"},
        {"name": "what?"},
        {"name": "x" * 300},
        {"version": 0},
        *({"name": built_in} for built_in in ("t", "dt", "s", "fs", "m", "i", "u", "nd", "np", "exc", "pickle")),
    ],
    ids=repr,
)
def test_a_registration_that_could_not_be_read_back_is_refused(options):
    with pytest.raises(InvalidRequest):
        register(kinds.Point, **options)
    assert again(kinds.Point(1)) == kinds.Point(1)
    assert again((1, "\ud800", 2**70, {1: 2})) == (1, "\ud800", 2**70, {1: 2})


def test_a_class_that_is_no_data_class_cannot_be_registered_without_functions():
    with pytest.raises(InvalidRequest, match="encode="):
        register(kinds.Opaque)


def test_a_name_belongs_to_one_class():
    register(kinds.Point, name="point")
    with pytest.raises(InvalidRequest, match="point"):
        register(kinds.FrozenPoint, name="point")
    assert type(again(kinds.Point(1))) is kinds.Point


def test_an_alias_does_not_take_the_name_of_another_registered_class():
    register(kinds.Point, name="point")
    with pytest.raises(InvalidRequest):
        register(kinds.FrozenPoint, aliases=["point"])
    assert type(again(kinds.Point(1))) is kinds.Point


@pytest.mark.parametrize("kind", [kinds.TextOfMine, kinds.Point], ids=["text", "point"])
def test_functions_of_a_registration_that_fail_name_the_value_they_failed_for(kind):
    def fail(value):
        raise RuntimeError("no")

    register(kind, name="failing", encode=fail, decode=fail)
    with pytest.raises(NotSerializable) as caught:
        Codec().encode({"deep": [kind("t")]}, "state")
    assert caught.value.path == "state['deep'][0]"
