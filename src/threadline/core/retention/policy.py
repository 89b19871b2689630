"""Retention policies as callers give them, and spans of time."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from ...errors import InvalidRequest

__all__ = ["HOT_WARM_COLD", "Policy", "TierPolicy", "seconds_of"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def seconds_of(value: Any, what: str) -> float | None:
    """A span of time: seconds, a timedelta, or text such as `90s`, `15m`, `36h`, `30d`, `2w`."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", value.strip())
        if found is None:
            raise InvalidRequest(f"{what} is a span of time such as 36h or 30d, not {value!r}")
        value = float(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise InvalidRequest(f"{what} is a span of time: seconds, a timedelta, or text such as 30d")
    try:
        return float(value)
    except OverflowError:
        raise InvalidRequest(f"{what} is a span of time, and no number of so many digits") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of retention. A checkpoint stays if any rule keeps it."""

    keep_last: int | None = None
    # Everything made within this time: seconds, a timedelta, or text such as `30d`.
    keep_within: Any = None
    # The last checkpoint of each of the newest N hours or days that have any.
    keep_hourly: int | None = None
    keep_daily: int | None = None
    # Branches, other than the one of the newest checkpoint, whose head is older than this may go.
    drop_branches_older_than: Any = None
    # Writes that a later checkpoint has taken up may go, also where their checkpoint stays.
    drop_settled_writes: bool = False
    # How long what goes can be restored from the trash, in the same words as keep_within; it is not unless this is set.
    trash: Any = None

    def __post_init__(self) -> None:
        for name in ("keep_last", "keep_hourly", "keep_daily"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidRequest(f"{name} is a number, 1 or more, not {value!r}")
        for name in ("keep_within", "drop_branches_older_than", "trash"):
            seconds_of(getattr(self, name), name)
        if not any(getattr(self, one.name) for one in fields(self) if one.name.startswith("keep_")):
            if self.drop_settled_writes and self.drop_branches_older_than is None:
                return
            raise InvalidRequest("this policy keeps nothing: give keep_last, keep_within, keep_hourly or keep_daily")

    @classmethod
    def of(cls, policy: Policy | None, rules: dict[str, Any]) -> Policy:
        """The policy that a caller gave, or gave as rules."""
        if policy is not None and (rules or not isinstance(policy, Policy)):
            raise InvalidRequest("prune takes a Policy, or rules such as keep_last=10, and not both")
        try:
            return policy or cls(**rules)
        except TypeError:
            raise InvalidRequest(f"unknown rule: {', '.join(sorted(rules))} (docs/retention.md lists them)") from None

    @property
    def keeps_all(self) -> bool:
        """Whether only settled writes go."""
        return not any(getattr(self, one.name) for one in fields(self) if one.name.startswith("keep_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """Which chunks go to the cold tier. A chunk that a thread needs which is not due stays in the database."""

    # Threads to which nothing was put for so long go as a whole: seconds, a timedelta, or text such as `7d`.
    after: Any = "7d"
    # Archived threads go at once.
    archived: bool = True
    # Chunks of at least so many stored bytes go once their threads are idle for `large_after`, be it at once. A large
    # value is stored in pieces of up to 64 KiB.
    large_bytes: int | None = None
    large_after: Any = 0

    def __post_init__(self) -> None:
        for name in ("after", "large_after"):
            if seconds_of(getattr(self, name), name) is None:
                raise InvalidRequest(f"{name} is a span of time such as 7d")
        if self.large_bytes is not None and (type(self.large_bytes) is not int or self.large_bytes < 1):
            raise InvalidRequest(f"large_bytes is a number of bytes, 1 or more, not {self.large_bytes!r}")

    @classmethod
    def of(cls, rule: Any) -> TierPolicy:
        """The policy that a caller gave, or gave as a span of time; without one the named default."""
        if rule is None:
            return HOT_WARM_COLD
        return rule if isinstance(rule, TierPolicy) else cls(after=rule)


# The named default, by size, age and use. Hot: whatever was put to within a day. Warm: small chunks, until nothing was
# put to their threads for a week. Cold: large chunks after a day, everything after a week, archived threads at once.
HOT_WARM_COLD = TierPolicy(after="7d", archived=True, large_bytes=8 * 1024, large_after="1d")
