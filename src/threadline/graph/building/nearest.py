"""Suggests the nearest known name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str], kind: str = "") -> str:
    """The end of a message about an unknown name: the nearest one that is known, or all of a kind."""
    import difflib  # only errors need it

    shown = [one for one in known if not one.startswith("__")]
    found = difflib.get_close_matches(name, shown, n=1)
    if found:
        return f"; did you mean {found[0]!r}?"
    return f"; the {kind} are {', '.join(shown)}" if kind and shown else ""
