"""How a node is run: retried, cached, timed, traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, TypeVar

__all__ = [
    "CachePolicy",
    "RetryPolicy",
    "TimeoutPolicy",
    "TracePolicy",
    "default_cache_key",
    "default_retry_on",
    "omit_payload",
]

KeyFuncT = TypeVar("KeyFuncT", bound="Callable[..., str | bytes]")

# A second attempt of these fails as the first did. (OSError is asked for after ConnectionError, which is one.)
_HOPELESS = (
    ValueError,
    TypeError,
    ArithmeticError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    RuntimeError,
    ReferenceError,
    StopIteration,
    StopAsyncIteration,
    OSError,
)


def default_retry_on(error: Exception) -> bool:
    """Whether another attempt may help: lost connections, HTTP 5xx and what is no mistake of the program."""
    if isinstance(error, ConnectionError):
        return True
    # Errors of HTTP libraries, by their shape: neither library is imported for it.
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return 500 <= status < 600
    return not isinstance(error, _HOPELESS)


def default_cache_key(*args: Any, **kwargs: Any) -> bytes:
    """The input as bytes that are equal in every process for equal values."""
    from .running.caching import frozen_bytes

    return frozen_bytes((args, kwargs))


class RetryPolicy(NamedTuple):
    """When and how often a failed node is run again. Intervals are in seconds; jitter adds up to one second."""

    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    max_attempts: int = 3
    jitter: bool = True
    retry_on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] = default_retry_on


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeoutPolicy:
    """How long one attempt of an async node may take, and how long it may be silent."""

    run_timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    refresh_on: Literal["auto", "heartbeat"] = "auto"

    @classmethod
    def coerce(cls, value: float | timedelta | TimeoutPolicy | None) -> TimeoutPolicy | None:
        """The policy in seconds; a number or timedelta is a run timeout. Not positive: ValueError."""
        if value is None:
            return None
        given = value if isinstance(value, TimeoutPolicy) else cls(run_timeout=value)
        run_timeout = _seconds("run_timeout", given.run_timeout)
        idle_timeout = _seconds("idle_timeout", given.idle_timeout)
        if given.refresh_on not in ("auto", "heartbeat"):
            raise ValueError("refresh_on must be 'auto' or 'heartbeat'")
        if run_timeout is None and idle_timeout is None:
            return None
        return cls(run_timeout=run_timeout, idle_timeout=idle_timeout, refresh_on=given.refresh_on)


@dataclass(frozen=True, kw_only=True, slots=True)
class CachePolicy(Generic[KeyFuncT]):
    """Which inputs of a node count as equal, and for how many seconds a result is reused (None: for ever)."""

    key_func: KeyFuncT = default_cache_key  # type: ignore[assignment]
    ttl: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TracePolicy:
    """What of a node's input and output goes to traces."""

    process_inputs: Callable[[Any], Any] | None = None
    process_outputs: Callable[[Any], Any] | None = None


def omit_payload(_value: Any) -> dict[str, Any]:
    """For TracePolicy: trace nothing of the value."""
    return {}


def _seconds(name: str, value: float | timedelta | None) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds <= 0:
        raise ValueError(f"{name} must be greater than 0")
    return seconds
