"""After any operations on a store of items, by two of its users, it holds what a plain dict holds."""

import itertools
import uuid

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import threadline
from threadline import Conflict, PutOp

labels = st.sampled_from(["a", "b", "ab", "a.b", "%", "_", "*", "[", "'", '"', "\0", "\n", "é", "\U0001f600", "\x01"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k", "K", "k\0", "%", "é", "long" * 50])
odd = st.sampled_from([10**100, 1.5, float("inf"), "", "x", "\0", "é" * 3000])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), odd)
values = st.fixed_dictionaries(
    {"n": scalars}, optional={"user": st.fixed_dictionaries({"plan": scalars}), "list": st.lists(scalars, max_size=3)}
)


class ItemMachine(RuleBasedStateMachine):
    """Items by namespace and key, with their versions; an item of the dict is (value, version)."""

    def __init__(self, connect):
        super().__init__()
        options = [{"index_fields": ("n", "user.plan")}, {}]
        self.stores = [connect().store(**one) for one in options]
        self.held = {}
        self.turn = 0

    def store(self):
        self.turn += 1
        return self.stores[self.turn % 2]

    def note(self, namespace, key, value):
        if value is None:
            self.held.pop((namespace, key), None)
        else:
            before = self.held.get((namespace, key), (None, 0))
            self.held[namespace, key] = (value, before[1] + 1)

    @rule(namespace=namespaces, key=keys, value=values)
    def put(self, namespace, key, value):
        self.store().put(namespace, key, value)
        self.note(namespace, key, value)

    @rule(namespace=namespaces, key=keys)
    def delete(self, namespace, key):
        self.store().delete(namespace, key)
        self.note(namespace, key, None)

    @rule(namespace=namespaces, key=keys, value=values, version=st.integers(0, 2))
    def put_under_a_condition(self, namespace, key, value, version):
        if self.held.get((namespace, key), (None, 0))[1] == version:
            self.store().put(namespace, key, value, if_version=version)
            self.note(namespace, key, value)
        else:
            with pytest.raises(Conflict):
                self.store().put(namespace, key, value, if_version=version)

    @rule(puts=st.lists(st.tuples(namespaces, keys, st.none() | values), max_size=5))
    def batch(self, puts):
        self.store().batch([PutOp(*put) for put in puts])
        for put in {put[:2]: put for put in puts}.values():
            self.note(*put)

    @rule(prefix=namespaces)
    def delete_namespace(self, prefix):
        below = [place for place in self.held if place[0][: len(prefix)] == prefix]
        assert self.store().delete_namespace(prefix) == len(below)
        for place in below:
            del self.held[place]

    @rule(prefix=st.just(()) | namespaces, value=scalars, key=st.sampled_from(["n", "user.plan"]))
    def search(self, prefix, value, key):
        expected = {
            place: held
            for place, held in self.held.items()
            if place[0][: len(prefix)] == prefix and at(held[0], key) == value
        }
        store = self.store()
        found = store.search(prefix, filter={key: value}, limit=1000)
        assert {(item.namespace, item.key): (item.value, item.version) for item in found} == expected
        assert store.count(prefix, filter={key: value}) == len(expected)

    @rule(depth=st.none() | st.integers(1, 3))
    def list_namespaces(self, depth):
        expected = sorted({namespace[:depth] for namespace, _ in self.held})
        assert sorted(self.store().list_namespaces(max_depth=depth, limit=1000)) == expected

    @invariant()
    def holds_what_the_dict_holds(self):
        found = self.store().search((), limit=1000)
        assert {(item.namespace, item.key): (item.value, item.version) for item in found} == self.held
        assert [item.updated_at for item in found] == sorted((item.updated_at for item in found), reverse=True)
        for (namespace, key), (value, _) in itertools.islice(self.held.items(), 3):
            assert self.store().get(namespace, key).value == value


def at(value, key):
    return value["n"] if key == "n" else value.get("user", {}).get("plan")


def run(fresh, examples, steps):
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    opened = []

    def machine():
        while opened:
            opened.pop().close()
        connect = fresh()
        return ItemMachine(lambda: opened.append(connect()) or opened[-1])

    run_state_machine_as_test(machine, settings=profile)


def test_any_operations_in_memory():
    def fresh():
        name = uuid.uuid4()
        return lambda: threadline.connect(f"memory://{name}")

    run(fresh, 100, 30)


def test_any_operations_in_sqlite(tmp_path):
    def fresh():
        path = tmp_path / f"{uuid.uuid4()}.db"
        return lambda: threadline.connect(path, synchronous="OFF")

    run(fresh, 40, 30)


@pytest.mark.parametrize("server", ["postgres", "mysql", "redis_server"])
def test_any_operations_on_a_server(server, request):
    place = request.getfixturevalue(server)

    def fresh():
        name = f"m{uuid.uuid4().hex[:8]}_"
        option = {"key_prefix": name} if server == "redis_server" else {"table_prefix": name}
        return lambda: threadline.connect(place.url, pool_size=2, **option)

    run(fresh, 5, 25)
