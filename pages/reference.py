"""The reference of the public names, as Markdown, from their docstrings and signatures.

A page for each room; a class with many methods has one of its own. A method and its async twin are one entry, since
they differ in nothing but the `a` of the name. What a class inherits from a class that has an entry is there, not here.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import typing_extensions

__all__ = ["MissingRoom", "ROOMS", "reference"]

# Each public module, and the page of its names below `api/`.
ROOMS = {
    "threadline": "threadline.md",
    "threadline.langgraph": "langgraph.md",
    "threadline.graph": "graph.md",
    "threadline.graph.approval": "approval.md",
    "threadline.ops": "ops.md",
    "threadline.web": "web.md",
    "threadline.testing": "testing.md",
}
# Classes of `threadline` that have a page of their own.
FACES = {"Saver": "saver.md", "Thread": "thread.md", "Store": "store.md", "Cache": "cache.md"}
WIDTH = 100
Names = dict[int, str]


class MissingRoom(ValueError):
    """The page of public names leaves out a module."""


def reference(staged: Path) -> dict[str, str]:
    """The pages by their place; `staged` is the folder that has `api.md`, whose table of rooms gets links."""
    pages: dict[str, str] = {}
    known = _entries()
    overview = (staged / "api.md").read_text(encoding="utf-8")
    for room, place in ROOMS.items():
        if f"| `{room}` |" not in overview:
            raise MissingRoom(f"docs/api.md has no row for {room}")
        overview = overview.replace(f"| `{room}` |", f"| [`{room}`](api/{place}) |")
        module = importlib.import_module(room)
        pages[f"api/{place}"] = _room_page(room, module, known)
        for name, own in FACES.items() if room == "threadline" else ():
            pages[f"api/{own}"] = "\n\n".join(_entry(name, getattr(module, name), known, level=1)) + "\n"
    return pages | {"api.md": overview}


def _entries() -> Names:
    """Where each public class is described, by its id."""
    known: Names = {}
    for room, place in ROOMS.items():
        module = importlib.import_module(room)
        for name in module.__all__:
            own = FACES.get(name) if room == "threadline" else None
            known.setdefault(id(getattr(module, name)), own or f"{place}#{name}")
    return known


def _room_page(room: str, module: ModuleType, known: Names) -> str:
    names = [(name, getattr(module, name)) for name in module.__all__]
    own = [(name, value) for name, value in names if not (room == "threadline" and name in FACES)]
    blocks = [f"# {room}", inspect.getdoc(module) or "", "| name | |\n|---|---|"]
    for name, value in names:
        place = FACES[name] if (name, value) not in own else f"#{name}"
        blocks[-1] += f"\n| [`{name}`]({place}) | {_first_sentence(value)} |"
    for name, value in own:
        blocks += _entry(name, value, known, level=2)
    return "\n\n".join(blocks) + "\n"


def _first_sentence(value: Any) -> str:
    text = _doc(value).partition("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[.;:])\s", text)[0].rstrip(";:").replace("|", "\\|")


def _doc(value: Any) -> str:
    """What a name says of itself; constants and aliases say nothing."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, property)):
        return ""
    text = inspect.getdoc(value) or ""
    # A dataclass without words gets its signature for a docstring, which is shown already.
    return "" if text.startswith(f"{getattr(value, '__name__', '')}(") else text


def _entry(name: str, value: Any, known: Names, level: int) -> list[str]:
    # An anchor as the name is written: `Interrupt` and `interrupt` are two.
    heading = f"# {name}" if level == 1 else f"{'#' * level} {name} {{ #{name} }}"
    if inspect.isclass(value):
        return [heading, *_class_body(name, value, known, level)]
    if inspect.isroutine(value):
        return [heading, _code(_call(f"def {name}", value)), _doc(value)]
    return [heading, _code(f"{name} = {_shown(value)}")]


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and all(inspect.isfunction(one) for one in value):
        return f"(…)  # {len(value)} functions"
    text = repr(value).replace("typing.", "").replace("typing_extensions.", "")
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)


def _class_body(name: str, value: type, known: Names, level: int) -> Iterator[str]:
    yield _code(f"class {name}" if _fields(value) or _is_handed_out(value) else _call(f"class {name}", value))
    yield _doc(value)
    above = next((base for base in value.__mro__[1:] if id(base) in known), None)
    if above:
        yield f"A [`{above.__name__}`]({known[id(above)]}), with all that it has."
    if fields := _fields(value):
        yield "\n".join(["| field | type | default |", "|---|---|---|", *fields])
    members = dict(_members(value, known))
    for member, found in members.items():
        is_twin = member[:1] == "a" and member[1:] in members and not _doc(found)
        if not is_twin:
            yield from _member(member, found, f"a{member}" in members, level + 1)


def _fields(value: type) -> list[str]:
    """Rows of what an object of a plain class holds."""
    if dataclasses.is_dataclass(value):
        return [_field(one.name, one.type, _default(one)) for one in dataclasses.fields(value) if one.name[0] != "_"]
    if issubclass(value, enum.Enum):
        return [_field(one.name, "", repr(one.value)) for one in value]
    if typing_extensions.is_typeddict(value) or hasattr(value, "_fields"):
        defaults = getattr(value, "_field_defaults", {})
        hints = getattr(value, "__annotations__", {})
        return [
            _field(key, kind, _default_text(defaults[key]) if key in defaults else "") for key, kind in hints.items()
        ]
    return []


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _default_text(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return f"{_default_text(field.default_factory)}()"
    return ""


def _field(name: str, kind: Any, default: str) -> str:
    cells = [name, _annotation(kind), default]
    return "| " + " | ".join(f"`{cell}`".replace("|", "\\|") if cell else "" for cell in cells) + " |"


def _members(value: type, known: Names) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that this entry describes, in the order they are written in."""
    elsewhere = {one for base in value.__mro__[1:] if id(base) in known for one in base.__mro__}
    described = {name for base in elsewhere for name in vars(base)}
    seen: set[str] = set()
    for base in value.__mro__:
        if base in elsewhere or not base.__module__.startswith("threadline"):
            continue
        for name, found in vars(base).items():
            # What overrides a described method and says nothing new needs no entry.
            if name.startswith("_") or name in seen or (name in described and not _doc(_function(found))):
                continue
            seen.add(name)
            if isinstance(found, (FunctionType, property, classmethod, staticmethod)):
                yield name, found


def _function(found: Any) -> Any:
    return found.__func__ if isinstance(found, (classmethod, staticmethod)) else found


def _is_handed_out(value: type) -> bool:
    """Whether a program gets objects of this class from others, and never makes one: it would need an engine."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # errors take what their builtin base takes
        return False
    return any(_annotation(one.annotation) == "Engine" for one in parameters)


def _member(name: str, found: Any, has_twin: bool, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    if isinstance(found, property):
        kind = _annotation(inspect.signature(found.fget).return_annotation) if found.fget else ""
        yield _code(f"{name}: {kind}" if kind else name)
        yield _doc(found)
        return
    function = _function(found)
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    mark = {classmethod: "@classmethod\n", staticmethod: "@staticmethod\n"}.get(type(found), "")
    yield _code(mark + _call(f"{kind} {name}", function, skips_first=not isinstance(found, staticmethod)))
    yield _doc(function)
    if has_twin:
        yield f"Async: `a{name}`."


def _call(head: str, value: Any, skips_first: bool = False) -> str:
    """A signature, on one line where it fits."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return head
    parts = list(_parameters(list(signature.parameters.values())[1 if skips_first else 0 :]))
    returns = _annotation(signature.return_annotation)
    tail = f" -> {returns}" if returns not in ("", "None") else ""
    line = f"{head}({', '.join(parts)}){tail}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{head}(", *(f"    {part}," for part in parts), f"){tail}"])


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Parameters as they are written, with the bare star where keywords begin."""
    is_starred = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not is_starred:
            yield "*"
        is_starred = is_starred or one.kind in (one.VAR_POSITIONAL, one.KEYWORD_ONLY)
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = _annotation(one.annotation)
        text = f"{stars}{one.name}: {kind}" if kind else f"{stars}{one.name}"
        if one.default is not one.empty:
            text += f" = {_default_text(one.default)}" if kind else f"={_default_text(one.default)}"
        yield text


def _annotation(kind: Any) -> str:
    if kind is inspect.Parameter.empty or kind is None:
        return ""
    if isinstance(kind, typing.ForwardRef):
        kind = kind.__forward_arg__
    if isinstance(kind, str):
        return kind.strip("'\"")
    return kind.__qualname__ if inspect.isclass(kind) and not typing.get_args(kind) else _shown(kind)


def _default_text(value: Any) -> str:
    """A default as a reader would write it: no address of an object."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__name__
    return "…" if type(value).__repr__ is object.__repr__ or " at 0x" in repr(value) else repr(value)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
