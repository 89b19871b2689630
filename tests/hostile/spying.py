"""Data classes whose every method notes that it ran: what a forged state could be an instance of."""

import dataclasses
import enum
import os
from collections import Counter
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, model_validator
from pydantic.v1 import BaseModel as OldModel
from pydantic.v1 import BaseSettings

CALLS: Counter[str] = Counter()
_SPIED = [
    "__iter__",
    "__len__",
    "__getitem__",
    "__setitem__",
    "__contains__",
    "__next__",
    "__index__",
    "__int__",
    "__float__",
    "__complex__",
    "__bool__",
    "__str__",
    "__repr__",
    "__format__",
    "__bytes__",
    "__hash__",
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__add__",
    "__radd__",
    "__mul__",
    "__rmul__",
    "__sub__",
    "__rsub__",
    "__neg__",
    "__call__",
    "__enter__",
    "__exit__",
    "__fspath__",
    "__buffer__",
    "__array__",
    "__array_interface__",
    "__getattr__",
    "__setattr__",
    "__reduce__",
    "__reduce_ex__",
    "__copy__",
    "__deepcopy__",
    "__length_hint__",
    "__missing__",
    "__instancecheck__",
    "__post_init__",
    "__init__",
    "keys",
    "items",
    "values",
    "get",
    "encode",
    "decode",
    "split",
    "strip",
    "utcoffset",
    "tzname",
    "dst",
    "fromutc",
    "tobytes",
]


def _noting(name):
    def method(self, *args, **kwargs):
        CALLS[name] += 1
        raise RuntimeError(f"{name} ran")

    return method


def spied(cls):
    for name in _SPIED:
        if name not in ("__init__", "__setattr__", "__hash__", "__eq__") or not issubclass(cls, enum.Enum):
            setattr(cls, name, _noting(name))
    return cls


@spied
@dataclasses.dataclass
class Spy:
    keep: Any = None


@spied
@dataclasses.dataclass(slots=True)
class SlottedSpy:
    keep: Any = None


@dataclasses.dataclass
class Setting:
    """Fields whose setting would run code, were it done by `setattr`."""

    value: Any = None

    def __setattr__(self, name, value):
        CALLS["__setattr__"] += 1
        raise RuntimeError


@dataclasses.dataclass
class Propertied:
    value: Any = None


Propertied.value = property(lambda self: CALLS.update(get=1), lambda self, value: CALLS.update(set=1))


@dataclasses.dataclass
class Watching:
    """What is asked for any attribute notes it."""

    keep: Any = None

    def __getattribute__(self, name):
        if not name.startswith("__"):
            CALLS[name] += 1
        return object.__getattribute__(self, name)


@dataclasses.dataclass
class Asked:
    id: Any = None
    value: Any = None


@dataclasses.dataclass(slots=True)
class SlottedAsked:
    id: Any = None
    value: Any = None


class Model(BaseModel):
    value: Any = None

    def __init__(self, **fields):
        CALLS["model __init__"] += 1
        super().__init__(**fields)

    @model_validator(mode="before")
    @classmethod
    def checked(cls, fields):
        CALLS["validator"] += 1
        return fields


class Settings(BaseSettings):
    api_key: str = "none given"


class KeyedModel(BaseModel):
    name: str = "n"
    api_key: str = Field(default_factory=lambda: os.environ["THREADLINE_TEST_SECRET"])


class OldPlain(OldModel):
    value: Any = None


class Pair(NamedTuple):
    first: Any
    second: Any = 2


@spied
class Color(enum.Enum):
    RED = "red"
    BLUE = (1, "blue")


class Mode(enum.IntFlag):
    ON = 1
    FAST = 2


KINDS = [
    "Spy",
    "SlottedSpy",
    "Setting",
    "Propertied",
    "Model",
    "Settings",
    "KeyedModel",
    "OldPlain",
    "Pair",
    "Color",
    "Mode",
]
