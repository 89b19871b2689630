"""Tenants: each transaction names its own, and row-level security does the rest."""

import asyncio
import itertools

import pytest

import threadline
from threadline import PutOp
from threadline.testing.making import checkpoint, place

TABLES = ("threads", "checkpoints", "writes", "chunks", "records")

VERSIONS = itertools.count(1)


@pytest.fixture
def secured(connect, admin, schema, role):
    """Tables with a tenant in every row, which its own transactions alone may see."""
    connect().setup()
    tenant = "current_setting('threadline.tenant', true)"
    for name in TABLES:
        table = f"threadline_{name}"
        admin.execute(f"ALTER TABLE {table} ADD COLUMN tenant text NOT NULL DEFAULT {tenant}")
        admin.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        admin.execute(f"CREATE POLICY own ON {table} USING (tenant = {tenant}) WITH CHECK (tenant = {tenant})")
    admin.execute("DROP INDEX threadline_threads_by_id")
    admin.execute("CREATE UNIQUE INDEX threadline_threads_by_id ON threadline_threads (tenant, thread_id)")
    admin.execute(
        "ALTER TABLE threadline_records DROP CONSTRAINT threadline_records_pkey, "
        "ADD CONSTRAINT threadline_records_pkey PRIMARY KEY (tenant, space, path)"
    )
    admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}')
    admin.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {role}')


def arguments(at, values, **more):
    made = checkpoint(values, dict.fromkeys(values, next(VERSIONS)))
    return at, made, {"source": "loop", "step": 1, **more}, made["channel_versions"]


def test_tenants_see_their_own_threads_alone(secured, as_role, schema, admin):
    acme = threadline.connect(as_role, schema=schema, tenant="acme", pool_size=1)
    zoo = threadline.connect(as_role, schema=schema, tenant="zoo", pool_size=1)
    for saver, word in ((acme, "anvil"), (zoo, "zebra")):
        at = saver.put(*arguments(place("t"), {"messages": [word * 30] * 5}))
        at = saver.put(*arguments(at, {"messages": [word * 30] * 6}))
        saver.put_writes(at, [("messages", [word])], "task")
    for saver, word in ((acme, "anvil"), (zoo, "zebra")):
        assert saver.get(place("t"))["channel_values"] == {"messages": [word * 30] * 6}
        assert [value for _, _, value in saver.get_tuple(place("t")).pending_writes] == [[word]]
        assert len(list(saver.list(None))) == 2
        assert saver.count_threads() == 1
    acme.delete_thread("t")
    assert acme.get_tuple(place("t")) is None
    assert zoo.get(place("t"))["channel_values"] == {"messages": ["zebra" * 30] * 6}
    assert admin.execute("SELECT DISTINCT tenant FROM threadline_checkpoints").fetchall() == [("zoo",)]
    for saver in (acme, zoo):
        saver.close()


def test_the_async_half_names_the_tenant_too(secured, as_role, schema):
    async def work():
        savers = [threadline.connect(as_role, schema=schema, tenant=name) for name in ("acme", "zoo")]
        await asyncio.gather(*[saver.aput(*arguments(place("t"), {"n": n})) for n, saver in enumerate(savers)])
        found = [(await saver.aget(place("t")))["channel_values"] for saver in savers]
        for saver in savers:
            await saver.aclose()
        return found

    assert asyncio.run(work()) == [{"n": 0}, {"n": 1}]


def test_nobody_sees_anything_without_a_tenant(secured, as_role, schema):
    acme = threadline.connect(as_role, schema=schema, tenant="acme")
    acme.put(*arguments(place("t"), {"n": 1}))
    nobody = threadline.connect(as_role, schema=schema)
    assert nobody.get_tuple(place("t")) is None
    with pytest.raises(threadline.ThreadlineError):
        nobody.put(*arguments(place("t"), {"n": 2}))
    assert acme.get(place("t"))["channel_values"] == {"n": 1}
    for saver in (acme, nobody):
        saver.close()


def test_a_tenant_does_not_stay_with_a_connection(connect, postgres_url, schema):
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as given:
        saver = threadline.connect(connection=given, schema=schema, tenant="acme")
        at = saver.put(*arguments(place("t"), {"n": 1}))
        saver.put(*arguments(at, {"n": 2}))
        assert saver.get(place("t")) is not None
        assert given.execute("SELECT current_setting('threadline.tenant', true)").fetchone()[0] in ("", None)


def test_tenants_see_their_own_items_and_results_alone(secured, as_role, schema, half):
    options = {"schema": schema, "setup": False}
    stores = {name: threadline.Store(as_role, tenant=name, keep_versions=3, **options) for name in ("acme", "zoo")}
    caches = {name: threadline.Cache(as_role, tenant=name, **options) for name in ("acme", "zoo")}
    for turn in (1, 2):
        for name, store in stores.items():
            half.call(store, "put", ("facts",), "same", {"of": name, "turn": turn})
            half.call(store, "batch", [PutOp(("facts", name), f"k{n}", {"n": n}) for n in range(3)])
            half.call(caches[name], "set", {(("nodes",), "same"): (name, None)})
    for name, store in stores.items():
        item = half.call(store, "get", ("facts",), "same")
        assert (item.value, item.version) == ({"of": name, "turn": 2}, 2)
        assert half.call(store, "list_namespaces") == [("facts",), ("facts", name)]
        assert half.call(store, "count") == 4
        assert [one.value["of"] for one in half.call(store, "history", ("facts",), "same")] == [name, name]
        assert half.call(caches[name], "get", [(("nodes",), "same")]) == {(("nodes",), "same"): name}
    half.call(stores["acme"], "delete_namespace", ("facts",), forget=True)
    half.call(caches["acme"], "clear")
    assert half.call(stores["acme"], "count") == 0
    assert half.call(stores["zoo"], "count") == 4
    assert half.call(caches["zoo"], "get", [(("nodes",), "same")]) == {(("nodes",), "same"): "zoo"}
    nobody = threadline.Store(as_role, **options)
    assert half.call(nobody, "count") == 0
    for opened in (*stores.values(), *caches.values(), nobody):
        opened.close()


def test_items_of_two_schemas_and_two_prefixes_are_separate(postgres_url, schema, connect):
    connect().setup()
    places = [{"schema": schema}, {"schema": schema, "table_prefix": "other_"}]
    stores = [threadline.Store(postgres_url, **place) for place in places]
    for number, store in enumerate(stores):
        store.put(("facts",), "same", {"n": number})
    assert [store.get(("facts",), "same").value["n"] for store in stores] == [0, 1]
    stores[0].delete_namespace(("facts",))
    assert stores[1].count() == 1
    for store in stores:
        store.close()


def test_a_view_of_some_threads_has_no_items(connect):
    saver = connect()
    saver.store().put(("facts",), "k", {"n": 1})
    with pytest.raises(threadline.InvalidRequest, match=r"items belong to no thread.*threadline\.Store"):
        saver.within("acme/").store().get(("facts",), "k")
