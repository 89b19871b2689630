"""LangChain's and LangGraph's own types, made known to the codec.

What a graph stored can be rebuilt in any process that uses the adapter. Modules that LangGraph's savers import are
imported here. The others are imported when one of their classes is met: `langgraph.types` takes longer than all of
Threadline.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import langchain_core.messages  # noqa: F401
from langgraph.checkpoint.serde import types as _serde_types  # noqa: F401
from langgraph.store.base import Item

from ..codec.allowed import register, register_later
from ..codec.limits import of_length, text_dict
from ..errors import Corrupt

__all__ = ["register_langgraph_types"]


def register_langgraph_types() -> None:
    """Register the classes of LangGraph that are no data classes."""
    register(Item, name="langgraph.Item", encode=_item_state, decode=_item)
    register_later(["langgraph.Send", "langgraph.types"], _register_send)
    # A model or a data class needs no more than that its module is imported.
    register_later(["langchain_core.documents.base"], _import_documents)


def _register_send() -> None:
    """`langgraph` itself may be absent."""
    try:
        from langgraph.types import Send
    except ImportError:
        return
    register(Send, name="langgraph.Send", encode=_send_state, decode=_send)


def _import_documents() -> None:
    import langchain_core.documents.base  # noqa: F401


def _send_state(send: Any) -> list[Any]:
    timeout = getattr(send, "timeout", None)
    return [send.node, send.arg] if timeout is None else [send.node, send.arg, timeout]


def _send(state: Any) -> Any:
    from langgraph.types import Send

    node, arg, *timeout = of_length(state, 2, 3)
    if timeout and type(timeout[0]) not in (int, float, dt.timedelta, type(Send("", None, timeout=1).timeout)):
        raise Corrupt("a stored Send has a timeout that is none")
    return Send(node, arg, timeout=timeout[0]) if timeout else Send(node, arg)


def _item_state(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("value", "key", "namespace", "created_at", "updated_at")}


def _item(state: Any) -> Item:
    fields = text_dict(state)
    times = {type(fields.get("created_at")), type(fields.get("updated_at"))}
    if type(fields.get("namespace")) not in (tuple, list) or not times <= {str, dt.datetime}:
        raise Corrupt("a stored Item has other fields than are written")
    return Item(**fields)
