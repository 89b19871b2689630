"""Threads copied from one store to another are what they were, whatever both stores are."""

import time
from datetime import datetime, timedelta

import pytest
from house import ROOT, config, furnish, grow, is_sound, picture, put

import threadline
from threadline import InvalidRequest, NotFound, Unavailable

KINDS = ["memory", "sqlite", "postgres", "mysql", "redis", "sealed sqlite", "sealed redis"]


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", ["sqlite", "sealed sqlite"])
def test_a_copy_shows_what_the_source_shows(furnished, house, half, source, target):
    old, new = furnished(source, steps=50), house(target)
    report = half.call(old, "copy_to", new)
    assert report.is_complete, report.problems
    assert picture(new) == picture(old)
    assert is_sound(new)
    assert report.threads == 5
    again = half.call(old, "copy_to", new)
    assert (again.checkpoints.copied, again.writes.copied, again.chunks) == (0, 0, 0)
    assert again.checkpoints.present == report.checkpoints.copied


@pytest.mark.parametrize("source", ["memory", "postgres", "mysql", "redis", "sealed postgres", "sealed mysql"])
def test_every_backend_can_be_left(furnished, house, source):
    old, new = furnished(source, steps=40), house("sqlite")
    assert old.copy_to(new).is_complete
    assert picture(new) == picture(old)
    assert is_sound(new)


def test_a_copied_thread_goes_on_in_its_new_store(furnished, house):
    old, new = furnished("sqlite", steps=60), house("sealed sqlite")
    old.copy_to(new)
    before = picture(new)[0]["a"][1]
    at = grow(new, config("a"), 60, 40, edits=(70,))
    assert new.get_tuple(at).checkpoint["channel_values"]["messages"][-1].startswith("99: ")
    assert picture(new)[0]["a"][1][40:] == before
    assert is_sound(new)


@pytest.mark.parametrize("target", ["sqlite", "sealed sqlite"])
def test_a_second_run_copies_what_is_new(furnished, house, target):
    old, new = furnished("sqlite", steps=60), house(target)
    first = old.copy_to(new)
    grow(old, config("b"), 3, 5)
    old.put_writes(config("b", "", old.get_tuple(config("b")).checkpoint["id"]), [("count", 1)], "later")
    old.thread("b").tag("mine")
    second = old.copy_to(new)
    assert second.checkpoints.copied == 5
    assert second.writes.copied == 1
    assert 0 < second.chunks < first.chunks / 5
    assert picture(new) == picture(old)


@pytest.mark.parametrize("target", ["sqlite", "sealed sqlite"])
@pytest.mark.parametrize("source", ["sqlite", "sealed sqlite"])
def test_a_second_run_copies_no_question_again(furnished, house, source, target):
    """Its chunks have other names there, and it may have been asked again."""
    old = furnished(source, steps=8)
    at = old.get_tuple(config("a")).config
    ask = [{"value": {"draft": ["a long line " * 40] * 5}, "id": "q2"}]
    old.put_writes(at, [("__interrupt__", ask)], "task-4")
    old.put_writes(at, [("__resume__", ["r" * 9000])], "task-5")
    new = house(target)
    assert old.copy_to(new).is_complete
    again = old.copy_to(new)
    assert (again.writes.copied, again.writes.renewed, again.chunks) == (0, 0, 0)
    old.put_writes(at, [("__interrupt__", [{**ask[0], "value": {"draft": ["another line " * 40] * 5}}])], "task-4")
    again = old.copy_to(new)
    assert (again.writes.copied, again.writes.renewed) == (0, 1)
    assert picture(new) == picture(old)
    assert old.copy_to(new).writes.renewed == 0


def test_forks_share_their_chunks_in_the_target_too(furnished, house):
    old, new = furnished("sqlite"), house("sealed sqlite")
    old.copy_to(new)
    assert new.stats().chunks <= old.stats().chunks


def test_a_prefix_takes_one_tenant_out(furnished, house):
    old, new = furnished("sqlite", steps=5), house("sqlite")
    report = old.copy_to(new, prefix="org-1/")
    assert [info.thread_id for info in new.threads()] == ["org-1/c"]
    assert report.threads == 1
    assert picture(new) == picture(old, "org-1/")


def test_a_view_of_some_threads_is_copied_and_backed_up_alone(furnished, house, half, connect, tmp_path):
    old, new = furnished("sqlite", steps=5), house("sqlite")
    told = []
    view = old.within("org-1/")
    report = half.call(view, "copy_to", new.within("org-"), progress=lambda *done: told.append(done))
    assert report.is_complete
    assert told[-1] == (2, 2)
    view.backup(tmp_path / "x.tla")
    assert picture(connect(f"archive:///{tmp_path}/x.tla")) == picture(new) == picture(old, "org-1/")
    with pytest.raises(InvalidRequest, match="sees only threads"):
        old.copy_to(house("sqlite").within("org-2/"))


def test_a_filter_a_list_and_a_time_choose_threads(furnished, house):
    old = furnished("sqlite", steps=5)
    for choice, wanted in (
        ({"filter": {"org": "x"}}, ["b"]),
        ({"threads": ["a", "b"]}, ["a", "b"]),
        ({"since": 4e9}, []),
    ):
        new = house("memory")
        old.copy_to(new, **choice)
        assert [info.thread_id for info in new.threads()] == wanted
    with pytest.raises(NotFound, match="no thread 'nobody'"):
        old.copy_to(house("memory"), threads=["a", "nobody"])


def test_threads_that_are_named_must_fit_the_rest_of_the_choice_too(furnished, house, half):
    old = furnished("sqlite", steps=5)

    def copied(**choice):
        new = house("memory")
        half.call(old, "copy_to", new, **choice)
        return [info.thread_id for info in new.threads()]

    assert copied(threads=["a", "org-1/c"], prefix="org-1/") == ["org-1/c"]
    assert copied(threads=["a", "b"], filter={"org": "x"}) == ["b"]
    assert copied(threads=["a", "b"], since=time.time() + 60) == []
    assert copied(threads=["a", "b"], since=1) == ["a", "b"]
    with pytest.raises(NotFound):
        copied(threads=["a", "none"], prefix="org-1/")


def test_a_copy_up_to_a_checkpoint_has_nothing_later(furnished, house):
    old, new = furnished("sqlite", steps=20), house("sqlite")
    wanted = list(old.list(ROOT))[8]
    old.copy_to(new, until=wanted.checkpoint["id"])
    assert new.get_tuple(config("a")).checkpoint["id"] == wanted.checkpoint["id"]
    # All others have nothing by then, not even themselves.
    assert [info.thread_id for info in new.threads()] == ["a"]
    assert is_sound(new)


@pytest.mark.parametrize("verb", ["copy_to", "export"])
def test_until_is_an_id_or_a_time_and_nothing_else(house, half, tmp_path, verb):
    old, new = house("sqlite"), house("sqlite")
    grow(old, config("a"), 0, 3)
    target = new if verb == "copy_to" else tmp_path / "a.tla"
    for wrong in ("2020-13-45", "x", "", "1f0f0000", "1f0f0000-0000-6000-8000-00000000000g", {}, float("nan")):
        with pytest.raises(InvalidRequest, match="until is"):
            half.call(old, verb, target, until=wrong)
    assert not (tmp_path / "a.tla").exists()
    first = "00000000-0000-6000-8000-000000000000"
    for early in ("2020-01-01T00:00", "2020-01-01", datetime(2020, 1, 1), 0, "9999d", first):
        path = new if verb == "copy_to" else tmp_path / f"{early}.tla".replace("/", "-")
        done = half.call(old, verb, path, until=early)
        assert getattr(done, "report", done).checkpoints.copied == 0
    late = old.get_tuple(config("a")).checkpoint["id"].upper()
    assert half.call(old, "copy_to", new, until=late).checkpoints.copied == 3


@pytest.mark.parametrize("by", ["id", "time"])
def test_a_point_in_time_has_the_threads_the_tags_and_the_questions_of_then(house, connect, half, tmp_path, by):
    old = house("sqlite")
    old.thread("empty").create(metadata={"org": "x"})
    at = put(old, config("old"), {"n": 1}, 0)
    old.put_writes(at, [("__interrupt__", [{"value": "go on?", "id": "q1"}])], "task")
    then = at["configurable"]["checkpoint_id"] if by == "id" else time.time()
    time.sleep(0.01)
    put(old, at, {"n": 2}, 1)
    old.thread("old").tag("late")
    put(old, config("young"), {"n": 1}, 0)
    old.thread("new and empty").create()
    old.backup(tmp_path / "all.tla")
    new, file = house("sqlite"), connect(f"archive:///{tmp_path / 'all.tla'}")
    for _ in range(2):
        report = half.call(file, "copy_to", new, until=then)
        assert report.threads == 2
        assert [info.thread_id for info in new.threads()] == ["empty", "old"]
        assert new.get_tuple(config("old")).config == at
        assert [one.checkpoint_id for one in new.interrupts()] == [at["configurable"]["checkpoint_id"]]
        assert new.fsck().notes == ()


def test_another_thread_of_the_same_id_is_refused_or_comes_beside_it(furnished, house, half):
    old, new = furnished("sqlite", steps=6), house("sqlite")
    put(new, ROOT, {"own": 1}, 0)
    before = picture(new)
    report = half.call(old, "copy_to", new, threads=["a"])
    assert not report.is_complete
    assert "'a' exists in the target" in report.problems[0]
    assert picture(new) == before
    merged = half.call(old, "copy_to", new, threads=["a"], merge=True)
    assert merged.is_complete
    beside = merged.renamed["a"]
    assert beside.startswith("a~")
    assert [f.checkpoint for f in new.list(config(beside))] == [f.checkpoint for f in old.list(ROOT)]
    assert new.get_tuple(ROOT).checkpoint["channel_values"] == {"own": 1}
    again = half.call(old, "copy_to", new, threads=["a"], merge=True)
    assert again.checkpoints.copied == 0
    assert is_sound(new)


def test_what_went_on_in_the_target_is_left_alone(furnished, house):
    old, new = furnished("sqlite", steps=6), house("sqlite")
    old.copy_to(new)
    own = put(new, config("b"), {"count": 99}, 9)
    new.thread("b").tag("ours")
    old.copy_to(new)
    assert new.get_tuple(config("b")).config == own
    assert [info.tags for info in new.threads(prefix="b")] == [("ours",)]


def test_a_damaged_checkpoint_is_named_and_the_rest_is_copied(furnished, house):
    import sqlite3

    old, new = furnished("sqlite", steps=30), house("sqlite")
    with sqlite3.connect(old.url.removeprefix("sqlite:///")) as db:
        db.execute("UPDATE threadline_checkpoints SET document = x'00' WHERE step = 4 AND namespace = ''")
    report = old.copy_to(new)
    assert len(report.problems) == 2
    assert all("damaged" in problem for problem in report.problems)
    assert len(list(new.list(ROOT))) == 29
    assert is_sound(new)


def test_items_of_a_store_come_along(house, tmp_path):
    kinds = ["sqlite", "sealed sqlite", "memory"]
    for source in kinds:
        for target in kinds:
            old, new = house(source), house(target)
            with threadline.Store(old.url, **_ring(old)) as items:
                items.put(("users", "ann"), "tea", {"likes": "black tea"})
                items.put(("users", "ann"), "tea", {"likes": "green tea", "cups": 3})
                items.put(("users",), "x", {"n": [1, 2.5, None]})
            report = old.copy_to(new)
            assert report.items.copied == 2
            assert old.copy_to(new).items.present == 2
            with threadline.Store(new.url, **_ring(new)) as items:
                found = items.get(("users", "ann"), "tea")
                assert found.value == {"likes": "green tea", "cups": 3}
                assert found.version == 2
            with threadline.Store(old.url, **_ring(old)) as items:
                items.put(("users", "ann"), "tea", {"cups": 5})
                items.put(("users", "ann"), "tea", {"cups": 6})
            assert old.copy_to(new).items.renewed == 1
            with threadline.Store(new.url, **_ring(new)) as items:
                assert (items.get(("users", "ann"), "tea").version, items.get(("users",), "x").version) == (4, 1)


def _ring(saver):
    ring = saver._tools.envelope.ring
    return {"encryption": ring} if ring is not None else {}


def test_a_store_is_not_copied_onto_itself(house):
    saver = house("memory")
    with pytest.raises(InvalidRequest, match="onto itself"):
        saver.copy_to(saver)
    with pytest.raises(InvalidRequest, match="another saver"):
        saver.copy_to("sqlite:///x.db")


@pytest.mark.parametrize("kind", ["sqlite", "sealed sqlite"])
def test_threads_of_a_cold_tier_move_as_all_others_do(place, house, connect, half, tmp_path, kind):
    url, options = place(kind)
    old = furnish(connect(url, **options, cold=f"file://{tmp_path}/cold"), steps=50)
    old.tier(0)
    assert old.tier_status().cold_chunks > 0
    new = house("sqlite")
    assert half.call(old, "copy_to", new).is_complete
    old.backup(tmp_path / "x.tla")
    ring = {name: value for name, value in options.items() if name == "encryption"}
    assert picture(connect(f"archive:///{tmp_path}/x.tla", **ring)) == picture(new) == picture(old)
    assert is_sound(new)
    # Without its objects nothing is moved silently.
    bare = connect(url, **options)
    with pytest.raises(Unavailable, match="cold"):
        half.call(bare, "copy_to", house("sqlite"))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "mysql", "redis", "sealed sqlite"])
def test_a_copy_again_brings_the_end_of_a_former_value(house, half, kind):
    old, new = house("sqlite"), house(kind)
    store = old.store(keep_versions=True)
    half.call(old, "copy_to", new)  # which makes the tables
    began = time.time()
    store.put(("a",), "k", {"n": 1}, ttl=timedelta(seconds=2))
    assert half.call(old, "copy_to", new).is_complete
    while time.time() < began + 2.2:
        time.sleep(0.1)
        assert store.get(("a",), "k") is not None  # which begins its time anew
    then = time.time()
    store.put(("a",), "k", {"n": 2})
    assert half.call(old, "copy_to", new).is_complete
    for saver in (old, new):
        assert saver.store(keep_versions=True).get(("a",), "k", as_of=then).value == {"n": 1}
    assert half.call(old, "copy_to", new).items.copied == 0
