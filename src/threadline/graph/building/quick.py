"""Functions that can be seen not to block: they run on the event loop, where others get a thread.

A thread costs more than a whole step, and most conditions are one comparison. A function is quick when it takes nothing
but the state and every name that it uses is a harmless builtin, a method of plain values, a constant or a class of this
room. What cannot be seen through, such as an attribute that might be a method, makes it not quick: then nothing is lost
but time.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..constants import MISSING
from ..types import Command, Send

__all__ = ["is_quick"]

_BUILTINS = frozenset(
    (
        "abs",
        "all",
        "any",
        "bool",
        "dict",
        "enumerate",
        "float",
        "frozenset",
        "int",
        "isinstance",
        "len",
        "list",
        "max",
        "min",
        "range",
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "zip",
    )
)
_METHODS = frozenset(
    (
        "append",
        "count",
        "endswith",
        "extend",
        "get",
        "index",
        "items",
        "keys",
        "lower",
        "startswith",
        "strip",
        "upper",
        "values",
    )
)
_PLAIN = (str, bytes, int, float, type(None))


def is_quick(function: Any) -> bool:
    """Whether a function only computes with what it is given."""
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    if code.co_argcount != 1 or code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return False
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell that is still empty
        return False
    names = set(_names(code))
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    modules = [value for value in (*found.values(), *cells) if isinstance(value, ModuleType)]
    return all(map(_is_harmless, cells)) and all(_is_known(name, found, modules) for name in names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_known(name: str, found: dict[str, Any], modules: list[ModuleType]) -> bool:
    if name in found:
        return _is_harmless(found[name])
    if name in _METHODS or (name in _BUILTINS and hasattr(builtins, name)):
        return True
    held = [_member(module, name) for module in modules]
    found_here = [value for value in held if value is not MISSING]
    return bool(found_here) and all(map(_is_harmless, found_here))


def _member(module: ModuleType, name: str) -> Any:
    """What a module holds; only this room is asked for names that it loads when they are used."""
    if module.__name__ == __package__:
        return getattr(module, name, MISSING)
    return vars(module).get(name, MISSING)


def _is_harmless(value: Any) -> bool:
    """Constants, and the classes that branches make values of; modules are looked into by name."""
    if type(value) in (tuple, frozenset):
        return all(_is_harmless(one) for one in value)
    return type(value) in (*_PLAIN, bool, ModuleType) or value in (Send, Command)
