"""The first use of a store: its format, and which settings of a server are warned of or refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ...base.printable import printable
from ...errors import InvalidRequest
from ...ports.rules import FORMAT
from ..setup import Setup
from .keys import Keys
from .wire import Link

__all__ = ["RedisSetup", "check_settings"]

log = logging.getLogger("threadline")
_SETTINGS = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy")


class RedisSetup(Setup):
    """The store under one prefix of keys."""

    def __init__(self, keys: Keys, where: str, mode: str | bool, ttl: float | None, *, read_only: bool) -> None:
        super().__init__(where, "Threadline store under this key_prefix", mode, read_only=read_only)
        self._keys = keys
        self._ttl = ttl

    async def create(self, link: Link) -> None:
        # This process has used the store before: then all keys of its prefix belong to it.
        is_ours = self.is_ready and await self._format(link) is None  # another thread may have made it by now
        if is_ours:
            log.warning("%s lost the format of the store: it is written again", printable(self._where))
        others = (self._keys.meta, self._keys.threads, self._keys.asking, self._keys.pools)
        held = await link.batch([("EXISTS", key) for key in others])
        # The format of a store is written first, so keys of ours are never there without one.
        if any(held) and not is_ours and await self._format(link) is None:
            raise InvalidRequest(f"{self._where} holds something else under this key_prefix: choose another one")
        # A number is never given twice, even where only the record of the last one was lost.
        last = await link.command("ZREVRANGE", self._keys.pools, 0, 0)
        await link.call("create", [self._keys.meta], [FORMAT, last[0] if last else 0])
        await self._format(link)  # another process may have created it, in a newer format

    async def _written_format(self, link: Link) -> Any:
        return await link.command("HGET", self._keys.meta, "format")

    async def _check_server(self, link: Link) -> None:
        check_settings(await _settings(link), self._where, self._ttl)


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
