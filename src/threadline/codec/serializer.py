"""The codec behind LangGraph's serializer protocol, and a reader for what its serializers wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import NotAllowed
from .allowed import AllowedTypes, TypeRules, UnknownTypes, check_unknown
from .codec import Codec

__all__ = ["Serializer", "load_typed"]


class Serializer:
    """`dumps_typed` / `loads_typed` and `dumps` / `loads`, as LangGraph's serializers have them.

    Reads the tags null, bytes, bytearray, json and msgpack of LangGraph too, under Threadline's rules
    about types; pickle only when `pickle_fallback=True` asks for it.
    """

    def __init__(
        self,
        *,
        allowed_types: AllowedTypes = None,
        unknown_types: UnknownTypes = "refuse",
        pickle_fallback: bool = False,
        codec: Codec | None = None,
    ) -> None:
        rules = TypeRules(allowed_types)
        self.codec = codec or Codec(rules, pickle_fallback=pickle_fallback, unknown_types=check_unknown(unknown_types))

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The tag and the bytes of a value."""
        if obj is None:
            return "null", b""
        if type(obj) is bytes:
            return "bytes", obj
        if type(obj) is bytearray:
            return "bytearray", bytes(obj)
        return "msgpack", self.codec.encode_alone(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of a tag and its bytes."""
        return load_typed(data, self.codec)

    def dumps(self, obj: Any) -> bytes:
        """The bytes of a value."""
        return self.codec.encode_alone(obj)

    def loads(self, data: bytes) -> Any:
        """The value of bytes made by `dumps`."""
        return self.codec.decode(data)

    def with_msgpack_allowlist(self, extra_allowlist: Any) -> Serializer:
        """This serializer with more types allowed, under the name LangGraph gives it."""
        return Serializer(codec=self.codec.with_allowlist(list(extra_allowlist)))


def load_typed(data: tuple[str, bytes], codec: Codec, unpack: Callable[[bytes], Any] | None = None) -> Any:
    """A value stored with a tag by LangGraph's serializers or by `Serializer`.

    `unpack` is how packed bytes are read that stand inside of others.
    """
    tag, content = data
    if tag == "null":
        return None
    if tag == "bytes":
        return content
    if tag == "bytearray":
        return bytearray(content)
    if tag == "json":
        from .langgraph_format import load_json

        return load_json(content, codec)
    if tag == "msgpack":
        return (unpack or codec.decode_langgraph)(content)
    if tag == "pickle":
        if not codec.pickle_fallback:
            raise NotAllowed(
                "the stored value is a pickle, which can run code: Serializer(pickle_fallback=True) reads it"
            )
        import pickle

        return pickle.loads(content)
    raise NotAllowed(f"unknown serialization tag {tag!r}: pass the serializer that wrote it as serde=")
