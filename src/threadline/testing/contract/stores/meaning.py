"""Search by meaning: what a Store makes of texts, queries and vectors, tried through `saver.store()`."""

from __future__ import annotations

from typing import Any

from ....core.records.batch import PutOp, SearchOp
from ...half import Half
from .items import Items

__all__: list[str] = []


class Asymmetric:
    """Embeddings that see a question with other eyes than what answers it, as LangChain's objects may."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(texts)
        return [[1.0, 0.0] if text == "x" else [0.0, 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.calls.append(text)
        return [0.0, 1.0] if text == "x" else [1.0, 0.0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)


async def test_a_query_is_embedded_as_a_query(saver: Half, thread: str) -> None:
    model = Asymmetric()
    store = Items(saver, index={"dims": 2, "embed": model, "fields": ["text"]})
    await store.batch([PutOp((thread,), "1", {"text": "x"}), PutOp((thread,), "2", {"text": "y"})])
    assert [item.key for item in await store.search((thread,), query="x")] == ["2", "1"]
    assert [item.key for item in await store.search((thread,), query="y")] == ["1", "2"]
    mixed = [
        SearchOp((thread,), query="x"),
        PutOp((thread,), "3", {"text": "z"}),
        SearchOp((thread,), query="y"),
        SearchOp((thread,), query="x"),
        PutOp((thread,), "4", {"text": "x"}),
    ]
    model.calls.clear()
    found = await store.batch(mixed)
    assert [[item.key for item in found[position]] for position in (0, 2, 3)] == [["2", "1"], ["1", "2"], ["2", "1"]]
    # All texts of a batch are one call, and a query that is asked twice is embedded once.
    assert model.calls == [["z", "x"], "x", "y"]
