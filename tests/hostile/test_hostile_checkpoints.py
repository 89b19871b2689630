"""Checkpoints, metadata, versions and writes that are not what they must be: refused, named, nothing stored."""

import pytest

import threadline

ABSENT = object()

# What is wrong, where, and the word by which the error names it.
WRONG_CHECKPOINTS = [
    ("id", ABSENT, "id"), ("id", None, "id"), ("id", "", "id"), ("id", b"x", "id"), ("id", 1.5, "id"), ("id", [], "id"),
    ("id", True, "id"), ("id", "lone \ud800", "id"),
    ("ts", ABSENT, "ts"), ("ts", None, "ts"), ("ts", 5, "ts"), ("ts", b"x", "ts"), ("ts", {}, "ts"),
    ("channel_versions", ABSENT, "channel_versions"), ("channel_versions", None, "channel_versions"),
    ("channel_versions", [], "channel_versions"), ("channel_versions", "x", "channel_versions"),
    ("channel_versions", {"text": None}, "text"), ("channel_versions", {"text": True}, "text"),
    ("channel_versions", {"text": b"1"}, "text"), ("channel_versions", {"text": [1]}, "text"),
    ("channel_versions", {"text": {"a": 1}}, "text"), ("channel_versions", {5: 1}, "5"),
    ("channel_versions", {None: 1}, "None"),
    ("channel_values", None, "channel_values"), ("channel_values", [], "channel_values"),
    ("channel_values", "x", "channel_values"), ("channel_values", {5: 1}, "5"), ("channel_values", {b"x": 1}, "x"),
    ("channel_values", {None: 1}, "None"), ("channel_values", {("a", "b"): 1}, "a"),
    ("versions_seen", None, "versions_seen"), ("versions_seen", [], "versions_seen"),
    ("versions_seen", "x", "versions_seen"), ("versions_seen", {"node": 5}, "versions_seen"),
    ("versions_seen", {"node": None}, "versions_seen"), ("versions_seen", {5: {}}, "versions_seen"),
    ("updated_channels", 5, "updated_channels"), ("updated_channels", "text", "updated_channels"),
    ("v", 0, "v="), ("v", 5, "v="), ("v", 99, "v="), ("v", -1, "v="), ("v", None, "v="), ("v", "4", "v="),
    ("v", True, "v="), ("v", [4], "v="), ("v", 1.5, "v="), ("v", 4.0, "v="),
]  # fmt: skip

WRONG_METADATA = [
    (None, "metadata"), ([], "metadata"), ("x", "metadata"), (5, "metadata"),
    ({"step": -3}, "step"), ({"step": -(10**30)}, "step"), ({"step": "3"}, "step"), ({"step": 1.5}, "step"),
    ({"step": True}, "step"), ({"step": [1]}, "step"), ({"step": float("nan")}, "step"),
]  # fmt: skip

WRONG_WRITES = [
    (None, "write"), (5, "write"), ("ab", "write"), ([5], "write"), (["ab"], "write"), ([("a",)], "write"),
    ([("a", 1, 2)], "write"), ([(5, 1)], "write"), ([(None, 1)], "write"), ([(b"a", 1)], "write"),
    ([("a", 1), None], "write"), ({"a": 1}, "write"), ([("lone \ud800", 1)], "channel"),
]  # fmt: skip


def test_a_checkpoint_that_is_none_is_refused(each, refused, make):
    def check(case):
        key, value, word = case
        wrong = make.checkpoint(3)
        if value is ABSENT:
            del wrong[key]
        else:
            wrong[key] = value
        refused(
            threadline.InvalidRequest, word, "put", make.config("kept", "00000002"), wrong, {"step": 3}, {"text": 3}
        )
        refused(threadline.InvalidRequest, word, "put", make.config("new"), wrong, {"step": 3}, {"text": 3})
        good = (make.config("kept"), make.checkpoint(4), {"step": 4}, {"text": 4})
        refused(
            threadline.InvalidRequest, word, "put_many", [good, (make.config("new"), wrong, {"step": 3}, {"text": 3})]
        )

    each(WRONG_CHECKPOINTS, check)


def test_something_else_than_a_checkpoint_is_refused(each, refused, make):
    def check(wrong):
        refused(threadline.InvalidRequest, "checkpoint", "put", make.config("kept"), wrong, {"step": 3}, {"text": 3})

    each([None, [], "x", 5, b"x"], check)


def test_metadata_that_is_none_is_refused(each, refused, make):
    def check(case):
        wrong, word = case
        refused(threadline.InvalidRequest, word, "put", make.config("kept"), make.checkpoint(3), wrong, {"text": 3})

    each(WRONG_METADATA, check)


@pytest.mark.parametrize("parent", [None, "00000002"])
def test_new_versions_that_are_no_dict_are_refused(each, refused, make, parent):
    def check(wrong):
        arguments = make.config("kept", parent), make.checkpoint(3), {"step": 3}, wrong
        refused(threadline.InvalidRequest, "new_versions", "put", *arguments)

    each([None, 5, "text", ["text"], b"text", 1.5], check)


def test_metadata_of_a_config_that_is_no_dict_is_refused(each, refused, make):
    def check(wrong):
        config = {**make.config("kept"), "metadata": wrong}
        refused(threadline.InvalidRequest, "metadata", "put", config, make.checkpoint(3), {"step": 3}, {"text": 3})

    each(["x", 5, ["x"]], check)


def test_keys_of_a_config_that_are_no_text_are_left_out_of_the_metadata(saver, half, make):
    config = {**make.config("kept"), "metadata": {5: "five", None: 1, "plain": 1}}
    config["configurable"][7] = "seven"
    half.call(saver, "put", config, make.checkpoint(3), {"step": 3}, {"text": 3})
    found = half.call(saver, "get_tuple", make.config("kept"))
    assert found.metadata == {"step": 3, "plain": 1}


def test_writes_that_are_no_pairs_are_refused(each, refused, make):
    def check(case):
        wrong, word = case
        refused(threadline.InvalidRequest, word, "put_writes", make.config("kept", "00000002"), wrong, "task-2")

    each(WRONG_WRITES, check)


def test_a_task_id_that_is_none_is_refused(each, refused, make):
    def check(wrong):
        refused(threadline.InvalidRequest, "task_id", "put_writes", make.config("kept", "00000002"), [("a", 1)], wrong)

    each([None, "", b"x", 1.5, True, [], "lone \ud800"], check)


def test_a_task_path_that_is_no_text_is_refused(each, refused, make):
    def check(wrong):
        arguments = make.config("kept", "00000002"), [("a", 1)], "task-2", wrong
        refused(threadline.InvalidRequest, "task_path", "put_writes", *arguments)

    each([None, 5, b"x", ["x"], "lone \ud800"], check)


def test_writes_without_a_checkpoint_to_belong_to_are_refused(refused, make):
    refused(threadline.InvalidRequest, "checkpoint_id", "put_writes", make.config("kept"), [("a", 1)], "task-2")
    refused(threadline.InvalidRequest, "checkpoint_id", "delete_checkpoint", make.config("kept"))


def test_a_batch_that_is_none_is_refused(each, refused):
    def check(wrong):
        refused(threadline.InvalidRequest, "put_many", "put_many", wrong)

    each([None, 5, "x", [None], [5], [()], [("a", "b")]], check)


def test_deleting_what_is_not_there_is_not_found(refused, make):
    refused(threadline.NotFound, ("kept", "12345678"), "delete_checkpoint", make.config("kept", "12345678"))
    refused(threadline.NotFound, "stranger", "delete_checkpoint", make.config("stranger", "00000001"))
    refused(threadline.NotFound, "stranger", "copy_thread", "stranger", "copy")
    refused(threadline.InvalidRequest, "itself", "copy_thread", "kept", "kept")


def test_deleting_or_pruning_a_thread_that_is_not_there_changes_nothing(saver, unchanged, half):
    with unchanged():
        half.call(saver, "delete_thread", "stranger")
        half.call(saver, "prune", ["stranger"])
        half.call(saver, "delete_for_runs", ["stranger"])


def test_an_unknown_strategy_is_refused_before_anything_is_deleted(each, refused):
    def check(wrong):
        refused(threadline.InvalidRequest, "strategy", "prune", ["kept"], strategy=wrong)

    each(["keep", "", None, 5, "DELETE"], check)


def test_a_limit_that_is_no_number_is_refused(each, refused, make):
    def check(wrong):
        refused(threadline.InvalidRequest, "limit", "list", make.config("kept"), limit=wrong)
        refused(threadline.InvalidRequest, "limit", "threads", limit=wrong)

    each(["5", 1.5, True, [1], b"1"], check)


def test_a_prefix_that_is_no_text_is_refused(each, refused):
    def check(wrong):
        refused(threadline.InvalidRequest, "prefix", "threads", prefix=wrong)
        refused(threadline.InvalidRequest, "prefix", "count_threads", prefix=wrong)

    each([None, 5, b"k", ["k"], "lone \ud800"], check)


@pytest.mark.parametrize("wrong", ["x", [], (1,), object()], ids=["text", "list", "tuple", "object"])
def test_a_version_that_cannot_be_continued_is_refused(saver, wrong):
    with pytest.raises(threadline.InvalidRequest, match="version"):
        saver.get_next_version(wrong, None)
