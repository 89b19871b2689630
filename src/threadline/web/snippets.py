"""What a page shows as a command line and as Python, for the foot of every page."""

from __future__ import annotations

import os
import shlex
from typing import Any

from ..show.figures import without_password

__all__ = ["command_line", "python_lines"]


def command_line(url: str, *words: Any, **options: Any) -> str:
    """A command as somebody would type it; options that are None, False or empty are left out."""
    typed = ["threadline", *(str(word) for word in words if word is not None)]
    for name, value in options.items():
        flag = "--" + name.strip("_").replace("_", "-")
        if value is True:
            typed.append(flag)
        elif isinstance(value, (list, tuple)):
            typed += [part for one in value for part in (flag, str(one))]
        elif value not in (None, False, ""):
            typed += [flag, str(value)]
    if os.environ.get("THREADLINE_URL") != url:
        typed += ["--url", without_password(url)]
    return shlex.join(typed)


def python_lines(url: str, call: str) -> str:
    """Lines that do the same with a saver."""
    return f"import threadline\n\nsaver = threadline.connect({without_password(url)!r})\n{call}"
