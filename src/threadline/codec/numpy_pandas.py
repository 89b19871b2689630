"""numpy and pandas: only in processes that use them. Stored bytes never import either."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable
from typing import Any

from ..errors import Corrupt, MissingExtra, NotAllowed, NotSerializable
from .builtin import Builtin, a_zone, is_zone_info
from .limits import a_dict, a_list, a_number, a_text, bytes_of, of_length

__all__ = ["langgraph_time_builder", "science_builder", "science_plan"]

# Texts of dtypes, as numpy writes them: byte order, kind, size, and the unit of times.
_DTYPE = re.compile(r"[<>|=]?[?bhilqpuBHILQPefdgFDGSUVOMmc]\d{0,10}(\[\d{0,10}[a-zA-Z]{1,7}\])?|object", re.ASCII)
# An empty array takes the memory of one element.
_LARGEST_ELEMENT = 1 << 20
_MOST_DIMENSIONS = 64
_MOST_FIELDS = 4_096
_DEEPEST_FIELDS = 16
# How numpy and pandas count what is no time.
_NO_TIME = -(1 << 63)
# A time as pandas writes it, to the nanosecond.
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?([+-]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?", re.ASCII)


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
    if library == "pandas" and cls.__name__ in ("NaTType", "Timestamp"):
        return Builtin("pandas.Timestamp", cls, _timestamp_state, _timestamp)
    if library == "pandas" and cls.__name__ == "Timedelta":
        return Builtin("pandas.Timedelta", cls, lambda value: [value.asm8.view("i8").item(), value.unit], _timedelta)
    return None


def science_builder(name: str) -> Callable[[Any], Any] | None:
    """How a stored numpy or pandas name is rebuilt."""
    return {
        "nd": _array,
        "np": _scalar,
        "npdtype": _dtype,
        "pandas.DataFrame": _frame,
        "pandas.Series": _series,
        "pandas.Timedelta": _timedelta,
        "pandas.Timestamp": _timestamp,
    }.get(name)


def langgraph_time_builder(name: str) -> Callable[[Any], Any] | None:
    """How a time of pandas' is rebuilt from what LangGraph stores of it."""
    return {"NaTType": _iso_timestamp, "Timedelta": _parted_timedelta, "Timestamp": _iso_timestamp}.get(name)


def _dtype_state(dtype: Any) -> Any:
    state = dtype.str if dtype.names is None else [list(field) for field in dtype.descr]
    if dtype.kind != "O" and (dtype.hasobject or _dtype(state) != dtype):
        raise TypeError(f"the numpy dtype {dtype} would not come back as it is: convert the array first")
    return state


def _numpy() -> Any:
    """numpy, where this process has imported it."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise NotAllowed("the stored value is of numpy: import numpy before reading")
    return numpy


def _dtype(state: Any, depth: int = 0) -> Any:
    numpy = _numpy()
    if type(state) is str:
        if not _DTYPE.fullmatch(state):
            raise Corrupt("a stored dtype is none that numpy writes")
        return numpy.dtype(state)
    fields = _listed(state)
    if len(fields) > _MOST_FIELDS or depth > _DEEPEST_FIELDS:
        raise Corrupt("a stored dtype has more fields than any that is stored")
    return numpy.dtype([_field(part, depth) for part in fields])


def _field(state: Any, depth: int) -> tuple[Any, ...]:
    name, kind, *shape = of_length(_listed(state), 2, 3)
    if type(name) is tuple and len(name) == 2:  # a field with a title
        title: Any = tuple(map(a_text, name))
    else:
        title = a_text(name)
    return (title, _dtype(kind, depth + 1), *(tuple(map(a_number, _a_shape(part))) for part in shape))


def _listed(state: Any) -> list[Any]:
    """The state, which must be a list or a tuple."""
    return list(state) if type(state) is tuple else a_list(state)


def _a_shape(state: Any) -> list[Any]:
    """The lengths of some dimensions."""
    shape = _listed(state)
    if len(shape) > _MOST_DIMENSIONS or any(a_number(length) < 0 for length in shape):
        raise Corrupt("a stored array has a shape that is none")
    return shape


def _array_state(array: Any) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if array.dtype.kind == "O":
        return ["object", list(array.shape), order, array.ravel(order=order).tolist()]
    if not array.size and array.dtype.itemsize > _LARGEST_ELEMENT:
        raise TypeError("an empty array of elements this large cannot be stored")
    return [_dtype_state(array.dtype), list(array.shape), order, array.tobytes(order=order)]


def _array(state: Any) -> Any:
    numpy = _numpy()
    dtype, shape, order, content = of_length(state, 4)
    if a_text(order) not in ("C", "F"):
        raise Corrupt("a stored array has an order that is none")
    if type(dtype) is str and dtype == "object":
        flat = numpy.empty(len(a_list(content)), dtype=object)
        for index, item in enumerate(content):
            flat[index] = item
    else:
        kind = _dtype(dtype)
        if kind.itemsize > max(len(bytes_of(content)), _LARGEST_ELEMENT):
            raise Corrupt("a stored array has elements that are larger than it is")
        # A copy, because a view of bytes cannot be written to and the original array could.
        flat = numpy.frombuffer(content, dtype=kind).copy()
    return flat.reshape(_a_shape(shape), order=order)


def _scalar(state: Any) -> Any:
    numpy = _numpy()
    dtype, content = of_length(state, 2)
    kind = _dtype(dtype)
    if len(bytes_of(content)) != kind.itemsize != 0:
        raise Corrupt("a stored number has another size than its dtype")
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
    _pandas()
    pandas, pyarrow = _arrow()
    stored, _, *objects = of_length(state, 2, 3)
    with pyarrow.ipc.open_stream(bytes_of(stored)) as stream:
        _check_schema(pyarrow, stream.schema)
        batches = []
        # Batch by batch, so that lengths that are lies are met before there are many of them.
        for batch in stream:
            batches.append(batch)
            if sum(each.num_rows for each in batches) > 8 * len(stored):
                raise Corrupt("a stored frame has more rows than bytes could hold")
        table = pyarrow.Table.from_batches(batches, stream.schema)
    table.validate(full=True)  # without this, forged offsets reach past the end of the bytes
    frame = table.to_pandas()
    for at, values in a_dict(objects[0]).items() if objects else ():
        column = _array(["object", [len(a_list(values))], "C", values])
        frame.isetitem(a_number(at), pandas.Series(column, index=frame.index, dtype=object))
    return frame


def _series(state: Any) -> Any:
    frame = _frame(state)
    return frame.iloc[:, 0].rename(state[1])


def _timestamp_state(moment: Any) -> list[Any]:
    """The count since 1970 and its unit; a zone, and which of two equal times on a clock it is."""
    if type(moment).__name__ == "NaTType":
        return [_NO_TIME, "ns", None, 0]
    zone = moment.tzinfo
    if zone is not None and type(zone) is not dt.timezone and not is_zone_info(zone):
        # Zones of other libraries cannot be rebuilt; the offset in force at that moment can.
        zone = dt.timezone(moment.utcoffset())
    return [moment.asm8.view("i8").item(), moment.unit, zone, moment.fold]


def _timestamp(state: Any) -> Any:
    count, unit, zone, fold = of_length(state, 4)
    pandas = _pandas()
    numpy = _numpy()
    if a_number(count) == _NO_TIME:
        return pandas.NaT
    moment = pandas.Timestamp(numpy.datetime64(a_number(count), _a_unit(unit)))
    if zone is not None:
        moment = moment.tz_localize(dt.timezone.utc).tz_convert(a_zone(zone))
    return moment.replace(fold=fold) if a_number(fold) != moment.fold else moment


def _timedelta(state: Any) -> Any:
    count, unit = of_length(state, 2)
    return _pandas().Timedelta(_numpy().timedelta64(a_number(count), _a_unit(unit)))


def _iso_timestamp(state: Any) -> Any:
    """A Timestamp of its text; LangGraph keeps the offset of its zone, and not the zone."""
    pandas = _pandas()
    if state == "NaT":
        return pandas.NaT
    if not _ISO.fullmatch(a_text(state, 64)):
        raise NotAllowed("the stored value is a time that pandas does not write")
    return pandas.Timestamp(state)


def _parted_timedelta(state: Any) -> Any:
    """A Timedelta of its days, seconds and microseconds; LangGraph drops the nanoseconds."""
    pandas = _pandas()
    return pandas.Timedelta(dt.timedelta(*map(a_number, of_length(state, 3))))


def _a_unit(unit: Any) -> str:
    if a_text(unit) not in ("s", "ms", "us", "ns"):
        raise Corrupt("a stored time has a unit that is none")
    return str(unit)


def _pandas() -> Any:
    """pandas, where this process has imported it."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        raise NotAllowed("the stored value is of pandas: import pandas before reading")
    return pandas


def _check_schema(pyarrow: Any, schema: Any) -> None:
    """Corrupt for columns that hold far more than their bytes."""
    if any(pyarrow.types.is_run_end_encoded(kind) for kind in schema.types):
        raise Corrupt("a stored frame has a column of a kind that is not written")
