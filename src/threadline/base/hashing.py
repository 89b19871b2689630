"""BLAKE2b without the rest of `hashlib`, which loads OpenSSL first: that takes as long as the whole codec."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # another Python than CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
