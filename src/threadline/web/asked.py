"""A request as views see it: its parameters, checked, and addresses of other views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from ..errors import InvalidRequest
from .desk import Desk
from .guard import client_root

__all__ = ["Asked", "Page", "link_from"]

_LARGEST_FORM = 8 * 1024 * 1024
_MOST_FIELDS = 10_000


@dataclass(slots=True)
class Page:
    """The answer of a view: a template and its values, and how to have the same elsewhere."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    python: str = ""
    status: int = 200
    # Where to go instead.
    redirect: str | None = None


class Asked:
    """One request."""

    def __init__(self, request: Request, desk: Desk, fields: Sequence[tuple[str, str]] | None = None) -> None:
        self.request, self.desk = request, desk
        self._fields = list(request.query_params.multi_items()) if fields is None else list(fields)

    @classmethod
    async def of_form(cls, request: Request, desk: Desk) -> Asked:
        """The fields of a form that was sent."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in ("", "application/x-www-form-urlencoded"):
            raise InvalidRequest(f"a form is sent as application/x-www-form-urlencoded, not as {kind!r}")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST_FORM:
                raise InvalidRequest("this form is too large")
        try:
            # Browsers send line breaks of text fields as CR LF.
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise InvalidRequest("this form cannot be read") from None
        return cls(request, desk, [(name, value.replace("\r\n", "\n")) for name, value in pairs])

    @property
    def fields(self) -> list[tuple[str, str]]:
        return list(self._fields)

    def text(self, name: str, default: str = "") -> str:
        """A parameter, the last of its name."""
        return next((value for key, value in reversed(self._fields) if key == name), default)

    def maybe(self, name: str) -> str | None:
        """A parameter that was filled in; None otherwise."""
        return self.text(name).strip() or None

    def every(self, name: str) -> list[str]:
        return [value for key, value in self._fields if key == name and value.strip()]

    def has(self, name: str) -> bool:
        return self.text(name) not in ("", "0", "no")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds; InvalidRequest for anything else."""
        text = self.maybe(name)
        if text is None:
            return default
        try:
            value = int(text[:20])
        except ValueError:
            raise InvalidRequest(f"{name} is a whole number, not {text[:40]!r}") from None
        return min(max(value, least), most)

    @property
    def nonce(self) -> str:
        return str(self.request.scope["state"]["nonce"])

    def link(self, view: str, *, json: bool = False, **parameters: Any) -> str:
        """The address of a view; parameters that are None or empty are left out."""
        return link_from(client_root(self.request.scope), view, json=json, **parameters)

    def here(self, **changes: Any) -> str:
        """The address of this page with other parameters; None leaves one out."""
        kept = [(name, value) for name, value in self._fields if name not in changes and name != "said"]
        more = [(name, value) for name, value in changes.items() if value is not None]
        query = urlencode([*kept, *more])
        return client_root(self.request.scope) + self.path + ("?" + query if query else "")

    @property
    def path(self) -> str:
        """The path of this page within the site."""
        path: str = self.request.scope["path"]
        root = client_root(self.request.scope)
        return path[len(root) :] if root and path.startswith(root) else path


def link_from(root: str, view: str, *, json: bool = False, **parameters: Any) -> str:
    """The address of a view below a root."""
    pairs: list[tuple[str, str]] = []
    for name, value in parameters.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        pairs += [(name.rstrip("_"), str(one)) for one in values if one is not None and one != ""]
    query = urlencode(pairs)
    return f"{root}/{view}{'.json' if json else ''}{'?' + query if query else ''}"
