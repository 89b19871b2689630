"""What is remembered of a run, so that it need not be encoded again.

A run's *proof* shows whether values are still the ones it was made from, always by their bytes:

    Contents       the items one by one, as they were encoded
    Fingerprint    the values packed together: what contents become once they have proved equal to it
    Same           the objects themselves, where the user promised never to change them (`trust_identity`)

Every proof can also give the items back, so that chunks can be sent again without looking at values that
the program may have changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeAlias

from ..codec.fingerprints import Contents, Fingerprint, Fingerprinter
from ..codec.wire import Codec
from ..errors import NotSerializable
from .cache import BoundedCache

__all__ = ["Mark", "Proof", "Prover", "Recall", "Run"]

# What chunks were last known to be stored by: pool, epoch, and the number of that knowledge (core/known.py).
Mark = tuple[int, int, int]


class Same(NamedTuple):
    """Values recognised by identity; held, so that no other object can take their place in memory."""

    values: list[Any]


Proof: TypeAlias = Contents | Fingerprint | Same


class Run:
    """A run of references: a leaf of the tree, with its proof and where it is known to be stored."""

    __slots__ = ("cost_bytes", "digest", "first", "keys", "node_stored", "proof", "refs", "size", "stored")

    def __init__(
        self, refs: tuple[Any, ...], keys: tuple[str, ...] | None, proof: Proof, first: int, size: int
    ) -> None:
        self.refs = refs
        # The bytes of its encoded items.
        self.size = size
        self.keys = keys
        self.proof = proof
        # The id of the object it began with: a hint where to look first, never a proof.
        self.first = first
        self.digest: bytes | None = None
        # Where its items are known to be stored, and where its node is: a short list has no nodes.
        self.stored: Mark | None = None
        self.node_stored: Mark | None = None
        # About how much memory remembering this run takes.
        self.cost_bytes = _held_by(proof) + 120 * len(refs)


def _held_by(proof: Proof) -> int:
    if isinstance(proof, Fingerprint):
        return len(proof.packed)
    return 200 * len(proof.values) if isinstance(proof, Same) else sum(map(len, proof.items))


class Prover:
    """Makes and checks proofs."""

    def __init__(self, codec: Codec, *, trust_identity: bool, shares_contents: bool = False) -> None:
        self.codec = codec
        self.fingerprints = Fingerprinter(codec)
        self.trust_identity = trust_identity
        # Where the store itself keeps the encoded items in memory, remembering them costs nothing.
        self.shares_contents = shares_contents

    def prove(self, values: Sequence[Any], begun: Proof | None, contents: list[bytes]) -> Proof:
        """A proof for values that were just encoded, made from what was encoded: they may be others by now.

        `begun` holds for those at their beginning; `contents` are the items of the others.
        """
        if self.trust_identity:
            return Same(list(values))
        made = Contents(contents, list(map(type, values[len(values) - len(contents) :])))
        if isinstance(begun, Fingerprint):
            begun = Contents(self.fingerprints.items_of(begun), begun.kinds)
        return begun.followed_by(made) if isinstance(begun, Contents) else made

    def holds(self, run: Run, values: Sequence[Any], *, is_closed: bool) -> bool:
        """Whether the values still encode to the bytes that the run was made from."""
        proof = run.proof
        if isinstance(proof, Same):
            return all(map(is_, proof.values, values))
        if isinstance(proof, Fingerprint):
            return self.fingerprints.of(values) == proof
        if id(values[0]) != run.first and not self._is_content(values[0], proof.items[0]):
            return False
        run.first = id(values[0])
        found = self.fingerprints.of(values)
        if found is None:
            return self._are_contents(values, proof)
        if not self.fingerprints.is_made_of(found, proof):
            return self.fingerprints.misleads(found) and self._are_contents(values, proof)
        if proof.is_plain is None:
            proof.is_plain = not self.fingerprints.misleads(found)
        if not proof.is_plain:
            return self._are_contents(values, proof)
        if is_closed and not self.shares_contents:
            run.proof = found  # it will be asked again and again, and this is quicker to compare
        return True

    def _are_contents(self, values: Sequence[Any], proof: Contents) -> bool:
        return all(map(self._is_content, values, proof.items))

    def _is_content(self, value: Any, content: bytes) -> bool:
        try:
            return self.codec.encode(value) == content
        except NotSerializable:
            return False  # encoding it again will say where it is

    def contents(self, proof: Proof) -> Iterator[tuple[Any, bytes | None]]:
        """The encoded items of a run; for `Same`, the values themselves to be encoded again."""
        if isinstance(proof, Same):
            for value in proof.values:
                yield value, None
        else:
            for content in self.fingerprints.items_of(proof) if isinstance(proof, Fingerprint) else proof.items:
                yield None, content


class Recall:
    """The runs of each channel's last value, within a bound in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._channels: BoundedCache[tuple[str, str, str], list[Run]] = BoundedCache(limit_bytes)

    def get(self, thread_id: str, namespace: str, channel: str) -> Sequence[Run]:
        return self._channels.get((thread_id, namespace, channel)) or ()

    def keep(self, thread_id: str, namespace: str, channel: str, made: list[Run]) -> None:
        if made:
            self._channels.put((thread_id, namespace, channel), made, sum(run.cost_bytes for run in made))

    def clear(self) -> None:
        self._channels.clear()
