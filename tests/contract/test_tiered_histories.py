"""Random histories with chunks going to objects and coming back between all other verbs: every store holds the same."""

import itertools
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from history_player import THREADS, Player, histories, picks
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import threadline
from threadline import NotFound
from threadline.core.tiering import choosing

threads = st.sampled_from((*THREADS, None))
TIERING = st.one_of(
    st.tuples(st.just("tier"), threads, st.sampled_from(("0s", "1d"))),
    st.tuples(st.just("tier"), st.none(), st.just("0s")),
    st.tuples(st.just("restore"), threads),
    st.tuples(st.just("lose"), picks),
)


@st.composite
def tiered_histories(draw):
    """A history with acts of the tier at random places."""
    acts = draw(histories)
    for act in draw(st.lists(TIERING, min_size=3, max_size=12)):
        acts.insert(draw(st.integers(0, len(acts))), act)
    return acts


@pytest.fixture(autouse=True)
def _small_chunks_move(monkeypatch):
    """Every chunk is worth moving: nodes, roots and pointers, too."""
    for name in ("_LEAST_BYTES", "_LEAST_LINKED_BYTES", "_LEAST_OBJECT_BYTES"):
        monkeypatch.setattr(choosing, name, 1)


class TieredPlayer(Player):
    """A player whose stores have a folder for objects each; the model knows nothing of it."""

    def __init__(self, stores, folders):
        super().__init__(stores)
        self.folders = folders

    def _tier(self, thread, grace):
        for savers in self.stores:
            saver = self._on_duty(savers)
            try:
                done = saver.tier("0s", thread_ids=None if thread is None else [thread], grace=grace)
                assert not done.is_elsewhere
                assert done.problems == ()
            except NotFound:
                assert thread not in {info.thread_id for info in saver.threads()}

    def _restore(self, thread):
        for savers in self.stores:
            saver = self._on_duty(savers)
            try:
                assert saver.tier_restore(None if thread is None else [thread]).lost == 0
            except NotFound:
                assert thread not in {info.thread_id for info in saver.threads()}

    def _lose(self, pick):
        """An object is lost, what needs it is set aside, and the object is found again."""
        for savers, folder in zip(self.stores, self.folders, strict=True):
            saver, paths = self._on_duty(savers), sorted(folder.iterdir()) if folder.exists() else []
            if not paths:
                continue
            path = paths[pick % len(paths)]
            content = path.read_bytes()
            path.unlink()
            saver.quarantine(saver.fsck().damaged)
            assert saver.fsck().ok
            path.write_bytes(content)
            saver.tier("7d", grace="0s")
            saver.unquarantine(saver.quarantined())
        for savers in self.stores:
            # What was kept meanwhile is let go, in all stores alike.
            self._on_duty(savers).collect()

    def check(self):
        for savers, folder in zip(self.stores, self.folders, strict=True):
            saver = savers[0]
            report = saver.fsck()
            assert report.ok, report
            saver.tier("7d", grace="0s")
            status = saver.tier_status()
            assert status.orphans == 0
            assert len(list(folder.iterdir()) if folder.exists() else ()) == status.objects
        super().check()


def compared(history, *places):
    """Plays a history on each place, a URL and its options, and finds the same there and in the model."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        folders = [Path(folder) / f"cold{number}" for number in range(len(places))]
        stores = [
            [
                opened.enter_context(
                    threadline.connect(url.replace("FOLDER", folder), cold=f"file://{cold}", **options)
                )
                for _ in range(2)
            ]
            for (url, options), cold in zip(places, folders, strict=True)
        ]
        player = TieredPlayer(stores, folders)
        for act in history:
            player.play(act)
        player.check()


def in_memory():
    return f"memory://{uuid.uuid4()}", {}


IN_SQLITE = "sqlite:///FOLDER/threads.db", {"synchronous": "OFF"}


def examples(count, *, shrinks=True):
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if shrinks else [])]
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), phases=phases)


@examples(40)
@given(history=tiered_histories())
def test_every_store_holds_what_the_model_holds_whatever_tier_it_is_in(history):
    compared(history, in_memory(), IN_SQLITE)


@examples(15)
@given(history=tiered_histories())
def test_every_store_holds_what_the_model_holds_when_little_can_be_remembered(history):
    compared(history, *((url, {**options, "cache_bytes": 2000}) for url, options in (in_memory(), IN_SQLITE)))


@pytest.mark.soak
@examples(1000)
@given(history=tiered_histories())
def test_thousands_of_histories_with_a_cold_tier(history):
    compared(history, in_memory(), IN_SQLITE)


@pytest.mark.soak
@pytest.mark.parametrize("server", ["postgres", "mysql", "redis_server"])
def test_dozens_of_histories_with_a_cold_tier_on_a_server(request, server):
    place, numbers = request.getfixturevalue(server), itertools.count(1)

    @examples(40, shrinks=False)  # each has tables of its own
    @given(history=tiered_histories())
    def play(history):
        name = f"{getattr(place, 'key_prefix', '') or getattr(place, 'table_prefix', 't')}h{next(numbers)}"
        option = {"key_prefix": name} if server == "redis_server" else {"table_prefix": f"{name}_"}
        compared(history, in_memory(), (place.url, {"pool_size": 3, **option}))

    play()
