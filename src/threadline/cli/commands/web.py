"""`threadline web`: the page in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from ...errors import MissingExtra
from ..open import open_store
from ..output import Url, print_facts, without_password

__all__ = ["web"]

_USUAL_PORT = 8400


def web(
    url: Url,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to serve at; another one needs --token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0 takes one that is free.")
    ] = _USUAL_PORT,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TEXT", envvar="THREADLINE_WEB_TOKEN", help="The token; a random one unless given."
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Another name that browsers may use; may be given again."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Let the page change the store; otherwise it looks.")] = False,
) -> None:
    """Look at a store, and act on it, in the browser.

    Prints the address to open, which has a token. The store is opened read-only unless --write is given.
    """
    try:
        from ...web.serving import serve
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"threadline web needs the package {missing.name}: pip install 'threadline[web]'") from None

    def ready(address: str) -> None:
        may = "may change the store" if write else "read-only"
        print_facts([("open", address), ("store", f"{without_password(url)}, {may}"), ("end", "with Ctrl-C")])

    with open_store(url, read_only=not write) as store:
        serve(store.saver, url=url, host=host, port=port, token=token, write=write, names=names or [], ready=ready)
