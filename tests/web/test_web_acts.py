"""What a person does on the page: answers that a graph goes on with, acts, merges, and plans that hold."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient
from web_store import chat_graph, notes_graph, of_thread

import threadline
from threadline.langgraph import Checkpointer

MERGED = {"city": "Porto", "units": "metric"}


def done(answer: Any) -> str:
    """Where a form led to, once it was taken."""
    assert answer.status_code == 200, re.sub(r"<[^>]+>", " ", answer.text)
    assert answer.history[0].status_code == 303
    return str(answer.url)


def question(saver: threadline.Saver, thread_id: str) -> str:
    return next(one.interrupt_id for one in saver.interrupts() if one.thread_id == thread_id) or ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": '{"yes": true}'}, {"yes": True}),
        ({"text": "null"}, None),
        ({"text": "not json", "as": "text"}, "not json"),
        ({"text": "[1, 2]", "as": "text"}, "[1, 2]"),
    ],
)
def test_an_answer_is_what_the_graph_goes_on_with(
    page: TestClient, saver: threadline.Saver, database: Any, given: dict[str, str], said: Any
) -> None:
    fields = {"id": "essay", "interrupt": question(saver, "essay"), "as": "json", **given}
    assert "/inbox" in done(page.post("/answer", data=fields))
    assert "essay" not in {one.thread_id for one in saver.interrupts()}
    with Checkpointer(database) as other:
        assert notes_graph(other).invoke(None, of_thread("essay"))["notes"] == ["a draft", f"said {said}"]


@pytest.mark.parametrize(
    ("fields", "decision"),
    [
        ({"decision-0": "approve"}, {"type": "approve"}),
        ({"decision-0": "reject", "message-0": "no"}, {"type": "reject", "message": "no"}),
        (
            {"decision-0": "edit", "name-0": "send_email", "args-0": '{"to": "bob"}'},
            {"type": "edit", "edited_action": {"name": "send_email", "args": {"to": "bob"}}},
        ),
    ],
)
def test_actions_are_decided_one_by_one(
    page: TestClient, saver: threadline.Saver, database: Any, fields: dict[str, str], decision: Any
) -> None:
    answer = {"id": "porto", "interrupt": question(saver, "porto"), "actions": "1", **fields}
    done(page.post("/answer", data=answer))
    with Checkpointer(database) as other:
        state = chat_graph(other).invoke(None, of_thread("porto"))
    assert state["notes"][-1] == f"decided {{'decisions': [{decision}]}}"


def test_an_answer_that_is_no_json_is_told_and_nothing_is_stored(page: TestClient, saver: threadline.Saver) -> None:
    fields = {"id": "essay", "interrupt": question(saver, "essay"), "text": "{oops"}
    answer = page.post("/answer", data=fields)
    assert answer.status_code == 400
    assert "no JSON" in answer.text
    assert question(saver, "essay")
    assert page.post("/answer", data={**fields, "text": "1", "interrupt": "other"}).status_code == 404
    undecided = {"id": "porto", "interrupt": question(saver, "porto"), "actions": "1"}
    assert page.post("/answer", data=undecided).status_code == 400


def test_acts_do_what_their_methods_do(page: TestClient, saver: threadline.Saver) -> None:
    thread = saver.thread("counter")
    first = thread.at("step:3").id
    act = lambda **fields: done(page.post("/act", data={"id": "counter", **fields}))  # noqa: E731

    act(act="tag", at=first, name="third")
    act(act="pin", at=first)
    entry = next(one for one in thread.log() if one.id == first)
    assert (entry.tags, entry.is_pinned) == (("third",), True)
    act(act="untag", at=first, name="third")
    act(act="unpin", at=first)
    entry = next(one for one in thread.log() if one.id == first)
    assert (entry.tags, entry.is_pinned) == ((), False)
    act(act="rollback", at=first)
    assert thread.state()["n"] == 3
    act(act="fork", at=first, to="counter-2")
    assert saver.thread("counter-2").state()["n"] == 3
    act(act="archive")
    assert thread.info().status == "archived"
    act(act="restore")
    assert thread.info().status == "active"
    lease = saver.lock("counter", ttl=60)
    lease.__enter__()
    act(act="unlock")
    assert saver.locks() == []


def test_an_edit_is_a_checkpoint_of_its_own(page: TestClient, saver: threadline.Saver, database: Any) -> None:
    thread = saver.thread("porto")
    head = thread.at().id
    editor = page.get(f"/checkpoint?id=porto&at={head}&edit=messages").text
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", editor, re.DOTALL)
    assert text is not None
    value = json.loads(text[1].replace("&#34;", '"').replace("&#39;", "'"))
    value[0]["fields"]["content"] = "What about the sea?"
    fields = {"act": "edit", "id": "porto", "at": head, "channel": "messages", "text": json.dumps(value)}
    done(page.post("/act", data=fields))
    with Checkpointer(database) as other:
        messages, before = (other.thread("porto").state(at)["messages"] for at in (None, head))
        assert (type(messages[0]).__name__, messages[0].content) == ("HumanMessage", "What about the sea?")
        assert messages[1:] == before[1:]
    assert thread.at("head~1").id == head
    done(page.post("/act", data={**fields, "to": "porto-edited"}))
    assert saver.thread("porto-edited").at().id != thread.at().id


@pytest.mark.parametrize("text", ["{oops", '[{"$type": "os:system", "fields": {}}]', '{"$type": "x:Y"}'])
def test_an_edit_that_cannot_be_made_a_value_is_refused(page: TestClient, saver: threadline.Saver, text: str) -> None:
    before = len(saver.thread("porto").log())
    fields = {"act": "edit", "id": "porto", "at": "head", "channel": "messages", "text": text}
    assert page.post("/act", data=fields).status_code == 400
    assert len(saver.thread("porto").log()) == before


def merging(page: TestClient, saver: threadline.Saver) -> tuple[dict[str, str], str]:
    """The hidden fields of the form that merges the other branch of lisbon, and its page."""
    branches = [entry.id for entry in saver.thread("lisbon").log(namespace="").heads]
    other = next(one for one in branches if saver.thread("lisbon").state(one)["plan"] == "north")
    text = page.get("/merge", params={"id": "lisbon", "other": other}).text
    form = text[text.index('<form method="post"') :]
    return dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)), form


def test_conflicts_are_chosen_item_by_item_and_committed(page: TestClient, saver: threadline.Saver) -> None:
    fields, form = merging(page, saver)
    picks = re.findall(r'name="(pick-\d+-\d+)"', form)
    assert len(set(picks)) == 2  # the city of the profile, and the plan; both sides agree on the units
    for name in set(picks):
        label = form[: form.index(name)]
        fields[name] = "theirs" if label.rindex("profile") > label.rindex("<section") else "ours"
    done(page.post("/merge", data=fields))
    state = saver.thread("lisbon").state()
    assert (state["profile"], state["plan"]) == (MERGED, "south")
    assert saver.thread("lisbon").log()[0].origins == (fields["other"],)


def test_a_merge_without_a_choice_or_of_what_has_moved_is_refused(page: TestClient, saver: threadline.Saver) -> None:
    fields, form = merging(page, saver)
    head = saver.thread("lisbon").at().id
    assert page.post("/merge", data=fields).status_code == 400
    chosen = {**fields, **{name: "ours" for name in re.findall(r'name="(pick-\d+-\d+)"', form)}}
    saver.thread("lisbon").put({"plan": "meanwhile"})
    answer = page.post("/merge", data=chosen)
    assert answer.status_code == 409
    assert "has moved" in answer.text
    assert saver.thread("lisbon").at("head~1").id == head


def planned(page: TestClient, address: str) -> dict[str, str]:
    """The form of the second click."""
    found = re.search(r'name="plan" value="([^"]+)"', page.get(address).text)
    assert found is not None, address
    return {"plan": found[1]}


def test_a_prune_takes_exactly_what_its_plan_showed(page: TestClient, saver: threadline.Saver) -> None:
    thread = saver.thread("counter")
    before = [entry.id for entry in thread.log()]
    form = planned(page, "/plan?what=prune&id=counter&keep_last=4")
    # What came since was not in the plan, and nothing else goes because of it.
    newest = thread.put({"n": 99}).id
    thread.tag("kept", before[-1])
    done(page.post("/plan", data=form))
    assert [entry.id for entry in thread.log()] == [newest, *before[:4], before[-1]]
    assert thread.state()["n"] == 99
    assert page.post("/plan", data=form).status_code == 409
    assert saver.fsck().ok


def test_a_prune_into_the_trash_can_be_taken_back(page: TestClient, saver: threadline.Saver) -> None:
    done(page.post("/plan", data=planned(page, "/plan?what=prune&id=counter&keep_last=4&trash=7d")))
    assert len(saver.thread("counter").log()) == 4
    [entry] = saver.trash()
    done(page.post("/untrash", data={"entry": entry.id}))
    assert len(saver.thread("counter").log()) == 12


def test_a_thread_that_changed_since_its_plan_is_not_deleted(page: TestClient, saver: threadline.Saver) -> None:
    form = planned(page, "/plan?what=rm&id=counter")
    saver.thread("counter").put({"n": 99})
    assert page.post("/plan", data=form).status_code == 409
    assert saver.thread("counter").state()["n"] == 99
    done(page.post("/plan", data=planned(page, "/plan?what=rm&id=counter&trash=1d")))
    assert "counter" not in {info.thread_id for info in saver.threads()}
    assert [one.thread_id for one in saver.trash()] == ["counter"]


def test_one_checkpoint_is_deleted(page: TestClient, saver: threadline.Saver) -> None:
    at = saver.thread("counter").at("step:5").id
    done(page.post("/plan", data=planned(page, f"/plan?what=rm&id=counter&at={at}")))
    assert at not in {entry.id for entry in saver.thread("counter").log()}
    assert len(saver.thread("counter").log()) == 11


def test_a_sweep_and_a_collection_do_what_they_showed(page: TestClient, saver: threadline.Saver) -> None:
    saver.thread("old").create(ttl=0.001).put({"n": 1})
    while saver.thread("old").info().expires > time.time():
        time.sleep(0.001)
    plan = page.get("/plan.json?what=sweep&go=1&keep_last=1").json()
    assert plan["expired"] == ["old"]
    assert "/job" in done(page.post("/plan", data=planned(page, "/plan?what=sweep&go=1&keep_last=1")))
    names = {info.thread_id for info in saver.threads()}
    assert "old" not in names
    assert len(saver.thread("counter").log()) == 1
    assert saver.fsck().ok
    assert page.get("/plan.json?what=gc").json()["chunks"] == 0


def test_many_threads_are_acted_on_as_the_plan_named_them(page: TestClient, saver: threadline.Saver) -> None:
    form = planned(page, "/plan?what=many&act=archive&q=lis")
    saver.thread("lisbon-later").put({"n": 1})
    done(page.post("/plan", data=form))
    archived = {info.thread_id for info in saver.threads(status="archived")}
    assert archived == {"lisbon", "lisbon-copy"}
    done(page.post("/plan", data=planned(page, "/plan?what=many&act=delete&q=lisbon-&trash=1d")))
    assert {info.thread_id for info in saver.threads(prefix="lis")} == {"lisbon"}


def test_a_check_finds_damage_and_sets_it_aside(
    page: TestClient, saver: threadline.Saver, database: Any, open_page: Callable[..., TestClient]
) -> None:
    import sqlite3

    assert "Everything can be read" in page.post("/fsck").text
    saver.thread("hurt").put({"lost": ["z" * 500 + str(at) for at in range(40)]})
    with sqlite3.connect(database) as connection:
        connection.execute(
            "DELETE FROM threadline_chunks WHERE digest IN (SELECT digest FROM threadline_chunks WHERE pool = "
            "(SELECT max(pool) FROM threadline_chunks) LIMIT 1)"
        )
    saver.clear_cache()
    found = open_page().post("/fsck")
    assert "Damage was found" in found.text
    assert "Set these aside" not in found.text  # of a page that only looks
    job = re.search(r'name="job" value="([^"]+)"', page.post("/fsck").text)
    assert job is not None
    done(page.post("/quarantine", data={"job": job[1]}))
    [aside] = saver.quarantined()
    assert "hurt" in page.get("/health").text
    done(page.post("/unquarantine", data={"id": "hurt", "at": aside.checkpoint_id}))
    assert saver.quarantined() == []
