"""Any history, with chunks going to the cold tier and coming back, and into larger packs, between all other verbs: the
store holds the same."""

import itertools
import uuid
from pathlib import Path

import pytest
from history_machine import HistoryMachine, picks
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import threadline
from threadline.core.retention import gathering
from threadline.core.tiering import choosing


@pytest.fixture(autouse=True)
def _small_chunks_move(monkeypatch):
    """Every chunk is worth moving: nodes, roots and pointers, too."""
    for name in ("_LEAST_BYTES", "_LEAST_LINKED_BYTES", "_LEAST_OBJECT_BYTES"):
        monkeypatch.setattr(choosing, name, 1)
    monkeypatch.setattr(gathering, "_LEAST_BYTES", 1)
    monkeypatch.setattr(gathering, "_MOST_SHARE", 1_000)
    # Several larger packs, each with a few parts.
    monkeypatch.setattr(gathering, "MOST_ITEMS", 7)


class TierMachine(HistoryMachine):
    """Adds tiering, restoring, and packs that are written anew."""

    def __init__(self, connect, folder):
        super().__init__(connect)
        self.folder = folder

    @rule(grace=st.sampled_from(["0s", "1d"]))
    def tier(self, grace):
        done = self._saver().tier("0s", grace=grace)
        assert not done.is_elsewhere
        status = self._saver().tier_status()
        assert status.hot_chunks == 0 or self._saver().tier_plan("0s").chunks == 0
        assert len(list(self.folder.iterdir()) if self.folder.exists() else ()) == status.objects
        assert grace == "1d" or status.orphans == 0

    @rule(pick=picks)
    def tier_a_thread(self, pick):
        name, line = self._line(pick)
        if line.kept:
            self._saver().tier(thread_ids=[name])

    @rule(pick=picks, is_all=st.booleans())
    def restore(self, pick, is_all):
        name, line = self._line(pick)
        if is_all or line.kept:
            assert self._saver().tier_restore(None if is_all else [name]).lost == 0
        if is_all:
            assert self._saver().tier_status().cold_chunks == 0

    @rule(times=st.integers(1, 2))
    def compact(self, times):
        for _ in range(times):
            self._saver().compact()

    @rule()
    def check(self):
        report = self._saver().fsck()
        assert report.ok, report
        for saver in self.savers:
            saver.clear_cache()


def run(fresh, folder, examples, steps, *, shrinks=True):
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if shrinks else [])]
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )
    numbers = itertools.count(1)

    def machine():
        cold = Path(folder) / f"cold{next(numbers)}"
        return TierMachine(fresh(f"file://{cold}"), cold)

    run_state_machine_as_test(machine, settings=profile)


def in_memory(cold):
    name = uuid.uuid4()
    return lambda: threadline.connect(f"memory://{name}", cold=cold)


def files(folder):
    def fresh(cold):
        path = folder / f"{uuid.uuid4()}.db"
        return lambda: threadline.connect(path, synchronous="OFF", cold=cold)

    return fresh


@pytest.fixture(params=["postgres", "mysql", "redis_server"])
def fresh_store(request):
    """Makes what opens savers on a store that is empty."""
    place = request.getfixturevalue(request.param)
    numbers = itertools.count(1)

    def fresh(cold):
        name = f"{getattr(place, 'key_prefix', '') or getattr(place, 'table_prefix', 't')}{next(numbers)}"
        option = {"key_prefix": name} if request.param == "redis_server" else {"table_prefix": f"{name}_"}
        return lambda: threadline.connect(place.url, pool_size=3, cold=cold, **option)

    return fresh


def test_any_history_with_a_cold_tier_in_memory(tmp_path):
    run(in_memory, tmp_path, 30, 30)


def test_any_history_with_a_cold_tier_in_sqlite(tmp_path):
    run(files(tmp_path), tmp_path, 12, 30)


def test_any_history_with_a_cold_tier_on_a_server(fresh_store, tmp_path):
    run(fresh_store, tmp_path, 3, 25, shrinks=False)


@pytest.mark.soak
def test_hundreds_of_histories_with_a_cold_tier_in_sqlite(tmp_path):
    run(files(tmp_path), tmp_path, 500, 60)


@pytest.mark.soak
def test_dozens_of_histories_with_a_cold_tier_on_a_server(fresh_store, tmp_path):
    run(fresh_store, tmp_path, 60, 40, shrinks=False)
