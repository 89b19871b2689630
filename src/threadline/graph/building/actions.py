"""What a node runs: functions, methods, objects, generators, dicts of these, graphs and anything with `invoke`.

Rules: how to call an action is decided once, when the graph is built. What is injected is chosen by the *name* of a
parameter, and by its annotation only where the name alone could mean something else; classes are compared by name, so
that LangGraph's and LangChain's own annotations work without either being imported.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from .quick import is_quick

if TYPE_CHECKING:
    from ..running.tasks import Task

__all__ = [
    "Action",
    "Foreign",
    "action_of",
    "foreign",
    "injected_parameters",
    "install_foreign",
    "is_async_callable",
    "name_of",
]

# Parameter name -> what the task gives for it.
_INJECTED: dict[str, Callable[[Task], Any]] = {
    "config": lambda task: task.config,
    "writer": lambda task: task.stream_writer,
    "store": lambda task: task.store,
    "previous": lambda task: task.previous,
    "runtime": lambda task: task.runtime,
    "error": lambda task: task.node_error,
}
_CONFIG_CLASSES = ("RunnableConfig", "Optional[RunnableConfig]", "RunnableConfig | None", "None | RunnableConfig")
_UNUSUAL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_POSSIBLE = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Injection = tuple[str, Callable[["Task"], Any]]


class Foreign(Protocol):
    """What the commands and questions of another library mean here."""

    def call(self, source: Any, value: Any, task: Task) -> Any:
        """Call an object with `invoke` that may speak that library's types."""

    def call_async(self, source: Any, value: Any, task: Task) -> Awaitable[Any]:
        """Call an object with `ainvoke` that may speak that library's types."""

    def taken(self, value: Any, task: Task | None = None) -> Any:
        """What a function returned, or a graph was given, in this room's types."""

    def raised(self, error: Exception, task: Task) -> Exception | None:
        """The question or command that an error stands for; None for one that is just an error."""


_foreign: Foreign | None = None


def foreign() -> Foreign | None:
    """The bridge to another library, if one is installed."""
    return _foreign


def install_foreign(foreign: Foreign | None) -> None:
    """Let the bridge to another library call its objects; None: they are called as they are."""
    global _foreign
    _foreign = foreign


class Action:
    """Something to call with a node's input, now or awaited."""

    __slots__ = ("call", "call_async", "is_async", "is_quick", "name", "source")

    def __init__(
        self,
        name: str,
        source: Any,
        call: Callable[[Any, Task], Any] | None,
        call_async: Callable[[Any, Task], Awaitable[Any]] | None,
    ) -> None:
        self.name = name
        self.source = source
        self.call = call
        self.call_async = call_async
        self.is_async = call_async is not None
        self.is_quick = call is not None and call_async is None and is_quick(source)

    def no_sync_error(self) -> TypeError:
        """The error of an async action in a run that blocks."""
        return TypeError(
            f'No synchronous function provided to "{self.name}".\n'
            "Either initialize with a synchronous function or invoke via the async API (ainvoke, astream, etc.)"
        )


def action_of(source: Any, name: str | None = None) -> Action:
    """The action that a callable, a dict of callables or a runnable stands for; TypeError for anything else."""
    named = name or name_of(source)
    if _is_runnable(source):
        return _runnable_action(source, named)
    if callable(source):
        return _function_action(source, named)
    if isinstance(source, Mapping):
        return _map_action(source, named)
    raise TypeError(
        f"Expected a Runnable, callable or dict.Instead got an unsupported type: {type(source)}",
    )


def name_of(source: Any) -> str:
    """The name that a callable has by itself: its own, or its class's."""
    if (get_name := getattr(source, "get_name", None)) is not None and _is_runnable(source):
        return str(get_name())
    while isinstance(source, functools.partial):
        source = source.func
    return str(getattr(source, "__name__", None) or type(source).__name__)


def is_async_callable(function: Any) -> bool:
    """Whether calling gives something to await: also for partials and objects with an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def injected_parameters(function: Any) -> tuple[Injection, ...]:
    """The parameters of a function that a task fills in by itself."""
    if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
        # Most functions ask for nothing: their names are looked at without making a signature.
        code = function.__code__
        if _INJECTED.keys().isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
            return ()
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return ()
    found: list[Injection] = []
    for position, (name, parameter) in enumerate(parameters.items()):
        source = _INJECTED.get(name)
        if source is None or parameter.kind not in _POSSIBLE:
            continue
        if position == 0 and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue  # the first one takes the input, whatever it is called
        if name == "config" and not _takes_config(parameter.annotation):
            continue
        if name == "error" and not _names(
            parameter.annotation, ("NodeError", "Optional[NodeError]", "NodeError | None")
        ):
            continue
        found.append((name, source))
    return tuple(found)


def _takes_config(annotation: Any) -> bool:
    if annotation is inspect.Parameter.empty or _names(annotation, _CONFIG_CLASSES):
        return True
    warnings.warn(
        f"The 'config' parameter should be typed as 'RunnableConfig' or 'RunnableConfig | None', not '{annotation}'. ",
        UserWarning,
        stacklevel=4,
    )
    return False


def _names(annotation: Any, names: tuple[str, ...]) -> bool:
    return _text(annotation) in names


def _text(annotation: Any) -> str:
    """An annotation as it is written, without the modules its names come from."""
    if isinstance(annotation, type):
        return annotation.__name__
    text = annotation if isinstance(annotation, str) else str(annotation)
    return "".join(part.rsplit(".", 1)[-1] for part in _split(text))


def _split(text: str) -> list[str]:
    parts, word = [], ""
    for letter in text:
        if letter in "[]|, ":
            parts += [word, letter]
            word = ""
        else:
            word += letter
    return [*parts, word]


def _is_runnable(source: Any) -> bool:
    return callable(getattr(source, "invoke", None)) and callable(getattr(source, "ainvoke", None))


def _runnable_action(source: Any, name: str) -> Action:
    def call(value: Any, task: Task) -> Any:
        return _foreign.call(source, value, task) if _foreign else source.invoke(value, task.config)

    async def call_async(value: Any, task: Task) -> Any:
        return await (_foreign.call_async(source, value, task) if _foreign else source.ainvoke(value, task.config))

    return Action(name, source, call, call_async)


def _function_action(function: Callable[..., Any], name: str) -> Action:
    injected = injected_parameters(function)
    if type(function) is FunctionType and not function.__code__.co_flags & _UNUSUAL:
        return Action(name, function, _called(function, injected), None)
    target = function if inspect.isroutine(function) or isinstance(function, functools.partial) else function.__call__  # type: ignore[operator]
    while isinstance(target, functools.partial):
        target = target.func
    if inspect.isasyncgenfunction(target):
        return Action(name, function, None, _gathered_async(function, injected))
    if inspect.isgeneratorfunction(target):
        return Action(name, function, _gathered(function, injected), None)
    if is_async_callable(function):
        return Action(name, function, None, _awaited(function, injected))
    return Action(name, function, _called(function, injected), None)


def _given(injected: tuple[Injection, ...], task: Task) -> dict[str, Any]:
    return {name: source(task) for name, source in injected}


def _called(function: Callable[..., Any], injected: tuple[Injection, ...]) -> Callable[[Any, Task], Any]:
    if not injected:

        def call(value: Any, task: Task) -> Any:
            output = function(value)
            # Most outputs are dicts or None: asking these for an `invoke` would cost every step.
            if output is None or type(output) is dict or not _is_runnable(output) or isinstance(output, type):
                return output
            return output.invoke(value, task.config)

        return call

    def call_injected(value: Any, task: Task) -> Any:
        output = function(value, **_given(injected, task))
        if output is None or type(output) is dict or not _is_runnable(output) or isinstance(output, type):
            return output
        return output.invoke(value, task.config)

    return call_injected


def _awaited(function: Callable[..., Any], injected: tuple[Injection, ...]) -> Callable[[Any, Task], Awaitable[Any]]:
    async def call(value: Any, task: Task) -> Any:
        output = await (function(value, **_given(injected, task)) if injected else function(value))
        if output is None or type(output) is dict or not _is_runnable(output) or isinstance(output, type):
            return output
        return await output.ainvoke(value, task.config)

    return call


def _gathered(function: Callable[..., Any], injected: tuple[Injection, ...]) -> Callable[[Any, Task], Any]:
    def call(value: Any, task: Task) -> Any:
        total: Any = None
        for position, chunk in enumerate(function(value, **_given(injected, task))):
            total = chunk if position == 0 else _sum(total, chunk)
        return total

    return call


def _gathered_async(
    function: Callable[..., Any], injected: tuple[Injection, ...]
) -> Callable[[Any, Task], Awaitable[Any]]:
    async def call(value: Any, task: Task) -> Any:
        total: Any = None
        first = True
        async for chunk in function(value, **_given(injected, task)):
            total = chunk if first else _sum(total, chunk)
            first = False
        return total

    return call


def _sum(total: Any, chunk: Any) -> Any:
    try:
        return total + chunk
    except TypeError:
        return chunk


def _map_action(source: Mapping[str, Any], name: str) -> Action:
    steps = {key: action_of(one, key) for key, one in source.items()}

    def call(value: Any, task: Task) -> Any:
        result = {}
        for key, step in steps.items():
            if step.call is None:
                raise step.no_sync_error()
            result[key] = step.call(value, task)
        return result

    async def call_async(value: Any, task: Task) -> Any:
        import asyncio

        async def one(step: Action) -> Any:
            return await step.call_async(value, task) if step.call_async else step.call(value, task)  # type: ignore[misc]

        results = await asyncio.gather(*(one(step) for step in steps.values()))
        return dict(zip(steps, results, strict=True))

    if any(step.call is None for step in steps.values()):
        return Action(name, source, None, call_async)
    return Action(name, source, call, None)
