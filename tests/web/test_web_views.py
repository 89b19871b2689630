"""Each view on a store with branches, subgraphs and questions; its JSON is that of the command line."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import threadline
from tests.commands import Run
from threadline.core.context import Context

# A view, and the command whose --json its twin gives.
TWINS: list[tuple[str, list[str]]] = [
    ("/threads.json?sort=id", ["threads"]),
    ("/threads.json?sort=id&q=lis", ["threads", "--prefix", "lis"]),
    ("/threads.json?sort=id&filter=user=ann", ["threads", "--filter", "user=ann"]),
    ("/threads.json?status=waits", ["threads", "--status", "suspended"]),
    ("/thread.json?id=lisbon", ["log", "lisbon"]),
    ("/checkpoint.json?id=lisbon", ["show", "lisbon"]),
    ("/checkpoint.json?id=lisbon&at=first-answer", ["show", "lisbon", "first-answer"]),
    ("/checkpoint.json?id=essay", ["show", "essay"]),
    ("/checkpoint.json?id=lisbon&ns=review", ["show", "lisbon", "--ns", "review"]),
    ("/writes.json?id=essay", ["writes", "essay"]),
    ("/diff.json?id=lisbon", ["diff", "lisbon"]),
    ("/diff.json?id=lisbon&a=step:0&b=first-answer", ["diff", "lisbon", "step:0", "first-answer"]),
    ("/inbox.json", ["interrupts"]),
    ("/plan.json?what=prune&id=counter&keep_last=3", ["prune", "counter", "--keep-last", "3"]),
    ("/plan.json?what=rm&id=counter", ["rm", "counter"]),
    ("/plan.json?what=gc", ["gc"]),
    ("/storage.json", ["stats"]),
    ("/storage.json?by=channel", ["stats", "--by", "channel"]),
    ("/store.json", ["store", "ls"]),
    ("/store.json?ns=users/ann", ["store", "search", "users/ann"]),
    ("/store.json?ns=users/ann&key=likes", ["store", "get", "users/ann", "likes"]),
    ("/store.json?ns=users/ann&key=likes&history=1", ["store", "history", "users/ann", "likes"]),
    ("/cache.json", ["cache", "stats"]),
]
PAGES = [
    "/threads", "/threads?sort=id", "/threads?sort=size", "/threads?status=running",
    "/threads?since=1d&tag=first-answer",
    "/thread?id=lisbon", "/thread?id=lisbon&part=1", "/checkpoint?id=lisbon&at=first-answer", "/checkpoint?id=broken",
    "/checkpoint?id=lisbon&edit=messages", "/value?id=lisbon&channel=messages", "/writes?id=broken", "/diff?id=lisbon",
    "/diff?id=lisbon&a=head&other=porto", "/versions?id=counter&channel=log", "/merge?id=lisbon", "/inbox", "/plan",
    "/plan?what=prune&id=lisbon", "/plan?what=many&act=archive&q=lis", "/merge?id=lisbon&other=lisbon-copy",
    "/plan?what=sweep&go=1&keep_last=2", "/plan?what=gc", "/storage", "/health", "/find", "/find?q=lis", "/store",
    "/store?ns=users/ann", "/store?ns=users/ann&key=likes", "/cache",
]  # fmt: skip


@pytest.mark.parametrize(("address", "command"), TWINS, ids=[address for address, _ in TWINS])
def test_the_twin_of_a_view_is_the_json_of_the_command(
    page: TestClient, run: Run, database: Path, address: str, command: list[str]
) -> None:
    answer = page.get(address)
    assert answer.status_code == 200
    said, _ = run(*command, "--json", "--url", database)
    assert _ordered(answer.json()) == _ordered(json.loads(said))


def _ordered(told: Any) -> Any:
    """What two processes tell alike: not how long a lock lasts, nor which of two sorts came first."""
    if isinstance(told, list) and told and isinstance(told[0], dict) and "thread_id" in told[0]:
        return sorted(told, key=lambda one: (one["thread_id"], one.get("id", "")))
    return told


@pytest.mark.parametrize("address", PAGES)
def test_every_view_opens_read_only_and_for_writing(
    page: TestClient, open_page: Callable[..., TestClient], address: str
) -> None:
    for client in (page, open_page()):
        answer = client.get(address)
        assert answer.status_code == 200, answer.text
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("address", [one for one in PAGES if "part=" not in one])
def test_every_view_can_be_had_as_a_command_as_python_and_as_json(page: TestClient, address: str) -> None:
    text = page.get(address).text
    assert "Copy as command" in text
    python = re.search(r"Copy as Python</summary><div class=\"copy\"><pre>(.*?)</pre>", text, re.DOTALL)
    assert python is not None
    compile(html.unescape(python[1]), address, "exec")
    twin = re.search(r'href="([^"]*\.json[^"]*)">JSON', text)
    assert twin is not None
    assert page.get(twin[1].replace("&amp;", "&")).status_code == 200


def test_the_twin_of_no_plan_lists_those_there_are(page: TestClient) -> None:
    for address in ("/plan.json", "/plan.json?what=prune&id=lisbon", "/plan.json?what=sweep"):
        told = page.get(address).json()
        assert [one["what"] for one in told["plans"]] == ["prune", "sweep", "rm", "gc", "many"]
        assert "keep_last" in told["plans"][0]["takes"]


def test_python_of_a_page_runs(page: TestClient, capsys: pytest.CaptureFixture[str], saver: threadline.Saver) -> None:
    said = {"/diff?id=lisbon&a=head&other=porto": "profile", "/cache": "entries=1", "/find?q=lis": "lisbon-copy"}
    for address, part in {**said, "/plan": "Swept"}.items():
        python = re.search(
            r"Copy as Python</summary><div class=\"copy\"><pre>(.*?)</pre>", page.get(address).text, re.DOTALL
        )
        assert python is not None
        exec(html.unescape(python[1]), {})
        assert part in capsys.readouterr().out, address


def test_python_of_a_deletion_names_the_checkpoint(page: TestClient) -> None:
    text = html.unescape(page.get("/plan?what=rm&id=counter&at=step:3&trash=2d").text)
    assert "saver.thread('counter').delete('step:3', namespace='', trash='2d')" in text


def test_a_job_can_be_had_as_a_command(page: TestClient) -> None:
    text = page.get("/plan?what=sweep&go=1&keep_last=2").text
    name = re.search(r'name="plan" value="([^"]*)"', text)
    assert name is not None
    ended = page.post("/plan", data={"plan": name[1]}).text
    assert "threadline sweep --keep-last 2 --yes" in ended
    assert "Copy as Python" in ended


def test_the_first_checkpoint_is_compared_with_nothing(page: TestClient, saver: threadline.Saver) -> None:
    only = saver.thread("only").put({"n": 1, "names": ["ann"]})
    assert "Last change" not in page.get("/thread?id=only").text
    assert "Last change" in page.get("/thread?id=counter").text
    for address in ("/diff?id=only", f"/diff?id=only&b={only.id}", "/diff?id=counter&b=step:0"):
        answer = page.get(address)
        assert answer.status_code == 200
        assert "from nothing" in answer.text
        assert set(re.findall(r'<span class="badge [a-z]*">(\w+)</span>', answer.text)) == {"added"}
    told = page.get("/diff.json?id=only").json()
    assert {one["channel"]: one["kind"] for one in told} == {"n": "added", "names": "added"}
    assert page.get("/diff?id=only&a=head~1").status_code == 404


def test_commands_and_python_are_quoted_for_whoever_pastes_them(page: TestClient, saver: threadline.Saver) -> None:
    name = 'it\'s $(rm -rf /) "here"'
    saver.thread(name).put({"n": 1})
    text = page.get("/checkpoint", params={"id": name}).text
    assert "threadline show &#39;it&#39;&#34;&#39;&#34;&#39;s $(rm -rf /)" in text
    assert "saver.thread(&#39;it\\&#39;s $(rm -rf /) &#34;here&#34;&#39;)" in text


def test_the_list_says_who_waits_failed_or_is_pinned(page: TestClient) -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", page.get("/threads").text, re.DOTALL)
    told = {re.search(r"<bdi>(.*?)</bdi>", row)[1]: re.findall(r'badge [^"]*"[^>]*>([^<]+)', row) for row in rows[1:]}
    assert told["essay"] == ["waits"]
    assert told["broken"] == ["error"]
    assert {"first-answer"} <= set(told["lisbon"])
    assert "pinned" in page.get("/threads?status=pinned").text


def test_pages_of_the_list_hold_every_thread_once_newest_first(page: TestClient, saver: threadline.Saver) -> None:
    for number in range(30):
        saver.thread(f"many-{number:02}").put({"n": number})
    seen: list[str] = []
    address = "/threads?limit=7"
    while address:
        text = page.get(address).text
        seen += re.findall(r'class="name"><a href="[^"]*"><bdi>(.*?)</bdi>', text)
        following = re.search(r'rel="next" href="([^"]*)"', text)
        address = following[1].replace("&amp;", "&") if following else ""
    assert len(seen) == len(set(seen)) == saver.count_threads()
    assert seen[:30] == [f"many-{number:02}" for number in reversed(range(30))]


@pytest.mark.parametrize("sort", ["", "recent", "id", "size", "checkpoints"])
def test_every_order_lists_threads_without_checkpoints(page: TestClient, saver: threadline.Saver, sort: str) -> None:
    for name in ("begun-a", "begun-b", "begun-c", "zzz"):
        saver.thread(name).create(ttl=3600)
    seen: list[str] = []
    address = f"/threads?limit=4&wait=1&sort={sort}"
    while address:
        text = page.get(address).text
        seen += re.findall(r'class="name"><a href="[^"]*"><bdi>(.*?)</bdi>', text)
        following = re.search(r'rel="next" href="([^"]*)"', text)
        address = following[1].replace("&amp;", "&") if following else ""
    assert sorted(seen) == sorted(one.thread_id for one in saver.threads())
    if sort in ("", "recent"):
        assert seen[-4:] == ["begun-a", "begun-b", "begun-c", "zzz"]
    if sort not in ("size", "checkpoints"):
        told = page.get(f"/threads.json?sort={sort}").json()
        assert sorted(one["thread_id"] for one in told) == sorted(seen)


def test_a_thread_that_is_busy_hides_no_other(page: TestClient, saver: threadline.Saver) -> None:
    for number in range(300):
        saver.thread("busy").put({"n": number})
    text = page.get("/threads?limit=5").text
    assert text.index(">busy<") < text.index(">counter<")


def test_a_star_at_a_size_is_explained_below_the_list(page: TestClient) -> None:
    assert "shares with a fork are counted for both" in page.get("/threads").text
    assert "shares with a fork" not in page.get("/threads?q=essay").text


def test_a_question_is_answered_by_a_button(page: TestClient) -> None:
    assert re.search(r'<a class="button" href="/inbox\?q=essay">Answer', page.get("/thread?id=essay").text)


@pytest.mark.parametrize(
    ("rules", "reasons"),
    [
        ("keep_last=3", ["end of a branch, one of the last 3", "one of the last 3", "one of the last 3"]),
        ("keep_daily=1", ["end of a branch, the last of its day"]),
        (
            "keep_last=1&keep_within=1h",
            ["end of a branch, one of the last 1, made within 1h", *["made within 1h"] * 11],
        ),
        ("drop_settled_writes=1", ["end of a branch, only settled writes go", *["only settled writes go"] * 11]),
    ],
)
def test_a_plan_says_which_rule_keeps_a_checkpoint(page: TestClient, rules: str, reasons: list[str]) -> None:
    text = page.get(f"/plan?what=prune&id=counter&{rules}").text
    stays = text[text.index("<h3>Stays</h3>") :]
    assert re.findall(r'</a> <span class="muted">(.*?)</span></li>', stays) == reasons


def test_a_long_stretch_is_folded_and_opened_again(page: TestClient) -> None:
    text = page.get("/thread?id=counter").text
    fold = re.search(r'class="fold" href="([^"]*)">(\d+) checkpoints', text)
    assert fold is not None
    count = text.count('class="id"')
    assert count + int(fold[2]) == 12
    assert page.get(fold[1].replace("&amp;", "&")).text.count('class="id"') == 12


def test_the_tree_shows_marks_forks_and_namespaces(page: TestClient, saver: threadline.Saver) -> None:
    text = page.get("/thread?id=lisbon").text
    for mark in ("first-answer", "pinned", "interrupt", ">head<", ">branch<", "lisbon-copy", "review"):
        assert mark in text, mark
    namespace = next(entry.namespace for entry in saver.thread("lisbon").log() if entry.namespace)
    assert "check" in page.get("/thread", params={"id": "lisbon", "ns": namespace}).text


def test_messages_are_a_chat_with_calls_and_results_together(page: TestClient) -> None:
    text = page.get("/checkpoint?id=porto").text
    chat = text[text.index('class="chat"') :]
    assert chat.index("What about the weather?") < chat.index("calls search") < chat.index("Sunny, 24 degrees.")
    assert 'class="msg tool' not in chat


@pytest.mark.parametrize(
    ("pasted", "place"),
    [
        ("lisbon", "/thread?id=lisbon"),
        ("checkpoint", "/checkpoint?id=counter&at="),
        ("interrupt", "/inbox?q=essay"),
        ("run", "/checkpoint?id=ran&at="),
    ],
)
def test_any_id_that_is_pasted_is_found(page: TestClient, saver: threadline.Saver, pasted: str, place: str) -> None:
    saver.thread("ran").put({"n": 1}, metadata={"run_id": "run-17"})
    ids = {"checkpoint": saver.thread("counter").at().id, "run": "run-17"}
    ids["interrupt"] = next(one.interrupt_id for one in saver.interrupts() if one.thread_id == "essay") or ""
    answer = page.get("/find", params={"q": ids.get(pasted, pasted)}, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(place)


@pytest.fixture
def chunks_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many chunks the store was asked for since the last time."""
    asked: list[int] = []
    real = Context.chunks

    async def chunks(self: Context, pool: int, digests: Any) -> Any:
        asked.append(len(digests))
        return await real(self, pool, digests)

    def count() -> int:
        total = sum(asked)
        asked.clear()
        return total

    monkeypatch.setattr(Context, "chunks", chunks)
    return count


def test_a_value_is_read_part_by_part(
    database: Path, open_page: Callable[..., TestClient], saver: threadline.Saver, chunks_read: Callable[[], int]
) -> None:
    lines = [{"id": f"m{at}", "text": f"line {at} " + "x" * 2000} for at in range(3000)]
    saver.thread("long").put({"lines": lines, "text": "y" * 3_000_000, "nested": {"deep": lines[1000:1200]}})
    with threadline.connect(database, read_only=True) as other:
        client = open_page(other)
        text = client.get("/checkpoint?id=long").text
        assert "list of 3,000" in text
        assert "line 9 " in text
        assert "line 10 " not in text
        # Three thousand items of 2 KB, and a text of 3 MB: a page reads tens of items and the nodes above them.
        assert 0 < chunks_read() < 300
        alone = client.get("/value", params={"id": "long", "channel": "lines", "path": "[2500]"}).text
        assert "line 2500 " in alone
        end = client.get("/value", params={"id": "long", "channel": "lines", "start": "-2"}).text
        assert "line 2999 " in end
        assert "line 2997 " not in end
        inside = client.get("/value", params={"id": "long", "channel": "nested", "path": '["deep", 150, "text"]'}).text
        assert "line 1150 " in inside
        assert chunks_read() < 50
        whole = client.get("/value.json", params={"id": "long", "channel": "text"}).json()
        assert whole["items"][0]["value"] == "y" * 3_000_000


def test_a_diff_of_long_states_reads_what_differs(
    open_page: Callable[..., TestClient], saver: threadline.Saver, database: Path, chunks_read: Callable[[], int]
) -> None:
    lines = [{"id": f"m{at}", "text": f"line {at} " + "x" * 200} for at in range(10_000)]
    saver.thread("long").put({"lines": lines})
    saver.thread("long").put({"lines": [*lines, {"id": "new", "text": "one more"}]})
    with threadline.connect(database, read_only=True) as other:
        text = open_page(other).get("/diff?id=long").text
        assert "one more" in text
        assert "line 17 " not in text
        assert chunks_read() < 100  # of more than 10,000


BAD = [
    ("/thread?id=nope", 404, "there is no thread"),
    ("/thread", 404, "names no thread"),
    ("/thread?id=lisbon&ns=nope", 404, "no namespace"),
    ("/checkpoint?id=lisbon&at=nope", 404, "no checkpoint, tag or time"),
    ("/checkpoint?id=lisbon&at=1f", 400, "several checkpoints"),
    ("/value?id=lisbon&channel=nope", 404, "no channel"),
    ("/value?id=lisbon&channel=plan&path=x", 400, "a path is"),
    ("/value?id=lisbon&channel=plan&path=[0]", 404, "no item"),
    ("/value?id=lisbon&channel=plan&start=x", 400, "whole number"),
    ("/threads?status=odd", 400, "a status is"),
    ("/threads?sort=odd", 400, "sorted by"),
    ("/threads?since=odd", 400, "since"),
    ("/threads?sort=size&status=waits", 400, "clear the other filters"),
    ("/threads?filter=odd", 400, "KEY=VALUE"),
    ("/diff?id=lisbon&a=nope", 404, "no checkpoint"),
    ("/diff?id=lisbon&other=nope", 404, "there is no thread"),
    ("/versions?id=lisbon&channel=nope", 404, "no channel"),
    ("/merge?id=lisbon&other=nope", 404, "no checkpoint"),
    ("/plan?what=odd", 400, "no plan"),
    ("/plan?what=prune&id=lisbon&keep_last=0", 400, "1 or more"),
    ("/plan?what=prune&id=lisbon&keep_last=x", 400, "whole number"),
    ("/plan?what=rm&id=lisbon&trash=odd", 400, "trash"),
    ("/plan?what=many&act=explode", 400, "archive"),
    ("/job?id=x", 404, "not known any more"),
    ("/store?ns=users&key=nope", 404, "no item"),
    ("/nowhere", 404, "no such page"),
    ("/static/nope.js", 404, "no such page"),
]


@pytest.mark.parametrize(("address", "status", "sentence"), BAD, ids=[address for address, _, _ in BAD])
def test_what_is_asked_wrongly_is_told(page: TestClient, address: str, status: int, sentence: str) -> None:
    answer = page.get(address)
    assert answer.status_code == status
    assert sentence in answer.text.replace("&#39;", "'")
    assert "Traceback" not in answer.text
    assert '<nav aria-label="Views">' in answer.text, "whoever went astray can go on"


def test_a_store_that_does_not_answer_is_told_as_such(open_page: Callable[..., TestClient]) -> None:
    away = threadline.connect("postgresql://nobody@127.0.0.1:1/none", retry=False)
    answer = open_page(away).get("/threads")
    assert answer.status_code == 503
    assert "is the server running?" in answer.text
    assert open_page(away).get("/threads.json").json()["error"] == "Unavailable"


def test_damage_is_shown_in_its_place_with_why(page: TestClient, saver: threadline.Saver, database: Path) -> None:
    saver.thread("hurt").put({"sound": "a value", "lost": ["z" * 500 + str(at) for at in range(40)]})
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM threadline_chunks WHERE pool = (SELECT max(pool) FROM threadline_chunks)")
    saver.clear_cache()
    text = page.get("/checkpoint?id=hurt").text
    assert "a value" in text
    assert "Cannot be read." in text
    assert "is missing" in text


def test_a_thread_deleted_while_it_is_looked_at_is_told(page: TestClient, saver: threadline.Saver) -> None:
    assert page.get("/checkpoint?id=counter").status_code == 200
    saver.delete_thread("counter")
    for view in ("thread", "checkpoint", "writes", "diff"):
        answer = page.get(f"/{view}?id=counter")
        assert answer.status_code == 404
        assert "there is no thread" in answer.text


def test_a_damaged_write_hides_nothing_else_of_its_checkpoint(page: TestClient, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE threadline_writes SET data = x'00' WHERE channel = '__interrupt__'")
    [waiting, *_] = [one for one in page.get("/threads.json").json() if one["status"] == "suspended"]
    told = page.get("/checkpoint.json", params={"id": waiting["thread_id"]}).json()
    assert told["values"]
    assert told["waits"][0]["value"]["$type"] == "damaged"
    for view in ("checkpoint", "writes", "thread", "inbox"):
        assert page.get(f"/{view}", params={"id": waiting["thread_id"]}).status_code == 200
    assert page.get("/writes.json", params={"id": waiting["thread_id"]}).status_code == 200
