"""Serving the page by itself: an address of this machine, a token, and nothing else that a browser could reach."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

import uvicorn

from ..errors import InvalidRequest, Unavailable
from ..saver import Saver
from .guard import Guard, Token
from .site import app

__all__ = ["serve"]

_WILD = ("0.0.0.0", "::", "")


def serve(
    saver: Saver,
    *,
    url: str,
    host: str,
    port: int,
    token: str | None,
    write: bool,
    names: Sequence[str],
    ready: Callable[[str], None],
) -> None:
    """Serve the page until a signal ends it; `ready` is told the address to open.

    An address that others can reach needs a token that was given: one that is printed is for whoever reads this
    terminal.
    """
    if not _is_loopback(host) and not token:
        raise InvalidRequest(
            f"{host} can be reached from elsewhere: give a token with --token or THREADLINE_WEB_TOKEN, and put TLS in "
            f"front of it; without a token the page is served at 127.0.0.1 only"
        )
    if token is not None and len(token) < 16:
        raise InvalidRequest("a token has at least 16 characters; `openssl rand -hex 32` makes a good one")
    with _listening(host, port) as listener:
        taken = listener.getsockname()[1]
        secret = Token.of(token, taken)
        shown = "127.0.0.1" if host in _WILD else host
        hosts = _hosts(shown, taken, names)
        site = app(saver, write=write, token=secret, hosts=hosts, addresses=host in _WILD, url=url)
        config = uvicorn.Config(
            site,
            log_level="warning",
            access_log=False,  # addresses hold ids, and the first one the token
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=3,
            lifespan="off",
        )
        ready(f"http://{_in_url(shown)}:{taken}/threads?token={secret.text}")
        with suppress(KeyboardInterrupt):  # raised again when everything has ended well
            _Server(config, site).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that lets pages go which follow a thread, when it is told to end."""

    def __init__(self, config: uvicorn.Config, site: Guard) -> None:
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._site.let_go()
        super().handle_exit(sig, frame)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise Unavailable(f"port {port} of {host} cannot be used ({reason}); --port 0 takes one that is free") from None
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hosts(host: str, port: int, names: Sequence[str]) -> list[str]:
    """The Host headers that are answered: of the address, of this machine to itself, and those that were given."""
    known = [_in_url(host)]
    if _is_loopback(host):
        known += ["127.0.0.1", "localhost", "[::1]"]
    given = [*names, *(f"{name}:{port}" for name in names if ":" not in name)]
    return [*(f"{name}:{port}" for name in known), *(known if port == 80 else ()), *given]


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
