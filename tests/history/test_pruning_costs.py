"""What deleting reads grows with what goes, never with its square, nor with what has nothing to do with it."""

import itertools
import sys

import pytest

import threadline
from threadline import Policy
from threadline.backends.memory.backend import MemoryBackend
from threadline.backends.sqlite.connections import SqliteConnections
from threadline.backends.sqlite.put import SqliteBackend
from threadline.base.ids import id_after

READS = (
    "chain", "children", "chunk_sizes", "chunks", "find", "links", "page", "roots",
    "thread_writes",
)  # fmt: skip
# A step of SQLite's machine is smaller than a row: it shows what a statement looks through and does not give.
STEPS = 100


class Meter:
    """Rows that the core was given, calls it made, hundreds of steps of SQLite's machine, Python functions called."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.rows = self.calls = self.steps = self.functions = 0

    def profile(self, frame, event, argument):
        self.functions += event in ("call", "c_call")

    def __call__(self, read):
        async def counted(backend, *args, **options):
            result = await read(backend, *args, **options)
            self.calls += 1
            self.rows += len(result) if isinstance(result, (list, dict)) else 1
            return result

        return counted


@pytest.fixture
def meter(monkeypatch):
    counting = Meter()
    for backend in (MemoryBackend, SqliteBackend):
        for name in READS:
            if hasattr(backend, name):
                monkeypatch.setattr(backend, name, counting(getattr(backend, name)))
    prepared = SqliteConnections._prepared

    def step():
        counting.steps += 1

    def metered(self, *args, **options):
        connection = prepared(self, *args, **options)
        connection.set_progress_handler(step, STEPS)
        return connection

    monkeypatch.setattr(SqliteConnections, "_prepared", metered)
    return counting


def fill(saver, count, name="t", runs=("run",), width=10, **metadata):
    """A thread of `count` checkpoints, one on the other; each has an item that none after the next `width` has."""
    config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
    made, puts, run = "1" * 8, [], itertools.cycle(runs)
    for at in range(count):
        made = id_after(made)
        versions = {"items": at + 1}
        checkpoint = {
            **threadline.empty_checkpoint(),
            "id": made,
            "channel_values": {"items": [f"{one:05} " + "x" * 150 for one in range(at, at + width)]},
            "channel_versions": versions,
        }
        about = {"source": "loop", "step": at, "run_id": next(run), **metadata}
        puts.append((config, checkpoint, about, versions))
        config = {"configurable": {"thread_id": name, "checkpoint_ns": "", "checkpoint_id": made}}
    for start in range(0, count, 250):
        saver.put_many(puts[start : start + 250])
    return config


def to_few(saver, count):
    saver.thread("t").prune(Policy(keep_last=10))
    return 10


def to_half(saver, count):
    saver.thread("t").prune(Policy(keep_last=count // 2))
    return count // 2


def to_the_latest(saver, count):
    saver.prune(["t"])
    return 1


def without_a_run(saver, count):
    saver.delete_for_runs(["even"])
    return count // 2


def by_a_sweep(saver, count):
    saver.sweep(Policy(keep_last=count // 2))
    return count // 2


def in_a_plan(saver, count):
    saver.thread("t").prune(Policy(keep_last=10), dry_run=True)
    return count


@pytest.mark.parametrize("prune", [to_few, to_half, to_the_latest, without_a_run, by_a_sweep, in_a_plan])
def test_what_a_prune_reads_grows_as_its_thread_does(connect, url, meter, prune):
    read = {}
    for count in (250, 1000):
        saver = connect(f"{url}-{count}")
        fill(saver, count, runs=("odd", "even"))
        meter.reset()
        left = prune(saver, count)
        read[count] = (meter.rows, meter.calls, meter.steps)
        assert len(list(saver.list(None))) == left
    rows, calls, steps = ([read[count][at] for count in (250, 1000)] for at in range(3))
    assert rows[1] <= 4.4 * rows[0]
    assert calls[1] <= 4.4 * calls[0]
    assert steps[1] <= 5 * steps[0]


def work_of_a_prune(saver, meter, count):
    """What is read, what SQLite steps through and which Python functions are called when a thread keeps 100."""
    fill(saver, count, width=2)
    meter.reset()
    sys.setprofile(meter.profile)
    try:
        saver.thread("t").prune(Policy(keep_last=100))
    finally:
        sys.setprofile(None)
    assert len(list(saver.list(None))) == 100
    assert saver.stats().chunks <= 101
    return {"rows": meter.rows, "calls": meter.calls, "steps": meter.steps, "functions": meter.functions}


def assert_growth(connect, url, meter, few, many, most):
    small, large = (work_of_a_prune(connect(f"{url}-{count}"), meter, count) for count in (few, many))
    grown = {name: large[name] / small[name] for name in small if large[name] > most * small[name]}
    assert not grown, (small, large)


@pytest.mark.parametrize("url", ["sqlite", pytest.param("memory", marks=pytest.mark.soak)], indirect=True)
def test_a_prune_of_16000_checkpoints_does_at_most_five_times_the_work_of_4000(connect, url, meter):
    assert_growth(connect, url, meter, 4_000, 16_000, 5)


@pytest.mark.soak
def test_a_prune_of_30000_checkpoints_to_100_does_ten_times_the_work_of_3000(connect, url, meter):
    assert_growth(connect, url, meter, 3_000, 30_000, 11)


def test_deleting_one_checkpoint_reads_the_same_of_a_long_thread(connect, url, meter):
    read = {}
    for count in (500, 2000):
        saver = connect(f"{url}-{count}")
        fill(saver, count)
        configs = [found.config for found in saver.list(None, limit=31)]
        saver.delete_checkpoint(configs.pop())  # SQLite makes an index for the first
        meter.reset()
        for config in configs[10:20]:
            saver.delete_checkpoint(config)
        read[count] = (meter.rows, meter.calls, meter.steps)
        assert [found.config for found in saver.list(None, limit=20)] == configs[:10] + configs[20:]
    assert read[500][:2] == read[2000][:2]
    assert read[2000][2] <= read[500][2] + 10


def test_deleting_every_checkpoint_one_by_one_is_not_quadratic(connect, url, meter):
    read = {}
    for count in (250, 1000):
        saver = connect(f"{url}-{count}")
        fill(saver, count)
        configs = [found.config for found in saver.list(None)]
        meter.reset()
        for config in configs[:-1]:
            saver.delete_checkpoint(config)
        read[count] = (meter.rows, meter.steps)
        saver.collect()
        assert saver.stats().chunks <= 11
    assert read[1000][0] <= 5 * read[250][0]
    assert read[1000][1] <= 6 * read[250][1]


def test_what_single_deletions_left_behind_is_collected_by_the_next_prune(connect):
    saver = connect()
    fill(saver, 600)
    configs = [found.config for found in saver.list(None)]
    for config in configs[20:30]:
        saver.delete_checkpoint(config)
    saver.thread("t").prune(Policy(keep_last=1))
    assert saver.collect() == 0
    assert saver.fsck().ok


def test_whether_a_pool_is_large_is_not_asked_for_each_checkpoint(monkeypatch):
    """Redis sends the names of all chunks to answer."""
    asked, original = [], MemoryBackend.chunk_sizes

    async def counted(self, *args):
        asked.append(args)
        return await original(self, *args)

    saver = threadline.connect("memory://")
    fill(saver, 600)
    monkeypatch.setattr(MemoryBackend, "chunk_sizes", counted)
    for config in [found.config for found in saver.list(None)][20:40]:
        saver.delete_checkpoint(config)
    assert len(asked) == 1


def test_a_small_thread_gives_its_chunks_back_with_each_checkpoint(connect):
    saver = connect()
    fill(saver, 8)
    [newest, *_] = [found.config for found in saver.list(None)]
    before = saver.stats().chunks
    saver.delete_checkpoint(newest)
    assert saver.stats().chunks < before
    assert saver.collect() == 0


@pytest.mark.parametrize("branches", [1, 40])
def test_what_pruning_reads_does_not_depend_on_other_threads(connect, url, meter, branches):
    read = []
    for others in (0, 30):
        saver = connect(f"{url}-{others}")
        fill(saver, 300)
        for at in range(others):
            fill(saver, 40, f"other-{at}")
        meter.reset()
        saver.thread("t").prune(Policy(keep_last=branches))
        read.append((meter.rows, meter.calls))
    assert read[0] == read[1]
