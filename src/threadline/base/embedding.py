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
        fields = index.get("fields") or ("$",)
        if (
            isinstance(fields, str)
            or not isinstance(fields, Sequence)
            or not all(isinstance(one, str) for one in fields)
        ):
            raise InvalidRequest(
                f"the fields of index are a list of paths such as ['title', 'meta.title'], not {fields!r}"
            )
        self.fields = tuple(fields)
        if type(self.dims) is not int or self.dims < 1:
            raise InvalidRequest("index needs dims, the number of dimensions of its embeddings, such as 1536")
        if not callable(self._embed) and not hasattr(self._embed, "embed_documents"):
            raise InvalidRequest("index needs embed: a function from texts to vectors, or LangChain embeddings")

    def embed(self, texts: Sequence[str], queries: Sequence[str] = ()) -> list[Sequence[float]]:
        """The vectors of these texts, then those of the queries, on the calling thread.

        All texts are one call. A model may see a question with other eyes than what answers it: where the object has
        `embed_query`, each query goes there. InvalidRequest where there are more or fewer vectors than texts.
        """
        one_query = getattr(self._embed, "embed_query", None)
        together = texts if one_query is not None else [*texts, *queries]
        vectors: list[Sequence[float]] = []
        if together:
            made = getattr(self._embed, "embed_documents", self._embed)(list(together))
            vectors = _one_each(_waited_for(made), together)
        if one_query is not None:
            of_queries = {query: _waited_for(one_query(query)) for query in dict.fromkeys(queries)}
            vectors += [of_queries[query] for query in queries]
        return vectors

    async def aembed(self, texts: Sequence[str], queries: Sequence[str] = ()) -> list[Sequence[float]]:
        """The vectors of texts and queries, made without blocking the event loop; queries are embedded side by side."""
        import asyncio

        one_query = getattr(self._embed, "aembed_query", None) or getattr(self._embed, "embed_query", None)
        together = texts if one_query is not None else [*texts, *queries]
        vectors: list[Sequence[float]] = []
        if together:
            function = getattr(self._embed, "aembed_documents", None)
            function = function or getattr(self._embed, "embed_documents", self._embed)
            vectors = _one_each(await _called(function, list(together)), together)
        if one_query is not None and queries:
            different = list(dict.fromkeys(queries))
            made = await asyncio.gather(*(_called(one_query, query) for query in different))
            of_queries = dict(zip(different, made, strict=True))
            vectors += [of_queries[query] for query in queries]
        return vectors


async def _called(function: Any, asked: Any) -> Any:
    """What a function of the caller's makes, off the event loop where it is no coroutine."""
    import asyncio

    if iscoroutinefunction(function):
        return await function(asked)
    made = await asyncio.to_thread(function, asked)
    return await made if isawaitable(made) else made


def _one_each(made: Any, texts: Sequence[str]) -> list[Sequence[float]]:
    try:
        vectors = list(made)
    except TypeError:
        raise InvalidRequest(
            f"embed gave {type(made).__name__}: it gives a list of vectors, one for each text"
        ) from None
    if len(vectors) != len(texts):
        # They would go to other items than those they are of.
        raise InvalidRequest(f"embed gave {len(vectors)} vectors for {len(texts)} texts: it gives one for each")
    return vectors


def _waited_for(made: Any) -> Any:
    """A result; where it is an awaitable, waited for on a thread with an event loop of its own."""
    if not isawaitable(made):
        return made
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def wait() -> Any:
        return await made

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(wait())).result()
