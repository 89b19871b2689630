"""Filters: unknown operators and hostile keys are refused; hostile values match nothing but themselves."""

import sqlite3

import pytest

import threadline

HOSTILE_KEYS = [
    "source') OR 1=1 --", "a' OR '1'='1", 'a") OR ("1"="1', "$", "$.source", "$[0]", "a;b", "a\0b", "a'b", 'a"b', "a`b",
    "a)b", "a(b", "a*b", "a%b", "a?b", "{a}", "a\nb", "a\\b", "x" * 5000, "", "lone \ud800", "$eq", "$or", "$where",
]  # fmt: skip
HOSTILE_VALUES = [
    "' OR 1=1 --", "\" OR \"\"=\"", "'; DROP TABLE threadline_checkpoints; --", "%", "_", "*", "loop' --", "a\0b", "\\",
    "x" * 100_000, "lone \ud800", "🙂", "", " loop", "LOOP", b"loop", ["loop"], {"loop": 1}, {}, [], ("loop",), 10**40,
    float("nan"), float("inf"), -0.5, object, {1, 2},
]  # fmt: skip


def ids(found):
    return [one.checkpoint["id"] for one in found]


def test_a_hostile_key_is_refused(each, refused, make):
    def check(key):
        refused(threadline.InvalidRequest, "filter", "list", None, filter={key: "loop"})
        refused(
            threadline.InvalidRequest, "filter", "list", make.config("kept"), filter={"source": "loop", key: {"$eq": 1}}
        )

    each(HOSTILE_KEYS, check)


def test_a_key_that_is_no_text_is_refused(each, refused):
    def check(key):
        refused(threadline.InvalidRequest, "filter", "list", None, filter={key: "loop"})

    each([5, None, b"source", ("a",), True], check)


@pytest.mark.parametrize("key", ["source", "step", "run_id", "other", "nested.key", "hyphen-ed"])
def test_a_hostile_value_matches_nothing_and_harms_nothing(saver, half, unchanged, key):
    with unchanged():
        for value in HOSTILE_VALUES:
            for wanted in (value, {"$eq": value}, {"$in": [value]}):
                assert half.listed(saver, None, filter={key: wanted}) == [], value
            for operator in ("$gt", "$gte", "$lt", "$lte"):
                found = half.listed(saver, None, filter={key: {operator: value}})
                # A number compares with the steps, text with the sources; nothing else compares with anything.
                assert found == [] or (key, type(value)) in {("step", float), ("step", int), ("source", str)}, value


def test_a_hostile_value_that_is_stored_is_found_by_itself_alone(saver, half, make):
    stored = [value for value in HOSTILE_VALUES if isinstance(value, str)]
    for number, value in enumerate(stored, 10):
        half.call(saver, "put", make.config("values"), make.checkpoint(number), {"step": 0, "tag": value}, {"text": 1})
    for number, value in enumerate(stored, 10):
        assert ids(half.listed(saver, make.config("values"), filter={"tag": value})) == [f"{number:08d}"]
        assert ids(half.listed(saver, None, filter={"tag": {"$eq": value}})) == [f"{number:08d}"]


def test_an_unknown_operator_is_refused_by_name(each, refused):
    def check(operator):
        refused(threadline.InvalidRequest, ("operator", operator), "list", None, filter={"step": {operator: 1}})
        refused(
            threadline.InvalidRequest, ("operator", operator), "list", None, filter={"step": {"$gt": 0, operator: 1}}
        )

    each(["$regex", "$where", "$or", "$not", "$GT", "$", "$$eq", "$eq "], check)


def test_operators_mixed_with_keys_are_refused(each, refused):
    def check(mixed):
        refused(threadline.InvalidRequest, "operator", "list", None, filter={"step": mixed})

    each([{"$gt": 1, "plain": 2}, {"$gt": 1, 5: 2}], check)


def test_in_without_a_list_is_refused(each, refused):
    def check(operand):
        refused(threadline.InvalidRequest, "$in", "list", None, filter={"step": {"$in": operand}})

    each([5, "abc", None, {"a": 1}], check)


def test_a_filter_that_is_no_dict_is_refused(each, refused):
    def check(wrong):
        refused(threadline.InvalidRequest, "filter", "list", None, filter=wrong)

    each(["source", 5, ["source"], [("source", "loop")], b"x", True], check)


@pytest.mark.parametrize(
    "prefix",
    ["x; DROP TABLE threadline_meta; --", "a b", "a'", 'a"', "a-b", "1a", "a.b", "ä_", "x" * 100, "a\0", "a\n"],
    ids=lambda prefix: repr(prefix)[:30],
)
def test_a_table_prefix_that_could_be_sql_is_refused(database, prefix):
    with pytest.raises(threadline.InvalidRequest, match="table_prefix"):
        threadline.connect(database, table_prefix=prefix)
    assert not database.exists()


def test_injections_through_every_text_leave_the_tables_alone(connect, database, half, make):
    attack = "x'); DROP TABLE threadline_threads; DELETE FROM threadline_checkpoints; --"
    saver = connect(database)
    put = {**make.checkpoint(1, **{attack: attack}), "id": attack, "ts": attack}
    config = half.call(
        saver, "put", make.config(attack, None, attack), put, {"source": attack, "run_id": attack}, {attack: 1}
    )
    half.call(saver, "put_writes", config, [(attack, attack)], attack, attack)
    half.call(saver, "copy_thread", attack, attack + "2")
    half.call(saver, "delete_for_runs", [attack + "3"])
    half.call(saver, "prune", [attack])
    assert half.listed(saver, make.config(attack, None, attack), filter={"source": attack, "run_id": attack})
    assert half.listed(saver, None, before=make.config(attack, attack)) == []
    assert [one.thread_id for one in half.listed(saver, verb="threads", prefix=attack, after=attack)] == [attack + "2"]
    assert half.call(saver, "latest", [attack], [attack]) == {}
    assert half.call(saver, "get_tuple", config).pending_writes == [(attack, attack, attack)]
    connection = sqlite3.connect(database)
    assert connection.execute("SELECT count(*) FROM threadline_threads").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM threadline_checkpoints").fetchone() == (2,)
    connection.close()
