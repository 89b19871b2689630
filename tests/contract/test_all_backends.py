"""One random history on every backend there is: all of them hold what the model holds, to the last bit of a value."""

import itertools
import sys
import uuid
from pathlib import Path

import pytest
from history_player import ACTS, Player
from history_player import item as plain_item
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import threadline

# What can be stored, one of each kind, and what must be equal of two values.
sys.path.append(str(Path(__file__).resolve().parents[1] / "codec"))
from codec_anatomy import anatomy
from codec_values import MAKERS

_numbers = itertools.count(1)
any_text = st.text(st.characters(), max_size=20)  # surrogates and NUL are among the characters
wholes = st.integers() | st.integers(-(2**200), 2**200)
leaves = st.one_of(st.none(), st.booleans(), wholes, st.floats(), any_text, st.binary(max_size=60))
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(any_text, inner, max_size=4),
    ),
    max_leaves=12,
)
long = st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=8), st.integers(1000, 9000))
odd_values = st.lists(
    st.one_of(nested, long, st.sampled_from(sorted(MAKERS)).map(lambda name: MAKERS[name]())), min_size=12, max_size=12
)


@pytest.fixture
def play(tmp_path, postgres, mysql, redis_server, redis_cluster):
    """Plays a history on an empty store of each backend, with two savers on each, and compares."""

    def on_all(history, odd):
        number = next(_numbers)
        places = [
            (f"memory://{uuid.uuid4()}", {}),
            (str(tmp_path / f"{number}.db"), {"synchronous": "OFF"}),
            (postgres.url, {"table_prefix": f"all{number}_", "pool_size": 2}),
            (mysql.url, {"table_prefix": f"{mysql.table_prefix}{number}_", "pool_size": 2}),
            (redis_server.url, {"key_prefix": f"{redis_server.key_prefix}{number}", "pool_size": 2}),
            (redis_cluster.url, {"key_prefix": f"{redis_cluster.key_prefix}{number}", "pool_size": 2}),
        ]
        stores = [[threadline.connect(url, **options) for _ in range(2)] for url, options in places]
        player = Player(stores, lambda pick: odd[pick // 2 % len(odd)] if pick % 2 else plain_item(pick), anatomy)
        try:
            for act in history:
                player.play(act)
            player.check()
        finally:
            for saver in itertools.chain(*stores):
                saver.close()

    return on_all


def few(examples):
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    # Not shrunk: that takes hundreds of histories. test_histories.py has the quick stores for it.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, phases=phases)


@few(10)
@given(history=st.lists(ACTS, min_size=8, max_size=25), odd=odd_values)
def test_every_backend_holds_what_the_model_holds(play, history, odd):
    play(history, odd)


@pytest.mark.soak
@few(300)
@given(history=st.lists(ACTS, min_size=8, max_size=60), odd=odd_values)
def test_every_backend_holds_what_the_model_holds_after_hundreds_of_histories(play, history, odd):
    play(history, odd)
