"""BLAKE2b without the rest of `hashlib`, which loads OpenSSL first: that takes as long as the whole codec."""

from __future__ import annotations

from collections.abc import Sequence

from .native import native

try:
    from _blake2 import blake2b
except ImportError:  # another Python than CPython
    from hashlib import blake2b

__all__ = ["blake2b", "blake2b_each"]

# What lies beside the source may be older than the source, and the processor may have no vectors (base/lanes.h).
_hashed = native.hashed if native is not None and getattr(native, "LANES", False) else None


def blake2b_each(contents: Sequence[bytes], prefix: bytes, key: bytes, person: bytes, size: int) -> list[bytes] | None:
    """The digests of contents, each behind a prefix, where many are had faster together; None elsewhere."""
    return None if _hashed is None else _hashed(contents, prefix, key, person, size)
