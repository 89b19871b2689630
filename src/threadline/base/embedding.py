"""Texts to vectors, by whatever the caller has for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from ..errors import InvalidRequest

__all__ = ["Embedder"]


class Embedder:
    """Turns texts into vectors: by a function of texts, sync or async, or by an object of LangChain's Embeddings."""

    def __init__(self, index: Mapping[str, Any]) -> None:
        self.dims = index.get("dims")
        self._embed: Any = index.get("embed")
        self.fields = tuple(index.get("fields") or ("$",))
        if type(self.dims) is not int or self.dims < 1:
            raise InvalidRequest("index needs dims, the number of dimensions of its embeddings, such as 1536")
        if not callable(self._embed) and not hasattr(self._embed, "embed_documents"):
            raise InvalidRequest("index needs embed: a function from texts to vectors, or LangChain embeddings")

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of these texts, on the calling thread; InvalidRequest where there are more or fewer of them."""
        made = getattr(self._embed, "embed_documents", self._embed)(list(texts))
        return _one_each(_finished(made) if isawaitable(made) else made, texts)

    async def aembed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of these texts, made without blocking the event loop."""
        import asyncio

        if hasattr(self._embed, "aembed_documents"):
            return _one_each(await self._embed.aembed_documents(list(texts)), texts)
        function: Any = getattr(self._embed, "embed_documents", self._embed)
        if iscoroutinefunction(function):
            return _one_each(await function(list(texts)), texts)
        made = await asyncio.to_thread(function, list(texts))
        return _one_each(await made if isawaitable(made) else made, texts)


def _one_each(made: Any, texts: Sequence[str]) -> list[Sequence[float]]:
    vectors = list(made)
    if len(vectors) != len(texts):
        # They would go to other items than those they are of.
        raise InvalidRequest(f"embed gave {len(vectors)} vectors for {len(texts)} texts: it gives one for each")
    return vectors


def _finished(made: Any) -> Any:
    """The result of an awaitable, waited for on a thread with an event loop of its own."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def wait() -> Any:
        return await made

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(wait())).result()
