"""Types of LangChain and LangGraph that every set of rules allows, by the name they are stored under.

Only names: nothing here imports either library, and a name is rebuilt only where its module is imported.
"""

from __future__ import annotations

__all__ = ["LANGCHAIN_MESSAGES", "WELL_KNOWN"]

_MESSAGES = {
    "base": "BaseMessage BaseMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "ai": "AIMessage AIMessageChunk",
    "system": "SystemMessage SystemMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "modifier": "RemoveMessage",
}

# Class name -> stored name, for the formats that name a message by its class alone.
LANGCHAIN_MESSAGES = {
    name: f"langchain_core.messages.{module}:{name}" for module, names in _MESSAGES.items() for name in names.split()
}

WELL_KNOWN = frozenset(LANGCHAIN_MESSAGES.values()) | frozenset(
    {
        "langchain_core.documents.base:Document",
        "langgraph.checkpoint.serde.types:_DeltaSnapshot",
        "langgraph.store.base:GetOp",
        "langgraph.types:Command",
        "langgraph.types:Interrupt",
        "langgraph.types:Overwrite",
        "langgraph.types:PregelTask",
        "langgraph.types:StateSnapshot",
        "langgraph.types:TimeoutPolicy",
    }
)
