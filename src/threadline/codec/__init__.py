"""Python objects to bytes and back: the wire format, the types allowed, the seal."""

from .allowed import AllowedTypes, TypeRules, register, register_module
from .builtin import StoredException
from .codec import Codec
from .envelope import Envelope
from .seal import CipherRing, KeyRing, Ring
from .serializer import Serializer

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
