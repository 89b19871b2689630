"""Items across threads, and cached results of nodes: namespaces, items, former values, search."""

from __future__ import annotations

import json
from typing import Any

from ...core.records.cached import EntryFigures, entry_figures
from ...errors import NotFound
from ...show.figures import pairs_of
from ...show.forms import item_json, version_json
from ..asked import Asked, Page
from ..snippets import command_line, python_lines

__all__ = ["as_json", "cache_json", "cache_page", "page"]

_MOST_NAMESPACES, _MOST_ITEMS = 100, 50


def _labels(asked: Asked) -> tuple[str, ...] | None:
    """The namespace of an address: a JSON list, or labels joined by a slash."""
    text = asked.maybe("ns")
    if text is None:
        return None
    try:
        parsed = json.loads(text) if text.startswith("[") else None
    except ValueError:
        parsed = None
    return tuple(map(str, parsed)) if isinstance(parsed, list) else tuple(text.split("/"))


async def page(asked: Asked) -> Page:
    """The namespaces; the items of one; or one item with its former values."""
    desk, labels, key = asked.desk, _labels(asked), asked.maybe("key")
    items = desk.reading.store()
    values: dict[str, Any] = {"labels": labels, "key": key, "ns": asked.text("ns"), "filter": asked.text("filter")}
    values |= {"namespaces": [], "items": [], "item": None, "past": [], "older": None, "cached": None}
    if labels is None:
        for one in await desk.ask(items, "list_namespaces", limit=_MOST_NAMESPACES):
            values["namespaces"].append((json.dumps(list(one)), " / ".join(one), await desk.ask(items, "count", one)))
        values["cached"] = await desk.run(entry_figures)
        command, call = command_line(desk.url, "store", "ls"), "saver.store().list_namespaces()"
    elif key is None:
        skip = asked.number("skip", 0, 0, 1_000_000)
        wanted = pairs_of(asked.every("filter"), "a filter")
        found = await desk.ask(
            items, "search", labels, filter=wanted, limit=_MOST_ITEMS + 1, offset=skip, refresh_ttl=False
        )
        values["items"], values["older"] = found[:_MOST_ITEMS], skip + _MOST_ITEMS if len(found) > _MOST_ITEMS else None
        command = command_line(desk.url, "store", "search", asked.text("ns"), filter=asked.every("filter"))
        call = f"saver.store().search({labels!r}, filter={wanted!r})"
    else:
        values["item"] = item = await desk.ask(items, "get", labels, key, refresh_ttl=False)
        values["past"] = await desk.ask(desk.reading.store(keep_versions=True), "history", labels, key)
        if item is None and not values["past"]:
            raise NotFound(f"there is no item {key!r} in {'/'.join(labels)}")
        command = command_line(desk.url, "store", "get", asked.text("ns"), key)
        call = f"saver.store().get({labels!r}, {key!r})"
    return Page("store.html", "Memory", values, command, python_lines(desk.url, call))


async def as_json(asked: Asked) -> Any:
    """The items as JSON, as `threadline store ls`, `search` or `get` prints them with --json."""
    desk, labels, key = asked.desk, _labels(asked), asked.maybe("key")
    items = desk.reading.store()
    if labels is None:
        named = await desk.ask(items, "list_namespaces", limit=_MOST_NAMESPACES)
        return [{"namespace": list(one), "items": await desk.ask(items, "count", one)} for one in named]
    if key is None:
        found = await desk.ask(
            items, "search", labels, filter=pairs_of(asked.every("filter"), "a filter"), limit=100, refresh_ttl=False
        )
        return [item_json(one) for one in found]
    if asked.has("history"):
        past = await desk.ask(desk.reading.store(keep_versions=True), "history", labels, key)
        return [version_json(one) for one in past]
    item = await desk.ask(items, "get", labels, key, refresh_ttl=False)
    if item is None:
        raise NotFound(f"there is no item {key!r} in {'/'.join(labels)}")
    return item_json(item)


async def cache_page(asked: Asked) -> Page:
    """What is cached, by namespace."""
    figures: EntryFigures = await asked.desk.run(entry_figures)
    command = command_line(asked.desk.url, "cache", "stats")
    call = "from threadline.core.records.cached import entry_figures\n\nprint(saver.run(entry_figures))"
    values = {"figures": figures, "spaces": figures.most(100)}
    return Page("cache.html", "Cache", values, command, python_lines(asked.desk.url, call))


async def cache_json(asked: Asked) -> Any:
    """The figures of the cache as JSON, as `threadline cache stats --json` prints them."""
    figures: EntryFigures = await asked.desk.run(entry_figures)
    spaces = [{"namespace": list(labels), "entries": count} for labels, count in figures.namespaces.items()]
    told = {"entries": figures.entries, "expired": figures.expired, "bytes": figures.stored_bytes}
    return {**told, "namespaces": spaces}
