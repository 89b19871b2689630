"""numpy and pandas: looked up only in processes that use them, or when stored bytes hold their arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..errors import MissingExtra, NotSerializable
from .builtin import Builtin

__all__ = ["science_builder", "science_plan"]


def science_plan(cls: type) -> Builtin | None:
    """How instances of a numpy or pandas class are stored; None for every other class."""
    library = cls.__module__.partition(".")[0]
    if library == "numpy" and "numpy" in sys.modules:
        import numpy

        if cls is numpy.ndarray:
            return Builtin("nd", cls, _array_state, _array)
        if issubclass(cls, numpy.ndarray):
            raise NotSerializable(f"a numpy {cls.__name__} would lose what it adds to an array: convert it first")
        if issubclass(cls, numpy.generic):
            return Builtin("np", cls, lambda value: [_dtype_state(value.dtype), value.tobytes()], _scalar)
        if issubclass(cls, numpy.dtype):
            return Builtin("npdtype", cls, _dtype_state, _dtype)
    if library == "pandas" and cls.__name__ in ("DataFrame", "Series"):
        return Builtin(f"pandas.{cls.__name__}", cls, _frame_state, _frame)
    return None


def science_builder(name: str) -> Callable[[Any], Any] | None:
    """How a stored numpy or pandas name is rebuilt."""
    return {
        "nd": _array,
        "np": _scalar,
        "npdtype": _dtype,
        "pandas.DataFrame": _frame,
        "pandas.Series": lambda state: _frame(state).iloc[:, 0].rename(state[1]),
    }.get(name)


def _dtype_state(dtype: Any) -> Any:
    state = dtype.str if dtype.names is None else [list(field) for field in dtype.descr]
    if dtype.kind != "O" and (dtype.hasobject or _dtype(state) != dtype):
        raise TypeError(f"the numpy dtype {dtype} would not come back as it is: convert the array first")
    return state


def _dtype(state: Any) -> Any:
    import numpy

    if isinstance(state, str):
        return numpy.dtype(state)
    return numpy.dtype([(name, _dtype(kind), *map(tuple, shape)) for name, kind, *shape in state])


def _array_state(array: Any) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if array.dtype.kind == "O":
        return ["object", list(array.shape), order, array.ravel(order=order).tolist()]
    return [_dtype_state(array.dtype), list(array.shape), order, array.tobytes(order=order)]


def _array(state: Any) -> Any:
    import numpy

    dtype, shape, order, content = state
    if dtype == "object":
        flat = numpy.empty(len(content), dtype=object)
        for index, item in enumerate(content):
            flat[index] = item
    else:
        # A copy, because a view of bytes cannot be written to and the original array could.
        flat = numpy.frombuffer(content, dtype=_dtype(dtype)).copy()
    return flat.reshape(shape, order=order)


def _scalar(state: Any) -> Any:
    import numpy

    kind, content = _dtype(state[0]), state[1]
    # Empty text has no bytes to read it from.
    return numpy.frombuffer(content, dtype=kind)[0] if kind.itemsize else numpy.zeros((), kind)[()]


def _arrow() -> Any:
    try:
        import pandas
        import pyarrow
    except ImportError as error:
        raise MissingExtra("storing pandas objects needs pyarrow: pip install 'threadline[pandas]'") from error
    return pandas, pyarrow


def _frame_state(frame: Any) -> list[Any]:
    pandas, pyarrow = _arrow()
    name = None
    if isinstance(frame, pandas.Series):
        name, frame = frame.name, frame.to_frame(name="value")
    # Arrow guesses what objects are; theirs are stored as they are, and zeros hold the places of such columns.
    objects = {at: frame.iloc[:, at].tolist() for at, kind in enumerate(frame.dtypes) if str(kind) == "object"}
    typed = frame.copy(deep=False)
    for at in objects:
        typed.isetitem(at, 0)
    table = pyarrow.Table.from_pandas(typed)
    _check_labels(frame, table)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return [sink.getvalue().to_pybytes(), name, *([objects] if objects else [])]


def _check_labels(frame: Any, table: Any) -> None:
    """TypeError for names of columns or rows that Arrow would change."""
    found = (table if str(frame.index.dtype) == "object" else table.slice(0, 0)).to_pandas()
    names, rows = list(frame.columns), frame.index[: len(found)]
    if list(found.columns) != names or list(map(repr, found.index)) != list(map(repr, rows)):
        raise TypeError("Arrow would change the labels of this frame: give it labels of one type")


def _frame(state: Any) -> Any:
    pandas, pyarrow = _arrow()
    stored, _, *objects = state
    table = pyarrow.ipc.open_stream(stored).read_all()
    table.validate(full=True)  # without this, forged offsets reach past the end of the bytes
    frame = table.to_pandas()
    for at, values in objects[0].items() if objects else ():
        column = _array(["object", [len(values)], "C", values])
        frame.isetitem(at, pandas.Series(column, index=frame.index, dtype=object))
    return frame
