"""Teaches `threadline.graph` LangChain. Importing this module is what switches it on.

    import threadline.langgraph.bridge

From then on: messages in `add_messages` become LangChain's classes; the tokens of chat models called in nodes come on
stream mode `messages`; `callbacks` of a config, and tracers that the environment asks for, are told of the graph and of
each node; whatever LangChain runs in a node finds the node's config by itself; commands, sends, overwrites and
questions of LangGraph's own types mean what those of `threadline.graph` mean, whether they come from its prebuilt
`ToolNode`, from a function that is a node or a branch, or from the caller of a graph. Only a question of LangGraph that
a node swallows goes unnoticed: it leaves no trace.

Handlers are called where the task runs. Async handlers of a graph's or node's own events are awaited on a loop of their
own, as LangChain does for code that blocks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler, CallbackManager
from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    convert_to_openai_messages,
    message_chunk_to_message,
)
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler

from langgraph import errors as their_errors
from langgraph import types as their_types

from ..graph import GraphBubbleUp, GraphInterrupt, Interrupt, ParentCommand, types
from ..graph.building.actions import install_foreign
from ..graph.constants import CONFIG_KEY_SCRATCHPAD, RESUME, TAG_NOSTREAM
from ..graph.messages import Conversion, install_conversion
from ..graph.running.observing import Observer, install_observer
from ..graph.showing.message_stream import seen_messages
from ..graph.showing.stream import emit, updates_of

lifecycle: Any
try:
    from langgraph import callbacks as lifecycle
except ImportError:  # an older LangGraph
    lifecycle = None

if TYPE_CHECKING:
    from ..graph.running.loop import Run
    from ..graph.running.tasks import Task

__all__ = ["RunnableConfig", "install", "tools_node", "uninstall"]


def install() -> None:
    """Switch the bridge on; importing the module does it."""
    global _is_on
    _is_on = True
    install_conversion(Conversion(BaseMessage, _convert, _format))
    install_foreign(_Theirs())
    install_observer(_watch)


def uninstall() -> None:
    """Switch it off again: messages are dicts, nothing of LangChain is told of runs."""
    global _is_on
    _is_on = False
    install_conversion(None)
    install_foreign(None)


def tools_node(tools: Sequence[Any], **options: Any) -> Any:
    """LangGraph's prebuilt `ToolNode` over these tools: a node that runs the tool calls of the last message."""
    from langgraph.prebuilt import ToolNode

    return ToolNode(tools, **options)


_is_on = False


# -- messages


def _convert(message: Any) -> BaseMessage:
    converted = convert_to_messages([message])[0]
    return message_chunk_to_message(converted) if _is_chunk(converted) else converted


def _is_chunk(message: BaseMessage) -> bool:
    return type(message).__name__.endswith("Chunk")


def _format(messages: list[Any], wanted: str) -> list[Any]:
    return convert_to_messages(convert_to_openai_messages(messages))


# -- callbacks, and the config that LangChain finds by itself


def _watch(run: Run) -> Observer | None:
    return _Callbacks() if _is_on else None


class _Callbacks(Observer):
    """Tells LangChain's handlers of one run."""

    def __init__(self) -> None:
        self._manager: Any = None
        self._run: Any = None
        self._tasks: dict[str, Any] = {}

    def run_begins(self, run: Run) -> None:
        config = run.config
        manager = CallbackManager.configure(
            inheritable_callbacks=config.get("callbacks"),
            inheritable_tags=config["tags"],
            inheritable_metadata=config["metadata"],
        )
        self._manager = manager
        if _told(manager):
            self._run = manager.on_chain_start(
                None,
                run.settings.given,
                name=config.get("run_name") or run.graph.get_name(),
                run_id=_uuid(run.settings.run_id) if run.parent is None else None,
            )
            if run.is_resuming:
                self._tell_course(run, "on_resume", lambda *place: lifecycle.GraphResumeEvent(*place))

    def _tell_course(self, run: Run, name: str, event: Callable[..., Any]) -> None:
        """Tell those who listen to what happens to a graph: that it stops for a question, or goes on."""
        for handler in self._manager.handlers if lifecycle is not None else ():
            if isinstance(handler, lifecycle.GraphCallbackHandler):
                status = run.stopped_by or "pending"
                place = (self._run.run_id, status, run.checkpoint_id, tuple(filter(None, run.namespace.split("|"))))
                getattr(handler, name)(event(*place))

    def run_ends(self, run: Run, error: BaseException | None) -> None:
        if self._run is None:
            return
        if run.stopped_by is not None and run.parent is None:
            asked = tuple(their_types.Interrupt(one.value, one.id) for one in run.interrupts)
            self._tell_course(run, "on_interrupt", lambda *place: lifecycle.GraphInterruptEvent(*place, asked))
        if error is not None and not isinstance(error, GraphBubbleUp):
            self._run.on_chain_error(error)
        else:
            self._run.on_chain_end(run.output() if error is None else None)

    def task_begins(self, task: Task) -> None:
        if self._run is not None and not task.node.is_hidden:
            above = self._tasks.get(task.caller.id) if task.caller is not None else None
            child = (above or self._run).get_child(f"graph:step:{task.step}")
            child.add_metadata(task.shared_config()["metadata"])
            given = _processed(task, task.input, "process_inputs")
            self._tasks[task.id] = child.on_chain_start(None, given, name=task.name, run_id=uuid4())
        var_child_runnable_config.set(task.config)  # type: ignore[arg-type]

    def configure(self, task: Task, config: dict[str, Any]) -> None:
        config["configurable"][CONFIG_KEY_SCRATCHPAD] = _Scratchpad(task)
        config.pop("run_name", None)  # what the node calls would be shown under the node's name
        told = self._tasks.get(task.id)
        manager = (self._manager if told is None else told.get_child()).copy()
        for handler in [one for one in manager.handlers if isinstance(one, _Tokens)]:
            manager.remove_handler(handler)
        if "messages" in task.run.modes:
            manager.add_handler(_Tokens(task), inherit=True)
        config["callbacks"] = manager

    def task_ends(self, task: Task) -> None:
        told = self._tasks.pop(task.id, None)
        if told is None:
            return
        if task.interrupts:
            told.on_chain_end({"__interrupt__": tuple(task.interrupts)})
        elif task.error is not None and not isinstance(task.error, GraphBubbleUp):
            told.on_chain_error(task.error)
        else:
            written = (updates_of(task, task.run.stream_keys) or {}).get(task.name)
            told.on_chain_end(_processed(task, written, "process_outputs"))


def _processed(task: Task, value: Any, processor: str) -> Any:
    """What handlers are told of a node's input or output, where the node has a TracePolicy."""
    builder = task.run.graph.builder
    spec = builder.nodes.get(task.name) if builder is not None else None
    process = getattr(spec.trace_policy, processor, None) if spec is not None and spec.trace_policy else None
    return value if process is None else process(value)


def _told(manager: CallbackManager) -> bool:
    """Whether anybody but the stream listens."""
    return any(not isinstance(handler, _Tokens) for handler in manager.handlers)


def _uuid(given: Any) -> UUID | None:
    try:
        return UUID(str(given)) if given is not None else None
    except ValueError:
        return None


# -- tokens


class _Tokens(BaseCallbackHandler, _StreamingCallbackHandler[Any]):
    """Puts what chat models say in a task on stream mode `messages`, token by token.

    Being a streaming handler makes models stream although the node calls `invoke`.
    """

    run_inline = True

    def __init__(self, task: Task) -> None:
        self._task = task
        # Model run -> the metadata that its chunks are shown with.
        self._models: dict[UUID, dict[str, Any]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if TAG_NOSTREAM in (tags or ()):
            return
        shown = [tag for tag in tags or () if not tag.startswith("seq:step")]
        self._models[run_id] = {**(metadata or {}), **({"tags": shown} if shown else {})}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        if isinstance(chunk, ChatGeneration) and run_id in self._models:
            self._show(chunk.message, run_id)

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        for generations in response.generations if run_id in self._models else ():
            for generation in generations:
                # A model that does not stream says all at once.
                if isinstance(generation, ChatGeneration) and generation.message.id not in self._seen():
                    self._show(generation.message, run_id)
        self._models.pop(run_id, None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        self._models.pop(run_id, None)

    def _show(self, message: BaseMessage, run_id: UUID) -> None:
        if message.id is None:
            message.id = f"lc_run--{run_id}"
        self._seen().add(message.id)
        self._task.heartbeat_auto()
        emit(self._task.run, "messages", (message, self._models[run_id]))

    def _seen(self) -> set[str]:
        return seen_messages(self._task.run)

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        return output


# -- LangGraph's own types in our nodes


class _Scratchpad:
    """A task as LangGraph's `interrupt` looks at it: the answers so far, and the next one."""

    __slots__ = ("task",)

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def resume(self) -> list[Any]:
        return self.task.answers

    def interrupt_counter(self) -> int:
        place = self.task.asked
        self.task.asked += 1
        return place

    def get_null_resume(self, consume: bool = False) -> Any:
        return self.task.take_null_answer() if consume else None


class _Theirs:
    """Calls a Runnable, and turns what it gives or raises of LangGraph's types into ours."""

    def call(self, source: Any, value: Any, task: Task) -> Any:
        try:
            return _ours(source.invoke(value, task.config))
        except (their_errors.GraphInterrupt, their_errors.ParentCommand) as bubbling:
            raise _bubble(bubbling) from bubbling
        finally:
            _keep_last_answers(task)

    async def _awaited(self, source: Any, value: Any, task: Task) -> Any:
        try:
            return _ours(await source.ainvoke(value, task.config))
        except (their_errors.GraphInterrupt, their_errors.ParentCommand) as bubbling:
            raise _bubble(bubbling) from bubbling
        finally:
            _keep_last_answers(task)

    def call_async(self, source: Any, value: Any, task: Task) -> Awaitable[Any]:
        return self._awaited(source, value, task)

    def taken(self, value: Any, task: Task | None = None) -> Any:
        if task is not None:
            _keep_last_answers(task)
        if not _is_theirs(value):
            return value
        return [_ours(one) for one in value] if isinstance(value, tuple) else _ours(value)

    def raised(self, error: Exception, task: Task) -> Exception | None:
        if not isinstance(error, (their_errors.GraphInterrupt, their_errors.ParentCommand)):
            return None
        _keep_last_answers(task)
        return _bubble(error)


def _is_theirs(value: Any) -> bool:
    """Whether a function gave something of LangGraph's: by itself, in a list, or as the update of a key."""
    parts = value if isinstance(value, (list, tuple)) else value.values() if type(value) is dict else ()
    theirs = (their_types.Command, their_types.Send, their_types.Overwrite)
    return isinstance(value, theirs) or any(isinstance(one, theirs) for one in parts)


def _keep_last_answers(task: Task) -> None:
    """LangGraph notes the answers each time one is taken; the last note has them all."""
    notes = [write for write in task.writes if write[0] == RESUME]
    if len(notes) > 1:
        task.writes[:] = [write for write in task.writes if write[0] != RESUME] + notes[-1:]


def _bubble(error: Exception) -> GraphBubbleUp:
    if isinstance(error, their_errors.ParentCommand):
        return ParentCommand(_ours(error.args[0]))
    return GraphInterrupt(tuple(Interrupt(one.value, one.id) for one in error.args[0]))


def _timeout(given: Any) -> Any:
    """A timeout of theirs as ours; seconds are the same in both."""
    if given is None or isinstance(given, (int, float)) or not hasattr(given, "run_timeout"):
        return given
    return types.TimeoutPolicy(
        run_timeout=given.run_timeout, idle_timeout=given.idle_timeout, refresh_on=given.refresh_on
    )


def _ours(output: Any) -> Any:
    """The output with LangGraph's commands, sends and overwrites as ours."""
    if isinstance(output, their_types.Command):
        goto = output.goto
        return types.Command(
            graph=output.graph,
            update=_ours(output.update),
            resume=output.resume,
            goto=[_ours(one) for one in goto] if isinstance(goto, (list, tuple)) else _ours(goto),
        )
    if isinstance(output, their_types.Send):
        return types.Send(output.node, output.arg, timeout=_timeout(getattr(output, "timeout", None)))
    if isinstance(output, their_types.Overwrite):
        return types.Overwrite(output.value)
    if type(output) is list:
        return [_ours(one) for one in output]
    if type(output) is dict:
        return {key: _ours(value) for key, value in output.items()}
    return output


install()
