"""What stored states must be before anything is built from them: of exactly the kinds that were written.

A state may be any value that bytes can become: an instance of a class of the program, too, whose methods would run
if it were taken for a list or a text. So each builder asks for the exact type, and for no more than it wrote.
"""

from __future__ import annotations

from typing import Any

from ..errors import Corrupt

__all__ = ["a_dict", "a_list", "a_number", "a_text", "bytes_of", "of_length", "text_dict"]


def a_list(state: Any) -> list[Any]:
    """The state, which must be a list."""
    if type(state) is not list:
        raise _wrong("a list", state)
    return state


def of_length(state: Any, *lengths: int) -> list[Any]:
    """The state, which must be a list of one of these lengths."""
    if type(state) is not list or len(state) not in lengths:
        raise _wrong(f"a list of {' or '.join(map(str, lengths))}", state)
    return state


def a_dict(state: Any) -> dict[Any, Any]:
    """The state, which must be a dict."""
    if type(state) is not dict:
        raise _wrong("a dict", state)
    return state


def text_dict(state: Any) -> dict[str, Any]:
    """The state, which must be a dict whose keys are text."""
    if type(state) is not dict or not {str}.issuperset(map(type, state)):
        raise _wrong("a dict with texts for keys", state)
    return state


def a_text(state: Any, longest: int | None = None) -> str:
    """The state, which must be text of at most so many characters."""
    if type(state) is not str or (longest is not None and len(state) > longest):
        raise _wrong("a text" if longest is None else f"a text of at most {longest:,} characters", state)
    return state


def bytes_of(state: Any) -> bytes:
    """The state, which must be bytes."""
    if type(state) is not bytes:
        raise _wrong("bytes", state)
    return state


def a_number(state: Any, kind: type = int) -> Any:
    """The state, which must be an integer, or a number of this kind."""
    if type(state) is not kind:
        raise _wrong(f"a number ({kind.__name__})", state)
    return state


def _wrong(wanted: str, state: Any) -> Corrupt:
    # Of the state no more than its type: what it holds is nobody's business, and its repr may be code of a class.
    return Corrupt(
        f"a stored object has a state that is not {wanted}, but {type.__getattribute__(type(state), '__name__')}"
    )
