"""What a value is, exactly: its type, its parts and their types, where `==` would forgive a difference.

`anatomy(a) == anatomy(b)` means that no program could tell the two apart, but for their identity.
"""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import re
import struct
import sys
import uuid
from typing import Any

import pydantic
from pydantic import v1 as pydantic_v1


def anatomy(value: Any) -> Any:
    """A plain description of a value, in which nothing is forgiven."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    for test, describe in _DESCRIPTIONS:
        if test(value):
            return (name, describe(value))
    return (name, value)


def _float(value: float) -> bytes:
    return b"nan" if value != value else struct.pack(">d", value)


def _pairs(value: Any) -> list[Any]:
    return [(anatomy(key), anatomy(item)) for key, item in value.items()]


def _fields(value: Any) -> list[Any]:
    return [
        (field.name, anatomy(getattr(value, field.name)) if hasattr(value, field.name) else "unset")
        for field in dataclasses.fields(value)
    ]


def _model(value: Any) -> list[Any]:
    names = type(value).model_fields
    described = [
        # In any order: pydantic itself does not keep one.
        sorted((name, repr(anatomy(item))) for name, item in value.__dict__.items() if name in names),
        _pairs(value.__pydantic_extra__ or {}),
        _pairs(value.__pydantic_private__ or {}),
    ]
    if not type(value).__module__.startswith("langchain_core."):
        described.append(sorted(value.__pydantic_fields_set__))
    return described


def _old_model(value: Any) -> list[Any]:
    private = {name: getattr(value, name) for name in type(value).__private_attributes__ if hasattr(value, name)}
    return [sorted((k, repr(anatomy(v))) for k, v in value.__dict__.items()), sorted(value.__fields_set__), private]


def _zone(value: Any) -> Any:
    return anatomy(value) if value is None else (type(value).__name__, repr(value))


def _moment(value: Any) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)]


def _array(value: Any) -> list[Any]:
    order = [value.flags.c_contiguous, value.flags.f_contiguous]
    dtype = [repr(value.dtype), value.dtype.itemsize, value.dtype.isalignedstruct]
    if value.dtype.hasobject:
        return [dtype, value.shape, order, [anatomy(item) for item in value.ravel().tolist()]]
    return [dtype, value.shape, order, value.tobytes()]


def _frame(value: Any) -> list[Any]:
    columns = [value] if value.ndim == 1 else [value.iloc[:, at] for at in range(value.shape[1])]
    return [
        [(_label(column.name), str(column.dtype), [anatomy(item) for item in column]) for column in columns],
        [(str(value.index.dtype), value.index.names, [anatomy(item) for item in value.index])],
        [] if value.ndim == 1 else [(value.columns.names, str(value.columns.dtype), list(value.columns))],
    ]


def _label(name: Any) -> str:
    # A range of names comes back as an index of the same names.
    return repr(name.item() if hasattr(name, "item") else name)


def _is_numpy(name: str) -> Any:
    return lambda value: "numpy" in sys.modules and isinstance(value, getattr(sys.modules["numpy"], name))


def _is_pandas(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series))


_DESCRIPTIONS: list[tuple[Any, Any]] = [
    (_is_pandas, _frame),
    (_is_numpy("ndarray"), _array),
    (_is_numpy("generic"), lambda value: [repr(value.dtype), value.tobytes()]),
    (lambda value: isinstance(value, enum.Enum), lambda value: [value.name, repr(value.value)]),
    (lambda value: isinstance(value, pydantic.BaseModel), _model),
    (lambda value: isinstance(value, pydantic_v1.BaseModel), _old_model),
    (lambda value: dataclasses.is_dataclass(value) and not isinstance(value, type), _fields),
    (lambda value: isinstance(value, (dt.datetime, dt.time)), _moment),
    (lambda value: isinstance(value, collections.defaultdict), lambda v: [v.default_factory, _pairs(v)]),
    (lambda value: isinstance(value, dict), _pairs),
    (lambda value: isinstance(value, collections.deque), lambda v: [v.maxlen, [anatomy(item) for item in v]]),
    (lambda value: isinstance(value, (list, tuple)), lambda value: [anatomy(item) for item in value]),
    (lambda value: isinstance(value, (set, frozenset)), lambda v: sorted(repr(anatomy(item)) for item in v)),
    (lambda value: isinstance(value, re.Pattern), lambda value: [anatomy(value.pattern), value.flags]),
    (lambda value: isinstance(value, decimal.Decimal), lambda value: str(value)),
    (lambda value: isinstance(value, float), _float),
    (lambda value: isinstance(value, complex), lambda value: [_float(value.real), _float(value.imag)]),
    (lambda value: isinstance(value, range), lambda value: [value.start, value.stop, value.step]),
    (lambda value: isinstance(value, dt.timezone), repr),
    (lambda value: isinstance(value, uuid.UUID), lambda value: value.hex),
    (lambda value: isinstance(value, BaseException), lambda value: [repr(value), value.args]),
]
