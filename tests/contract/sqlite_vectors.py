"""Searches by meaning with and without sqlite-vec, in a Python whose sqlite3 can load extensions.

    python sqlite_vectors.py FOLDER

Prints `the same answers` at its end.
"""

import hashlib
import logging
import sqlite3
import sys
from pathlib import Path

import threadline
from threadline import PutOp
from threadline.core.records import batch

DIMS = 16
WORDS = ("tea", "coffee", "train", "plane", "garden", "harbour", "lantern", "meadow")
QUERIES = ("tea", "harbour lantern", "garden train 7", "meadow 250")


def embed(texts):
    return [[sum(column) for column in zip(*map(word_vector, text.split()), strict=True)] for text in texts]


def word_vector(word):
    return [byte / 128 - 1 for byte in hashlib.sha256(word.encode()).digest()[:DIMS]]


INDEX = {"dims": DIMS, "embed": embed, "fields": ["text", "more[*]"]}


def fill(store, count):
    ops = []
    for number in range(count):
        words = [WORDS[(number * step) % len(WORDS)] for step in (1, 3, 5)]
        value = {"text": f"{' '.join(words)} {number}", "n": number % 5, "more": [words[0]] * (number % 3)}
        ops.append(PutOp(("docs", str(number % 4)), f"k{number}", value))
    store.batch(ops)


def answers(store, **options):
    return [
        [(item.namespace, item.key, round(item.score, 5)) for item in store.search(("docs",), query=query, **options)]
        for query in QUERIES
    ]


def check_answers(store):
    found = [{"limit": 7}, {"limit": 40, "offset": 13}, {"limit": 5, "filter": {"n": 3}}, {"limit": 290}]
    by_index = [answers(store, **options) for options in found]
    real, batch.ranked = batch.ranked, lambda *args, **named: real(*args, **{**named, "by_index": False})
    assert by_index == [answers(store, **options) for options in found]
    batch.ranked = real


def main():
    logging.basicConfig(level=logging.WARNING)
    path = Path(sys.argv[1]) / "items.db"
    with threadline.Store(path, index=INDEX) as store:
        fill(store, 300)
        assert store._options.has_vector_index
        check_answers(store)
        store.put(("docs", "0"), "k0", {"text": "zebra"})
        store.delete(("docs", "1"), "k1")
        assert store.search(("docs",), query="zebra", limit=1)[0].key == "k0"
        # A store that makes no embeddings, and a connection that knows nothing of any.
        with threadline.Store(path) as plain:
            plain.put(("docs", "2"), "k2", {"text": "no longer near to anything"})
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM threadline_records WHERE space = 3 AND CAST(path AS TEXT) LIKE '%k3_'")
        connection.close()
        check_answers(store)
        store.delete_namespace(("docs",), forget=True)
        with sqlite3.connect(path) as connection:
            assert connection.execute(f"SELECT count(*) FROM threadline_vectors_{DIMS}").fetchone() == (0,)
        connection.close()
        assert store.search(("docs",), query="tea") == []
    print("the same answers")


if __name__ == "__main__":
    main()
