"""Python objects to bytes and back: the wire format, the types allowed, the seal."""

from .builtin import StoredException
from .envelope import Envelope
from .rules import AllowedTypes, TypeRules, register, register_module
from .seal import CipherRing, KeyRing, Ring
from .serializer import Serializer
from .wire import Codec

__all__ = [
    "AllowedTypes",
    "CipherRing",
    "Codec",
    "Envelope",
    "KeyRing",
    "Ring",
    "Serializer",
    "StoredException",
    "TypeRules",
    "register",
    "register_module",
]
