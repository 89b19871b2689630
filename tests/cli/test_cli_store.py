"""`threadline store` and `threadline cache`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import threadline
from tests.commands import Run


@pytest.fixture
def items(store: Path) -> Path:
    """Items and cached results in the store of the application."""
    with threadline.connect(store) as saver:
        kept = saver.store(keep_versions=True)
        kept.put(("users", "ann"), "tea", {"likes": "green", "n": 1})
        kept.put(("users", "ann"), "tea", {"likes": "black", "n": 2})
        plain = saver.store()
        plain.put(("users", "bob"), "home", {"city": "Bonn", "n": 1})
        plain.put(("a/b", "c"), "k", {"n": float("inf")})
        saver.cache().set({(("sums",), "k"): (3, None), (("sums", "below"), "k"): (4, 60), (("x",), "k"): (5, None)})
    return store


def told(run: Run, *arguments: Any, **options: Any) -> Any:
    return json.loads(run(*arguments, "--json", **options)[0])


def test_namespaces_and_items_are_listed(run: Run, items: Path) -> None:
    assert told(run, "store") == [
        {"namespace": ["a/b", "c"], "items": 1},
        {"namespace": ["users", "ann"], "items": 1},
        {"namespace": ["users", "bob"], "items": 1},
    ]
    assert run("store")[0].splitlines()[0] == '["a/b", "c"]  1 item'
    assert [one["key"] for one in told(run, "store", "ls", "users")] == ["home", "tea"]
    assert told(run, "store", "get", '["a/b", "c"]', "k")["value"] == {"n": {"$type": "float", "value": "inf"}}
    assert [one["key"] for one in told(run, "store", "search", "users", "--filter", "n=1")] == ["home"]
    assert [one["key"] for one in told(run, "store", "search", "--filter", "likes=black")] == ["tea"]
    assert len(told(run, "store", "search", "--limit", "2")) == 2


def test_the_history_of_an_item_is_told_and_goes_on(run: Run, items: Path) -> None:
    found = told(run, "store", "history", "users/ann", "tea")
    assert [(one["version"], one["value"]["n"]) for one in found] == [(2, 2), (1, 1)]
    then = found[1]["since"]
    assert told(run, "store", "get", "users/ann", "tea", "--as-of", then)["value"]["n"] == 1
    assert run("store", "put", "users/ann", "tea", '{"n": 3}', "--if-version", "2")[0].splitlines()[2] == "version    3"
    assert [one["version"] for one in told(run, "store", "history", "users/ann", "tea")] == [3, 2, 1]
    run("store", "rm", "users/ann", "tea", "--yes")
    assert "(deleted)" in run("store", "history", "users/ann", "tea")[0]
    run("store", "rm", "users/ann", "tea", "--forget", "--yes")
    run("store", "history", "users/ann", "tea", status=1)
    run("store", "put", "users/bob", "home", "{}", "--ttl", "30d")
    assert told(run, "store", "get", "users/bob", "home")["expires_at"] is not None
    run("store", "history", "users/bob", "home", status=1)


def test_deleting_is_told_first(run: Run, items: Path, contents: Any) -> None:
    before = contents()
    assert told(run, "store", "rm", "users") == {
        "namespace": ["users"],
        "key": None,
        "items": 2,
        "forget": False,
        "done": False,
    }
    assert run("store", "rm", "users/ann", "tea")[0].splitlines()[-1].startswith("not done")
    assert told(run, "cache", "clear")["done"] is False
    assert contents() == before
    assert told(run, "store", "rm", "users", "--yes")["items"] == 2
    assert [one["namespace"] for one in told(run, "store")] == [["a/b", "c"]]


def test_a_namespace_is_counted_without_those_below_it(run: Run, items: Path) -> None:
    told(run, "store", "put", "users", "all", '{"n": 1}')
    assert {"namespace": ["users"], "items": 1} in told(run, "store")


def test_the_cache_is_counted_and_cleared_by_namespace(run: Run, items: Path) -> None:
    assert told(run, "cache")["entries"] == 3
    assert told(run, "cache", "stats", "sums")["entries"] == 1
    assert told(run, "cache", "clear", "sums", "--yes")["done"] is True
    assert [one["namespace"] for one in told(run, "cache")["namespaces"]] == [["sums", "below"], ["x"]]
    run("cache", "clear", "--yes")
    assert told(run, "cache")["entries"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["store", "no"], 2, "there are ls, get, put, rm, search, history"),
        (["store", "get", "users"], 2, "a NAMESPACE and a KEY"),
        (["store", "get", "users/ann", "none"], 1, "no item 'none' in users/ann; `threadline store ls`"),
        (["store", "put", "users", "k", "no json"], 2, "JSON object"),
        (["store", "put", "users", "k", "[1]"], 2, "a value is a dict"),
        (["store", "put", "users//x", "k", "{}"], 2, "is empty"),
        (["store", "put", "users/ann", "tea", "{}", "--if-version", "1"], 1, "not at version 1"),
        (["store", "rm", "users/ann", "none"], 1, "no item"),
        (["store", "rm"], 2, "takes a NAMESPACE"),
        (["store", "search", "--filter", "n"], 2, "KEY=VALUE"),
        (["store", "rm", "users/ann", "--if-version", "99", "--yes"], 2, "give its KEY"),
        (["store", "put", "[1]", "k", "{}"], 2, "a tuple of texts"),
        (["store", "ls", "--limit", "-1"], 2, "limit"),
        (["store", "ls", "users", "--limit", "-1"], 2, "limit"),
        (["cache", "no"], 2, "there are stats, clear"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    run: Run, items: Path, contents: Any, arguments: list[str], status: int, said: str
) -> None:
    before = contents()
    assert said in run(*arguments, status=status)[1]
    assert contents() == before
