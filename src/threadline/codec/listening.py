"""Finds the reason of a failed decode.

ormsgpack drops the exception of its hook, so the bytes are decoded again with a hook that records it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ormsgpack import OPT_NON_STR_KEYS, unpackb

from ..errors import Corrupt, ThreadlineError
from .codec import Codec

__all__ = ["real_failure"]


def real_failure(codec: Codec, data: bytes, error: Exception, *, is_langgraphs: bool) -> Exception:
    """The innermost failure of decoding these bytes, as an error of our tree."""
    if isinstance(error, ThreadlineError):
        return error
    listening = object.__new__(_Listening)
    listening.__dict__.update(codec.__dict__, failures=[])
    listening._bind()
    hook = listening._checked_langgraph if is_langgraphs else listening._checked
    with suppress(ValueError, MemoryError, RecursionError, OverflowError):
        unpackb(data, ext_hook=hook, option=OPT_NON_STR_KEYS)
    found = listening.failures[0] if listening.failures else error
    if isinstance(found, ThreadlineError):
        return found
    return Corrupt(f"undecodable bytes ({_said(found)})")


class _Listening(Codec):
    """A codec that notes why its hooks failed, the innermost failure first."""

    failures: list[Exception]
    _reads_natively = False

    def _unpack_checked(self, code: int, data: bytes) -> Any:
        return self._noting(super()._unpack_checked, code, data)

    def _unpack_langgraph_checked(self, code: int, data: bytes) -> Any:
        return self._noting(super()._unpack_langgraph_checked, code, data)

    def _unpack_extension(self, code: int, data: bytes) -> Any:
        return self._noting(super()._unpack_extension, code, data)

    def _unpack_langgraph(self, code: int, data: bytes) -> Any:
        return self._noting(super()._unpack_langgraph, code, data)

    def _noting(self, unpack: Callable[[int, bytes], Any], code: int, data: bytes) -> Any:
        try:
            return unpack(code, data)
        except Exception as failure:
            self.failures.append(failure)
            raise


def _said(failure: Exception) -> str:
    """The text of a failure, of which a class of the program may be the author."""
    try:
        return str(failure) or type(failure).__name__
    except Exception:
        return type(failure).__name__
