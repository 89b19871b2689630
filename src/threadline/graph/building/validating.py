"""Updates checked, and coerced, against the schema before they are applied: `compile(validate="updates")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base import MissingExtra
from ..errors import InvalidUpdateError
from ..types import Overwrite
from .schema import schema_of

__all__ = ["update_validator"]


def update_validator(declared: Any) -> Callable[[str, Any], Any]:
    """A function (key, value) -> value as the schema has it; InvalidUpdateError where it does not fit."""
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise MissingExtra("validate='updates' needs pydantic: pip install pydantic") from None
    hints = schema_of(declared).hints
    adapters: dict[str, Any] = {}

    def validated(key: str, value: Any) -> Any:
        if key not in hints or isinstance(value, Overwrite):
            return value
        if key not in adapters:
            adapters[key] = TypeAdapter(hints[key])
        try:
            return adapters[key].validate_python(value)
        except ValueError as error:
            raise InvalidUpdateError(
                f"At key '{key}': the update does not fit the schema ({type(value).__name__})"
            ) from error

    return validated
