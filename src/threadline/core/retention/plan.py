"""Retention policies: which checkpoints of a thread stay, decided by pure functions over its history.

Always kept, whatever the policy: the head of every branch of the root (unless `drop_branches_older_than`
says otherwise; never the newest), checkpoints with unsettled writes, tagged and pinned ones; and with every
kept checkpoint the subgraph checkpoints made under it, what subgraphs remember from earlier runs, and the chain
its delta channels are replayed from.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from ...base.checkpoint import Config, OfThread, config_of
from ...base.printable import printable
from ...ports.checkpoints import CheckpointKey
from ..history.branch import made_under, remembered
from ..history.graph import History
from .policy import Policy, seconds_of

__all__ = ["Plan", "by_rule", "choose", "choose_latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(OfThread):
    """The effect of a prune: a forecast until it is carried out."""

    thread_id: str
    keeps: tuple[CheckpointKey, ...]
    removes: tuple[CheckpointKey, ...]
    # Checkpoints that stay, without the writes that were taken up.
    empties: tuple[CheckpointKey, ...] = field(default=())
    # Checkpoints that stay while their children go: they are no heads of branches.
    goes_on: tuple[CheckpointKey, ...] = field(default=())
    freed_bytes: int = 0

    @property
    def removed_configs(self) -> list[Config]:
        """The checkpoints that go, as configs."""
        return [config_of(self.thread_id, *key) for key in self.removes]

    def __str__(self) -> str:
        total = len(self.removes) + len(self.keeps)
        return (
            f"{printable(self.thread_id)}: {len(self.removes):,} of {total:,} checkpoints go, "
            f"about {self.freed_bytes:,} bytes"
        )


def choose(
    history: History,
    policy: Policy,
    now: float,
    *,
    marked: Iterable[CheckpointKey] = (),
    unsettled: Iterable[CheckpointKey] = (),
    passed: Container[CheckpointKey] = (),
) -> set[CheckpointKey]:
    """The checkpoints that stay; those in `passed` had children once, and are no heads."""
    if policy.keeps_all:
        return set(history)
    root = sorted((key for key in history if key.namespace == ""), key=lambda key: key.id, reverse=True)
    kept = {key for key in (*marked, *unsettled) if key in history}
    kept |= {key for key in _branch_heads(history, policy, now) if key not in passed or key == root[0]}
    kept = kept.union(*by_rule(history, policy, now).values())
    return history.with_chains(kept | _below(history, kept))


def by_rule(history: History, policy: Policy, now: float) -> dict[str, set[CheckpointKey]]:
    """The checkpoints of the root that each rule of a policy keeps, by the name of the rule."""
    root = sorted((key for key in history if key.namespace == ""), key=lambda key: key.id, reverse=True)
    kept = {"keep_last": set(root[: policy.keep_last or 0])}
    within = seconds_of(policy.keep_within, "keep_within")
    if within is not None:
        kept["keep_within"] = {key for key in root if history[key].created >= now - within}
    kept["keep_hourly"] = _newest_of_each(history, root, "%Y-%m-%d %H", policy.keep_hourly or 0)
    kept["keep_daily"] = _newest_of_each(history, root, "%Y-%m-%d", policy.keep_daily or 0)
    return kept


def choose_latest(history: History, marked: Iterable[CheckpointKey] = ()) -> set[CheckpointKey]:
    """The newest checkpoint of each namespace, what is tagged or pinned, and what these are made of."""
    named = {key for key in marked if key in history}
    # What only serves a replay is not replayed itself: each chain is followed once.
    return history.keep_latest() | history.with_chains(named | _below(history, named) if named else ())


def _branch_heads(history: History, policy: Policy, now: float) -> set[CheckpointKey]:
    heads = history.heads()
    oldest = seconds_of(policy.drop_branches_older_than, "drop_branches_older_than")
    if oldest is None or not heads:
        return heads
    newest = max(heads, key=lambda key: key.id)
    return {key for key in heads if key == newest or history[key].created >= now - oldest}


def _newest_of_each(
    history: History, newest_first: list[CheckpointKey], pattern: str, count: int
) -> set[CheckpointKey]:
    kept: dict[str, CheckpointKey] = {}
    for key in newest_first if count else ():
        period = datetime.fromtimestamp(history[key].created, timezone.utc).strftime(pattern)
        if period not in kept and len(kept) < count:
            kept[period] = key
    return set(kept.values())


def _below(history: History, kept: set[CheckpointKey]) -> set[CheckpointKey]:
    """The checkpoints of subgraphs that belong to those that are kept."""
    roots = [key for key in kept if key.namespace == ""]
    unreadable = {key for key, step in history.items() if step.is_unreadable and key.namespace}
    return made_under(history, kept) | remembered(history, roots) | unreadable
