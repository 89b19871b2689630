"""Sends events to people: mail, chat, webhooks and what else apprise knows (extra `alerts`).

A channel is a URL, which usually holds a secret. So a channel is never shown but by its scheme and its number, and an
event holds figures only. One channel that fails, or does not answer, keeps no other from its message.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from ..base.printable import printable
from ..errors import InvalidRequest, MissingExtra
from .judging import RESOLVED, Event

__all__ = ["Channels", "message_of"]

log = logging.getLogger("threadline")
_MOST_AT_ONCE = 8
# A channel that has not answered by then is counted as failed; its thread ends when its own time is over.
_PATIENCE_SECONDS = 30.0


class Channels:
    """Where messages go."""

    def __init__(self, urls: Sequence[str]) -> None:
        if isinstance(urls, str) or not all(isinstance(url, str) for url in urls):
            raise InvalidRequest("channels are a list of URLs, such as ['mailto://…', 'slack://…']")
        self._channels = [_opened(url, number) for number, url in enumerate(urls, 1)]

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def names(self) -> list[str]:
        """The channels as they may be shown."""
        return [name for name, _ in self._channels]

    def send(self, event: Event, store: str) -> list[str]:
        """Send an event to all channels at once; the names of those that failed."""
        if not self._channels:
            return []
        title, body = message_of(event, store)
        pool = ThreadPoolExecutor(min(len(self._channels), _MOST_AT_ONCE), thread_name_prefix="threadline-alerts")
        try:
            sent = {pool.submit(_notify, channel, event.kind, title, body): name for name, channel in self._channels}
            done, late = wait(sent, timeout=_PATIENCE_SECONDS)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        failed = sorted([*(sent[one] for one in done if not one.result()), *(sent[one] for one in late)])
        for name in failed:
            log.error("the alert channel %s did not take the message: check its URL and its service", printable(name))
        return failed


def message_of(event: Event, store: str) -> tuple[str, str]:
    """The title and the text of a message. `store` is its URL, as it may be shown."""
    since = datetime.fromtimestamp(event.since, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    lines = [f"{event.text}.", f"Store: {store}", f"Since: {since}"]
    if event.kind != RESOLVED:
        lines.append(f"What to do: {event.advice}.")
    return f"Threadline: {event.name} {event.kind}", "\n".join(lines)


def _opened(url: str, number: int) -> tuple[str, Any]:
    try:
        import apprise
    except ImportError as error:
        raise MissingExtra("alert channels need the package apprise: pip install 'threadline[alerts]'") from error
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?=://)", url)
    name = f"{scheme[0] if scheme else 'without a scheme'} (channel {number})"
    with _silence():
        channel = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if channel is None:
        raise InvalidRequest(f"apprise knows no such alert channel: {name}; its documentation has the form of each URL")
    return name, channel


def _notify(channel: Any, kind: str, title: str, body: str) -> bool:
    try:
        with _silence():
            return bool(
                channel.notify(body=body, title=title, notify_type="success" if kind == RESOLVED else "warning")
            )
    except Exception:  # whatever a service's client raises; its words may hold the URL
        return False


class _Unless(logging.Filter):
    """Lets no line pass while this thread has the URL of a channel in its hands."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_here, "is_silent", False)


# Apprise, and what it sends requests with, log URLs with their secrets when somebody wants to see everything.
_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry", "requests")
_here = threading.local()
_unless = _Unless()


@contextmanager
def _silence() -> Iterator[None]:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_unless)
    _here.is_silent = True
    try:
        yield
    finally:
        _here.is_silent = False
