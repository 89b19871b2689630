"""Setting up a store that is open: no connection is used that another thread closes meanwhile."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "setting_up.py"


@pytest.mark.parametrize("what", ["forks", "closes"])
def test_a_store_is_set_up_while_its_program_forks_or_closes_it(tmp_path, what):
    command = [sys.executable, "-X", "faulthandler", PROGRAM, what, tmp_path / "store.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr[-2000:]
