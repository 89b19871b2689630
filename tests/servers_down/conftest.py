"""Rules of this folder: servers of the test's own are ended with SIGKILL, and start again on what they had stored."""

import sys
from pathlib import Path

# The histories of tests/durability can be made again from their step, so they serve here too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "durability"))
