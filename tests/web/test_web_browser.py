"""The page in a real browser: what people do on it, what happens beside it, and that nothing stored ever runs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from langgraph.types import Interrupt
from playwright.sync_api import expect
from starlette.responses import HTMLResponse
from web_store import notes_graph, of_thread

import threadline
from conftest import Tab
from threadline.langgraph import Checkpointer
from threadline.saver import Saver
from threadline.web import app
from threadline.web.guard import Token

VIEWS = [
    "/threads", "/thread?id=lisbon", "/checkpoint?id=lisbon", "/value?id=lisbon&channel=messages", "/writes?id=essay",
    "/diff?id=lisbon", "/versions?id=counter&channel=log", "/merge?id=lisbon", "/inbox", "/plan",
    "/plan?what=prune&id=counter&keep_last=3", "/storage", "/health", "/find?q=lis", "/store", "/cache",
]  # fmt: skip
# Texts that run where they are taken for anything but text.
ATTACKS = [
    "<script>alert('script')</script>",
    "<img src=x onerror=alert('img')>",
    "\"><svg onload=alert('svg')>",
    "javascript:alert('url')",
    "</textarea></title><script>alert('closed')</script>",
    "{{ 7*7 }}<b hx-get=/threads hx-trigger=load>hx</b>",
]


@pytest.fixture
def address(saver: threadline.Saver, serve: Callable[[Any], str]) -> str:
    return serve(app(saver, write=True))


def test_every_view_opens_without_an_error_of_the_browser(tab: Tab, address: str) -> None:
    for view in VIEWS:
        answer = tab.page.goto(address + view)
        assert answer is not None
        assert answer.status == 200, view
        assert tab.page.evaluate("typeof htmx") == "object"


@pytest.fixture
def slow_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose bytes take a while to be counted."""
    real = Saver.abytes_by

    async def bytes_by(self: Saver, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(1.5)
        return await real(self, *args, **options)

    monkeypatch.setattr(Saver, "abytes_by", bytes_by)


def test_a_list_by_size_is_there_at_once_and_loads_its_rows(tab: Tab, slow_count: None, address: str) -> None:
    answer = tab.page.goto(f"{address}/threads?sort=size")
    assert answer is not None
    assert float(answer.headers["server-timing"].partition("dur=")[2]) < 1000
    assert "being counted" in answer.text()
    expect(tab.page.locator("tbody tr").first).to_be_visible()
    assert tab.page.get_by_text("being counted").count() == 0
    assert tab.page.locator("tbody tr").count() == 6


def test_a_list_by_size_is_waited_for_without_javascript(
    browser: Any, slow_count: None, saver: threadline.Saver, serve: Callable[[Any], str]
) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{serve(app(saver))}/threads?sort=size")
        expect(page.locator("tbody tr").first).to_be_visible()
        assert page.locator("tbody tr").count() == 6
    finally:
        context.close()


def test_a_question_is_answered_and_the_graph_goes_on(tab: Tab, address: str, database: Path) -> None:
    tab.page.goto(f"{address}/inbox?q=essay")
    tab.page.get_by_label("The answer").fill('{"yes": true}')
    tab.page.get_by_role("button", name="Answer").click()
    expect(tab.page.get_by_text("Nothing waits for an answer.")).to_be_visible()
    with Checkpointer(database) as other:
        assert notes_graph(other).invoke(None, of_thread("essay"))["notes"][-1] == "said {'yes': True}"


def test_actions_are_edited_in_the_browser(tab: Tab, address: str, saver: threadline.Saver) -> None:
    tab.page.goto(f"{address}/inbox?q=porto")
    tab.page.get_by_label("edit", exact=True).check()
    tab.page.get_by_text("Edit its arguments").click()
    editor = tab.page.get_by_label("Arguments as JSON")
    editor.fill("{oops")
    expect(editor).to_have_class("wrong")
    tab.page.get_by_role("button", name="Answer").click()
    assert "/inbox" in tab.page.url
    assert "porto" in {one.thread_id for one in saver.interrupts()}
    editor.fill('{"to": "bob@example.org"}')
    tab.page.get_by_role("button", name="Answer").click()
    expect(tab.page.get_by_role("status")).to_contain_text("Answered")
    assert "porto" not in {one.thread_id for one in saver.interrupts()}


def test_a_conflict_is_resolved_and_a_plan_carried_out(tab: Tab, address: str, saver: threadline.Saver) -> None:
    lisbon = saver.thread("lisbon")
    tab.page.goto(f"{address}/merge?id=lisbon")
    branch = next(one.id for one in lisbon.log(namespace="").heads if lisbon.state(one.id)["plan"] == "north")
    tab.page.locator(f'a[href*="other={branch}"]').click()
    for choice in tab.page.locator('input[value="theirs"]').all():
        choice.check()
    tab.page.get_by_role("button", name="Commit the merge").click()
    expect(tab.page.get_by_role("status")).to_contain_text("Merged")
    assert (lisbon.state()["plan"], lisbon.state()["profile"]["city"]) == ("north", "Porto")

    tab.page.goto(f"{address}/thread?id=counter")
    tab.page.get_by_role("link", name="Plan a prune").click()
    tab.page.get_by_label("Keep last").fill("3")
    tab.page.get_by_role("button", name="Show the plan").click()
    expect(tab.page.locator(".plan h2")).to_contain_text("9 checkpoints go, 3 checkpoints stay")
    tab.page.get_by_role("button", name="Carry out exactly this").click()
    expect(tab.page.get_by_role("status")).to_contain_text("9 checkpoints deleted")
    assert len(saver.thread("counter").log()) == 3


PUT = "import sys, threadline; threadline.connect(sys.argv[1]).thread('counter').put({'n': 77}, step=77)"


def test_the_tail_shows_a_put_of_another_process(tab: Tab, address: str, database: Path) -> None:
    with tab.page.expect_response(lambda answer: "/tail" in answer.url):
        tab.page.goto(f"{address}/thread?id=counter")
    expect(tab.page.locator("#tree")).not_to_contain_text("step 77")
    subprocess.run([sys.executable, "-c", PUT, str(database)], check=True)
    expect(tab.page.locator("#tree")).to_contain_text("step 77")
    threadline.connect(database).thread("counter").delete()
    expect(tab.page.locator("#tree")).to_contain_text("This thread was deleted.")


def test_more_of_a_value_is_loaded_where_it_belongs(tab: Tab, address: str) -> None:
    tab.page.goto(f"{address}/checkpoint?id=counter")
    log = tab.page.locator("section.channel", has_text="log")
    expect(log).not_to_contain_text("line 11")
    log.get_by_text("45 more").click()
    expect(log).to_contain_text("line 54")
    assert "/checkpoint" in tab.page.url


def test_the_keyboard_goes_through_a_list(tab: Tab, address: str) -> None:
    tab.page.goto(f"{address}/threads?sort=id")
    for key in ("j", "j", "k", "Enter"):
        tab.page.keyboard.press(key)
    expect(tab.page.locator("h1")).to_have_text("broken")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("counter\n")
    expect(tab.page.locator("h1")).to_have_text("counter")


def test_the_page_works_without_scripts(browser: Any, address: str, saver: threadline.Saver) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{address}/threads")
        page.get_by_role("link", name="counter").click()
        page.get_by_role("link", name="Newest state").click()
        page.get_by_text("45 more").click()
        expect(page.get_by_text("line 54")).to_be_visible()
        page.goto(f"{address}/inbox?q=essay")
        page.get_by_label("The answer").fill("1")
        page.get_by_role("button", name="Answer").click()
        assert "essay" not in {one.thread_id for one in saver.interrupts()}
    finally:
        context.close()


def hostile_store(saver: threadline.Saver, database: Path, attack: str) -> str:
    """A thread whose id, channels, values, metadata, tags, tasks and questions are an attack."""
    name = f"{attack} thread"
    thread = saver.thread(name)
    message = {"role": "user", "content": attack, "id": attack, "name": attack}
    calls = [{"name": attack, "args": {attack: attack}, "id": "1"}]
    call = {"role": "assistant", "content": attack, "tool_calls": calls}
    result = {"role": "tool", "content": attack, "tool_call_id": "1"}
    point = thread.put({"messages": [message, call, result], attack: {attack: [attack]}}, metadata={attack: attack})
    thread.create(metadata={attack: attack})
    saver.put_writes(point.config, [("__error__", attack), ("out", attack)], attack, f"~__pregel_pull, {attack}")
    head = thread.put({"messages": [message]}, at=point)
    question = {"action_requests": [{"name": attack, "args": {attack: attack}, "description": attack}]}
    interrupt = Interrupt(value=question, id="0" * 32)
    saver.put_writes(head.config, [("__interrupt__", [interrupt])], attack, f"~__pregel_pull, {attack}")
    saver.store().put((attack.replace(".", ""),), attack, {attack: attack})
    with sqlite3.connect(database) as connection:  # no method takes such a tag
        tags = json.dumps([[attack, "", head.id]])
        connection.execute("UPDATE threadline_threads SET tags = ? WHERE thread_id = ?", (tags, name))
    return name


def test_nothing_that_is_stored_runs(tab: Tab, saver: threadline.Saver, database: Path, address: str) -> None:
    attack = " ".join(ATTACKS)
    name = hostile_store(saver, database, attack)
    head = saver.thread(name).at().id
    views: list[tuple[str, dict[str, str]]] = [
        ("threads", {}),
        ("threads", {"q": attack, "tag": attack}),
        ("thread", {"id": name}),
        ("checkpoint", {"id": name, "at": head}),
        ("checkpoint", {"id": name, "at": head, "edit": "messages"}),
        ("value", {"id": name, "channel": attack}),
        ("writes", {"id": name, "at": "head~1"}),
        ("diff", {"id": name}),
        ("versions", {"id": name, "channel": "messages"}),
        ("merge", {"id": name, "other": "head~1"}),
        ("inbox", {"q": attack}),
        ("plan", {"what": "rm", "id": name}),
        ("find", {"q": attack}),
        ("storage", {}),
        ("store", {"ns": json.dumps([attack.replace(".", "")])}),
    ]
    for view, parameters in views:
        tab.page.goto(f"{address}/{view}?{urlencode(parameters)}")
        expect(tab.page.locator("main")).to_be_visible()
        assert (view == "threads" and "tag" in parameters) or "alert" in tab.page.inner_text("main"), view
        # Nothing but what the page itself brings: four scripts, no handler, no other scheme.
        assert tab.page.evaluate("document.querySelectorAll('script').length") == 4
        assert tab.page.evaluate("document.querySelectorAll('[onerror],[onload],b[hx-get]').length") == 0
        assert not tab.page.evaluate("[...document.links].some((link) => !link.href.startsWith('http:'))")


def test_a_page_of_somebody_else_reads_and_changes_nothing(
    browser: Any, saver: threadline.Saver, serve: Callable[[Any], str]
) -> None:
    """A signed-in person visits another site, which reads, frames and sends forms."""
    token = Token.of()
    ours = serve(app(saver, write=True, token=token))
    form = f"<form method=post action='{ours}/act'><input name=act value=archive><input name=id value=lisbon></form>"
    reading = f"fetch('{ours}/threads', {{credentials: 'include'}}).then((answer) => answer.text())"
    script = f"{reading}.then((text) => {{ window.read = text }}, () => {{ window.read = 'refused' }})"

    async def evil(scope: Any, receive: Any, send: Any) -> None:
        html = f"{form}<iframe src='{ours}/threads'></iframe><script>{script}</script>"
        await HTMLResponse(html)(scope, receive, send)

    # Another port of the same host is the same site, and gets the cookie: only the origin tells them apart.
    theirs = serve(evil)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{ours}/threads?token={token.text}")
        expect(page.locator("h1")).to_have_text("Threads")
        page.goto(theirs)
        page.wait_for_function("window.read")
        assert page.evaluate("window.read") == "refused"
        assert "lisbon" not in page.frames[1].content()
        with page.expect_response(lambda answer: answer.url.endswith("/act")) as refused:
            page.evaluate("document.forms[0].submit()")
        assert refused.value.status == 403
    finally:
        context.close()
    assert saver.thread("lisbon").info().status != "archived"
