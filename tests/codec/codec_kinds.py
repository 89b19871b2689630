"""Data classes of every kind, as programs define them: in a module, under their own names.

`ran` notes every piece of a class's own code that runs, so that a test can say that none did.
"""

import enum
import functools
import sys
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Optional, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel
from pydantic import v1 as pydantic_v1

ran: list[str] = []
T = TypeVar("T")

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:

    class StrEnum(str, enum.Enum):
        """What Python has of its own from 3.11 on."""

        __str__ = str.__str__


# -- enums


class Plain(enum.Enum):
    RED = 1
    SAME_AS_RED = 1
    TEXT = "text"
    PAIR = (1, "two")
    NOTHING = None


class Text(StrEnum):
    LOW = "low"
    HIGH = "high"


class OldText(str, enum.Enum):
    LOW = "low"


class Number(enum.IntEnum):
    ONE = 1
    BIG = 2**70


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    A = 1
    B = 2
    C = 8


class AllEqual(enum.Enum):
    ONE = 1
    TWO = 2

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Watched(enum.Enum):
    KNOWN = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        ran.append(f"Watched._missing_({value!r})")
        return cls.KNOWN


class WatchedFlag(enum.Flag):
    A = 1
    B = 2
    C = 4

    @classmethod
    def _missing_(cls, value: object) -> Any:
        ran.append(f"WatchedFlag._missing_({value!r})")
        return super()._missing_(value)


# -- dataclasses


@dataclass
class Point:
    x: int
    y: Any = 0


@dataclass(frozen=True)
class FrozenPoint:
    x: int
    y: Any = 0


@dataclass(slots=True)
class SlottedPoint:
    x: int
    y: Any = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSlottedPoint:
    x: int
    y: Any = 0


@dataclass
class Point3(Point):
    z: float = -0.0
    inside: Optional["Point3"] = None


@dataclass(slots=True)
class SlottedPoint3(SlottedPoint):
    z: float = 1.5


@dataclass
class OverSlots:
    """A dataclass with a dict of its own, over fields that are slots."""

    __slots__ = ("a",)
    a: int


@dataclass
class MixedSlots(OverSlots):
    b: int = 2


@dataclass
class Order:
    number: int
    tags: list[str] = field(default_factory=list)
    total: int = field(init=False)
    hidden: int = field(default=0, compare=False, repr=False)
    factor: InitVar[int] = 2
    shared: ClassVar[list[int]] = [1, 2, 3]

    def __post_init__(self, factor: int) -> None:
        ran.append("Order.__post_init__")
        self.total = self.number * factor


@dataclass
class Unfinished:
    given: int
    later: int = field(init=False)


@dataclass(slots=True)
class SlottedUnfinished:
    given: int
    later: int = field(init=False)


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class ListWithFields(list):  # type: ignore[type-arg]
    name: str = ""


@dataclass
class Closing:
    """No data: whoever forges an instance makes its `__del__` run."""

    handle: int = 0

    def __del__(self) -> None:
        ran.append("Closing.__del__")


class Outer:
    @dataclass
    class Inner:
        value: Any

    class Level(enum.Enum):
        ONE = 1


# -- named tuples


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Tagged(Pair):
    __slots__ = ()


# -- pydantic, version 2


class Address(BaseModel):
    street: str
    zip: str | None = None


class Person(BaseModel):
    name: str
    age: int = 0
    address: Address | None = None
    friends: list["Person"] = Field(default_factory=list)
    extra_data: Any = None


class Nine(BaseModel):
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    a: int = 1
    b: int = 2


class TypedExtras(BaseModel):
    """Declares the type of its extra fields, as pydantic documents it."""

    __pydantic_extra__: dict[str, int] = Field(init=False)
    model_config = ConfigDict(extra="allow")

    a: int = 1


class NoPrivates(BaseModel):
    __pydantic_private__ = None

    a: int = 1


class Secretive(BaseModel):
    shown: int = 1
    _count: int = PrivateAttr(default=5)
    _log: list[str] = PrivateAttr(default_factory=list)
    _unset: int = PrivateAttr()


class OpenSecretive(BaseModel):
    model_config = ConfigDict(extra="allow")

    shown: int = 1
    _count: int = PrivateAttr(default=5)


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    first: int = Field(alias="firstValue")
    second: int = Field(default=2, validation_alias="zweite", serialization_alias="deuxieme")


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: Any


class Caching(BaseModel):
    value: int

    @functools.cached_property
    def double(self) -> int:
        return self.value * 2


class Numbers(RootModel[list[int]]):
    pass


class Holder(BaseModel, Generic[T]):
    content: T


IntHolder = Holder[int]


class Guarded(BaseModel):
    """Every hook that pydantic offers, watched."""

    value: int

    @pydantic.field_validator("value")
    @classmethod
    def check_value(cls, value: int) -> int:
        ran.append("Guarded.check_value")
        return value

    @pydantic.model_validator(mode="after")
    def check_all(self) -> "Guarded":
        ran.append("Guarded.check_all")
        return self

    def __init__(self, **values: Any) -> None:
        ran.append("Guarded.__init__")
        super().__init__(**values)

    def model_post_init(self, context: Any) -> None:
        ran.append("Guarded.model_post_init")


@pydantic.dataclasses.dataclass
class CheckedPoint:
    x: int
    y: Any = 0


# -- pydantic, version 1


class OldAddress(pydantic_v1.BaseModel):
    street: str
    zip: str | None = None


class OldPerson(pydantic_v1.BaseModel):
    name: str
    age: int = 0
    address: OldAddress | None = None
    _count: int = pydantic_v1.PrivateAttr(default=5)

    @pydantic_v1.validator("name")
    def check_name(cls, value: str) -> str:
        ran.append("OldPerson.check_name")
        return value


class OldOpen(pydantic_v1.BaseModel):
    a: int = 1

    class Config:
        extra = "allow"


# -- subclasses of basic types, and what is no data


class TextOfMine(str):
    __slots__ = ()


class IntOfMine(int):
    pass


class FloatOfMine(float):
    pass


class BytesOfMine(bytes):
    pass


class ListOfMine(list):  # type: ignore[type-arg]
    pass


class DictOfMine(dict):  # type: ignore[type-arg]
    pass


class TupleOfMine(tuple):  # type: ignore[type-arg]
    __slots__ = ()


class SetOfMine(set):  # type: ignore[type-arg]
    pass


class Opaque:
    def __init__(self, value: Any = None) -> None:
        ran.append("Opaque.__init__")
        self.value = value


class Grumpy(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error cannot even be printed")
