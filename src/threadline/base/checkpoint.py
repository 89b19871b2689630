"""The plain data that graphs and savers exchange, in the shapes LangGraph's users know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, Protocol, TypedDict, TypeVar

from .ids import new_id
from .versions import Version

__all__ = [
    "ANSWERED",
    "ChannelVersions",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointTuple",
    "Config",
    "DeltaChannelHistory",
    "ERROR",
    "INTERRUPT",
    "OfThread",
    "PendingWrite",
    "RESUME",
    "SCHEDULED",
    "TASKS",
    "WRITES_IDX_MAP",
    "answered_ids",
    "config_of",
    "copy_checkpoint",
    "empty_checkpoint",
    "get_checkpoint_id",
    "get_checkpoint_metadata",
    "is_engine_channel",
    "metadata_value",
    "waiting",
]

ERROR = "__error__"
SCHEDULED = "__scheduled__"
INTERRUPT = "__interrupt__"
RESUME = "__resume__"
# Threadline's own: which interrupt an answer that was stored for another process belongs to.
ANSWERED = "__answered__"
TASKS = "__pregel_tasks"

# Special writes live at negative indexes, so that they replace themselves and never a task's own writes.
WRITES_IDX_MAP = {ERROR: -1, SCHEDULED: -2, INTERRUPT: -3, RESUME: -4}

FORMAT_VERSION = 4
KNOWN_FORMAT_VERSIONS = range(1, FORMAT_VERSION + 1)

Config = dict[str, Any]
ChannelVersions = dict[str, Version]
PendingWrite = tuple[str, str, Any]  # task id, channel, value

# Private names under which graphs nevertheless keep state of their users: a state that is not a dict, and
# what a function of the functional API left for its next call.
_STATE_CHANNELS = frozenset(("__root__", "__previous__"))
_ENGINE_PREFIXES = ("__", "branch:", "join:", "start:")
_NOT_METADATA = frozenset(
    [
        "thread_id",
        "checkpoint_id",
        "checkpoint_ns",
        "checkpoint_map",
        "langgraph_step",
        "langgraph_node",
        "langgraph_triggers",
        "langgraph_path",
        "langgraph_checkpoint_ns",
    ]
)
_JSON_NUMBERS = frozenset((int, float, bool, type(None)))
_JSON_ATOMS = frozenset((str, int, float, bool, type(None)))
_JSON_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}


class _Write(Protocol):
    """A pending write, as far as its task and channel."""

    @property
    def task_id(self) -> str: ...
    @property
    def channel(self) -> str: ...


W = TypeVar("W", bound=_Write)


class CheckpointMetadata(TypedDict, total=False):
    """What is known about a checkpoint beside its state."""

    source: str  # input, loop, update or fork
    step: int  # -1 for the first input
    parents: dict[str, str]  # namespace -> checkpoint id of the graphs above
    run_id: str


class Checkpoint(TypedDict):
    """The state of a graph after one superstep."""

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: ChannelVersions
    versions_seen: dict[str, ChannelVersions]
    updated_channels: list[str] | None


class CheckpointTuple(NamedTuple):
    """A checkpoint with its place in history and what was written towards the next one."""

    config: Config
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: Config | None = None
    pending_writes: list[PendingWrite] | None = None


class OfThread:
    """Something that is told of one thread."""

    __slots__ = ()
    thread_id: str

    @property
    def config(self) -> Config:
        """The config that runs a graph on this thread."""
        return config_of(self.thread_id)


class DeltaChannelHistory(TypedDict, total=False):
    """One delta channel along its parent chain: writes oldest first, and the value they start from."""

    writes: list[PendingWrite]
    seed: Any


def config_of(thread_id: str, namespace: str | None = None, checkpoint_id: str | None = None) -> Config:
    """The config that names a thread, or one checkpoint of it."""
    if checkpoint_id is None:
        named = {"thread_id": thread_id} if namespace is None else {"thread_id": thread_id, "checkpoint_ns": namespace}
        return {"configurable": named}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace or "", "checkpoint_id": checkpoint_id}}


def empty_checkpoint() -> Checkpoint:
    """A checkpoint without any state, with a new id."""
    return {
        "v": FORMAT_VERSION,
        "id": new_id(-2),
        "ts": datetime.now(timezone.utc).isoformat(),
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
        "updated_channels": None,
    }


def copy_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """A copy whose dicts may be changed without changing the original; channel values are shared."""
    copied = checkpoint.copy()
    copied["channel_values"] = checkpoint["channel_values"].copy()
    copied["channel_versions"] = checkpoint["channel_versions"].copy()
    copied["versions_seen"] = {node: seen.copy() for node, seen in checkpoint["versions_seen"].items()}
    return copied


def is_engine_channel(name: str) -> bool:
    """Whether a channel is for the engine's own use, such as a trigger, and holds no state of the user."""
    return name.startswith(_ENGINE_PREFIXES) and name not in _STATE_CHANNELS


def get_checkpoint_id(config: Mapping[str, Any]) -> str | None:
    """The checkpoint a config names; None when it means the newest."""
    named: str | None = config["configurable"].get("checkpoint_id")
    return named


def get_checkpoint_metadata(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a put: what it was given, joined by the plain values of the config.

    Ids and private keys (`__…`) of the config are left out, and nothing replaces a key already given. Values are
    those that JSON gives back (`metadata_value`), and texts have no NUL characters, as in LangGraph's savers.
    """
    merged = {}
    for key, value in metadata.items():
        # What nearly all metadata is, without a call: this is part of every put.
        if not (
            type(value) in _JSON_NUMBERS
            or (type(value) is str and "\0" not in value)
            or (type(value) is dict and not value)
        ):
            value = metadata_value(value)
        merged[key if type(key) is str else _json_key(key)] = value
    for source in (config.get("metadata"), config.get("configurable")):
        if not source or source.keys() <= _NOT_METADATA:
            continue
        for key, value in source.items():
            if not isinstance(key, str) or key in merged or key in _NOT_METADATA or key.startswith("__"):
                continue
            if isinstance(value, (str, int, float)):
                merged[key] = metadata_value(value)
    return merged


def metadata_value(value: Any) -> Any:
    """A value of the metadata as it is stored: as JSON gives it back, a text without NUL characters."""
    try:
        plain = _plain_json(value)
    except RecursionError:
        return value  # nested too deep for the codec too, which says where
    return plain.replace("\0", "") if type(plain) is str and "\0" in plain else plain


def answered_ids(writes: Iterable[PendingWrite]) -> set[str]:
    """The ids of the interrupts that were answered, by the notes among some pending writes."""
    notes = [value for _, channel, value in writes if channel == ANSWERED]
    return {note[0] for note in notes if type(note) is list and note and type(note[0]) is str}


def waiting(writes: Iterable[W]) -> list[W]:
    """Of pending writes of one checkpoint, the interrupts of tasks that have written no result since."""
    held = list(writes)
    finished = {write.task_id for write in held if write.channel not in WRITES_IDX_MAP}
    return [write for write in held if write.channel == INTERRUPT and write.task_id not in finished]


def _plain_json(value: Any) -> Any:
    """A value as JSON gives it back: tuples as lists, keys as texts, enums by their values.

    What JSON has no word for (sets, bytes, instances of classes) stays as it is.
    """
    if type(value) in _JSON_ATOMS:
        return value
    if isinstance(value, dict):
        return {_json_key(key): _plain_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_json(one) for one in value]
    for kind in (str, int, float):
        if isinstance(value, kind):
            # Not kind(value), which calls a method of the subclass.
            return _JSON_PLAIN[kind](value)
    return value


def _json_key(key: Any) -> Any:
    if type(key) is str or isinstance(key, tuple):  # a tuple is no key of JSON, and a list is none of Python
        return key
    plain = _plain_json(key)
    if plain is None or plain is True or plain is False:
        return {None: "null", True: "true", False: "false"}[plain]
    return repr(plain) if type(plain) in (int, float) else plain
