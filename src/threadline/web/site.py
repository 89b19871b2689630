"""The application: views and their `.json` twins, forms, assets, and what is said when something goes wrong.

No view leaves a traceback in the browser: an error of our tree is a page with its sentence and its status, everything
else is logged and says only that it failed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from ..base.printable import printable
from ..errors import (
    Conflict,
    Corrupt,
    InvalidRequest,
    NewerFormat,
    NotAllowed,
    NotFound,
    NotSerializable,
    ReadOnly,
    ThreadlineError,
    Unavailable,
)
from ..saver import Saver
from .asked import Asked, link_from
from .desk import Desk
from .guard import Guard, Token, client_root
from .rendering import ASSETS, render, render_error
from .views import FORMS, STREAMS, VIEWS, Form, View

__all__ = ["app"]

log = logging.getLogger("threadline.web")
# The first that fits counts.
_STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (NotFound, 404),
    (ReadOnly, 403),
    (NewerFormat, 503),
    (InvalidRequest, 400),
    (Conflict, 409),
    (Unavailable, 503),
    (NotSerializable, 422),
    (NotAllowed, 422),
    (Corrupt, 500),
)


def app(
    saver: Saver,
    *,
    write: bool = False,
    half: str = "async",
    token: Token | None = None,
    hosts: Collection[str] | None = None,
    addresses: bool = False,
    url: str | None = None,
) -> Guard:
    """The page of a store, as an application to serve or to mount into one's own behind its login.

    It changes nothing unless `write`. `half="sync"` is for a saver that was given a blocking connection. `hosts` are
    the Host headers that are answered; without it, checking them is left to the application around; with
    `addresses`, every address in figures is answered too. Closing the saver is left to whoever made it.
    """
    desk = Desk(saver, write=write, half=half, url=url)
    routes = [
        Route("/", _home),
        Route("/static/{name}", _asset),
        Route("/token", _change_token(token), methods=["POST"]),
    ]
    for name, view in VIEWS.items():
        routes.append(Route(f"/{name}", _showing(desk, view)))
        routes.append(Route(f"/{name}.json", _telling(desk, view)))
    for name, form in FORMS.items():
        routes.append(Route(f"/{name}", _doing(desk, form), methods=["POST"]))
    for name, stream in STREAMS.items():
        routes.append(Route(f"/{name}", _guarded(desk, stream)))
    site = Starlette(routes=routes, exception_handlers={HTTPException: _refused, 500: _failed})
    site.state.desk = desk
    return Guard(site, hosts=hosts, addresses=addresses, token=token, refuse=_refuse, let_go=desk.let_go)


Endpoint = Callable[[Request], Awaitable[Response]]


def _showing(desk: Desk, view: View) -> Endpoint:
    async def show(asked: Asked) -> Response:
        began = time.perf_counter()
        page = await view.page(asked)
        if page.redirect is not None:
            return RedirectResponse(page.redirect, 303)
        answer = render(asked, page)
        answer.headers["Server-Timing"] = f"page;dur={(time.perf_counter() - began) * 1000:.1f}"
        return answer

    return _guarded(desk, show)


def _telling(desk: Desk, view: View) -> Endpoint:
    async def tell(asked: Asked) -> Response:
        told = await view.as_json(asked)
        text = await desk.half.aside(lambda: json.dumps(told, indent=2))
        return Response(text, media_type="application/json")

    return _guarded(desk, tell)


def _guarded(desk: Desk, act: Callable[[Asked], Awaitable[Response]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            return await act(Asked(request, desk))
        except Exception as error:
            return _told(request, error)

    return endpoint


def _doing(desk: Desk, form: Form) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            if form.is_writing:
                desk.writing  # noqa: B018  # refused before anything is read
            view, parameters, sentence = await form.act(await Asked.of_form(request, desk))
        except Exception as error:
            return _told(request, error)
        said = desk.notes.put(sentence) if sentence else None
        return RedirectResponse(link_from(client_root(request.scope), view, **parameters, said=said), 303)

    return endpoint


def _told(request: Request, error: Exception) -> Response:
    """What is wrong, as a page or as JSON."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if isinstance(error, ThreadlineError):
        sentence, name = str(error), type(error).__name__
    else:
        log.error("the page failed at %s: %s", printable(request.url.path), printable(repr(error)), exc_info=error)
        sentence, name = "This failed unexpectedly. The log of the server says more.", "Failure"
    if request.url.path.endswith(".json"):
        return JSONResponse({"error": name, "message": sentence}, status)
    return render_error(request.scope, status, sentence, name)


def _refuse(scope: Scope, status: int, sentence: str, *, has_nav: bool = False) -> Response:
    """The answer to a request that the guard does not let pass, or that no view takes."""
    if scope["path"].endswith(".json"):
        return JSONResponse({"error": "Refused", "message": sentence}, status)
    return render_error(scope, status, sentence, "Refused", asks_token=status == 401, has_nav=has_nav)


async def _refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentences = {404: "There is no such page.", 405: "This address does not take that."}
    return _refuse(request.scope, status, sentences.get(status, "This request was refused."), has_nav=True)


async def _failed(request: Request, error: Exception) -> Response:
    return _told(request, error)


async def _home(request: Request) -> Response:
    return RedirectResponse(client_root(request.scope) + "/threads", 303)


async def _asset(request: Request) -> Response:
    asset = ASSETS.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    return Response(asset.content, media_type=asset.media_type)


def _change_token(token: Token | None) -> Endpoint:
    """A token that was pasted into the form is changed into the cookie, as one in an address is."""

    async def endpoint(request: Request) -> Response:
        given = (await Asked.of_form(request, request.app.state.desk)).text("token").strip()
        answer: Response = RedirectResponse(client_root(request.scope) + "/threads", 303)
        if token is None:
            return answer
        if not token.fits(given):
            return _refuse(request.scope, 401, "This token is not the one of the page that runs now.")
        answer.set_cookie(token.cookie_name, token.session, httponly=True, samesite="strict", path="/")
        return answer

    return endpoint
