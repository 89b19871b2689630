"""Sealing: AES-GCM under a ring of keys, or a cipher that LangGraph's EncryptedSerializer brings.

Rules: every seal is bound to where its bytes belong, so that rows cannot be swapped. Stored bytes name
their key by a small number that the store's `keys` record maps to the key's id. The ring can hold keys no
row uses yet or any more; the first one seals, all of them open.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import Any, Protocol

from ..base.hashing import blake2b
from ..errors import Corrupt, InvalidRequest, NotFound

__all__ = ["Cipher", "CipherRing", "KeyRing", "Ring"]

_NONCE_BYTES = 12


class Ring(Protocol):
    """What can seal bytes under its current key and open them under any of its keys."""

    current: str

    def seal(self, data: bytes, bound_to: bytes) -> bytes: ...

    def open(self, key_id: str, sealed: bytes, bound_to: bytes) -> bytes: ...


class Cipher(Protocol):
    """The cipher of a LangGraph EncryptedSerializer."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]: ...

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes: ...


class KeyRing:
    """AES keys by id; `current` seals, all of them open.

    Rotate by putting a new key into the ring as current, then `saver.rotate_keys()`; a key may leave the
    ring when `saver.keys_in_use()` no longer names it.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str | None = None) -> None:
        if not keys:
            raise InvalidRequest("a key ring needs at least one key")
        for key_id, key in dict[Any, Any](keys).items():
            if not isinstance(key_id, str) or not key_id:
                raise InvalidRequest(f"the id of a key is text, and not empty: {key_id!r}")
            if not isinstance(key, (bytes, bytearray)):
                raise InvalidRequest(f"the key {key_id!r} must be bytes, not {type(key).__name__}")
            if len(key) not in (16, 24, 32):
                raise InvalidRequest(f"the key {key_id!r} has {len(key)} bytes; AES takes 16, 24 or 32")
        self.current = next(iter(keys)) if current is None else current
        if self.current not in keys:
            raise InvalidRequest(f"the current key {self.current!r} is not in the ring")
        self._keys = dict(keys)
        self._ciphers: dict[str, Any] = {}

    @classmethod
    def from_env(cls, variable: str = "LANGGRAPH_AES_KEY") -> KeyRing:
        """A ring of the one key in an environment variable, as LangGraph's users have it."""
        text = os.environ.get(variable)
        if not text:
            raise InvalidRequest(f"the environment variable {variable} holds no key")
        return cls({"env": text.encode()})

    @classmethod
    def from_text(cls, text: str, where: str = "the text") -> KeyRing:
        """A ring of keys written as `2027-01:BASE64,2026-01:BASE64`, or one a line; the first is current.

        Errors name `where` the text is from and the id of a key, and nothing else of it.
        """
        keys: dict[str, bytes] = {}
        for part in re.split(r"[,\n]", text):
            entry = part.strip()
            if not entry or entry.startswith("#"):
                continue
            key_id, colon, encoded = (piece.strip() for piece in entry.partition(":"))
            if not colon or not key_id:
                raise InvalidRequest(f"{where} has no id before one of its keys: write it as 2027-01:BASE64")
            if key_id in keys:
                raise InvalidRequest(f"{where} has two keys {key_id!r}")
            try:
                # Both alphabets of base64, with or without padding.
                plain = encoded.replace("-", "+").replace("_", "/").rstrip("=")
                keys[key_id] = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
            except ValueError:
                raise InvalidRequest(f"{where}: the key {key_id!r} is not written in base64") from None
        if not keys:
            raise InvalidRequest(f"{where} holds no key: write it as 2027-01:BASE64")
        return cls(keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys."""
        return tuple(self._keys)

    def sealing_with(self, key_id: str) -> KeyRing:
        """A key ring with these keys, of which another is current."""
        return KeyRing(self._keys, current=key_id)

    @staticmethod
    def generate() -> bytes:
        """A new random key of 32 bytes."""
        return os.urandom(32)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)}; current={self.current})"

    def seal(self, data: bytes, bound_to: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = self._cipher(self.current).encrypt(nonce, data, bound_to)
        return nonce + sealed

    def open(self, key_id: str, sealed: bytes, bound_to: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = self._cipher(key_id).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError) as error:
            raise Corrupt("sealed bytes were altered, moved, or sealed under another key") from error
        return opened

    def _cipher(self, key_id: str) -> Any:
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            if key_id not in self._keys:
                raise NotFound(f"the key {key_id!r} is not in the ring: add it to read what it sealed")
            cipher = self._ciphers[key_id] = AESGCM(self._keys[key_id])
        return cipher


class CipherRing:
    """A foreign cipher as a ring of one key; the binding is checked by a digest sealed with the data."""

    current = "serde"

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def seal(self, data: bytes, bound_to: bytes) -> bytes:
        name, sealed = self._cipher.encrypt(_binding(bound_to) + data)
        return bytes((len(name),)) + name.encode() + sealed

    def open(self, key_id: str, sealed: bytes, bound_to: bytes) -> bytes:
        try:
            end = sealed[0] + 1
            opened = self._cipher.decrypt(sealed[1:end].decode(), sealed[end:])
        except Exception as error:
            raise Corrupt("sealed bytes were altered, or sealed under another key") from error
        if opened[:16] != _binding(bound_to):
            raise Corrupt("sealed bytes were moved from where they belong")
        return opened[16:]


def _binding(bound_to: bytes) -> bytes:
    return blake2b(bound_to, digest_size=16).digest()
