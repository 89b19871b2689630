"""The functional API: `@entrypoint` makes a graph out of a function, `@task` makes calls whose results are kept.

An entrypoint is a graph of one node with the channels `__start__` (its input), `__end__` (its result) and
`__previous__` (what its next call on the thread gets as `previous`).
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .building.actions import action_of, is_async_callable, name_of
from .building.plan import Node
from .channels import EphemeralValue, LastValue
from .compiled import Pregel
from .constants import CACHE_NS_WRITES, END, PREVIOUS, START
from .policies import CachePolicy, RetryPolicy, TimeoutPolicy
from .running.calls import call, called_node
from .running.tasks import Task
from .runtime import CURRENT_TASK
from .warnings import LangGraphDeprecatedSinceV05, LangGraphDeprecatedSinceV10

__all__ = ["entrypoint", "task"]

R = TypeVar("R")
S = TypeVar("S")


class TaskFunction:
    """A function whose calls inside a graph are tasks of their own."""

    def __init__(self, function: Callable[..., Any], name: str | None, **policies: Any) -> None:
        self.func = function
        functools.update_wrapper(self, function)
        self.name = name or name_of(function)
        if name is not None:
            self.__name__ = name
        self.node = called_node(function, self.name, **policies)
        self.cache_policy = policies.get("cache")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        caller = CURRENT_TASK.get()
        if caller is None:
            raise RuntimeError(
                f"Called the task {self.name!r} outside of a runnable context: call it in an entrypoint or a node"
            )
        return call(caller, self.node, args, kwargs)

    def clear_cache(self, cache: Any) -> None:
        """Forget the kept results of this task."""
        if self.cache_policy is not None:
            cache.clear([self._cache_namespace()])

    async def aclear_cache(self, cache: Any) -> None:
        if self.cache_policy is not None:
            await cache.aclear([self._cache_namespace()])

    def _cache_namespace(self) -> tuple[str, ...]:
        from .running.caching import identity

        return (CACHE_NS_WRITES, identity(self.func), self.name)


def task(
    __func_or_none__: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    retry_policy: RetryPolicy | Sequence[RetryPolicy] | None = None,
    cache_policy: CachePolicy[Any] | None = None,
    timeout: Any = None,
    **deprecated: Any,
) -> Any:
    """Make a function a task: calling it in a graph gives a future, and its result is kept."""
    if (retry := deprecated.get("retry")) is not None:
        warnings.warn("`retry` is deprecated. Use `retry_policy` instead.", LangGraphDeprecatedSinceV05, stacklevel=2)
        retry_policy = retry_policy or retry

    def decorate(function: Callable[..., Any]) -> TaskFunction:
        policy = _checked(timeout, function)
        return TaskFunction(function, name, retry=_policies(retry_policy), cache=cache_policy, timeout=policy)

    return decorate if __func_or_none__ is None else decorate(__func_or_none__)


def _checked(timeout: Any, function: Any) -> TimeoutPolicy | None:
    policy = TimeoutPolicy.coerce(timeout)
    if policy is not None and not is_async_callable(function):
        raise ValueError(
            f"{name_of(function)!r} has a timeout but is not async: a thread cannot be stopped. Write `async def`."
        )
    return policy


def _policies(given: RetryPolicy | Sequence[RetryPolicy] | None) -> tuple[RetryPolicy, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, RetryPolicy) else tuple(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Final(Generic[R, S]):
    """What an entrypoint returns to its caller, and what it saves for its next call."""

    value: R
    save: S


class entrypoint:
    """Make a function a graph that keeps its state per thread."""

    final = Final

    def __init__(
        self,
        checkpointer: Any = None,
        store: Any = None,
        cache: Any = None,
        context_schema: type[Any] | None = None,
        cache_policy: CachePolicy[Any] | None = None,
        retry_policy: RetryPolicy | Sequence[RetryPolicy] | None = None,
        timeout: Any = None,
        **deprecated: Any,
    ) -> None:
        for old, new, since in (
            ("config_schema", "context_schema", LangGraphDeprecatedSinceV10),
            ("retry", "retry_policy", LangGraphDeprecatedSinceV05),
        ):
            if deprecated.get(old) is not None:
                warnings.warn(f"`{old}` is deprecated. Use `{new}` instead.", since, stacklevel=2)
        self.checkpointer = checkpointer
        self.store = store
        self.cache = cache
        self.context_schema = context_schema or deprecated.get("config_schema")
        self.cache_policy = cache_policy
        self.retry_policy = _policies(retry_policy or deprecated.get("retry"))
        self.timeout = timeout

    def __call__(self, function: Callable[..., Any]) -> Pregel:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise NotImplementedError("Generators are not supported in the Functional API.")
        if not inspect.signature(function).parameters:
            raise ValueError("Entrypoint function must have at least one parameter")
        name = name_of(function)
        node = Node(
            name=name,
            triggers=(START,),
            channels=START,
            action=action_of(function, name),
            writers=(FinalWriter(),),
            retry=self.retry_policy,
            cache=self.cache_policy,
            timeout=_checked(self.timeout, function),
        )
        graph = Pregel(
            nodes={name: node},
            channels={
                START: EphemeralValue(_input_type(function)),
                END: LastValue(Any, END),
                PREVIOUS: LastValue(Any, PREVIOUS),
            },
            input_channels=START,
            output_channels=END,
            stream_channels=END,
            stream_mode="updates",
            stream_eager=True,
            checkpointer=self.checkpointer,
            store=self.store,
            cache=self.cache,
            context_schema=self.context_schema,
        )
        graph.__doc__ = function.__doc__
        return graph


def _input_type(function: Any) -> Any:
    first = next(iter(inspect.signature(function).parameters.values()))
    return Any if first.annotation is inspect.Parameter.empty else first.annotation


class FinalWriter:
    """Writes the result of an entrypoint, and what it saves."""

    is_async = False
    is_blocking = False

    def write(self, output: Any, task: Task) -> None:
        value, saved = (output.value, output.save) if isinstance(output, Final) else (output, output)
        task.writes.append((END, value))
        task.writes.append((PREVIOUS, saved))

    async def write_async(self, output: Any, task: Task) -> None:
        self.write(output, task)
