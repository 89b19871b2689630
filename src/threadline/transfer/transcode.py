"""LangGraph's bytes made into ours, in a process that need not have the classes they stand for.

What each of LangGraph's extension types becomes:

    standard library      the value itself, which our codec packs in its own way
    dataclass, NamedTuple our object form: `module:Class` and the fields
    message, Document     our object form, where the fields are just those that LangChain gives the class
    array, delta snapshot our object form: both store the same parts
    anything else         kept as it is, marked as LangGraph's (`KEPT`): our codec reads its extension types there

So that what is read later is what codec/langgraph_format.py would give for the original bytes, and where the object
form was taken, a graph that goes on with the thread packs the same bytes again and shares the chunks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

import ormsgpack

from ..codec.allowed import LANGCHAIN_MESSAGES, TypeRules
from ..codec.builtin_rare import RARE
from ..codec.codec import FOREIGN, GROUP, KEPT, Codec
from ..codec.langgraph_format import (
    DELTA_SNAPSHOT,
    KEYWORDS,
    NUMPY,
    PYDANTIC_V1,
    PYDANTIC_V2,
    build_standard,
    is_of_objects,
    is_standard,
    json_text,
    unpack_legacy,
)
from ..codec.limits import check_extension
from ..codec.packing import OBJECT, TEXT
from ..codec.plans import name_header
from ..errors import Corrupt, InvalidRequest, NotAllowed, ThreadlineError

__all__ = ["Cipher", "Foreign", "TransferCodec", "check_tag"]

_READABLE_TAGS = frozenset(("null", "bytes", "bytearray", "json", "msgpack"))
_MOST_SEEN_BYTES = 64_000_000
_CLASS_NAME = re.compile(r"[\w.]+:\w+", re.ASCII)
_MESSAGE = frozenset(("content", "additional_kwargs", "response_metadata", "type", "name", "id"))
_AI_MESSAGE = _MESSAGE | {"tool_calls", "invalid_tool_calls", "usage_metadata"}
_TOOL_MESSAGE = _MESSAGE | {"tool_call_id", "artifact", "status"}
_OWN_FIELDS = {
    "AIMessage": _AI_MESSAGE,
    "AIMessageChunk": _AI_MESSAGE | {"tool_call_chunks", "chunk_position"},
    "ChatMessage": _MESSAGE | {"role"},
    "ChatMessageChunk": _MESSAGE | {"role"},
    "ToolMessage": _TOOL_MESSAGE,
    "ToolMessageChunk": _TOOL_MESSAGE,
}
# The fields of LangChain's classes. A value with others (an attribute of its own, another version of
# LangChain) is kept as LangGraph stored it: only the class itself can tell what they are.
LANGCHAIN_FIELDS = {stored: _OWN_FIELDS.get(name, _MESSAGE) for name, stored in LANGCHAIN_MESSAGES.items()}
LANGCHAIN_FIELDS["langchain_core.documents.base:Document"] = frozenset(("id", "metadata", "page_content", "type"))


class Cipher(Protocol):
    """The `cipher` of LangGraph's EncryptedSerializer."""

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value that stays as it is packed: the code of its extension type and its bytes."""

    code: int
    data: bytes

    def packed(self) -> ormsgpack.Ext:
        """As it is stored: an object in our form, everything of LangGraph's marked as kept by an import."""
        if self.code == OBJECT:
            return ormsgpack.Ext(OBJECT, self.data)
        return ormsgpack.Ext(KEPT, bytes((self.code,)) + self.data)


class TransferCodec(Codec):
    """Our codec for values on their way from LangGraph's tables: objects of classes are `Foreign`."""

    def __init__(self, rules: TypeRules | None = None) -> None:
        super().__init__(rules)
        # The classes of the source that this process cannot rebuild, and how many different objects have each.
        self.unknown: Counter[str] = Counter()
        self._can_find: dict[str, bool] = {}

    def load(self, tag: str | None, content: bytes, cipher: Cipher | None = None) -> Any:
        """The value of a tag and its bytes; Corrupt when it cannot be read."""
        check_tag(tag, can_decrypt=cipher is not None)
        assert tag is not None
        try:
            if cipher is not None and "+" in tag:
                tag, _, name = tag.partition("+")
                content = cipher.decrypt(name, content)
            return self._loaded(tag, content)
        except ThreadlineError:
            raise
        except Exception as error:
            # A cipher may raise anything for a wrong key; the text of a JSON error holds no state.
            raise Corrupt(f"undecodable bytes ({type(error).__name__}: {error})") from None

    def _loaded(self, tag: str, content: bytes) -> Any:
        if tag == "null":
            return None
        if tag == "bytes":
            return content
        if tag == "bytearray":
            return bytearray(content)
        if tag == "json":
            return _kept_objects(json.loads(json_text(content)))
        self.refresh()
        return unpack_legacy(content, self._checked)

    def _forget(self) -> None:
        super()._forget()
        # LangGraph writes a message again with every checkpoint: most have been seen before.
        self._seen: dict[tuple[int, bytes], Foreign] = {}
        self._seen_bytes = 0
        self._builders[GROUP] = self._kept_group
        self._builders.update({row.name.encode(): row.build for row in RARE})
        self._plans[Foreign] = lambda value: (None, value.packed())

    def _unpack_checked(self, code: int, data: bytes) -> Any:
        check_extension(code, data)
        return self._unpack_extension(code, data)

    def _unpack_extension(self, code: int, data: bytes) -> Any:
        if 0 <= code <= DELTA_SNAPSHOT:
            return self._seen.get((code, data)) or self._remembered(code, data)
        if code == OBJECT:
            is_known = data[1 : data[0] + 1] in self._builders
            return super()._unpack_extension(code, data) if is_known else Foreign(code, data)
        if code in (TEXT, KEPT, FOREIGN):
            return super()._unpack_extension(code, data)
        raise Corrupt(f"unknown extension type {code}")

    def _load_kept(self, code: int, data: bytes) -> Any:
        return Foreign(code, data)

    def _load_foreign(self, data: bytes) -> Any:
        return Foreign(FOREIGN, data)

    def _remembered(self, code: int, data: bytes) -> Any:
        made = self._transcoded(code, data)
        if type(made) is Foreign:
            if self._seen_bytes > _MOST_SEEN_BYTES:
                self._seen.clear()
                self._seen_bytes = 0
            self._seen[code, data] = made
            self._seen_bytes += len(data) + len(made.data)
        return made

    def _transcoded(self, code: int, data: bytes) -> Any:
        content = unpack_legacy(data, self._unpack_extension)
        if code == NUMPY:
            # Of an array of objects LangGraph kept nothing that could be read.
            return Foreign(code, data) if is_of_objects(content) else self._object("nd", content)
        if code == DELTA_SNAPSHOT:
            return self._object("langgraph.checkpoint.serde.types:_DeltaSnapshot", {"value": content})
        module, name, state = content[:3]
        if is_standard(module, name):
            return self._standard(code, data, module, name, state)
        stored = f"{module}:{name}"
        self._note(stored)
        if type(state) is dict and len(stored) < 200 and _CLASS_NAME.fullmatch(stored):
            is_message = code in (PYDANTIC_V1, PYDANTIC_V2) and state.keys() == LANGCHAIN_FIELDS.get(stored)
            if code == KEYWORDS or is_message:
                return self._object(stored, state)
        return Foreign(code, data)

    def _note(self, name: str) -> None:
        """Count an object whose class could not be rebuilt here."""
        if name not in self._can_find:
            self._can_find[name] = self.rules.can_find(name)
        if not self._can_find[name]:
            self.unknown[name] += 1

    def _standard(self, code: int, data: bytes, module: str, name: str, state: Any) -> Any:
        """A value of the standard library; as it is packed where only its reader can build it."""
        if type(state) is list and any(type(member) is Foreign for member in state):
            return Foreign(code, data)  # whether these have a hash is known where their classes are
        try:
            return build_standard(code, module, name, state)
        except Exception:  # a path of another system, a time zone that is not installed here
            return Foreign(code, data)

    def _kept_group(self, parts: Any) -> list[Any]:
        """The objects of a group, each as it would have been packed alone."""
        names, which, states = parts
        named = zip((names[place] for place in which) if which else names * len(states), states, strict=True)
        return [
            self._builders[name.encode()](state) if name.encode() in self._builders else self._object(name, state)
            for name, state in named
        ]

    def _object(self, name: str, state: Any) -> Foreign:
        return Foreign(OBJECT, name_header(name) + self.encode_natively(state))


def check_tag(tag: str | None, *, can_decrypt: bool) -> None:
    """Raise what to do about a tag whose bytes cannot be imported."""
    plain, _, cipher = (tag or "").partition("+")
    if cipher and not can_decrypt:
        raise InvalidRequest(
            f"the source is encrypted (its values are tagged {tag!r}): import it from Python, with the cipher that "
            f"LangGraph used: import_threads(source, target, cipher=EncryptedSerializer.from_pycryptodome_aes().cipher)"
        )
    if plain == "pickle":
        raise NotAllowed(
            "the source holds pickles (its saver had pickle_fallback=True), and loading a pickle can run code: "
            "store these threads again with a serializer that makes none, then import"
        )
    if plain not in _READABLE_TAGS:
        raise NotAllowed(
            f"the source holds values tagged {tag!r}, which LangGraph's own serializers do not write: "
            f"read it with the serializer that wrote them, and put what it gives into a Threadline saver"
        )


def _kept_objects(value: Any) -> Any:
    """A value of LangGraph's JSON form, with the objects in it kept as they are written."""
    if type(value) is list:
        return [_kept_objects(item) for item in value]
    if type(value) is not dict:
        return value
    if value.get("lc") in (1, 2) and value.get("type") == "constructor":
        return Foreign(FOREIGN, name_header("json") + json.dumps(value, separators=(",", ":")).encode())
    return {key: _kept_objects(item) for key, item in value.items()}
