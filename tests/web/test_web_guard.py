"""Who may see the page and change the store: hosts, the token, where a request comes from, and what answers forbid."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

import threadline
from threadline.web import app
from threadline.web.guard import Token

HOSTS = ["127.0.0.1:8400", "localhost:8400"]
ACTS: list[tuple[str, dict[str, str]]] = [
    ("/act", {"act": "archive", "id": "lisbon"}),
    ("/act", {"act": "tag", "id": "lisbon", "name": "stolen"}),
    ("/answer", {"id": "essay", "interrupt": "x", "text": "1"}),
    ("/plan", {"plan": "x"}),
    ("/merge", {"id": "lisbon", "other": "first-answer"}),
]


@pytest.fixture
def token() -> Token:
    return Token.of(port=8400)


@pytest.fixture
def guarded(saver: threadline.Saver, token: Token) -> TestClient:
    site = app(saver, write=True, token=token, hosts=HOSTS)
    return TestClient(site, base_url="http://127.0.0.1:8400", follow_redirects=False)


def rows(saver: threadline.Saver) -> Any:
    """Everything about the store that a request could have changed."""
    names = [info.thread_id for info in saver.threads()]
    return [(saver.thread(name).info(), saver.thread(name).log().entries) for name in names]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8400", "127.0.0.1", "127.0.0.1:9999", ""])
@pytest.mark.parametrize("path", ["/threads", "/threads.json", "/static/style.css"])
def test_another_host_is_answered_with_400(guarded: TestClient, token: Token, host: str, path: str) -> None:
    answer = guarded.get(path, params={"token": token.text}, headers={"Host": host})
    assert answer.status_code == 400
    assert "set-cookie" not in answer.headers
    assert "lisbon" not in answer.text


def test_the_token_becomes_a_cookie_and_leaves_the_address(guarded: TestClient, token: Token) -> None:
    first = guarded.get("/thread", params={"id": "lisbon", "token": token.text})
    assert (first.status_code, first.headers["location"]) == (303, "/thread?id=lisbon")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert token.text not in cookie
    assert guarded.get("/thread", params={"id": "lisbon"}).status_code == 200


@pytest.mark.parametrize("given", [None, "", "wrong", "é"])
def test_without_the_token_there_is_nothing_to_see(guarded: TestClient, given: str | None) -> None:
    answer = guarded.get("/threads", params={} if given is None else {"token": given})
    assert answer.status_code == 401
    assert '<nav aria-label="Views">' not in answer.text
    assert "token" in answer.text
    assert "lisbon" not in answer.text
    assert guarded.get("/threads.json").json()["error"] == "Refused"


def test_a_cookie_of_somebody_else_is_no_session(guarded: TestClient, token: Token) -> None:
    for value in ("x", token.text, '"', "\\"):
        assert guarded.get("/threads", headers={"Cookie": f"{token.cookie_name}={value}"}).status_code == 401


def test_a_token_can_be_typed(guarded: TestClient, token: Token) -> None:
    headers = {"Sec-Fetch-Site": "same-origin"}
    assert guarded.post("/token", data={"token": "wrong"}, headers=headers).status_code == 401
    assert guarded.post("/token", data={"token": token.text}).status_code == 403
    assert guarded.post("/token", data={"token": token.text}, headers=headers).status_code == 303
    assert guarded.get("/threads").status_code == 200


@pytest.mark.parametrize("site", [None, "cross-site", "same-site", "none"])
@pytest.mark.parametrize(("path", "fields"), ACTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_change_from_elsewhere_is_refused(
    saver: threadline.Saver, path: str, fields: dict[str, str], site: str | None
) -> None:
    before = rows(saver)
    client = TestClient(app(saver, write=True))
    answer = client.post(path, data=fields, headers={"Sec-Fetch-Site": site} if site else {})
    assert answer.status_code == 403
    assert rows(saver) == before


def test_an_origin_that_is_not_ours_is_refused(saver: threadline.Saver) -> None:
    client = TestClient(app(saver, write=True))
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"}
    assert client.post("/act", data={"act": "archive", "id": "lisbon"}, headers=headers).status_code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_change_nothing(page: TestClient, method: str) -> None:
    assert page.request(method, "/threads").status_code == 405


@pytest.mark.parametrize(("path", "fields"), ACTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_page_that_only_looks_changes_nothing(
    saver: threadline.Saver, open_page: Any, path: str, fields: dict[str, str]
) -> None:
    before = rows(saver)
    answer = open_page().post(path, data=fields)
    assert answer.status_code == 403
    assert "--write" in answer.text
    assert rows(saver) == before


def test_the_saver_of_a_page_that_only_looks_refuses_by_itself(saver: threadline.Saver) -> None:
    looking = saver.structural().read_only()
    assert looking.thread("lisbon").log().entries
    for change in (
        looking.thread("lisbon").archive,
        looking.thread("lisbon").delete,
        lambda: looking.thread("new").put({"n": 1}),
    ):
        with pytest.raises(threadline.ReadOnly):
            change()


@pytest.mark.parametrize("path", ["/threads", "/threads.json", "/thread?id=nope", "/nowhere", "/static/page.js"])
def test_every_answer_forbids_what_it_can(page: TestClient, path: str) -> None:
    headers = page.get(path).headers
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
        assert rule in policy
    assert "require-trusted-types-for 'script'; trusted-types htmx" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == ("no-store" if "static" not in path else "public, max-age=31536000, immutable")


def test_every_script_and_style_has_the_nonce_of_its_answer_and_no_other(page: TestClient) -> None:
    seen = set()
    for path in ("/threads", "/thread?id=lisbon", "/checkpoint?id=lisbon", "/nowhere"):
        answer = page.get(path)
        nonce = answer.headers["content-security-policy"].partition("'nonce-")[2].partition("'")[0]
        assert nonce not in seen
        seen.add(nonce)
        assert (
            answer.text.count("<script") == len(re.findall(rf'nonce="{nonce}"(?: defer)?></script>', answer.text)) == 4
        )
        assert "style=" not in answer.text
        assert "onclick" not in answer.text
        assert answer.text.count("hx-nonce") == answer.text.count(f'hx-nonce="{nonce}"')


def test_a_form_that_is_no_form_is_refused(page: TestClient) -> None:
    assert page.post("/act", content=b"{}", headers={"Content-Type": "application/json"}).status_code == 400
    assert page.post("/act", content=b"\xff\xfe", headers={"Content-Type": ""}).status_code == 400
    assert page.post("/act", data={"act": "explode", "id": "lisbon"}).status_code == 400
    assert page.post("/act", data={"act": "archive"}).status_code == 404
