"""Python values to bytes and back: msgpack, with one extension type for everything msgpack lacks.

The extension `OBJECT` holds a name and a packed state: `[length][name][state]`. Short names are built in,
`module:Class` are data classes, others were registered; `@2` is the version of a registration and `?5` the
set of fields that a pydantic model was given, as a bit mask in hexadecimal. Encoding has two ways to the same bytes:

  fast   one call of ormsgpack, which asks back only for values it does not know;
  slow   a walk in Python, taken when the fast way meets what msgpack cannot say natively (integers beyond
         64 bits, lone surrogates, keys that are not text, bytearrays). It knows the path of every value,
         so that an error names the place.

Equal bytes mean equal values of equal types, which is how unchanged items are recognised. Decoding obeys
codec/rules.py; codes 0 to 7 are LangGraph's and are read by codec/legacy.py.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import ormsgpack

from ..errors import Corrupt, NotAllowed, NotSerializable, ThreadlineError
from .alike import Alike
from .builtin import reduce_exception
from .framing import EXT_HEADERS, array_header, ext_frame
from .groups import put_together, take_apart
from .plans import (
    BUILTIN_BUILDERS,
    BUILTIN_PLANS,
    Plan,
    each_once,
    make_plan,
    name_header,
    pickled,
    rare_builder,
    rare_plan,
    reduction,
    unpickled,
    upgraded,
)
from .rules import TypeRules, class_name, registry
from .scan import hides_mutable_bytes, may_hold_bytes
from .shapes import shape_of

__all__ = ["Codec", "FOREIGN", "ForeignSerializer", "GROUP", "OBJECT", "OPTIONS"]

OBJECT = 32
FOREIGN = 33
TEXT = 34  # text that UTF-8 cannot hold, because it has lone surrogates

packb, unpackb, Ext = ormsgpack.packb, ormsgpack.unpackb, ormsgpack.Ext
OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_SCALARS = frozenset((str, int, float, bool, type(None)))
_LARGE = 16_384
_MOMENT_HEADER = b"\x02dt"
GROUP = b"*"
_GROUP_HEADER = b"\x01*"
_SURROGATE = re.compile("[\ud800-\udfff]")
_MESSAGE_OF_DEPTH = "nested deeper than 250 levels, or it contains itself"


class ForeignSerializer(Protocol):
    """A serializer of LangGraph's protocol, given as `serde=`."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Codec:
    """Values to bytes and back, under one set of rules."""

    def __init__(
        self,
        rules: TypeRules | None = None,
        *,
        foreign: ForeignSerializer | None = None,
        pickle_fallback: bool = False,
    ) -> None:
        self.rules = rules or TypeRules()
        self.foreign = foreign
        self.pickle_fallback = pickle_fallback
        self._hook = self._unpack_extension  # bound once, not once per object
        self._forget()

    def with_allowlist(self, extra: Any) -> Codec:
        """This codec with more types allowed."""
        widened = self.rules.with_allowlist(extra)
        return Codec(widened, foreign=self.foreign, pickle_fallback=self.pickle_fallback)

    def encode(self, value: Any, path: str = "") -> bytes:
        """The bytes of a value; NotSerializable names the path of the part that has none."""
        if self.foreign is not None:
            try:
                tag, data = self.foreign.dumps_typed(value)
            except Exception as error:
                raise NotSerializable(f"the serializer given as serde= refused it ({error})", path=path) from error
            return packb(Ext(FOREIGN, name_header(tag) + data))
        return self.encode_natively(value, path)

    def encode_natively(self, value: Any, path: str = "") -> bytes:
        """The bytes of a value in Threadline's own encoding, whatever serializer was given."""
        self.refresh()
        try:
            packed = packb(value, self._pack_object, OPTIONS)
        except (TypeError, ValueError, RecursionError):
            return self._encode_slowly(value, path)
        return self._encode_slowly(value, path) if hides_mutable_bytes(value, packed) else packed

    def encode_alone(self, value: Any) -> bytes:
        """The bytes of a value that is not part of a store: a list of nothing but objects is packed as a group."""
        if type(value) is list and len(value) > 1:
            self.refresh()
            group = take_apart(value, self.alike, lambda each: self._plans.get(type(each)) or self._plan_for(each))
            if group is not None:
                with suppress(TypeError, ValueError, RecursionError):  # then one by one, which may say what is wrong
                    packed = packb(group, self._pack_object, OPTIONS)
                    if not hides_mutable_bytes(group[2], packed):
                        return ext_frame(OBJECT, _GROUP_HEADER, packed)
        return self.encode_natively(value)

    def encode_items(self, values: list[Any]) -> list[bytes] | None:
        """The bytes of each of these values, in less time than one by one; None where each needs a look of its own."""
        if self.foreign is not None:
            return None
        self.refresh()
        kinds, alike = list(map(type, values)), self.alike
        try:
            if _SCALARS.issuperset(kinds):
                return [packb(value, None, OPTIONS) for value in values]
            states = alike.states(values, kinds)
            if states is None or not alike.are_whole(states, kinds):
                return None
            packed = [packb(state, self._pack_object, OPTIONS) for state in states]
        except (TypeError, ValueError, RecursionError):
            return None
        headers = alike.headers
        items = [packb(Ext(OBJECT, headers[kind] + state)) for kind, state in zip(kinds, packed, strict=True)]
        if may_hold_bytes(b"".join(packed)):
            for place, state in enumerate(packed):
                if may_hold_bytes(state):
                    items[place] = self.encode_natively(values[place])
        return items

    def decode(self, data: bytes, option: int | None = None) -> Any:
        """The value of some bytes; NotAllowed or Corrupt when it cannot or may not be rebuilt."""
        self.refresh()
        try:
            return unpackb(data, ext_hook=self._unpack_extension, option=option)
        except ValueError as error:
            raise self._why_undecodable(data, error) from None

    def unpacked(self, data: bytes) -> Any:
        """Encoded bytes as lists, dicts and plain values, with extensions as they are: it encodes to these bytes."""
        return unpackb(data, ext_hook=Ext)

    def decode_items(self, items: list[bytes]) -> list[Any]:
        """The values of items that were encoded one by one; objects are unpacked together, which is faster."""
        self.refresh()
        builders, names, states, sizes = self._builders, [], [array_header(len(items))], EXT_HEADERS
        try:
            for item in items:
                start = sizes[item[0]]
                if item[start - 1] != OBJECT:
                    raise KeyError
                end = start + 1 + item[start]
                names.append(item[start + 1 : end])
                states.append(item[end:])
            for name in set(names) - builders.keys():
                self._builder_for(name)
            unpacked = unpackb(b"".join(states), ext_hook=self._hook)
            return [builders[name](state) for name, state in zip(names, unpacked, strict=True)]
        except Exception:  # not objects, or something is wrong, which the slower way will name
            return self.decode(array_header(len(items)) + b"".join(items))  # type: ignore[no-any-return]

    def refresh(self) -> None:
        """Notice registrations made since."""
        if self._generation != registry.generation:
            self._forget()

    def _forget(self) -> None:
        """Start over with what a type means, because registrations have changed."""
        self._generation = registry.generation
        self._builders: dict[bytes, Callable[[Any], Any]] = dict(BUILTIN_BUILDERS)
        self._plans: dict[type, Plan] = dict(BUILTIN_PLANS)
        self._plans[set] = make_plan("s", self._sorted_members)
        self._plans[frozenset] = make_plan("fs", self._sorted_members)
        self.alike = Alike(self.rules)
        # Types that are packed in one go, without a state in between.
        self._direct: dict[type, Callable[[Any], Any]] = {dt.datetime: self._pack_moment}
        self._builders[GROUP] = self._build_group

    # -- encoding

    def _pack_object(self, value: Any) -> Any:
        direct = self._direct.get(type(value))
        if direct is not None:
            return direct(value)
        plan = self._plans.get(type(value)) or self._plan_for(value)
        return self._packed(*plan(value))

    def _packed(self, header: bytes | None, state: Any) -> Any:
        if header is None:
            if hides_mutable_bytes(state, b"\xc4"):
                raise TypeError("only the slow way tells bytearrays from bytes")
            return state
        packed = packb(state, self._pack_object, OPTIONS)
        if (0xC4 in packed or 0xC5 in packed or 0xC6 in packed) and hides_mutable_bytes(state, packed):
            raise TypeError("only the slow way tells bytearrays from bytes")
        return Ext(OBJECT, header + packed)

    def _pack_moment(self, moment: dt.datetime) -> Any:
        if moment.fold or not (moment.tzinfo is None or moment.tzinfo is dt.timezone.utc):
            return self._packed(*self._plans[dt.datetime](moment))
        return Ext(OBJECT, _MOMENT_HEADER + packb(moment))  # as `isoformat` has it, in a fifth of the time

    def _encode_slowly(self, value: Any, path: str) -> bytes:
        try:
            return packb(self._lower(value, path), option=OPTIONS)
        except NotSerializable:
            raise
        except (TypeError, RecursionError) as error:
            if isinstance(error, TypeError) and "ecursion" not in str(error):
                raise NotSerializable(str(error), path=path) from None
            raise NotSerializable(_MESSAGE_OF_DEPTH, path=path) from None

    def _lower(self, value: Any, path: str) -> Any:
        """The value made of nothing but what ormsgpack packs exactly."""
        kind = type(value)
        if kind is str:
            return value if _is_utf8(value) else Ext(TEXT, value.encode("utf-8", "surrogatepass"))
        if kind is int:
            return value if -(2**63) <= value < 2**64 else Ext(OBJECT, name_header("i") + packb(hex(value)))
        if kind in (float, bool, bytes, type(None), Ext):
            return value
        if kind is list:
            return [self._lower(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if kind is dict:
            return self._lower_dict(value, path)
        try:
            header, state = (self._plans.get(kind) or self._plan_for(value))(value)
            lowered = self._lower(state, path if kind is tuple else f"{path}<{kind.__name__}>")
        except NotSerializable as error:
            raise error if error.path else NotSerializable(str(error), path=path) from None
        except RecursionError:
            raise
        except Exception as error:  # code of the value's own class, or of its registration
            raise NotSerializable(f"it could not be taken apart ({error})", path=path) from error
        return lowered if header is None else Ext(OBJECT, header + packb(lowered, option=OPTIONS))

    def _lower_dict(self, value: dict[Any, Any], path: str) -> Any:
        if all(type(key) is str and _is_utf8(key) for key in value):
            return {key: self._lower(item, f"{path}[{key!r}]") for key, item in value.items()}
        pairs = [
            [self._lower(key, f"{path} key {key!r}"), self._lower(item, f"{path}[{key!r}]")]
            for key, item in value.items()
        ]
        return Ext(OBJECT, name_header("m") + packb(pairs, option=OPTIONS))

    def _sorted_members(self, members: Any) -> list[Any]:
        """Members in the order of their bytes: iteration order differs between processes."""
        # As extensions already packed, so that sets within sets are not encoded again at every level.
        return [unpackb(packed, ext_hook=Ext) for packed in sorted(map(self.encode_natively, members))]

    def _plan_for(self, value: Any) -> Plan:
        """Decide once how instances of this type are packed."""
        cls = type(value)
        plan = self._plan_of_class(cls)
        if plan is None and self.pickle_fallback:
            plan = make_plan("pickle", pickled)
        if plan is None:
            raise NotSerializable(
                f"{class_name(cls)} cannot be stored: make it a dataclass or a pydantic model, "
                f"or threadline.register() it with encode= and decode="
            )
        self._plans[cls] = plan
        if issubclass(cls, enum.Enum) and cls not in registry.by_class:
            self._direct[cls] = each_once(lambda member: self._packed(*plan(member)))
        return plan

    def _plan_of_class(self, cls: type) -> Plan | None:
        plan = rare_plan(cls)
        if plan is not None:
            return plan
        registration = registry.by_class.get(cls)
        if registration is not None:
            return make_plan(registration.stored_name, registration.shape.state, registration.shape.variant)
        if issubclass(cls, BaseException):
            return make_plan("exc", reduce_exception)
        shape = shape_of(cls)
        if shape is not None:
            name = class_name(cls)
            try:
                self.rules.find(name)
            except NotAllowed as error:
                raise NotSerializable(f"it could not be loaded again: {error}") from None
            # It may have taken the place of a class that was read before, as when a notebook's cell runs again.
            self._builders = {k: b for k, b in [*self._builders.items()] if k.partition(b"?")[0] != name.encode()}
            return make_plan(name, shape.state, shape.variant)
        from .science import science_plan

        found = science_plan(cls)
        return make_plan(found.name, found.state) if found else reduction(cls)

    # -- decoding

    def _unpack_extension(self, code: int, data: bytes) -> Any:
        if code == OBJECT:
            end = data[0] + 1
            name = data[1:end]
            build = self._builders.get(name) or self._builder_for(name)
            # A large one is not copied for its last part.
            state = data[end:] if len(data) < _LARGE else memoryview(data)[end:]
            return build(unpackb(state, ext_hook=self._hook))
        if code == TEXT:
            return data.decode("utf-8", "surrogatepass")
        from .legacy import build_legacy

        return self._load_foreign(data) if code == FOREIGN else build_legacy(code, data, self)

    def _build_group(self, parts: Any) -> list[Any]:
        return put_together(parts, lambda name: self._builders.get(name) or self._builder_for(name))

    def _builder_for(self, name: bytes) -> Callable[[Any], Any]:
        text = name.decode()
        from .science import science_builder

        build = rare_builder(text) or science_builder(text)
        if build is None and text == "pickle" and self.pickle_fallback:
            build = unpickled
        if build is None:
            text, _, variant = text.partition("?")
            registration = self.rules.find(text)
            build = registration.shape.build
            stored = int(text.partition("@")[2] or 1)
            if stored < registration.version and registration.upgrade is not None:
                # Without the variant, which speaks of the class as it was.
                build = upgraded(build, registration.upgrade, stored)
            elif variant and registration.shape.build_variant is not None:
                build = registration.shape.build_variant(variant)
        self._builders[name] = build
        return build

    def _load_foreign(self, data: bytes) -> Any:
        end = data[0] + 1
        typed = (data[1:end].decode(), data[end:])
        if self.foreign is not None:
            return self.foreign.loads_typed(typed)
        from .serializer import load_typed

        return load_typed(typed, self)

    def _why_undecodable(self, data: bytes, error: Exception) -> Exception:
        """The real failure: ormsgpack hides what its hook raised, so decode again and listen."""
        listening = object.__new__(_Listening)
        listening.__dict__.update(self.__dict__, failures=[])
        listening._hook = listening._unpack_extension
        with suppress(ValueError):
            unpackb(data, ext_hook=listening._unpack_extension, option=ormsgpack.OPT_NON_STR_KEYS)
        found = listening.failures[0] if listening.failures else error
        return found if isinstance(found, ThreadlineError) else Corrupt(f"undecodable bytes ({found})")


class _Listening(Codec):
    """A codec that notes why its hook failed, the innermost failure first."""

    failures: list[Exception]

    def _unpack_extension(self, code: int, data: bytes) -> Any:
        try:
            return super()._unpack_extension(code, data)
        except Exception as failure:
            self.failures.append(failure)
            raise


def _is_utf8(text: str) -> bool:
    return text.isascii() or not _SURROGATE.search(text)
