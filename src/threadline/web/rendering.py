"""Templates and assets. Everything that comes from a store is text: templates escape it, and nothing marks it safe."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from .. import __version__
from ..base.printable import printable
from ..show.figures import counted, readable_bytes, readable_latency, readable_time, without_password
from ..show.shapes import legible, shape_of
from ..show.timeline import spoken_span
from .asked import Asked, Page, link_from
from .guard import client_root

__all__ = ["ASSETS", "Asset", "render", "render_error"]

_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that browsers load."""

    content: bytes
    media_type: str
    version: str


def _load() -> dict[str, Asset]:
    found = {}
    for file in files(__package__).joinpath("static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = Asset(content, kind, sha256(content).hexdigest()[:12])
    return found


ASSETS = _load()


def _short(text: str) -> str:
    """An id as people tell them apart."""
    shown = printable(text)
    return shown if len(shown) <= 18 else shown[:13] + "…"


def _moment(seconds: float) -> dict[str, str]:
    """A moment for a `time` element: for machines, in full, and how long ago."""
    iso = datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
    ago = time.time() - seconds
    return {"iso": iso, "full": readable_time(seconds), "ago": f"{spoken_span(ago)} ago" if ago >= 1 else "now"}


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    environment.filters.update(
        bytes=lambda count: readable_bytes(count).replace("bytes", "B").replace("byte", "B"),
        time=readable_time,
        moment=_moment,
        span=spoken_span,
        latency=readable_latency,
        legible=legible,
        clean=printable,
        short=_short,
        shape=shape_of,
    )
    environment.globals.update(counted=counted, version=__version__, assets=ASSETS)
    return environment


_TEMPLATES = _environment()


def render(asked: Asked, page: Page) -> Response:
    """A page, or with the parameter `part` only the part of it that changes."""
    scope = asked.request.scope
    template = page.values.get("part_template") if asked.has("part") else page.template
    text = _TEMPLATES.get_template(template or page.template).render(
        **_shared(scope),
        page=page,
        link=asked.link,
        here=asked.here,
        json_link=_json_link(asked),
        desk=asked.desk,
        store=printable(without_password(asked.desk.url)),
        can_write=asked.desk.can_write,
        said=asked.desk.notes.take(asked.text("said")) if asked.maybe("said") else None,
        view=asked.path.strip("/").partition("/")[0],
        **page.values,
    )
    return HTMLResponse(text, page.status)


def render_error(
    scope: Scope, status: int, sentence: str, name: str, *, asks_token: bool = False, has_nav: bool = True
) -> Response:
    """A page that says what is wrong; without `has_nav` its views are not for whoever asks."""
    text = _TEMPLATES.get_template("error.html").render(
        **_shared(scope),
        status=status,
        sentence=sentence,
        name=name,
        asks_token=asks_token,
        has_nav=has_nav,
        link=partial(link_from, client_root(scope)),
        view=None,
    )
    return HTMLResponse(text, status)


def _shared(scope: Scope) -> dict[str, Any]:
    root = client_root(scope)

    def asset(name: str) -> str:
        return f"{link_from(root, 'static/' + name)}?v={ASSETS[name].version}"

    return {"nonce": scope["state"]["nonce"], "asset": asset, "home": link_from(root, "threads"), "root": root}


def _json_link(asked: Asked) -> str:
    path, _, query = asked.here().partition("?")
    return f"{path}.json{'?' + query if query else ''}"
