"""The native module, where it was built: `native` is None elsewhere, and everything works without it.

It is written in C (base/compiled.c) and built when Threadline is installed on a machine that has a compiler.
`THREADLINE_NATIVE=0` leaves it out. Whoever uses it has another way to the same result.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["native"]

_INTERFACE = 6

if TYPE_CHECKING:
    from . import compiled

    native: ModuleType | None = compiled
else:
    native = None
    # Without the interpreter's lock another thread could change a value while it is compared.
    is_locked = sys._is_gil_enabled() if hasattr(sys, "_is_gil_enabled") else True
    if is_locked and os.environ.get("THREADLINE_NATIVE") != "0":
        with suppress(ImportError):
            from . import compiled

            # What lies beside the source may be older than the source.
            native = compiled if getattr(compiled, "INTERFACE", None) == _INTERFACE else None
