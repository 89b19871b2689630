"""One test body for both halves of LangGraph and for every place a thread can live.

Rules of this folder:
- `half` runs a graph through `invoke` or through `ainvoke`; every asynchronous call gets an event
  loop of its own, because a saver must not care which loop it is called from.
- `url` names a store that outlives the saver, so `reopen()` may always be asked for.
- What needs a fresh process is a script in `tmp_path`, run by `run_script`.
- The folder has no `__init__.py` and no module named as one of LangGraph's: `langgraph` is a
  namespace package, and a regular package of that name on the path would hide it.
"""

import json
import os
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

import threadline
from tests.stores import Half, savers
from threadline.langgraph import Checkpointer


class GraphHalf(Half):
    """The sync or the async face of graphs and savers, under the sync names."""

    def collect(self, owner, verb, *args, **kwargs):
        """Everything the iterator `owner.verb(...)` or its `a` twin yields."""
        return self.listed(owner, *args, verb=verb, **kwargs)

    def invoke(self, graph, *args, **kwargs):
        return self.call(graph, "invoke", *args, **kwargs)

    def stream(self, graph, *args, **kwargs):
        return self.collect(graph, "stream", *args, **kwargs)

    def get_state(self, graph, *args, **kwargs):
        return self.call(graph, "get_state", *args, **kwargs)

    def get_state_history(self, graph, *args, **kwargs):
        return self.collect(graph, "get_state_history", *args, **kwargs)

    def update_state(self, graph, *args, **kwargs):
        return self.call(graph, "update_state", *args, **kwargs)

    def bulk_update_state(self, graph, *args, **kwargs):
        return self.call(graph, "bulk_update_state", *args, **kwargs)


@pytest.fixture(params=["sync", "async"])
def half(request):
    return GraphHalf(request.param)


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'threads.db'}"


@pytest.fixture
def reopen(url):
    """Opens a further saver on the store of this test, with nothing remembered in it."""
    with savers(url, make=Checkpointer) as opening:
        yield opening


@pytest.fixture
def saver(reopen):
    return reopen()


@pytest.fixture
def thread():
    """Makes the config that names a thread."""

    def config(thread_id="thread-1", **configurable):
        return {"configurable": {"thread_id": thread_id, **configurable}}

    return config


@pytest.fixture
def stored_writes():
    """Waits until so many tasks have stored a write to a channel of the newest checkpoint.

    A node calls it to fail only after its siblings' work is safe: when it returns, running a
    sibling again would be a fault of the saver, not of the clock.
    """

    def wait(saver, config, channel, *, count, seconds=20):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The node may run before its checkpoint is stored: durability is "async" by default.
            latest = saver.get_tuple(config)
            writes = (latest.pending_writes or ()) if latest else ()
            tasks = {task for task, name, _ in writes if name == channel}
            if len(tasks) >= count:
                return
            time.sleep(0.005)
        raise TimeoutError(f"only {len(tasks)} tasks stored {channel!r}")

    return wait


@pytest.fixture
def run_script(tmp_path):
    """Runs a script in a new interpreter and gives the JSON value on its last line."""
    package_root = Path(threadline.__file__).resolve().parents[1]

    def run(source, *arguments, must_fail=False, **environment):
        script = tmp_path / f"script_{uuid.uuid4().hex}.py"
        script.write_text(textwrap.dedent(source))
        search = [str(tmp_path), str(package_root), os.environ.get("PYTHONPATH", "")]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))}
        variables.update(environment)
        variables = {name: value for name, value in variables.items() if value is not None}
        done = subprocess.run(
            [sys.executable, str(script), *map(str, arguments)],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if must_fail:
            assert done.returncode != 0, done.stdout
            return done.stderr
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run
