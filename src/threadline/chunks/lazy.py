"""Channel values that are decoded when they are first looked at, in what is otherwise a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["LazyValues"]


class _Undecoded:
    """Stands in the dict until its value is asked for. C code that reads past Python meets this object,
    which no serializer accepts: an error, never a wrong value."""

    __slots__ = ("decode",)

    def __init__(self, decode: Callable[[], Any]) -> None:
        self.decode = decode


class LazyValues(dict[str, Any]):
    """A dict whose values are decoded on first access, one by one."""

    __slots__ = ()

    @classmethod
    def of(cls, decoders: Mapping[str, Callable[[], Any]]) -> LazyValues:
        """A mapping whose values come from these functions, each called once at most."""
        return cls({name: _Undecoded(decode) for name, decode in decoders.items()})

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if type(value) is _Undecoded:
            value = value.decode()
            dict.__setitem__(self, key, value)
        return value

    # Overriding __iter__ makes `dict(v)`, `{**v}` and `update(v)` ask through __getitem__.
    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401

    def values(self) -> Any:
        return dict.values(self._decoded())

    def items(self) -> Any:
        return dict.items(self._decoded())

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            value = self[key]
            dict.__delitem__(self, key)
            return value
        return dict.pop(self, key, *default)

    def popitem(self) -> tuple[str, Any]:
        key = next(reversed(self), None)
        if key is None:
            raise KeyError("popitem(): dictionary is empty")
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            dict.__setitem__(self, key, default)
        return self[key]

    def undecoded(self, is_wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Some of the entries as they stand, for another such mapping: nothing is decoded."""
        return {key: dict.__getitem__(self, key) for key in self if is_wanted(key)}

    def copy(self) -> LazyValues:
        copied = LazyValues()
        for key in self:
            dict.__setitem__(copied, key, dict.__getitem__(self, key))
        return copied

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._decoded(), other._decoded() if isinstance(other, LazyValues) else other) is True

    __hash__ = None

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> Any:
        return dict(self) | dict(other) if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return dict(other) | dict(self) if isinstance(other, dict) else NotImplemented

    def __reduce__(self) -> Any:
        return (dict, (dict(self),))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        import copy

        return copy.deepcopy(dict(self), memo)

    def __repr__(self) -> str:
        return repr(dict(self))

    def _decoded(self) -> LazyValues:
        for key in self:
            self[key]
        return self
