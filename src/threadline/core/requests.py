"""Arguments of callers, checked and normalized. A wrong one raises InvalidRequest before anything is done."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from ..base.checkpoint import KNOWN_FORMAT_VERSIONS
from ..errors import InvalidRequest
from ..ports.rules import is_hidden

__all__ = [
    "Place",
    "before_of",
    "check_checkpoint",
    "check_limit",
    "check_metadata",
    "check_moment",
    "check_new_versions",
    "check_put",
    "check_writes",
    "place_of",
    "plain_text",
    "text_id",
    "text_ids",
    "text_names",
    "thread_of",
]

# The types that nearly all have: looked at in one go, and one by one only where there are others.
_TEXT, _DICT, _VERSIONS = frozenset((str,)), frozenset((dict,)), frozenset((int, float, str))

_PAIRS, _TWO = frozenset((tuple,)), frozenset((2,))
_new, _first = tuple.__new__, itemgetter(0)

# Most are dicts, which are found first: asking an abstract class costs ten times as much.
_MAPPING = (dict, Mapping)


class Place(NamedTuple):
    """The place that a config names: a thread, a namespace, and a checkpoint or the newest."""

    thread_id: str
    namespace: str
    checkpoint_id: str | None


def place_of(config: Any) -> Place:
    """The place a config names."""
    if type(config) is dict and type(named := config.get("configurable")) is dict:
        # What nearly all configs are, in a few comparisons; everything else is looked at part by part.
        thread_id, namespace, checkpoint_id = named.get("thread_id"), named.get("checkpoint_ns"), None
        if "checkpoint_id" in named:
            checkpoint_id = named["checkpoint_id"]
        if namespace is None:
            namespace = ""
        if (
            type(thread_id) is str
            and type(namespace) is str
            and (checkpoint_id is None or type(checkpoint_id) is str)
            and thread_id
            and thread_id.isascii()
            and namespace.isascii()
            and (not checkpoint_id or checkpoint_id.isascii())
        ):
            return _new(Place, (thread_id, namespace, checkpoint_id or None))
    configurable = _configurable(config)
    namespace = configurable.get("checkpoint_ns")
    namespace = "" if namespace is None else plain_text(namespace, "checkpoint_ns")
    return Place(thread_of(configurable), namespace, _named_checkpoint(configurable))


def before_of(before: Any) -> str | None:
    """The checkpoint id that a list stays below; None without one."""
    if before is None:
        return None
    if not isinstance(before, _MAPPING) or not isinstance(before.get("configurable", {}), _MAPPING):
        raise InvalidRequest("before is a config: {'configurable': {'checkpoint_id': '…'}}")
    return _named_checkpoint(before.get("configurable", {}))


def _named_checkpoint(configurable: Mapping[str, Any]) -> str | None:
    named = configurable.get("checkpoint_id")
    return None if named is None or named == "" else text_id(named, "checkpoint_id")


def thread_of(configurable: Mapping[str, Any]) -> str:
    """The thread id of a config's `configurable` part."""
    if configurable.get("thread_id") is None:
        raise InvalidRequest("the config names no thread: pass {'configurable': {'thread_id': '…'}}")
    return text_id(configurable["thread_id"], "thread_id")


def text_id(value: Any, what: str) -> str:
    """An id as text; integers and UUIDs are taken as their text."""
    if type(value) is str and value and value.isascii():
        return value
    if isinstance(value, str):
        text = str.__str__(value)
    elif (isinstance(value, int) and not isinstance(value, bool)) or isinstance(value, uuid.UUID):
        text = str(value)
    else:
        raise InvalidRequest(f"{what} must be text, an integer or a UUID, not {type(value).__name__}")
    if not text:
        raise InvalidRequest(f"{what} is empty")
    if is_hidden(text):
        raise InvalidRequest(f"{what} begins with U+10FFFF sixteen times: such ids are the store's own")
    return plain_text(text, what)


def text_ids(values: Any, what: str) -> list[str]:
    """Several ids. One text is not taken for the sequence of its letters."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{what} must be a list of ids, not {type(values).__name__}")
    return [text_id(value, f"one of {what}") for value in values]


def text_names(values: Any, what: str) -> list[str]:
    """Several names of channels, which may be empty. One text is not taken for the sequence of its letters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{what} must be a list of names, not {type(values).__name__}")
    names = list(values)
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest(f"one of {what} must be text, not {type(name).__name__}")
    return names


def plain_text(value: Any, what: str) -> str:
    """Text that every store can hold."""
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds a lone surrogate, which UTF-8 cannot store") from None
    return str.__str__(value)


def check_limit(limit: Any) -> None:
    """A limit that is None or an integer."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidRequest(f"limit must be an integer or None, not {limit!r}")


def check_moment(moment: Any, what: str) -> None:
    """A moment that is None or seconds since 1970."""
    if moment is not None and (isinstance(moment, bool) or not isinstance(moment, (int, float))):
        raise InvalidRequest(f"{what} is seconds since 1970, not {type(moment).__name__}")


def check_put(config: Mapping[str, Any], checkpoint: Any, metadata: Any, new_versions: Any) -> str:
    """Check what a put is given; returns the checkpoint's id. The config was checked to name a place."""
    if (
        type(checkpoint) is dict
        and type(metadata) is dict
        and type(new_versions) is dict
        and ("metadata" not in config or type(config["metadata"]) is dict)
    ):
        # What nearly all puts are given, in a few comparisons; anything else may be sound as well.
        get, step = checkpoint.get, metadata.get("step")
        checkpoint_id, versions, values = get("id"), get("channel_versions"), get("channel_values")
        seen, updated = get("versions_seen"), get("updated_channels")
        if (
            type(checkpoint_id) is str
            and checkpoint_id
            and checkpoint_id.isascii()
            and type(get("ts")) is str
            and type(versions) is dict
            and type(values) is dict
            and type(seen) is dict
            and (updated is None or type(updated) is list)
            and type(get("v")) is int
            and checkpoint["v"] in KNOWN_FORMAT_VERSIONS
            and (step is None or (type(step) is int and step >= -2))
            and _TEXT.issuperset(map(type, values))
            and _TEXT.issuperset(map(type, versions))
            and _VERSIONS.issuperset(map(type, versions.values()))
            and _TEXT.issuperset(map(type, seen))
            and _DICT.issuperset(map(type, seen.values()))
        ):
            return checkpoint_id
    check_checkpoint(checkpoint)
    check_metadata(metadata, config)
    check_new_versions(new_versions)
    return text_id(checkpoint["id"], "the checkpoint's id")


def check_checkpoint(checkpoint: Any) -> None:
    """A checkpoint that has what every checkpoint has, in the right types."""
    if not isinstance(checkpoint, _MAPPING):
        raise InvalidRequest(f"a checkpoint is a dict, not {type(checkpoint).__name__}")
    for key in ("id", "ts", "channel_versions"):
        if key not in checkpoint:
            raise InvalidRequest(f"the checkpoint has no {key!r}")
    if not isinstance(checkpoint["id"], str) or not checkpoint["id"]:
        raise InvalidRequest("the checkpoint's 'id' must be text, and not empty")
    if not isinstance(checkpoint["ts"], str):
        raise InvalidRequest("the checkpoint's 'ts' must be text")
    for key in ("channel_versions", "channel_values", "versions_seen"):
        if key in checkpoint and not isinstance(checkpoint[key], _MAPPING):
            raise InvalidRequest(f"the checkpoint's {key!r} must be a dict")
    versions = checkpoint["channel_versions"]
    values, seen = checkpoint.get("channel_values", {}), checkpoint.get("versions_seen", {})
    if not _TEXT.issuperset(map(type, values)):
        for name in values:
            if not isinstance(name, str):
                raise InvalidRequest(f"a channel's name must be text, not {name!r}")
    if not _TEXT.issuperset(map(type, seen)) or not _DICT.issuperset(map(type, seen.values())):
        for node, by_channel in seen.items():
            if not isinstance(node, str) or not isinstance(by_channel, _MAPPING):
                raise InvalidRequest("the checkpoint's 'versions_seen' must be a dict of dicts, by node")
    updated = checkpoint.get("updated_channels")
    if updated is not None and (isinstance(updated, str) or not isinstance(updated, (list, tuple, set, frozenset))):
        raise InvalidRequest("the checkpoint's 'updated_channels' must be a list or None")
    v = checkpoint.get("v", 1)
    if type(v) is not int or v not in KNOWN_FORMAT_VERSIONS:
        raise InvalidRequest(f"checkpoint format v={v!r} is unknown; this version knows 1 to 4")
    if not _TEXT.issuperset(map(type, versions)) or not _VERSIONS.issuperset(map(type, versions.values())):
        for name, version in versions.items():
            if not isinstance(name, str) or isinstance(version, bool) or not isinstance(version, (int, float, str)):
                raise InvalidRequest(f"the version of channel {name!r} must be a number or text")


def check_new_versions(new_versions: Any) -> None:
    """The versions a put brings."""
    if not isinstance(new_versions, _MAPPING):
        raise InvalidRequest(f"new_versions is a dict of channel versions, not {type(new_versions).__name__}")


def check_metadata(metadata: Any, config: Mapping[str, Any]) -> None:
    """Metadata that is a dict with a possible step, and so what the config adds to it."""
    if config.get("metadata") is not None and not isinstance(config["metadata"], _MAPPING):
        raise InvalidRequest(f"the config's metadata is a dict, not {type(config['metadata']).__name__}")
    if not isinstance(metadata, _MAPPING):
        raise InvalidRequest(f"metadata is a dict, not {type(metadata).__name__}")
    step = metadata.get("step")
    # Steps begin at -1; LangGraph puts -2 for what it saves before the first one (durability="exit").
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < -2):
        raise InvalidRequest(f"metadata['step'] is -1 or more, not {step!r}")


def check_writes(writes: Any, task_id: Any, task_path: Any) -> list[tuple[str, Any]]:
    """Writes as a list of channel and value, with the ids that belong to them."""
    if (
        type(writes) is list
        and type(task_id) is str
        and type(task_path) is str
        and task_id
        and task_id.isascii()
        and task_path.isascii()
        and _PAIRS.issuperset(map(type, writes))
        and _TWO.issuperset(map(len, writes))
        and _TEXT.issuperset(map(type, channels := list(map(_first, writes))))
        and "".join(channels).isascii()
    ):
        return writes.copy()
    text_id(task_id, "task_id")
    plain_text(task_path, "task_path")
    if isinstance(writes, (str, bytes, Mapping)) or not isinstance(writes, Iterable):
        raise InvalidRequest("the writes of a task are a list of pairs of channel name and value")
    checked = []
    for write in writes:
        if not isinstance(write, (tuple, list)) or len(write) != 2 or not isinstance(write[0], str):
            raise InvalidRequest("a write is a pair of channel name and value")
        checked.append((plain_text(write[0], "the channel of a write"), write[1]))
    return checked


def _configurable(config: Any) -> Mapping[str, Any]:
    if not isinstance(config, _MAPPING) or not isinstance(config.get("configurable"), _MAPPING):
        raise InvalidRequest("a config is a dict with a dict 'configurable' that names the thread_id")
    configurable: Mapping[str, Any] = config["configurable"]
    return configurable
