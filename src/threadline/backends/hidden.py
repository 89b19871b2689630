"""The ids of hidden threads: where a store keeps what was taken out of a thread, next to the thread itself.

A hidden thread is in the pool of the thread that its rows came from (its origin), so that collecting finds their
chunks needed. Its id begins with a text that sorts behind every other id: listings end before it. No caller can
name one.
"""

from __future__ import annotations

from ..codec.hashing import blake2b

__all__ = ["ASIDE", "HIDDEN", "TRASH", "hidden_id", "hidden_ids_of", "is_hidden", "kind_of", "shown_origin"]

HIDDEN = "\U0010ffff" * 16
# What hidden threads hold: what was deleted and can be restored; what keeps the chunks of quarantined checkpoints.
TRASH, ASIDE = "t", "q"
_DIGEST = 32
_SLOT = 6
# How much of the origin's id is in the id; a key of an index has no room for any length.
_MOST_SHOWN = 200


def is_hidden(thread_id: str) -> bool:
    """Whether an id is that of a hidden thread."""
    return thread_id.startswith(HIDDEN)


def hidden_ids_of(origin: str) -> str:
    """What the ids of all hidden threads of a thread begin with, and no others."""
    return HIDDEN + blake2b(origin.encode(errors="surrogatepass"), digest_size=_DIGEST // 2).hexdigest()


def hidden_id(origin: str, kind: str, slot: int = 0) -> str:
    """The id of a hidden thread; ids are used again, since each leaves a tombstone."""
    return f"{hidden_ids_of(origin)}{kind}{slot:0{_SLOT}x}{origin[:_MOST_SHOWN]}"


def kind_of(thread_id: str) -> str:
    """TRASH or ASIDE."""
    return thread_id[len(HIDDEN) + _DIGEST]


def shown_origin(thread_id: str) -> str:
    """The beginning of the id of the thread that a hidden one belongs to; any other id is itself."""
    return thread_id[len(HIDDEN) + _DIGEST + 1 + _SLOT :] if is_hidden(thread_id) else thread_id
