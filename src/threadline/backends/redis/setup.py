"""The first use of a store: its format, and which settings of a server are warned of or refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ...base.printable import printable
from ...errors import InvalidRequest
from ...ports.rules import FORMAT, check_format
from .keys import Keys
from .wire import Link

__all__ = ["check_settings", "open_store"]

log = logging.getLogger("threadline")
_SETTINGS = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy")


async def open_store(link: Link, keys: Keys, *, may_create: bool, ttl: float | None, is_ours: bool = False) -> None:
    """Check the format of the store, or create it; and check the settings of the server.

    `is_ours` says that this process has used the store before: then all keys of its prefix belong to it.
    """
    found = await _format(link, keys)
    if found is None:
        if not may_create:
            raise InvalidRequest(
                f"{link.where} has no Threadline store under this key_prefix: call setup() once, or open it with "
                f"setup='create'"
            )
        check_settings(await _settings(link), link.where, ttl)
        if is_ours:
            log.warning("%s lost the format of the store: it is written again", printable(link.where))
        await _create(link, keys, is_ours=is_ours)
        await _format(link, keys)  # another process may have created it, in a newer format
    else:
        check_settings(await _settings(link), link.where, ttl)


def check_settings(settings: Mapping[str, str] | None, where: str, ttl: float | None) -> None:
    """Warn of a server that may lose acknowledged puts; refuse one that may evict part of a thread."""
    if settings is None:
        log.warning(
            "%s does not tell its settings: whether it keeps what it acknowledges was not checked", printable(where)
        )
        return
    policy = settings.get("maxmemory-policy", "noeviction")
    evicts = policy.startswith("allkeys-") or (policy.startswith("volatile-") and ttl is not None)
    if settings.get("maxmemory", "0") not in ("0", "") and evicts:
        raise InvalidRequest(
            f"{where} may evict part of a thread when it is full (maxmemory-policy {policy}): "
            f"set maxmemory-policy noeviction"
        )
    if settings.get("appendonly") == "no" and not settings.get("save"):
        log.warning("%s keeps nothing on disk: threads are gone when it stops (set appendonly yes)", printable(where))
    elif settings.get("appendonly") == "no":
        log.warning("%s only takes snapshots: a crash loses the last minutes (set appendonly yes)", printable(where))
    elif settings.get("appendfsync", "always") != "always":
        log.warning(
            "%s may lose the last second at a crash (appendfsync %s; always keeps every acknowledged put)",
            printable(where),
            printable(settings["appendfsync"]),
        )


async def _format(link: Link, keys: Keys) -> int | None:
    written = await link.command("HGET", keys.meta, "format")
    return check_format(written, link.where) if written is not None else None


async def _create(link: Link, keys: Keys, *, is_ours: bool) -> None:
    others = (keys.meta, keys.threads, keys.asking, keys.pools)
    held = await link.batch([("EXISTS", key) for key in others])
    # The format of a store is written first, so keys of ours are never there without one.
    if any(held) and not is_ours and await _format(link, keys) is None:
        raise InvalidRequest(f"{link.where} holds something else under this key_prefix: choose another one")
    # A number is never given twice, even where only the record of the last one was lost.
    last = await link.command("ZREVRANGE", keys.pools, 0, 0)
    await link.call("create", [keys.meta], [FORMAT, last[0] if last else 0])


async def _settings(link: Link) -> dict[str, str] | None:
    """The settings of the server; None where it does not tell them, as many hosted ones do not."""
    settings: dict[str, str] = {}
    try:
        for name in _SETTINGS:
            answer: Any = await link.command("CONFIG GET", name)
            pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
            settings.update({_plain(key): _plain(value) for key, value in pairs})
    except InvalidRequest:
        return None
    return settings


def _plain(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)
