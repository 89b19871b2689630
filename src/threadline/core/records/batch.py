"""Operations on a Store as values, and how a batch of them is carried out.

The operations have the names and fields of LangGraph's, so either kind can be handed in. Reads of a batch see the
store as it was before the batch; its puts are one transaction. Texts are embedded before the store is touched, all of
a batch at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from ...codec.codec import Codec
from ...errors import Corrupt, InvalidRequest
from ...ports.records import pack_name
from ..context import Context
from ..filters import check_item_filter, item_matches
from .checks import check_key, check_namespace, ttl_seconds
from .contents import pack_item, unpack
from .items import get_items, list_groups, put_items, refresh_items, search_items, searchable_of
from .past import get_as_of, search_as_of
from .shapes import Found, ItemOptions, Put, name_of
from .vectors import pack_vectors, parse_path, ranked, texts_at

__all__ = [
    "GetOp",
    "Item",
    "ListNamespacesOp",
    "MatchCondition",
    "Prepared",
    "PutOp",
    "SearchOp",
    "StoreOptions",
    "is_plain_write",
    "item_of",
    "make_item",
    "moment_of",
    "namespaces_op",
    "prepare",
    "run_batch",
]

_BATCH = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class GetOp(NamedTuple):
    """Read one item."""

    namespace: tuple[str, ...]
    key: str
    refresh_ttl: bool = True
    as_of: float | None = None


class SearchOp(NamedTuple):
    """Find items below a namespace: by filter, by meaning (`query`), or both."""

    namespace_prefix: tuple[str, ...]
    filter: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    query: str | None = None
    refresh_ttl: bool = True
    as_of: float | None = None
    # Continue behind this item of an earlier page.
    after: Item | None = None


class PutOp(NamedTuple):
    """Keep a value, or with None delete the item. `index` names the fields to embed; False embeds none."""

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any] | None
    index: Any = None
    # Minutes, or a timedelta; None for no end.
    ttl: Any = None
    if_version: int | None = None


class MatchCondition(NamedTuple):
    """A `prefix` or `suffix` that a namespace must have; `*` matches any label."""

    match_type: str
    path: tuple[str, ...]


class ListNamespacesOp(NamedTuple):
    """List the namespaces that hold items."""

    match_conditions: Sequence[MatchCondition] | None = None
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


def namespaces_op(
    prefix: Sequence[str] | None, suffix: Sequence[str] | None, max_depth: int | None, limit: int, offset: int
) -> ListNamespacesOp:
    """The operation for namespaces that begin or end with some labels."""
    conditions = [
        MatchCondition(kind, check_namespace(path, may_be_empty=True))
        for kind, path in (("prefix", prefix), ("suffix", suffix))
        if path is not None
    ]
    return ListNamespacesOp(conditions, max_depth, limit, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A value that a store keeps, and when and in which version."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    version: int
    expires_at: datetime | None = None
    # How near the item is to the query of a search; None where it was not compared.
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store keeps items, and how it embeds them."""

    items: ItemOptions = field(default_factory=ItemOptions)
    refresh_on_read: bool = True
    dims: int | None = None
    # Paths of the texts that are embedded.
    fields: tuple[str, ...] = ("$",)
    # Whether the database has an index of embeddings.
    has_vector_index: bool = False


class Prepared(NamedTuple):
    """Checked operations, and the texts to embed for them."""

    ops: list[Any]
    # Of the values to put.
    texts: list[str]
    queries: list[str]
    # For each put or search that has some: where its vectors begin, of the texts and then of the queries, and how many
    # there are.
    spans: dict[int, tuple[int, int]]


def prepare(options: StoreOptions, codec: Codec, ops: Iterable[Any]) -> Prepared:
    """Check operations and collect the texts to embed; raises InvalidRequest before anything is stored."""
    checked: list[Any] = []
    texts: list[str] = []
    queries: dict[int, str] = {}
    spans: dict[int, tuple[int, int]] = {}
    for position, op in enumerate(ops):
        own: list[str] = []
        if hasattr(op, "value"):
            index, op = _checked_index(op.index), _checked_put(options.items, codec, op)
            if options.dims is not None and op.content is not None and index is not False:
                paths, value = options.fields if index is None else index, unpack(codec, op.content)[0]
                own = [text for path in paths for text in texts_at(value, parse_path(path))]
        elif hasattr(op, "namespace_prefix"):
            _check_search(op)
            if op.query and options.dims is not None:
                queries[position] = op.query
        elif hasattr(op, "key"):
            check_namespace(op.namespace)
            check_key(op.key)
        elif hasattr(op, "match_conditions"):
            _check_listing(op)
        else:
            raise InvalidRequest(f"a batch takes GetOp, PutOp, SearchOp and ListNamespacesOp, not {type(op).__name__}")
        if own:
            spans[position] = (len(texts), len(own))
            texts += own
        checked.append(op)
    spans.update({position: (len(texts) + number, 1) for number, position in enumerate(queries)})
    return Prepared(checked, texts, list(queries.values()), spans)


def is_plain_write(options: StoreOptions, prepared: Prepared) -> bool:
    """Whether operations are puts that need not read anything first."""
    return not options.items.keeps_history and all(
        type(op) is Put and op.if_version is None and op.content is not None for op in prepared.ops
    )


async def run_batch(
    store: Context, options: StoreOptions, prepared: Prepared, vectors: Sequence[Sequence[float]]
) -> list[Any]:
    """The results of operations, in their order: an item or None, items, namespaces, and None for a put."""
    packed = {}
    for position, (start, count) in prepared.spans.items():
        packed[position] = pack_vectors(vectors[start : start + count], options.dims or 0)
    results: list[Any] = [None] * len(prepared.ops)
    puts: list[Put] = []
    gets: list[tuple[int, Any]] = []
    for position, op in enumerate(prepared.ops):
        if type(op) is Put:
            puts.append(op._replace(vectors=packed[position]) if position in packed else op)
        elif hasattr(op, "namespace_prefix"):
            results[position] = await _search(store, options, op, packed.get(position))
        elif hasattr(op, "key"):
            gets.append((position, op))
        else:
            results[position] = await _namespaces(store, op)
    if gets:
        await _get(store, gets, results)
    if puts:
        await put_items(store, options.items, puts)
    return results


async def _get(store: Context, gets: Sequence[tuple[int, Any]], results: list[Any]) -> None:
    parts: dict[bool, list[tuple[int, Any]]] = {}
    for position, op in gets:
        moment = getattr(op, "as_of", None)
        if moment is None:
            parts.setdefault(bool(op.refresh_ttl), []).append((position, op))
        else:
            then = await get_as_of(store, name_of(op.namespace, op.key), moment)
            results[position] = item_of(then) if then is not None else None
    for refresh, part in parts.items():
        names = [name_of(op.namespace, op.key) for _, op in part]
        found = await get_items(store, names, refresh=refresh)
        for (position, _), item in zip(part, found, strict=True):
            results[position] = item_of(item) if item is not None else None


async def _search(store: Context, options: StoreOptions, op: Any, query: bytes | None) -> list[Item]:
    prefix = pack_name(op.namespace_prefix)
    moment, after = getattr(op, "as_of", None), _place(getattr(op, "after", None))
    if moment is not None:
        then = await search_as_of(store, prefix, op.filter, moment, after)
        return [item_of(item) for item in then[op.offset : op.offset + op.limit]]
    wanted = op.offset + op.limit
    found: list[tuple[Found, float | None]] = []
    if query is not None:
        found += await _by_meaning(store, options, op, prefix, query, wanted)
    if len(found) < wanted:
        # Items without an embedding come after those with one.
        scored = {item.name for item, _ in found}
        async for item in search_items(
            store, options.items, prefix, op.filter, after=after, wanted_count=max(wanted, 1)
        ):
            if item.name not in scored:
                found.append((item, None))
            if len(found) == wanted:
                break
    page = found[op.offset : wanted]
    if op.refresh_ttl:
        await refresh_items(store, [item for item, _ in page])
    return [item_of(item, score) for item, score in page]


async def _by_meaning(
    store: Context, options: StoreOptions, op: Any, prefix: bytes, query: bytes, wanted: int
) -> list[tuple[Found, float | None]]:
    """The items nearest to a query that match the filter."""
    filter = check_item_filter(op.filter)
    found: list[tuple[Found, float | None]] = []
    async for ranking in ranked(store, prefix, query, options.dims or 0, wanted, by_index=options.has_vector_index):
        for start in range(0, len(ranking), _BATCH):
            part = ranking[start : start + _BATCH]
            items = await get_items(store, [name for _, name, _ in part], refresh=False)
            for (score, _, made), item in zip(part, items, strict=True):
                # Embeddings of another time are of a former value, which a store without an index has replaced.
                if item is not None and item.updated == made and item_matches(item.value, filter):
                    found.append((item, score))
                    if len(found) == wanted:
                        return found
    return found


async def _namespaces(store: Context, op: Any) -> list[tuple[str, ...]]:
    conditions = list(op.match_conditions or ())
    fixed: list[str] = []
    for condition in conditions:
        if condition.match_type == "prefix":
            fixed = []
            for label in condition.path:
                if label == "*":
                    break
                fixed.append(label)
    # Conditions are about whole namespaces; only then are these cut.
    depth = 1_000_000 if conditions or op.max_depth is None else op.max_depth
    seen: dict[tuple[str, ...], None] = {}
    async for namespace in list_groups(store, pack_name(fixed), depth):
        if all(_meets(namespace, condition) for condition in conditions):
            seen[namespace[: op.max_depth]] = None
            if len(seen) == op.offset + op.limit:
                break
    return list(seen)[op.offset : op.offset + op.limit]


def _meets(namespace: tuple[str, ...], condition: Any) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(label in ("*", own) for label, own in zip(path, part, strict=True))


# -- checks


def _checked_put(options: ItemOptions, codec: Codec, op: Any) -> Put:
    namespace, key, value, ttl = check_namespace(op.namespace), check_key(op.key), op.value, op.ttl
    seconds = ttl_seconds(ttl) if ttl is not None else None
    if_version = getattr(op, "if_version", None)
    if if_version is not None and (type(if_version) is not int or if_version < 0):
        raise InvalidRequest(f"if_version is the version of an item, or 0 for none, not {if_version!r}")
    return Put(
        namespace,
        key,
        pack_item(codec, value, seconds) if value is not None else None,
        seconds,
        searchable_of(value, options.indexed) if options.indexed and value is not None else None,
        None,
        if_version,
    )


def _checked_index(index: Any) -> Any:
    """The paths of texts to embed; None for those of the store, False for none."""
    if index is None or index is False:
        return index
    if isinstance(index, str) or not all(isinstance(path, str) for path in index):
        raise InvalidRequest("index is False, or a list of paths such as ['title', 'chapters[*].text']")
    return tuple(index)


def _check_numbers(op: Any, *names: str) -> None:
    for name in names:
        number = getattr(op, name)
        if type(number) is not int or number < 0:
            raise InvalidRequest(f"{name} is a number, 0 or more, not {number!r}")


def _check_listing(op: Any) -> None:
    _check_numbers(op, "limit", "offset")
    if op.max_depth is not None:
        _check_numbers(op, "max_depth")
    for condition in op.match_conditions or ():
        if condition.match_type not in ("prefix", "suffix"):
            raise InvalidRequest(f"a condition matches a prefix or a suffix, not {condition.match_type!r}")
        check_namespace(condition.path, may_be_empty=True)


def _check_search(op: Any) -> None:
    check_namespace(op.namespace_prefix, may_be_empty=True)
    _check_numbers(op, "limit", "offset")
    after = getattr(op, "after", None)
    if after is not None and not isinstance(after, Item):
        raise InvalidRequest(f"after is an item of an earlier page, not {type(after).__name__}")
    if after is not None and op.query:
        raise InvalidRequest("search takes a query or after, not both: what is sorted by a query is paged by offset")


def item_of(found: Found, score: float | None = None) -> Item:
    """An item as callers see it."""
    expires = moment_of(found.expires) if found.expires is not None else None
    return make_item(
        found.namespace,
        found.key,
        found.value,
        moment_of(found.created),
        moment_of(found.updated),
        found.version,
        expires,
        score,
    )


# Items are frozen to their owners. Their slots fill faster than the constructor of a frozen class sets them.
_set_namespace, _set_key, _set_value, _set_created, _set_updated, _set_version, _set_expires, _set_score = (
    getattr(Item, name).__set__ for name in Item.__slots__
)


def make_item(
    namespace: tuple[str, ...],
    key: str,
    value: dict[str, Any],
    created_at: datetime,
    updated_at: datetime,
    version: int,
    expires_at: datetime | None,
    score: float | None = None,
) -> Item:
    """What `Item(…)` makes."""
    item = object.__new__(Item)
    _set_namespace(item, namespace)
    _set_key(item, key)
    _set_value(item, value)
    _set_created(item, created_at)
    _set_updated(item, updated_at)
    _set_version(item, version)
    _set_expires(item, expires_at)
    _set_score(item, score)
    return item


def _place(after: Item | None) -> tuple[float, bytes] | None:
    """Where an item stands in the order of a search."""
    if after is None:
        return None
    return (after.updated_at - _EPOCH).total_seconds(), name_of(after.namespace, after.key)


def moment_of(seconds: float) -> datetime:
    """A time as callers see it."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):  # before 1970 on some systems, or beyond all calendars
        latest = datetime.max if seconds > 0 else datetime.min
        try:
            return _EPOCH + timedelta(seconds=seconds)
        except OverflowError:
            return latest.replace(tzinfo=timezone.utc)
        except ValueError:
            raise Corrupt("the record of an item is damaged: one of its times is none") from None
    except TypeError:  # SQLite keeps anything in any column
        raise Corrupt("the record of an item is damaged: one of its times is none") from None
