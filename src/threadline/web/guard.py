"""What every request passes before a view sees it, and every answer before a browser does. Rules:

- A Host header that is not one of ours is answered with 400: a page of somebody else's that was rebound to this address
  reads nothing.
- Where a token is set, a request needs the cookie that the token was changed into. The cookie is HttpOnly and
  SameSite=Strict; the token never stays in the address of a page.
- A method that may change something needs `Sec-Fetch-Site: same-origin`, which a page cannot forge.
- Every answer forbids scripts without its nonce, frames, sniffing, referrers and caching.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "Token", "client_root"]

_SAFE = frozenset(("GET", "HEAD"))
_PUBLIC = "/static/"
# Where a token that was typed is sent to.
_CHANGING = "/token"


@dataclass(frozen=True, slots=True)
class Token:
    """The secret in the printed address, and the one in the cookie that it is changed into."""

    text: str
    cookie_name: str
    session: str

    @classmethod
    def of(cls, text: str | None = None, port: int = 0) -> Token:
        """A token that was given, or a new one."""
        # Browsers send the cookies of a host to all its ports: each page has a name of its own.
        return cls(text or secrets.token_urlsafe(32), f"threadline-{port}", secrets.token_urlsafe(32))

    def fits(self, given: str) -> bool:
        return hmac.compare_digest(self.text.encode(), given.encode(errors="replace"))

    def admits(self, cookies: str) -> bool:
        """Whether a Cookie header has the session."""
        try:
            held = SimpleCookie(cookies).get(self.cookie_name)
        except CookieError:
            return False
        return held is not None and hmac.compare_digest(self.session.encode(), held.value.encode())


class Guard:
    """An application behind these rules. It is handed the nonce of its answer in `scope["state"]`."""

    def __init__(
        self,
        inner: ASGIApp,
        *,
        hosts: Collection[str] | None,
        addresses: bool = False,
        token: Token | None,
        refuse: Any,
        let_go: Callable[[], None],
    ) -> None:
        self._inner, self._token, self._refuse = inner, token, refuse
        # Lets pages go that follow a thread; for whoever serves them, when the server is to end.
        self.let_go = let_go
        # Whether any address in figures is answered: only a name can be rebound.
        self._addresses = addresses
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        protected = _protecting(send, nonce, is_asset=_path(scope).startswith(_PUBLIC))
        answer = self._answer(scope, Headers(scope=scope))
        await (answer or self._inner)(scope, receive, protected)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that goes no further; None for one that does."""
        host = headers.get("host", "").lower()
        if self._hosts is not None and host not in self._hosts and not (self._addresses and _is_address(host)):
            return self._refusal(scope, 400, "This address is not one that the page is served under (Host header).")
        if scope["method"] not in _SAFE:
            if headers.get("sec-fetch-site") != "same-origin":
                return self._refusal(scope, 403, "Changes are taken from this page itself only (Sec-Fetch-Site).")
            # Forms of a page that forbids referrers have the origin `null`.
            origin = headers.get("origin", "null")
            if origin != "null" and origin.partition("://")[2].lower() != host:
                return self._refusal(scope, 403, "Changes are taken from this page itself only (Origin).")
        if self._token is None or _path(scope).startswith(_PUBLIC):
            return None
        return self._admission(scope, headers, self._token)

    def _admission(self, scope: Scope, headers: Headers, token: Token) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and scope["method"] in _SAFE:
            if not token.fits(given[-1]):
                return self._refusal(scope, 401, "This token is not the one of the page that runs now.")
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            answer = RedirectResponse(client_root(scope) + _path(scope) + ("?" + rest if rest else ""), 303)
            answer.set_cookie(token.cookie_name, token.session, httponly=True, samesite="strict", path="/")
            return answer
        if _path(scope) != _CHANGING and not token.admits(headers.get("cookie", "")):
            return self._refusal(scope, 401, "Open the address that `threadline web` printed: it has the token.")
        return None

    def _refusal(self, scope: Scope, status: int, sentence: str) -> Response:
        answer: Response = self._refuse(scope, status, sentence)
        return answer


def _is_address(host: str) -> bool:
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def client_root(scope: Scope) -> str:
    """Where the page is mounted, as browsers see it."""
    return str(scope.get("root_path", "")).rstrip("/")


def _path(scope: Scope) -> str:
    """The path within the page, wherever it is mounted."""
    path: str = scope["path"]
    root = client_root(scope)
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _protecting(send: Send, nonce: str, *, is_asset: bool) -> Send:
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
            f"style-src 'nonce-{nonce}'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types htmx",
        )
    )

    async def protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = policy
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "no-referrer"
            headers["Cross-Origin-Opener-Policy"] = "same-origin"
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
            # Assets are the same for everybody and hold no state; their address has their checksum.
            is_kept = is_asset and message["status"] == 200
            headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_kept else "no-store"
        await send(message)

    return protected
