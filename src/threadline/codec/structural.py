"""Stored values without their classes: as a `Structure` for people, or as plain data for programs.

`StructuralCodec` imports nothing and builds no class of a program. A stored object becomes a `Structure`: its type
name and its state. Values of the standard library are rebuilt. A structure packs to the very bytes it was read from,
so copying a value that holds one loses nothing; a structure read from LangGraph's own form does not pack.

`PlainCodec` serves `unknown_types="plain"`: an object whose type this process may not or cannot rebuild comes back as
a dict of its fields, a member of an enum as its value, an array as a dict of its dtype, shape, order and bytes, and a
number of numpy's as that number. A value is first read as usual, and again by a PlainCodec only where that meets such a
type. No code of a class runs, and each such type is warned of once.
"""

from __future__ import annotations

import json
import logging
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ..base.printable import printable, shown
from ..errors import Corrupt, MissingExtra, NotAllowed, NotSerializable, ThreadlineError
from .allowed import Registration, TypeRules, is_of_library
from .builtin import RARE_NAMES
from .builtin_rare import MASKS
from .codec import Codec
from .data_classes import Shape
from .langgraph_format import NUMPY, json_text, unpack_legacy
from .plans import BUILTIN_BUILDERS, name_header, rare_builder

__all__ = ["PlainCodec", "SCIENCE", "StructuralCodec", "Structure", "lenient", "plain_data", "unknown_in"]


# Names that stand for arrays, frames and times of numpy and pandas, and what their parts are called.
SCIENCE = {
    "nd": ("numpy:ndarray", ("dtype", "shape", "order", "data")),
    "np": ("numpy:generic", ("dtype", "data")),
    "npdtype": ("numpy:dtype", ()),
    "pandas.DataFrame": ("pandas:DataFrame", ("arrow",)),
    "pandas.Series": ("pandas:Series", ("arrow", "name")),
    "pandas.Timedelta": ("pandas:Timedelta", ("count", "unit")),
    "pandas.Timestamp": ("pandas:Timestamp", ("count", "unit", "zone", "fold")),
}
_PARTS = dict(SCIENCE.values())
# What LangGraph stores of a Timedelta, whose module depends on the version of pandas.
_TIMEDELTA = ("days", "seconds", "microseconds")
_MASK = "**********"
_MESSAGES = "langchain_core.messages."


class Structure:
    """An object of a class that is not here: its type's name and its fields, which are its attributes too."""

    __slots__ = ("state", "stored_name", "type_name")

    # Whether secrets are shown; the command line is asked for it.
    reveals_secrets = False

    def __init__(self, type_name: str, state: Any, stored_name: bytes | None = None) -> None:
        self.type_name = type_name
        self.state = state
        # The name in the stored bytes, with version and variant; None where it was stored in another form.
        self.stored_name = stored_name

    @property
    def shown(self) -> Any:
        """The state as it is shown: secrets are masked."""
        return self._mask() if self._is_masked() else self.state

    @property
    def fields(self) -> dict[str, Any] | None:
        """The fields by name; None for a state that has none."""
        state = self.state
        if self._is_masked():
            return None
        parts = self._parts() if isinstance(state, list) else None
        if parts is not None:
            return dict(zip(parts, state, strict=False)) or None
        if isinstance(state, list) and state and isinstance(state[0], dict) and self.stored_name is not None:
            # A model with extra and private fields, or an object some of whose fields were never set.
            more = [part for part in state[1:3] if isinstance(part, dict)]
            state = {key: value for part in (state[0], *more) for key, value in part.items()}
        return state if isinstance(state, dict) and all(isinstance(key, str) for key in state) else None

    def __getattr__(self, name: str) -> Any:
        fields = None if name.startswith("__") or name in Structure.__slots__ else self.fields
        if fields is None or name not in fields:
            raise AttributeError(name)
        return fields[name]

    def __repr__(self) -> str:
        name = self.type_name.rpartition(":")[2]
        fields, state = self.fields, self.shown
        if fields is not None:
            shown = {key: value for key, value in fields.items() if self._is_worth_showing(key, value)}
            return f"{name}({', '.join(f'{_word(key)}={_short(value)}' for key, value in shown.items())})"
        is_member = isinstance(state, list) and 0 < len(state) <= 2 and isinstance(state[0], str)
        if is_member and ":" in self.type_name and self.stored_name is not None:
            # As enums are stored: the member's name, and its value where that is plain.
            return f"<{name}.{_word(state[0])}{''.join(f': {_short(value)}' for value in state[1:])}>"
        return f"{name}({_short(state)})"

    def _parts(self) -> tuple[str, ...] | None:
        """What the parts of a state of numpy's or pandas' are called."""
        if self.stored_name is None and self.type_name.startswith("pandas"):
            return _TIMEDELTA if self.type_name.endswith(":Timedelta") else None
        return _PARTS.get(self.type_name)

    def _is_masked(self) -> bool:
        """Whether this is a secret, and secrets are not shown."""
        if Structure.reveals_secrets:
            return False
        module, _, name = self.type_name.rpartition(":")
        if self.stored_name is not None or not module:
            return self.type_name in MASKS
        # LangGraph stores a secret of any class by the name of the class alone.
        is_plain = isinstance(self.state, (str, bytes))
        return "Secret" in name and (is_plain or module.partition(".")[0] == "pydantic")

    def _mask(self) -> Any:
        return MASKS["SecretBytes"] if isinstance(self.state, bytes) else _MASK

    def _is_worth_showing(self, field: str, value: Any) -> bool:
        """Whether a field says anything; messages have a dozen that are mostly empty."""
        if not self.type_name.startswith(_MESSAGES):
            return True
        return field != "type" and value is not False and value not in (None, "", [], {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Structure):
            return NotImplemented
        return (self.type_name, self.stored_name, self.state) == (other.type_name, other.stored_name, other.state)

    def __hash__(self) -> int:
        return hash(self.type_name)  # states need not be hashable, and sets of objects are small


class StructuralCodec(Codec):
    """A codec that needs no class: what is not of the standard library is read as a `Structure`.

    `unknown` counts the objects that this process could not have rebuilt, by the names of their types.
    """

    _reads_natively = False  # what is read in two ways would be counted twice

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        self._here = TypeRules()
        super().__init__(_EveryName(self._note))

    def with_allowlist(self, extra: Any) -> Codec:
        return self

    def _forget(self) -> None:
        super()._forget()
        rare = {name.encode(): rare_builder(name) for name in RARE_NAMES}
        for name, build in {**BUILTIN_BUILDERS, **rare}.items():
            assert build is not None
            self._builders[name] = partial(_built, build, name)
        self._plans[Structure] = _packed

    def _builder_for(self, name: bytes) -> Callable[[Any], Any]:
        stored, shown = name.decode(), _shown(name)
        build = partial(Structure, shown, stored_name=name)
        if ":" in stored and not self._here.can_find(stored.partition("?")[0]):
            build = partial(self._counted, build, shown)
        self._builders[name] = build
        return build

    def _counted(self, build: Callable[[Any], Any], name: str, state: Any) -> Any:
        self.unknown[name] += 1
        return build(state)

    def _note(self, name: str) -> None:
        """Count an object in LangGraph's form that this process could not have rebuilt."""
        if not self._here.can_find(name):
            self.unknown[name] += 1

    def _build_langgraphs(self, code: int, data: bytes) -> Any:
        if code == NUMPY:
            return Structure("numpy:ndarray", unpack_legacy(data, self._unpack_langgraph))
        return super()._build_langgraphs(code, data)

    def _load_foreign(self, data: bytes) -> Any:
        """What another serializer wrote, where its form is known; its bytes where it is not."""
        try:
            return super()._load_foreign(data)
        except NotAllowed:
            end = data[0] + 1
            tag, content = data[1:end].decode(), data[end:]
            return json.loads(json_text(content)) if tag == "json" else Structure(tag, content)

    def _why_undecodable(self, data: bytes, error: Exception, *, is_langgraphs: bool = False) -> Exception:
        return error if isinstance(error, ThreadlineError) else Corrupt(f"undecodable bytes ({error})")


def lenient(codec: Codec) -> Codec:
    """A codec that rebuilds what this one does, and reads the rest as structures."""
    return codec if isinstance(codec, (StructuralCodec, _LenientCodec)) else _LenientCodec(codec)


class _LenientCodec(Codec):
    """What may be rebuilt is; what may not, or fails, is a `Structure`. What is encoded obeys the rules as ever."""

    def __init__(self, codec: Codec) -> None:
        self._structural = StructuralCodec()
        super().__init__(codec.rules, foreign=codec.foreign, pickle_fallback=codec.pickle_fallback)

    def _forget(self) -> None:
        super()._forget()
        self._plans[Structure] = _packed

    def _builder_for(self, name: bytes) -> Callable[[Any], Any]:
        try:
            build = super()._builder_for(name)
        except (NotAllowed, MissingExtra):
            # Not kept: the class may be imported a moment later.
            return partial(Structure, _shown(name), stored_name=name)
        self._builders.pop(name, None)
        return partial(_attempted, build, name)

    def _build_langgraphs(self, code: int, data: bytes) -> Any:
        try:
            return super()._build_langgraphs(code, data)
        except Exception:  # of a class that is not here, or of its code
            return self._structural._build_langgraphs(code, data)

    def _load_foreign(self, data: bytes) -> Any:
        try:
            return super()._load_foreign(data)
        except Exception:
            return self._structural._load_foreign(data)


class _EveryName(TypeRules):
    """Rules under which every name may be looked at, as what it is: a name. `note` hears of each object's."""

    rebuilds = False

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__("imported")
        self._note = note

    def find(self, name: str) -> Registration:
        base = name.partition("@")[0]
        self._note(base)
        return Registration(Structure, base, Shape(lambda value: value.state, partial(Structure, base)))


def _built(build: Callable[[Any], Any], name: bytes, state: Any) -> Any:
    """A value of the standard library; its structure where this system has no such value."""
    try:
        return build(state)
    except (NotAllowed, MissingExtra, LookupError):
        return Structure(name.decode(), state, name)


def _attempted(build: Callable[[Any], Any], name: bytes, state: Any) -> Any:
    """A value of a class that is here; its structure where the class does not take the state any more."""
    try:
        return build(state)
    except Exception:
        return Structure(_shown(name), state, name)


def _shown(name: bytes) -> str:
    """A stored name as people read it, without version and variant."""
    stored = name.decode()
    return SCIENCE[stored][0] if stored in SCIENCE else stored.partition("?")[0].partition("@")[0]


def _packed(value: Structure) -> tuple[bytes, Any]:
    if value.stored_name is None:
        raise NotSerializable(f"{value.type_name} was stored in another form and can only be looked at here")
    return name_header(value.stored_name.decode()), value.state


def _word(name: str) -> str:
    return name if name.isidentifier() else repr(name)


def _short(value: Any) -> str:
    """Bytes in an object are rarely read by people; everything else is."""
    if isinstance(value, (bytes, bytearray)) and len(value) > 32:
        return f"<{len(value):,} bytes>"
    return shown(value)


log = logging.getLogger("threadline")
_MOST_WARNINGS = 1_000
_warned: set[str] = set()
# Numbers of numpy that Python has too: the kind and size of the dtype, and how `struct` calls it.
_NUMBERS = {
    **{"b1": "?", "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q"},
    **{"u1": "B", "u2": "H", "u4": "I", "u8": "Q"},
}


class PlainCodec(Codec):
    """A codec that gives the state of what it cannot rebuild. `unknown` counts these by the names of their types."""

    def __init__(self, like: Codec, *, warns: bool = True) -> None:
        super().__init__(like.rules, foreign=like.foreign, pickle_fallback=like.pickle_fallback)
        self._warns = warns
        self.unknown: Counter[str] = Counter()

    def _builder_for(self, name: bytes) -> Callable[[Any], Any]:
        stored = name.decode()
        shown = stored.partition("?")[0].partition("@")[0]
        try:
            build = super()._builder_for(name)
        except (MissingExtra, NotAllowed) as why:
            reason = why
            return lambda state: self._unknown(shown, state, reason)

        def built(state: Any) -> Any:
            try:
                return build(state)
            except (MissingExtra, NotAllowed) as why:
                return self._unknown(shown, state, why)

        self._builders.pop(name, None)
        return built

    def _unknown(self, name: str, state: Any, why: ThreadlineError, *, is_plain: bool = False) -> Any:
        shown, parts = SCIENCE.get(name, (name, None))
        self.unknown[shown] += 1
        if self._warns and shown not in _warned and len(_warned) < _MOST_WARNINGS:
            _warned.add(shown)
            log.warning(
                "stored %s comes back as plain data: %s. unknown_types='refuse' raises instead",
                printable(shown),
                printable(why),
            )
        if parts is not None:
            return _science_data(parts, state)
        return plain_data(state) if ":" in name and not is_plain else state


def unknown_in(codec: Codec, data: bytes) -> Counter[str]:
    """The types in encoded bytes that cannot be rebuilt, and how many objects have each.

    Not those of libraries that everybody has who uses them: importing the application imports these.
    """
    reader = PlainCodec(codec, warns=False)  # they are counted, and nothing comes back
    with suppress(ThreadlineError):  # what else is wrong with them is somebody else's business
        reader.decode(data)
    return Counter({n: c for n, c in reader.unknown.items() if n not in _PARTS and ":" in n and not is_of_library(n)})


def plain_data(state: Any) -> Any:
    """The state of a data class as its user would have it without the class."""
    if type(state) is dict:
        return state["root"] if state.keys() == {"root"} else state  # the one field that a root model has
    if type(state) is not list or not state:
        return state
    if type(state[0]) is dict:
        # Fields, extra fields, and then what is private or only says which fields were set.
        more = state[1] if len(state) > 2 and type(state[1]) is dict else {}
        return {**state[0], **more}
    if type(state[0]) in (str, type(None)) and len(state) <= 2:
        return state[-1]  # a member of an enum: its value, or its name where that is all there is
    return state


def _science_data(parts: tuple[str, ...], state: Any) -> Any:
    """A number of numpy's as one of Python's; of everything else its parts, as they are stored."""
    if type(state) is not list or not parts:
        return state
    if parts == ("dtype", "data"):
        with suppress(AttributeError, KeyError, TypeError, struct.error):
            order, kind = state[0][:1], state[0][1:]
            return struct.unpack(("=" if order == "|" else order) + _NUMBERS[kind], state[1])[0]
    return dict(zip(parts, state, strict=False))
