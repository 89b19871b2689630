"""What stored bytes may become: the registry and the rules.

A stored type is rebuilt when it is
  1. built in (codec/builtin.py, codec/builtin_rare.py, codec/numpy_pandas.py),
  2. registered by this program (`register`, `register_module`),
  3. named by an allow-list (`with_allowlist`, `allowed_types=[…]`), or one of `WELL_KNOWN`, or
  4. under the default rules only: a data class of a module that this process has already imported, or one that no
     name leads to (made in a function, by `make_dataclass`) and that this process itself has stored before.
`allowed_types="strict"` keeps the first three. Looking a name up reads `sys.modules` and class dicts; it
never calls `getattr` (a module's `__getattr__` may import), never runs code of the class, and imports nothing but
what the program gave to `register_later`.

`WELL_KNOWN` lists types of LangChain and LangGraph by their stored names. Nothing here imports either library.
"""

from __future__ import annotations

import importlib
import os
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from ..errors import InvalidRequest, NotAllowed
from .builtin import RESERVED_NAMES
from .data_classes import Shape, shape_of

__all__ = [
    "AllowedTypes",
    "LANGCHAIN_MESSAGES",
    "Registration",
    "SECRETS",
    "TypeRules",
    "UnknownTypes",
    "WELL_KNOWN",
    "check_unknown",
    "class_name",
    "found_by",
    "is_of_library",
    "register",
    "register_later",
    "register_module",
]


C = TypeVar("C", bound=type)
AllowedTypes: TypeAlias = str | Iterable[type | tuple[str, ...]] | None
UnknownTypes: TypeAlias = Literal["plain", "refuse"]


@dataclass(frozen=True)
class Registration:
    """One class under the name its instances are stored by."""

    cls: type
    name: str
    shape: Shape
    version: int = 1
    upgrade: Callable[[Any, int], Any] | None = None

    @property
    def stored_name(self) -> str:
        return self.name if self.version == 1 else f"{self.name}@{self.version}"


class _Registry:
    """All registrations of the process; `generation` tells codecs that their look-ups are stale."""

    def __init__(self) -> None:
        self.by_class: dict[type, Registration] = {}
        self.by_name: dict[str, Registration] = {}
        self.waiting: dict[str, Callable[[], None]] = {}
        self.generation = 0

    def add(self, registration: Registration, aliases: Iterable[str]) -> None:
        own = class_name(registration.cls)
        names = (registration.name, own, *aliases)
        for name in names:
            held = self.by_name.get(name)
            if held is not None and name != own and class_name(held.cls) != own:
                raise InvalidRequest(f"the name {name!r} already belongs to {class_name(held.cls)}")
        self.by_class[registration.cls] = registration
        self.by_name.update(dict.fromkeys(names, registration))
        self.generation += 1

    def of_class(self, cls: type) -> Registration | None:
        """How instances of a class are stored, if it is registered."""
        self._bind(class_name(cls))
        return self.by_class.get(cls)

    def of_name(self, name: str) -> Registration | None:
        """What a stored name was registered for."""
        self._bind(name)
        return self.by_name.get(name)

    def _bind(self, name: str) -> None:
        """Register what waits for this name. Until that is done it waits on, since another thread may ask, too."""
        for key in (name, name.partition(":")[0]) if self.waiting else ():
            register_all = self.waiting.get(key)
            if register_all is not None:
                register_all()
                self.waiting.pop(key, None)


registry = _Registry()


def register(
    cls: C,
    *,
    name: str | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    version: int = 1,
    upgrade: Callable[[Any, int], Any] | None = None,
    aliases: Iterable[str] = (),
) -> C:
    """Let instances of `cls` be stored and rebuilt, under any rules; returns the class.

    `encode` gives a value made of storable parts, `decode` the instance back; data classes need neither.
    States stored under an older `version` go through `upgrade(state, stored_version)` when they are read.
    `aliases` are names (`old.module:Class`) under which moved or renamed classes were stored before.
    """
    if (encode is None) != (decode is None):
        raise InvalidRequest("register needs both encode= and decode=, or neither")
    shape = Shape(encode, decode) if encode and decode else shape_of(cls)
    if shape is None:
        raise InvalidRequest(f"{class_name(cls)} is not a data class: register it with encode= and decode=")
    if version < 1:
        raise InvalidRequest("a version is at least 1")
    if name is not None and (not 0 < len(name.encode()) <= 200 or {"@", "?"} & set(name) or name in RESERVED_NAMES):
        raise InvalidRequest(f"{name!r} cannot name a class: 1 to 200 bytes, no '@' or '?', no built-in type's name")
    registry.add(Registration(cls, name or class_name(cls), shape, version, upgrade), aliases)
    return cls


def register_later(names: Iterable[str], register_all: Callable[[], None]) -> None:
    """Call `register_all` when a type of one of these names is first asked for: a stored name, or its module's.

    For classes of modules that take long to import. `register_all` imports them, and may be called more than once.
    """
    registry.waiting.update(dict.fromkeys(names, register_all))


def register_module(name: str) -> list[type]:
    """Register every data class that the module defines; returns them."""
    module = importlib.import_module(name)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and shape_of(value)
    ]
    for cls in found:
        register(cls)
    return found


def class_name(cls: type) -> str:
    """The name a class is stored by unless it is registered under another."""
    return f"{cls.__module__}:{cls.__qualname__}"


def found_by(cls: type) -> str:
    """The name by which instances of a data class are stored, and by which this process finds the class again.

    Mostly the name it was given. Where that leads to nothing or to another class: the name that its module binds it to.
    A class that no name leads to is remembered.
    """
    name = class_name(cls)
    found = _looked_up(name)
    if found is cls:
        return name
    for bound, value in list(_attributes(sys.modules.get(cls.__module__)).items()):
        if value is cls:
            return f"{cls.__module__}:{bound}"
    # A data class of that name is this one as it is by now, as when a notebook's cell runs again.
    if not _is_data_class(found) and _nameless.get(name) is not cls:
        is_other = name in _nameless
        _nameless[name] = cls
        registry.generation += is_other
    return name


# The classes that no name leads to, for as long as somebody uses them.
_nameless: WeakValueDictionary[str, type] = WeakValueDictionary()


def _looked_up(name: str) -> Any:
    """What a name leads to in the modules that are imported; None if to nothing."""
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = _attributes(found).get(part)
    return found


def _is_data_class(found: Any) -> bool:
    return issubclass(type(found), type) and shape_of(found) is not None


def check_unknown(value: Any) -> UnknownTypes:
    """The value of `unknown_types=`."""
    if value not in ("plain", "refuse"):
        raise InvalidRequest(f"unknown_types is 'plain' or 'refuse', not {value!r}")
    return value  # type: ignore[no-any-return]


class TypeRules:
    """Which stored names may be rebuilt, and by which class."""

    # Whether a name stands for its class, and not for what can be told of an object without it.
    rebuilds = True

    def __init__(self, allowed: AllowedTypes = None) -> None:
        if allowed is None:
            allowed = "strict" if _strict_by_environment() else "imported"
        if isinstance(allowed, str) and allowed not in ("imported", "strict"):
            raise InvalidRequest(f"allowed_types is 'imported', 'strict' or a collection of types, not {allowed!r}")
        self.is_strict = allowed != "imported"
        self.named: frozenset[str] = frozenset()
        # Names that stand for other classes to this reader than to the rest of the process. Asked at every look-up:
        # their module may be imported later.
        self.preferred: Callable[[], Mapping[str, Registration]] = dict
        if not isinstance(allowed, str):
            entries = _checked(allowed)
            self.named = _names(entries) | _names(_parts_of(entries))

    def with_allowlist(self, extra: Collection[Any]) -> TypeRules:
        """These rules, and the types named."""
        widened, entries = TypeRules("strict" if self.is_strict else "imported"), _checked(extra)
        widened.named = self.named | _names(entries) | _names(_parts_of(entries))
        widened.preferred = self.preferred
        return widened

    def find(self, name: str) -> Registration:
        """The class a stored name stands for; NotAllowed says what would make it loadable."""
        base, _, version = name.partition("@")
        registration = self.preferred().get(base) or registry.of_name(base)
        if registration is None:
            registration = self._unregistered(base)
        if version and int(version) > registration.version:
            raise NotAllowed(f"{base} was stored as version {version}, this process knows {registration.version}")
        return registration

    def can_find(self, name: str) -> bool:
        """Whether a stored name could be rebuilt here, or wherever the library is imported that everybody knows."""
        if is_of_library(name):
            return True
        try:
            self.find(name)
        except NotAllowed:
            return False
        return True

    def trusts(self, name: str) -> bool:
        """Whether the program has named this type, or everybody knows it: code of its class may run when it is read."""
        return name in registry.by_name or name in self.named or name in WELL_KNOWN

    def _unregistered(self, name: str) -> Registration:
        if self.is_strict and name not in self.named and name not in WELL_KNOWN:
            raise NotAllowed(
                f"the stored type {name} is not allowed: threadline.register() it, or name it in allowed_types="
            )
        found = _looked_up(name)
        shape = shape_of(found) if issubclass(type(found), type) else None
        if shape is None:
            found = _nameless.get(name)
            shape = shape_of(found) if found is not None else None
        if shape is None:
            raise NotAllowed(_why_unknown(name))
        return Registration(found, name, shape)


def is_of_library(name: str) -> bool:
    """Whether a stored name is one of LangChain's, LangGraph's, pydantic's or pandas' that needs no rule."""
    module, _, own = name.partition(":")
    if module.partition(".")[0] == "pandas":
        return own in ("NaTType", "Timedelta", "Timestamp")
    return name in WELL_KNOWN or name.startswith("langgraph.") or name in SECRETS


def _why_unknown(name: str) -> str:
    module, _, qualname = name.partition(":")
    if "<locals>" in qualname:
        return (
            f"the stored type {name} was made inside a function, and this process has not stored one of it yet: "
            f"define the class at the top of its module, or register() it under this name (aliases=)"
        )
    if issubclass(type(_looked_up(name)), type):
        return f"the stored type {name} is no data class: register() it with encode= and decode="
    if module in sys.modules and qualname:
        return (
            f"the stored type {name} is not there: its module has no data class of this name. A class that the program "
            f"generates (make_dataclass, create_model, a generic model) is known once this process has stored one of "
            f"it; any other, register() with this name among its aliases="
        )
    return (
        f"the stored type {name} is unknown here: import its module before reading, "
        f"or register() the class under this name (aliases= for a moved class)"
    )


def _names(types: Iterable[Any]) -> frozenset[str]:
    """Stored names of classes and of LangGraph's (module, name) pairs."""
    return frozenset(
        class_name(entry) if isinstance(entry, type) else f"{entry[0]}:{'.'.join(entry[1:])}" for entry in types
    )


def _checked(types: Any) -> list[Any]:
    """A collection of classes and (module, name) pairs."""
    entries = list(types) if isinstance(types, Iterable) else [types]
    for entry in entries:
        is_pair = isinstance(entry, (tuple, list)) and len(entry) > 1 and all(isinstance(part, str) for part in entry)
        if not isinstance(entry, type) and not is_pair:
            raise InvalidRequest(f"allowed types are classes or pairs of module and name, not {entry!r}")
    return entries


def _attributes(holder: Any) -> Mapping[str, Any]:
    """What a module or a class holds, without asking it: either may answer with code of its own."""
    kind = type(holder)
    if issubclass(kind, ModuleType):
        held: Mapping[str, Any] = object.__getattribute__(holder, "__dict__")
        return held
    return type.__getattribute__(holder, "__dict__") if issubclass(kind, type) else {}


def _parts_of(types: Iterable[Any]) -> set[type]:
    """The data classes that fields of these types are declared to hold, however deep."""
    found: set[type] = set()
    waiting = [entry if isinstance(entry, type) else _imported(*entry[:2]) for entry in types]
    while waiting:
        cls = waiting.pop()
        if not isinstance(cls, type) or cls in found or shape_of(cls) is None:
            continue
        found.add(cls)
        try:
            declared = list(typing.get_type_hints(cls).values())
        except Exception:  # an annotation that cannot be resolved names nothing
            continue
        while declared:
            hint = declared.pop()
            declared.extend(typing.get_args(hint))
            waiting.append(hint)
    return found


def _imported(module: str, name: str) -> Any:
    return _attributes(sys.modules.get(module)).get(name)


def _strict_by_environment() -> bool:
    return os.environ.get("LANGGRAPH_STRICT_MSGPACK", "").lower() in ("1", "true", "yes")


_MESSAGES = {
    "base": "BaseMessage BaseMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "ai": "AIMessage AIMessageChunk",
    "system": "SystemMessage SystemMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "modifier": "RemoveMessage",
}

# Class name -> stored name, for the formats that name a message by its class alone.
LANGCHAIN_MESSAGES = {
    name: f"langchain_core.messages.{module}:{name}" for module, names in _MESSAGES.items() for name in names.split()
}

# Pydantic's secrets, as LangGraph names them; codec/builtin_rare.py rebuilds them.
SECRETS = frozenset({"pydantic.types:SecretBytes", "pydantic.types:SecretStr"})

WELL_KNOWN = frozenset(LANGCHAIN_MESSAGES.values()) | frozenset(
    {
        "langchain_core.documents.base:Document",
        "langgraph.checkpoint.serde.types:_DeltaSnapshot",
        "langgraph.store.base:GetOp",
        "langgraph.types:Command",
        "langgraph.types:Interrupt",
        "langgraph.types:Overwrite",
        "langgraph.types:PregelTask",
        "langgraph.types:StateSnapshot",
        "langgraph.types:TimeoutPolicy",
    }
)
