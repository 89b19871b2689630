"""`threadline keys`: which keys a store is sealed under, and sealing all of it under the current one."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ...core.keys import KeyUse
from ...errors import InvalidRequest
from ..open import Store, given_keys, open_store
from ..output import AsJson, Url, counted, print_facts, print_json, print_rows, progress_bar

__all__ = ["keys"]


def keys(
    url: Url,
    action: Annotated[
        str | None,
        typer.Argument(metavar="ACTION", help="rotate seals everything under the current key.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the keys of an encrypted store, or rotate them.

    The current key is the first that was given. Keys themselves are never shown.
    """
    if action not in (None, "rotate"):
        raise InvalidRequest(f"keys takes no action {action!r}: there is rotate, and without one the keys are listed")
    with open_store(url, read_only=action is None) as store:
        known = store.saver.keys()
        if not known:
            raise InvalidRequest("this store is not encrypted: it has no keys")
        changed = _rotate(store, known) if action else None
        if changed is not None:
            known = store.saver.keys()
    known = _with_current(known)
    if as_json:
        told = {"keys": [dataclasses.asdict(one) for one in known]}
        print_json(told if changed is None else {**told, "rows_changed": changed})
        return
    print_rows([[one.id, counted(one.rows, "row"), _marks(one)] for one in known], ["bold"], numbers=[1])
    if changed is not None:
        print_facts([("rotated", f"{counted(changed, 'row')} sealed anew")])


def _with_current(known: list[KeyUse]) -> list[KeyUse]:
    """The keys, with one that was given as current and that the store has not met yet."""
    ring = given_keys()
    if ring is None or any(one.id == ring.current for one in known):
        return known
    others = [dataclasses.replace(one, is_current=False) for one in known]
    return [*others, KeyUse(id=ring.current, rows=0, is_current=True, is_needed=False)]


def _rotate(store: Store, known: list[KeyUse]) -> int:
    total = sum(one.rows for one in known if not one.is_current)
    with progress_bar("rotating") as progress:
        told = (lambda done: progress(done, max(total, done))) if progress is not None else None
        return store.saver.rotate_keys(told)


def _marks(one: KeyUse) -> str:
    if one.is_current:
        return "current"
    return "needed still" if one.is_needed else "not needed any more"
