"""Rules of this folder:

- What is compared is `anatomy(value)` (codec_anatomy.py), never `==`, which forgives what must not be lost.
- Registrations are for the whole process: each test gets the registry back as it found it.
- Stores are `memory://` under a name of their own, or a SQLite file; both can be opened again.
"""

import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import codec_kinds
import pytest

import threadline
from tests.stores import savers
from threadline.codec import Codec
from threadline.codec.allowed import registry


@pytest.fixture(autouse=True)
def _registry_as_it_was():
    by_class, by_name, waiting = dict(registry.by_class), dict(registry.by_name), dict(registry.waiting)
    yield
    # What a room registered when it was first imported stays: it is imported once.
    by_class |= {cls: one for cls, one in registry.by_class.items() if cls.__module__.startswith("threadline.")}
    registry.by_class, registry.by_name, registry.waiting = by_class, by_name, waiting
    registry.generation += 1


@pytest.fixture
def ran():
    """The notes of what classes of codec_kinds ran, emptied."""
    codec_kinds.ran.clear()
    return codec_kinds.ran


@pytest.fixture
def app():
    """A module of a program, whose classes a test defines and defines again."""
    module = types.ModuleType("changing_app")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def codec():
    return Codec()


@pytest.fixture
def connect(url):
    """Opens savers on the store of this test, each with nothing remembered."""
    with savers(url) as opening:
        yield opening


@pytest.fixture
def run_script(tmp_path):
    """Runs a script in a new interpreter and gives what it printed."""
    package_root = Path(threadline.__file__).resolve().parents[1]

    def run(source, **environment):
        search = [str(tmp_path), str(Path(__file__).parent), str(package_root), os.environ.get("PYTHONPATH", "")]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search)), **environment}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)], env=variables, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
