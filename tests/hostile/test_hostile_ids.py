"""Ids that are odd are kept apart; ids that are none are refused, and the error names them."""

import uuid

import pytest

import threadline

ODD = [
    "a/b", "a:b", "{a}", "*", "%", "_", "a\0b", "a\0", "\0", "'", '"', "`", "\\", ";", "?", "--", "$1", ":name",
    "'; DROP TABLE threadline_threads; --", '" OR "1"="1', "x' UNION SELECT 1 --", " ", "a ", " a", "\n", "\t", "..",
    "../../etc", "🙂", "e\u0301", "é", "İ", "ß", "SS", "\U0010ffff", "\ufeff", "A", "a", "0", "00", "None", "null",
    "x" * 1000, "🙂" * 1000, "|", "a|b:c",
]  # fmt: skip
REFUSED = [
    ("", "empty"),
    (None, "thread"),
    (b"t", "bytes"),
    (1.5, "float"),
    (True, "bool"),
    (["t"], "list"),
    ({"id": "t"}, "dict"),
    ("lone \ud800", "surrogate"),
]
NO_CONFIG = [None, {}, [], "t", 5, {"configurable": None}, {"configurable": "t"}, {"configurable": {}}]


def title(saver, half, config):
    found = half.call(saver, "get_tuple", config)
    return found and found.checkpoint["channel_values"]["title"]


def test_odd_thread_ids_are_kept_apart_and_deleted_alone(connect, url, half, make):
    saver = connect(url)
    for name in ODD:
        half.call(saver, "put", make.config(name), make.checkpoint(1, title=name), {"step": 0}, {"title": 1})
    for reader in (saver, connect(url)):
        assert [title(reader, half, make.config(name)) for name in ODD] == ODD
        assert sorted(info.thread_id for info in half.listed(reader, verb="threads")) == sorted(ODD)
        assert [len(half.listed(reader, make.config(name))) for name in ODD] == [1] * len(ODD)
    for gone, name in enumerate(ODD, 1):
        half.call(saver, "delete_thread", name)
        assert half.call(saver, "count_threads") == len(ODD) - gone
        assert title(saver, half, make.config(name)) is None


def test_odd_prefixes_find_just_the_threads_that_start_with_them(connect, url, half, make):
    saver = connect(url)
    for name in ODD:
        saver.put(make.config(name), make.checkpoint(1, title=name), {"step": 0}, {"title": 1})
    for prefix in ODD:
        expected = sorted(name for name in ODD if name.startswith(prefix))
        assert sorted(info.thread_id for info in half.listed(saver, verb="threads", prefix=prefix)) == expected
        assert half.call(saver, "count_threads", prefix=prefix) == len(expected)


def test_odd_namespaces_checkpoint_ids_tasks_and_channels_come_back_as_they_were(connect, url, half, make):
    saver = connect(url)
    for name in ODD:
        put = {**make.checkpoint(1, **{name: "x" * 300}), "id": name}
        made = half.call(saver, "put", make.config("t", None, name), put, {"step": 0, name: name}, {name: 1})
        assert made["configurable"] == {"thread_id": "t", "checkpoint_ns": name, "checkpoint_id": name}
        half.call(saver, "put_writes", made, [(name, name)], name, name)
    for reader in (saver, connect(url)):
        for name in ODD:
            found = half.call(reader, "get_tuple", make.config("t", name, name))
            assert found.config["configurable"] == {"thread_id": "t", "checkpoint_ns": name, "checkpoint_id": name}
            assert found.checkpoint["channel_values"] == {name: "x" * 300}
            assert found.metadata[name] == name.replace("\0", "")  # as LangGraph's savers have it
            assert found.pending_writes == [(name, name, name)]


def test_forks_under_odd_ids_are_whole(connect, url, half, make):
    saver = connect(url)
    saver.put(make.config("origin"), make.checkpoint(1), {"step": 0}, {"text": 1})
    for name in ODD:
        half.call(saver, "copy_thread", "origin", name)
        assert half.call(saver, "get_tuple", make.config(name)).checkpoint == make.checkpoint(1)


@pytest.mark.parametrize("given", [0, 7, -1, 10**30, uuid.UUID(int=7)], ids=str)
def test_integers_and_uuids_are_taken_as_their_text(connect, url, half, make, given):
    saver = connect(url)
    made = half.call(saver, "put", make.config(given), make.checkpoint(1), {"step": 0}, {"text": 1})
    assert made["configurable"]["thread_id"] == str(given)
    assert half.call(saver, "get_tuple", make.config(str(given))).config["configurable"]["thread_id"] == str(given)
    half.call(saver, "put_writes", make.config(given, "00000001"), [("text", 1)], given)
    assert half.call(saver, "get_tuple", make.config(given)).pending_writes == [(str(given), "text", 1)]
    half.call(saver, "copy_thread", given, f"{given}-copy")
    half.call(saver, "prune", [given])
    half.call(saver, "delete_thread", given)
    assert [info.thread_id for info in half.listed(saver, verb="threads")] == [f"{given}-copy"]


@pytest.mark.parametrize("given", [0, 7, uuid.UUID(int=7)], ids=str)
def test_a_checkpoint_id_that_is_a_number_or_uuid_names_just_that_checkpoint(connect, url, half, make, given):
    saver = connect(url)
    for name in (str(given), "zzz"):
        saver.put(make.config("t"), {**make.checkpoint(1), "id": name}, {"step": 0}, {"text": 1})
    assert half.call(saver, "get_tuple", make.config("t", given)).checkpoint["id"] == str(given)


def test_thread_ids_that_are_none_are_refused_by_every_method(each, refused, make):
    def check(case):
        given, word = case
        named = make.config(given, "00000002")
        for verb, *arguments in (
            ("put", named, make.checkpoint(3), {"step": 3}, {"text": 3}),
            ("put_writes", named, [("text", 1)], "task"),
            ("get_tuple", named),
            ("get", named),
            ("list", named),
            ("delete_checkpoint", named),
        ):
            refused(threadline.InvalidRequest, ("thread", word), verb, *arguments)
        refused(
            threadline.InvalidRequest, ("thread", word), "get_delta_channel_history", config=named, channels=["text"]
        )
        for verb, *arguments in (
            ("delete_thread", given),
            ("copy_thread", given, "copy"),
            ("copy_thread", "kept", given),
            ("prune", ["kept", given]),
            ("latest", ["kept", given]),
        ):
            refused(threadline.InvalidRequest, "thread_id", verb, *arguments)

    each(REFUSED, check)


def test_handles_of_no_thread_are_refused(each, saver):
    def check(case):
        given, _ = case
        for handle in (saver.thread, saver.lock):
            with pytest.raises(threadline.InvalidRequest, match="thread_id"):
                handle(given)

    each(REFUSED, check)


def test_configs_that_name_no_thread_are_refused_by_every_method(each, refused, make):
    def check(given):
        for verb, *arguments in (
            ("put", given, make.checkpoint(3), {"step": 3}, {"text": 3}),
            ("put_writes", given, [("text", 1)], "task"),
            ("get_tuple", given),
            ("delete_checkpoint", given),
        ):
            refused(threadline.InvalidRequest, "config", verb, *arguments)
        if given is not None:  # a list of None is a list of all threads
            refused(threadline.InvalidRequest, "config", "list", given)

    each(NO_CONFIG, check)


def test_namespaces_that_are_no_text_are_refused(each, refused, make):
    def check(given):
        named = make.config("kept", "00000002", given)
        for verb, *arguments in (
            ("put", named, make.checkpoint(3), {"step": 3}, {"text": 3}),
            ("put_writes", named, [("text", 1)], "task"),
            ("get_tuple", named),
            ("list", named),
        ):
            refused(threadline.InvalidRequest, "checkpoint_ns", verb, *arguments)

    each([5, b"x", 1.5, ["x"], {"x": 1}, True, "lone \ud800"], check)


def test_checkpoint_ids_that_are_none_are_refused(each, refused, make):
    def check(given):
        named = make.config("kept", given)
        for verb, *arguments in (
            ("put", named, make.checkpoint(3), {"step": 3}, {"text": 3}),
            ("put_writes", named, [("text", 1)], "task"),
            ("get_tuple", named),
            ("list", named),
            ("delete_checkpoint", named),
        ):
            refused(threadline.InvalidRequest, "checkpoint_id", verb, *arguments)
        refused(threadline.InvalidRequest, "checkpoint_id", "list", make.config("kept"), before=named)

    each([b"x", 1.5, ["x"], {"x": 1}, True, False, [], {}, 0.0, "lone \ud800"], check)


def test_a_before_that_is_no_config_is_refused(each, refused, make):
    def check(before):
        refused(threadline.InvalidRequest, "before", "list", make.config("kept"), before=before)

    each(["00000002", 5, [], {"configurable": "00000002"}, {"configurable": 5}], check)


def test_thread_ids_that_are_no_list_are_refused(each, refused):
    """Above all text, which is a sequence of its letters: `prune("ab", …)` must not touch the threads a and b."""

    def check(given):
        refused(threadline.InvalidRequest, "thread_ids", "prune", given)
        refused(threadline.InvalidRequest, "thread_ids", "prune", given, strategy="delete")
        refused(threadline.InvalidRequest, "thread_ids", "latest", given)

    each(["kept", None, 5, b"kept"], check)


def test_run_ids_that_are_no_list_of_text_are_refused(each, refused):
    def check(given):
        refused(threadline.InvalidRequest, "run", "delete_for_runs", given)

    each(["run", 5, b"run", [None], [["run"]], [{"a": 1}]], check)


def test_more_run_ids_than_a_statement_can_bind_delete_what_they_name(saver, connect, url, half, make):
    metadata = {"source": "loop", "step": 3, "run_id": "run-7"}
    half.call(saver, "put", make.config("other"), make.checkpoint(3), metadata, {"text": 3})
    half.call(saver, "delete_for_runs", [f"run-{n}" for n in range(300_000)])
    assert half.call(connect(url), "get_tuple", make.config("other")) is None
    assert len(half.listed(saver, make.config("kept"))) == 2


@pytest.mark.parametrize("future", ["f0000000-0000-6000-8000-000000000000", "ffffffff-ffff-6fff-bfff-ffffffffffff"])
def test_a_checkpoint_of_the_future_leaves_the_ids_of_other_threads_in_the_present(connect, url, half, make, future):
    saver = connect(url)
    made = {**make.checkpoint(1, title="odd"), "id": future}
    half.call(saver, "put", make.config("odd"), made, {"step": 0}, {"title": 1})
    half.call(saver, "put", make.config("t"), make.checkpoint(1, title="first"), {"step": 0}, {"title": 1})
    odd = half.call(saver.thread("odd"), "fork", future)
    assert odd.config["configurable"]["checkpoint_id"] > future
    assert title(saver, half, make.config("odd")) == "odd"
    branch = half.call(saver.thread("t"), "fork", "head")
    assert branch.config["configurable"]["checkpoint_id"] < threadline.empty_checkpoint()["id"] < "2"
