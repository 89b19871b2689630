"""Semantic search: which texts of an item are embedded, and which items are nearest to a query.

The search is exact: every embedding below the prefix is compared with the query by cosine similarity, and an item
scores as its best text does. Embeddings are stored as 32-bit floats, the texts of one item side by side.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ...errors import InvalidRequest, MissingExtra
from ...ports.records import Embedded, Record, RecordSpace, Scan
from ..context import Context
from ..paging import record_pages
from .items import read_vectors

__all__ = ["Scored", "nearest", "numpy_module", "pack_vectors", "parse_path", "ranked", "texts_at"]

# Score, name and time of an item's embeddings.
Scored = tuple[float, bytes, float]
_PAGE = 1000
# How many more than wanted an index is asked for: some may not match the filter, or be of a former value.
_SPARE = 200
# How far the scores of two programs may differ, at most.
_DOUBT = 1e-5
_STEP = re.compile(r"\.?\[(-?\d+|\*)\]|\.?\{([^{}\[\]]*)\}|\.?([^.\[\]{}]+)")
# A step of a path: a key, a place in a list, or the paths of several fields.
Step = str | int | tuple[Any, ...]
# Between these the square of a vector's length is far from the ends of what 32 bits hold.
_SHORT, _LONG = 1e-15, 1e15


def parse_path(path: str) -> tuple[Step, ...]:
    """The steps of a text path: `$` (the whole value), `a.b`, `a[0]`, `a[-1]`, `a[*]`, `{a,b.c}` for several fields.

    `*` alone stands for all parts.
    """
    if path in ("$", ""):
        return ()
    steps: list[Step] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or step.end() == at:
            raise InvalidRequest(
                f"the field {path!r} is no path such as title, meta.title, chapters[0] or chapters[*].text"
            )
        index, fields, name = step.groups()
        if fields is not None:
            steps.append(tuple(parse_path(field.strip()) for field in fields.split(",") if field.strip()))
        else:
            steps.append(name if name is not None else "*" if index == "*" else int(index))
        at = step.end()
    return tuple(steps)


def texts_at(value: Any, steps: Sequence[Step]) -> list[str]:
    """The texts that a path finds in a value, as LangGraph's stores find them: a list or dict is taken as JSON."""
    if not steps:
        if value is None:
            return []
        if isinstance(value, (list, Mapping)):
            return [json.dumps(value, sort_keys=True, ensure_ascii=False)]
        return [str(value)]
    step, rest = steps[0], steps[1:]
    if step == "*":
        parts = list(value) if isinstance(value, list) else list(value.values()) if isinstance(value, Mapping) else []
        return [text for part in parts for text in texts_at(part, rest)]
    if isinstance(step, int):
        is_there = isinstance(value, list) and -len(value) <= step < len(value)
        return texts_at(value[step], rest) if is_there else []
    if isinstance(step, tuple):
        return [text for path in step for text in texts_at(value, (*path, *rest))]
    return texts_at(value[step], rest) if isinstance(value, Mapping) and step in value else []


def pack_vectors(vectors: Sequence[Sequence[float]], dims: int) -> bytes:
    """Embeddings as they are stored; InvalidRequest where one has another number of dimensions."""
    packed = array("f")
    for vector in vectors:
        try:
            if len(vector) != dims:
                raise InvalidRequest(f"the embedding has {len(vector)} dimensions, and the index was made for {dims}")
            packed.extend(_of_usual_length(array("f", [*vector])))
        except OverflowError:  # an integer that no float can hold
            packed.append(math.inf)
        except TypeError:
            raise InvalidRequest(f"embed gave {_kind(vector)} for a text: it gives a list of numbers") from None
    if not all(map(math.isfinite, packed)):
        raise InvalidRequest("the embedding holds a number that is not finite, or too large for 32 bits")
    return packed.tobytes()


def _kind(vector: Any) -> str:
    kinds = {type(part).__name__ for part in vector} if isinstance(vector, (list, tuple)) else set()
    return f"a {type(vector).__name__} of {', '.join(sorted(kinds))}" if kinds else type(vector).__name__


def _of_usual_length(vector: array[float]) -> array[float]:
    """A vector whose square is a 32-bit number too: only its direction counts."""
    largest = max(max(vector), -min(vector))
    if _SHORT < largest < _LONG or not math.isfinite(largest) or largest == 0:
        return vector
    return array("f", [number / largest for number in vector])


async def ranked(
    store: Context, prefix: bytes, query: bytes, dims: int, wanted: int, *, by_index: bool
) -> AsyncIterator[list[Scored]]:
    """Every embedding below a prefix, in parts: the best first, then by name.

    With `by_index` the database finds the first ones. Their scores are made here, as those of all others are, so the
    answer is the same.
    """
    seen: set[bytes] = set()
    if by_index:
        part, is_all = await _by_index(store, prefix, query, dims, wanted + _SPARE)
        yield part
        if is_all:
            return
        seen.update(name for _, name, _ in part)
    everything = await nearest(store, prefix, query, dims)
    yield [one for one in everything if one[1] not in seen] if seen else everything


async def _by_index(store: Context, prefix: bytes, query: bytes, dims: int, limit: int) -> tuple[list[Scored], bool]:
    """The first of a ranking, as far as the index is sure of them, and whether these are all."""
    answer = await store.backend.nearest_vectors(dims, prefix, query, limit)
    while answer.unfilled:
        held = await store.read_records(RecordSpace.VECTOR, answer.unfilled)
        await store.backend.fill_vectors(dims, [_embedded(store, one, dims) for one in held if one is not None])
        answer = await store.backend.nearest_vectors(dims, prefix, query, limit)
    records = await store.read_records(RecordSpace.VECTOR, [name for name, _ in answer.found])
    scored = _scored(store, [record for record in records if record is not None], query, dims)
    if len(answer.found) < limit:
        return scored, True
    # What the index left out is at least as far away as the last that it found.
    best_of_others = 1.0 - answer.found[-1][1] + _DOUBT
    return [one for one in scored if one[0] > best_of_others], False


def _embedded(store: Context, record: Record, dims: int) -> Embedded:
    vectors = read_vectors(store.tools, record)
    return Embedded(record.name, record.updated, vectors if len(vectors) % (4 * dims) == 0 else b"")


async def nearest(store: Context, prefix: bytes, query: bytes, dims: int) -> list[Scored]:
    """Score, name and time of every embedding below a prefix, the best first, then by name."""
    records: list[Record] = []
    async for page in record_pages(store, RecordSpace.VECTOR, Scan(prefix=prefix, limit=_PAGE)):
        records += page
    return _scored(store, records, query, dims)


def _scored(store: Context, records: Sequence[Record], query: bytes, dims: int) -> list[Scored]:
    np = numpy_module()
    names: list[bytes] = []
    times: list[float] = []
    starts: list[int] = []
    parts: list[bytes] = []
    total, width = 0, 4 * dims
    for record in records:
        vectors = read_vectors(store.tools, record)
        if vectors and len(vectors) % width == 0:  # others were made by an index of another size
            names.append(record.name)
            times.append(record.updated)
            starts.append(total)
            parts.append(vectors)
            total += len(vectors) // width
    if not names:
        return []
    matrix = np.frombuffer(b"".join(parts), dtype="<f4").reshape(-1, dims)
    wanted = np.frombuffer(query, dtype="<f4")
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(wanted)
    scores = np.divide(matrix @ wanted, lengths, out=np.zeros(len(matrix), dtype="<f4"), where=lengths > 0)
    best = np.maximum.reduceat(scores, starts)
    return sorted(zip(best.tolist(), names, times, strict=True), key=lambda one: (-one[0], one[1]))


def numpy_module() -> Any:
    """numpy; MissingExtra says what to install."""
    try:
        import numpy
    except ImportError:
        raise MissingExtra("semantic search needs numpy: pip install 'threadline[vectors]'") from None
    return numpy
