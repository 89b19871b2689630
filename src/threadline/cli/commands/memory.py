"""`threadline store` and `threadline cache`: items that agents share across threads, and cached results of nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import typer

from ...core.records.batch import Item
from ...core.records.cached import entry_figures
from ...core.records.checks import check_namespace
from ...core.records.past import has_past
from ...core.records.shapes import name_of
from ...errors import InvalidRequest, NotFound
from ...ports.records import RecordSpace, pack_name
from ...show.forms import item_json, version_json
from ...show.values import one_line_of
from ...store import ItemStore
from ..open import Store, open_store
from ..output import (
    AsJson,
    Url,
    Yes,
    counted,
    moment_of,
    print_facts,
    print_json,
    print_none,
    print_rows,
    readable_bytes,
    readable_time,
)
from .pruning import ending

__all__ = ["cache", "store"]


class _Asked(NamedTuple):
    """What was typed."""

    namespace: tuple[str, ...] | None
    key: str | None
    value: str | None
    filters: Sequence[str]
    limit: int
    as_of: float | None
    ttl: str | None
    if_version: int | None
    forget: bool
    yes: bool
    as_json: bool


def store(
    url: Url,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="ls, get, put, rm, search or history.")] = "ls",
    namespace: Annotated[
        str | None,
        typer.Argument(metavar="NAMESPACE", help="Labels joined by /, or a JSON list of them.", show_default=False),
    ] = None,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="The item's key.", show_default=False)] = None,
    value: Annotated[str | None, typer.Argument(metavar="VALUE", help="A JSON object.", show_default=False)] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", metavar="KEY=VALUE", help="Only items that have this value.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many.")] = 100,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="As it was then: a time, or a span such as 7d ago.")
    ] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", metavar="SPAN", help="Keep it for so long, such as 30d.")] = None,
    if_version: Annotated[
        int | None, typer.Option("--if-version", metavar="N", help="Only if the item has this version; 0 for none.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Delete former values too.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Look at, put and delete the items of a store."""
    act = _ACTIONS.get(action)
    if act is None:
        raise InvalidRequest(f"store takes no action {action!r}; there are {', '.join(_ACTIONS)}")
    labels = _labels(namespace) if namespace is not None else None
    then = moment_of(as_of, "--as-of")
    asked = _Asked(labels, key, value, filters or (), limit, then, ttl, if_version, forget, yes, as_json)
    is_writing = action == "put" or (action == "rm" and yes)
    with open_store(url, read_only=not is_writing, structural=not is_writing) as opened:
        act(opened, asked)


def cache(
    url: Url,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="stats or clear.")] = "stats",
    namespace: Annotated[
        str | None,
        typer.Argument(metavar="NAMESPACE", help="Labels joined by /, or a JSON list of them.", show_default=False),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Tell what is cached, or clear it."""
    if action not in ("stats", "clear"):
        raise InvalidRequest(f"cache takes no action {action!r}; there are stats, clear")
    named = _labels(namespace) if namespace is not None else None
    with open_store(url, read_only=not (yes and action == "clear")) as opened:
        figures = opened.saver.run(entry_figures, named)
        if action == "clear" and yes:
            opened.saver.cache().clear(None if named is None else [named])
    if as_json:
        told: dict[str, Any] = {
            "entries": figures.entries,
            "expired": figures.expired,
            "bytes": figures.stored_bytes,
            "namespaces": [
                {"namespace": list(labels), "entries": count} for labels, count in figures.namespaces.items()
            ],
        }
        print_json(told if action == "stats" else {**told, "done": yes})
        return
    facts = [
        ("cached", _entries(figures.entries)),
        ("expired", _entries(figures.expired)),
        ("values", readable_bytes(figures.stored_bytes)),
        *((_shown(labels), _entries(count)) for labels, count in figures.most()),
    ]
    print_facts(facts if action == "stats" else [*facts, ending(yes, "cleared", "these would be cleared")])


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _ls(opened: Store, asked: _Asked) -> None:
    """Namespaces with what they hold; of one that is named, its items."""
    items = _reading(opened, asked)
    if asked.namespace is not None:
        _tell_items(_found(items, asked, asked.namespace), asked)
        return
    counts = [(one, _count_in(opened, one)) for one in items.list_namespaces(limit=asked.limit)]
    if asked.as_json:
        print_json([{"namespace": list(labels), "items": count} for labels, count in counts])
    elif counts:
        print_rows([[_shown(labels), counted(count, "item")] for labels, count in counts], ["bold"])
    else:
        print_none("no items")


def _count_in(opened: Store, labels: tuple[str, ...]) -> int:
    """How many items a namespace has itself, without those below it: its names lie behind the empty segment."""
    own = pack_name((*labels, ""))
    return opened.engine.run(lambda backend: backend.count_records(RecordSpace.ITEM, own, time.time()))


def _search(opened: Store, asked: _Asked) -> None:
    _tell_items(_found(_reading(opened, asked), asked, asked.namespace or ()), asked)


def _get(opened: Store, asked: _Asked) -> None:
    labels, key = _named(asked, "get")
    item = _reading(opened, asked).get(labels, key, refresh_ttl=False, as_of=asked.as_of)
    if item is None:
        raise NotFound(f"there is no item {key!r} in {_shown(labels)}; `threadline store ls` lists the namespaces")
    _tell_item(item, asked)


def _put(opened: Store, asked: _Asked) -> None:
    labels, key = _named(asked, "put")
    try:
        value = json.loads(asked.value or "")
    except ValueError:
        raise InvalidRequest('store put takes a JSON object as VALUE, such as \'{"likes": "tea"}\'') from None
    items = _writing(opened, labels, key)
    items.put(labels, key, value, ttl=asked.ttl, if_version=asked.if_version)
    item = items.get(labels, key, refresh_ttl=False)
    assert item is not None
    _tell_item(item, asked)


def _rm(opened: Store, asked: _Asked) -> None:
    if asked.namespace is None:
        raise InvalidRequest("store rm takes a NAMESPACE, and a KEY unless all of it is meant")
    labels, key = asked.namespace, asked.key
    if key is None and asked.if_version is not None:
        raise InvalidRequest("--if-version is of one item: give its KEY")
    items = _writing(opened, labels, key) if asked.yes else opened.saver.store()
    if key is not None:
        count = int(items.get(labels, key, refresh_ttl=False) is not None)
        if not count and not asked.forget:
            raise NotFound(f"there is no item {key!r} in {_shown(labels)}")
        if asked.yes:
            items.delete(labels, key, forget=asked.forget, if_version=asked.if_version)
    else:
        count = items.count(labels)
        if asked.yes:
            items.delete_namespace(labels, forget=asked.forget)
    if asked.as_json:
        print_json({"namespace": list(labels), "key": key, "items": count, "forget": asked.forget, "done": asked.yes})
        return
    what = _shown(labels) if key is None else f"{_shown(labels)} {key}"
    history = "former values too" if asked.forget else "former values stay, where the store keeps them"
    facts = [("items", f"{count:,}"), ("of", what), ("history", history)]
    print_facts([*facts, ending(asked.yes, "deleted", "these would be deleted")])


def _history(opened: Store, asked: _Asked) -> None:
    labels, key = _named(asked, "history")
    found = opened.saver.store(keep_versions=True).history(labels, key)
    if not found:
        raise NotFound(f"no history of item {key!r} in {_shown(labels)} is kept; keep_versions= of a Store keeps it")
    if asked.as_json:
        print_json([version_json(one) for one in found])
        return
    rows = [
        [f"v{one.version}", readable_time(one.since), one_line_of(one.value) if one.value is not None else "(deleted)"]
        for one in found
    ]
    print_rows(rows, ["yellow", "dim"])


_ACTIONS = {"ls": _ls, "get": _get, "put": _put, "rm": _rm, "search": _search, "history": _history}


def _reading(opened: Store, asked: _Asked) -> ItemStore:
    """A store that can tell former values where these are asked for."""
    return opened.saver.store(keep_versions=True if asked.as_of is not None else None)


def _writing(opened: Store, labels: tuple[str, ...], key: str | None) -> ItemStore:
    """A store that goes on with a history that is kept here, and begins none."""
    below = name_of(labels, key) if key is not None else pack_name(labels)
    has_history = opened.saver.run(has_past, below)
    return opened.saver.store(keep_versions=has_history)


def _found(items: ItemStore, asked: _Asked, labels: tuple[str, ...]) -> list[Item]:
    wanted: dict[str, Any] = {}
    for text in asked.filters:
        name, separator, typed = text.partition("=")
        if not separator:
            raise InvalidRequest(f"--filter takes KEY=VALUE, not {text!r}")
        wanted[name] = _parsed(typed)
    return items.search(labels, filter=wanted, limit=asked.limit, refresh_ttl=False, as_of=asked.as_of)


def _tell_items(found: Sequence[Item], asked: _Asked) -> None:
    if asked.as_json:
        print_json([item_json(one) for one in found])
    elif found:
        rows = [
            [_shown(one.namespace), one.key, f"v{one.version}", _time(one.updated_at), one_line_of(one.value)]
            for one in found
        ]
        print_rows(rows, ["bold", "bold", "yellow", "dim"])
    else:
        print_none("no items")


def _tell_item(item: Item, asked: _Asked) -> None:
    if asked.as_json:
        print_json(item_json(item))
        return
    facts = [
        ("namespace", _shown(item.namespace)),
        ("key", item.key),
        ("version", f"{item.version:,}"),
        ("created", _time(item.created_at)),
        ("updated", _time(item.updated_at)),
        *([("expires", _time(item.expires_at))] if item.expires_at is not None else []),
        *((f"  {name}", one_line_of(part)) for name, part in item.value.items()),
    ]
    print_facts(facts)


def _named(asked: _Asked, action: str) -> tuple[tuple[str, ...], str]:
    if asked.namespace is None or asked.key is None:
        raise InvalidRequest(f"store {action} takes a NAMESPACE and a KEY")
    return asked.namespace, asked.key


def _labels(text: str) -> tuple[str, ...]:
    """A namespace as it was typed: a JSON list, or labels joined by a slash."""
    parsed = _parsed(text) if text.startswith("[") else None
    return check_namespace(tuple(parsed) if isinstance(parsed, list) else tuple(text.split("/")))


def _shown(labels: Sequence[str]) -> str:
    """A namespace as it is typed."""
    has_slash = any("/" in label for label in labels) or (bool(labels) and labels[0].startswith("["))
    return json.dumps(list(labels)) if has_slash else "/".join(labels)


def _time(moment: datetime) -> str:
    return readable_time(moment.timestamp())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
