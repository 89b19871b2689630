"""Python values to bytes and back: msgpack, with one extension type for everything msgpack lacks.

The extension `OBJECT` holds a name and a packed state: `[length][name][state]`. Short names are built in,
`module:Class` are data classes, others were registered; `@2` is the version of a registration and `?5` the
set of fields that a pydantic model was given, as a bit mask in hexadecimal. Encoding has two ways to the same bytes:

  fast   one call of ormsgpack, which asks back only for values it does not know;
  slow   a walk in Python (codec/packing.py), taken when the fast way meets what msgpack cannot say natively
         (integers beyond 64 bits, lone surrogates, keys that are not text, bytearrays).

Equal bytes mean equal values of equal types, which is how unchanged items are recognised. Decoding obeys
codec/allowed.py, and is bounded in depth by codec/limits.py. Codes 0 to 7 are LangGraph's: codec/langgraph_format.py
reads them inside of `FOREIGN` and `KEPT`, and where bytes are said to be LangGraph's; elsewhere they are Corrupt.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import ormsgpack
from ormsgpack import OPT_NON_STR_KEYS

from ..base.native import native
from ..errors import Corrupt, MissingExtra, NotAllowed, NotSerializable, ThreadlineError
from .allowed import TypeRules, UnknownTypes, class_name, found_by, registry
from .builtin import reduce_exception
from .data_classes import Together, shape_of
from .framing import EXT_HEADERS, array_header, ext_frame
from .limits import (
    DEEPEST,
    FEW_BYTES,
    SHALLOW,
    check_extension,
    check_room,
    check_stack_and_room,
    is_ample,
    is_deeper,
    stack,
)
from .packing import (
    OBJECT,
    OPTIONS,
    TEXT,
    TOO_DEEP,
    encode_slowly,
    framed,
    hides_mutable_bytes,
    may_hold_bytes,
    put_together,
    quick_hook,
    take_apart,
)
from .plans import (
    BUILTIN_BUILDERS,
    BUILTIN_PLANS,
    Plan,
    leaving_out,
    make_plan,
    name_header,
    pickled,
    rare_builder,
    rare_plan,
    reduction,
    unpickled,
    upgraded,
)
from .uniform import Alike, built

__all__ = ["Codec", "FOREIGN", "ForeignSerializer", "GROUP", "KEPT", "OBJECT", "OPTIONS"]

FOREIGN = 33
KEPT = 35  # what LangGraph packed, kept by an import: the code of its extension type and its bytes

_OF_LANGGRAPH = range(8)
packb, unpackb, Ext = ormsgpack.packb, ormsgpack.unpackb, ormsgpack.Ext
_SCALARS = frozenset((str, int, float, bool, type(None)))
_NATIVE = frozenset((str, int, float, bool, type(None), list, dict))
_LARGE = 16_384
_MOST_NAMES = 10_000
# Bytes as few as these are not deep enough for any stack.
_SHALLOW = 60
GROUP = b"*"
_GROUP_HEADER = b"\x01*"
# The depth that an object within an object may have: what holds it may have 255 levels beside.
_DEEPEST_WITHIN = DEEPEST - 258
_FAILURES = (ValueError, MemoryError, RecursionError, OverflowError)  # of unpacking bytes


class ForeignSerializer(Protocol):
    """A serializer of LangGraph's protocol, given as `serde=`."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Codec:
    """Values to bytes and back, under one set of rules."""

    # Whether objects are built without asking the hook for each.
    _reads_natively = native is not None

    def __init__(
        self,
        rules: TypeRules | None = None,
        *,
        foreign: ForeignSerializer | None = None,
        pickle_fallback: bool = False,
        unknown_types: UnknownTypes = "refuse",
    ) -> None:
        self.rules = rules or TypeRules()
        self.foreign = foreign
        self.pickle_fallback = pickle_fallback
        # What becomes of values that this process may not or cannot rebuild (codec/structural.py).
        self.unknown_types = unknown_types
        self._bind()
        self._forget()

    def with_allowlist(self, extra: Any) -> Codec:
        """This codec with more types allowed."""
        widened = self.rules.with_allowlist(extra)
        return Codec(
            widened,
            foreign=self.foreign,
            pickle_fallback=self.pickle_fallback,
            unknown_types=self.unknown_types,
        )

    def refusing(self) -> Codec:
        """This codec, or one like it, that raises NotAllowed for what cannot be rebuilt."""
        if self.unknown_types == "refuse":
            return self
        return Codec(self.rules, foreign=self.foreign, pickle_fallback=self.pickle_fallback)

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
        if self.generation != registry.generation:
            self._forget()
        try:
            packed = packb(value, self.pack_value, OPTIONS)
        except (TypeError, ValueError, RecursionError):
            return encode_slowly(value, path, self._plan)
        if may_hold_bytes(packed) and hides_mutable_bytes(value):
            return encode_slowly(value, path, self._plan)
        return packed

    def encode_alone(self, value: Any) -> bytes:
        """The bytes of a value that is not part of a store: a list of nothing but objects is packed as a group."""
        if type(value) is list and len(value) > 1:
            self.refresh()
            group = take_apart(value, self.alike, self._plan)
            if group is not None:
                with suppress(TypeError, ValueError, RecursionError):  # then one by one, which may say what is wrong
                    packed = packb(group, self.pack_value, OPTIONS)
                    if not may_hold_bytes(packed) or not hides_mutable_bytes(group[2]):
                        return ext_frame(OBJECT, _GROUP_HEADER, packed)
        return self.encode_natively(value)

    def states(self, values: list[Any]) -> tuple[list[bytes], list[Any]]:
        """The type header of each value, and what is packed behind it: the value itself where the header is empty."""
        if self.generation != registry.generation:
            self._forget()
        kinds, alike = list(map(type, values)), self.alike
        if _NATIVE.issuperset(kinds):
            return [b""] * len(values), values
        taken = alike.take_apart(values, kinds)
        if taken is not None:
            return taken.headers, taken.states
        heads: list[bytes] = []
        states: list[Any] = []
        for value, kind in zip(values, kinds, strict=True):
            own = alike.take_apart([value], [kind]) if kind not in _NATIVE else None
            heads.append(own.headers[0] if own is not None else b"")
            states.append(own.states[0] if own is not None else value)
        return heads, states

    def decode(self, data: bytes) -> Any:
        """The value of some bytes; NotAllowed or Corrupt when it cannot or may not be rebuilt."""
        found = self.read([data])
        if found is not None:
            return found[0]
        # What is one object may have it all: what it holds is not checked for depth, what that holds is.
        hook = self._whole if data and data[0] in EXT_HEADERS else self._checked
        try:
            if len(data) > _SHALLOW:
                check_stack_and_room(data)
            return unpackb(data, ext_hook=hook)
        except _FAILURES as error:
            failure = self._why_undecodable(data, error)
            if self.unknown_types == "plain" and isinstance(failure, MissingExtra | NotAllowed):
                return self._plainly().decode(data)
            raise failure from None

    def decode_items(self, items: list[bytes]) -> list[Any]:
        """The values of items that were encoded one by one, in one call."""
        found = self.read(items)
        return self.decode(b"".join((array_header(len(items)), *items))) if found is None else found

    def decode_langgraph(self, data: bytes) -> Any:
        """The value of bytes that LangGraph's serializer packed, or ours: its extension types are read, too."""
        start = EXT_HEADERS.get(data[0], 0) if data else 0
        if 0 < start < len(data) and data[start - 1] == OBJECT:
            return self.decode(data)  # one object of ours, in which LangGraph's types do not stand
        self.refresh()
        try:
            if len(data) > _SHALLOW:
                check_stack_and_room(data)
            return unpackb(data, ext_hook=self._checked_langgraph, option=OPT_NON_STR_KEYS)
        except _FAILURES as error:
            failure = self._why_undecodable(data, error, is_langgraphs=True)
            if self.unknown_types == "plain" and isinstance(failure, MissingExtra | NotAllowed):
                return self._plainly().decode_langgraph(data)
            raise failure from None

    def unpacked(self, data: bytes) -> Any:
        """Encoded bytes as lists, dicts and plain values, with extensions as they are: it encodes to these bytes."""
        check_room(data)
        return unpackb(data, ext_hook=Ext)

    def decode_states(self, heads: list[bytes], bodies: list[bytes]) -> list[Any]:
        """The values whose states stand side by side in `bodies`, each with its type header; empty: it is the value."""
        found = self.read(bodies, heads)
        if found is not None:
            return found
        builders, names, own = self._builders, set(heads), {}
        known = len(builders)
        try:
            for head in filter(None, names):
                if head[0] + 1 != len(head) or head[1:] == GROUP:
                    raise Corrupt("a pack has a damaged type header")
                own[head] = builders.get(head[1:]) or self._builder_for(head[1:])
            if len(builders) > known and (found := self.read(bodies, heads)) is not None:
                return found
            joined = b"".join((array_header(len(heads)), *bodies))
            check_stack_and_room(joined)
            unpacked = unpackb(joined, ext_hook=self._checked)
            if not own:
                return unpacked  # type: ignore[no-any-return]
            if b"" not in names:
                return built(heads, unpacked, own)
            return [own[head](state) if head else state for head, state in zip(heads, unpacked, strict=True)]
        except Exception:  # something is wrong, which the slower way will name
            return self.decode(framed(heads, bodies))  # type: ignore[no-any-return]

    def read(self, parts: list[Any], heads: list[bytes] | None = None) -> list[Any] | None:
        """The values of some parts by the native module; None where another way must be taken (base/values.h)."""
        if self.generation != registry.generation:
            self._forget()
        is_large = (size := sum(map(len, parts))) > FEW_BYTES
        if stack.is_little or not self._reads_natively or (is_large and not is_ample(size)):
            return None
        return native.values(parts, heads, self._builders, Together, self._checked)  # type: ignore[union-attr,no-any-return]

    def refresh(self) -> Codec:
        """This codec, which has noticed the registrations made since."""
        if self.generation != registry.generation:
            self._forget()
        return self

    def _forget(self) -> None:
        """Start over with what a type means, because registrations have changed."""
        self.generation = registry.generation
        self._builders: dict[bytes, Callable[[Any], Any]] = dict(BUILTIN_BUILDERS)
        self._plans: dict[type, Plan] = dict(BUILTIN_PLANS)
        self._plans[set] = make_plan("s", self._sorted_members)
        self._plans[frozenset] = make_plan("fs", self._sorted_members)
        self.alike = Alike(self.rules, self._meet)
        self._builders[GROUP] = self._build_group
        # Members of enums are packed once, and found by what they are, not by what they equal. They are held: no other
        # object can have the id of one.
        self._enums: set[type] = set()
        self._members: dict[int, Any] = {}
        self._held: list[Any] = []
        self.pack_value, self.pack_within = self._hook_within(None), self._hook_within(_DEEPEST_WITHIN)
        # How the native module encodes values: by this packer, its hooks and options, and what is known of classes.
        hooks, alike = (self.pack_value, self.pack_within), self.alike
        self.how = packb, *hooks, OPTIONS, alike.comparable, alike.headers, alike.counts

    # -- encoding

    def _hook_within(self, deepest: int | None) -> Callable[[Any], Any]:
        """What packs objects for ormsgpack; within an object, so that what holds it is not too deep to be read."""
        members, held, plans, plan_for, packed = self._members, self._held, self._plans, self._plan_for, self._packed

        def by_plan(value: Any) -> Any:
            kind = type(value)
            plan = plans.get(kind) or plan_for(value)
            if kind not in self._enums:
                return packed(*plan(value), deepest)
            found = packed(*plan(value))
            if len(members) < _MOST_NAMES:
                held.append(value)
                members[id(value)] = found
            return found

        return quick_hook(members, by_plan)

    def _packed(self, header: bytes | None, state: Any, deepest: int | None = None) -> Any:
        if header is None:
            if hides_mutable_bytes(state):
                raise TypeError("only the slow way tells bytearrays from bytes")
            return state
        packed = packb(state, self.pack_within, OPTIONS)
        if may_hold_bytes(packed) and hides_mutable_bytes(state):
            raise TypeError("only the slow way tells bytearrays from bytes")
        if deepest is not None and len(packed) > deepest and is_deeper(packed, deepest):
            raise TypeError("only the slow way tells how deep it is as a whole")
        return Ext(OBJECT, header + packed)

    def _sorted_members(self, members: Any) -> list[Any]:
        """Members in the order of their bytes: iteration order differs between processes."""
        # As extensions already packed, so that sets within sets are not encoded again at every level.
        encoded = sorted(map(self.encode_natively, members))
        if any(is_deeper(packed, _DEEPEST_WITHIN) for packed in encoded):
            raise NotSerializable(TOO_DEEP)
        return [unpackb(packed, ext_hook=Ext) for packed in encoded]

    def _plan(self, value: Any) -> Plan:
        return self._plans.get(type(value)) or self._plan_for(value)

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
        if len(self._plans) >= _MOST_NAMES:  # classes that functions make again and again
            self._forget()
        self._plans[cls] = plan
        if issubclass(cls, enum.Enum) and cls not in registry.by_class:
            self._enums.add(cls)
        return plan

    def _plan_of_class(self, cls: type) -> Plan | None:
        plan = rare_plan(cls)
        if plan is not None:
            return plan
        registration = registry.of_class(cls)
        if registration is not None:
            return make_plan(registration.stored_name, registration.shape.state, registration.shape.variant)
        if issubclass(cls, BaseException):
            return make_plan("exc", reduce_exception)
        shape = shape_of(cls)
        if shape is not None:
            name = found_by(cls)
            try:
                self.rules.find(name)
            except NotAllowed as error:
                if self.unknown_types == "refuse":
                    raise NotSerializable(f"it could not be loaded again: {error}") from None
            self._meet(name)
            return make_plan(name, leaving_out(cls, shape.state, self._can_be_stored), shape.variant)
        from .builtin_rare import secret_plan
        from .numpy_pandas import science_plan

        found = science_plan(cls) or secret_plan(cls)
        return make_plan(found.name, found.state) if found else reduction(cls)

    def _meet(self, name: str) -> None:
        """A class of this name is stored: it may have taken the place of one that was read before.

        As when a notebook's cell runs again.
        """
        self._builders = {k: b for k, b in [*self._builders.items()] if k.partition(b"?")[0] != name.encode()}

    def _can_be_stored(self, value: Any) -> bool:
        try:
            self.encode_natively(value)
        except NotSerializable:
            return False
        return True

    # -- decoding

    def _bind(self) -> None:
        """Bind the hooks once, not once per object. Each unpacks what it is given by the hook that it names."""
        self._hook = self._unpack_extension
        self._checked = self._unpack_checked
        self._checked_langgraph = self._unpack_langgraph_checked
        self._whole = self._unpack_whole

    def _unpack_whole(self, code: int, data: bytes) -> Any:
        """An object that stands for itself: only the extensions in it are checked."""
        return self._unpack_object(data, self._checked) if code == OBJECT else self._unpack_checked(code, data)

    def _unpack_checked(self, code: int, data: bytes) -> Any:
        """An extension, checked for its depth with everything in it."""
        if len(data) > SHALLOW:
            check_extension(code, data)
        return self._unpack_object(data, self._hook) if code == OBJECT else self._unpack_extension(code, data)

    def _unpack_extension(self, code: int, data: bytes) -> Any:
        """An extension whose depth was checked."""
        if code == OBJECT:
            return self._unpack_object(data, self._hook)
        if code == TEXT:
            return data.decode("utf-8", "surrogatepass")
        if code == FOREIGN:
            return self._load_foreign(data)
        if code == KEPT:
            return self._load_kept(data[0], data[1:])
        raise Corrupt(f"unknown extension type {code} (LangGraph's are read only where an import kept them)")

    def _unpack_langgraph_checked(self, code: int, data: bytes) -> Any:
        if len(data) > SHALLOW:
            check_extension(code, data)
        return self._unpack_langgraph(code, data)

    def _unpack_langgraph(self, code: int, data: bytes) -> Any:
        """An extension where LangGraph's own types may stand; its depth was checked."""
        return self._build_langgraphs(code, data) if code in _OF_LANGGRAPH else self._unpack_extension(code, data)

    def _unpack_object(self, data: bytes, hook: Callable[[int, bytes], Any]) -> Any:
        end = data[0] + 1
        name = data[1:end]
        build = self._builders.get(name) or self._builder_for(name)
        state = data[end:] if len(data) < _LARGE else memoryview(data)[end:]  # a large one is not copied
        return build(unpackb(state, ext_hook=hook))

    def _build_group(self, parts: Any) -> list[Any]:
        return put_together(parts, lambda name: self._builders.get(name) or self._builder_for(name))

    def _builder_for(self, name: bytes) -> Callable[[Any], Any]:
        text = name.decode()
        from .builtin_rare import secret_builder
        from .numpy_pandas import science_builder

        build = rare_builder(text) or science_builder(text) or secret_builder(text)
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
        if len(self._builders) < _MOST_NAMES:  # names that were made up must not fill the memory
            self._builders[name] = build
        return build

    def _unknown(self, name: str, state: Any, why: ThreadlineError, *, is_plain: bool = False) -> Any:
        """What stands for an object that cannot be rebuilt. LangGraph's states are plain data already."""
        raise why

    def _plainly(self) -> Codec:
        from .structural import PlainCodec

        return PlainCodec(self)

    def _load_foreign(self, data: bytes) -> Any:
        load = self._load_typed if self.foreign is None else self.foreign.loads_typed
        return load(_typed(data))

    def _load_kept(self, code: int, data: bytes) -> Any:
        """What an import kept as LangGraph stored it."""
        return self._load_typed(_typed(data)) if code == FOREIGN else self._build_langgraphs(code, data)

    def _build_langgraphs(self, code: int, data: bytes) -> Any:
        from .langgraph_format import build_legacy

        return build_legacy(code, data, self)

    def _load_typed(self, typed: tuple[str, bytes]) -> Any:
        from .serializer import load_typed

        # Not by `decode_langgraph`, which would look for its own reason of a failure at every level.
        return load_typed(typed, self, lambda c: unpackb(c, ext_hook=self._unpack_langgraph, option=OPT_NON_STR_KEYS))

    def _why_undecodable(self, data: bytes, error: Exception, *, is_langgraphs: bool = False) -> Exception:
        from .listening import real_failure

        return real_failure(self, data, error, is_langgraphs=is_langgraphs)


def _typed(data: bytes) -> tuple[str, bytes]:
    """The tag and the bytes of a foreign value."""
    end = data[0] + 1
    return data[1:end].decode(), data[end:]
