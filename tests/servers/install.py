"""Installs the servers that the tests need and the machine lacks: `python -m tests.servers.install`.

Only as root on a system with apt-get, and without starting anything: the tests start what they need themselves. It
never fails, because tests can do without: one line says what happened, or nothing when nothing is missing.
THREADLINE_TEST_INSTALL=0 leaves the system alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .binaries import KINDS, missing

__all__ = ["install"]

# Maintainers' scripts ask this program before they start a service; 101 forbids it.
POLICY = Path("/usr/sbin/policy-rc.d")
REFUSAL = "#!/bin/sh\nexit 101\n"
# A machine without a network must not wait long for one, and another apt-get may be at work.
OPTIONS = ["-qq", "-o=Acquire::Retries=1", "-o=Acquire::http::Timeout=20", "-o=DPkg::Lock::Timeout=60"]
SECONDS = {"update": 60, "install": 240}


def install() -> str:
    """What was done about missing servers, in a line; empty when none is missing."""
    packages = sorted({KINDS[kind].package for kind in KINDS if not KINDS[kind].is_of_python and missing(kind)})
    if not packages:
        return ""
    wanted = " ".join(packages)
    if os.environ.get("THREADLINE_TEST_INSTALL") == "0" or shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"Servers are missing and their tests will be skipped. Install: {wanted}"
    print(f"Installing {wanted} for the tests ...", flush=True)
    with _no_service_starts():
        # The lists of a fresh container are empty; where they are not, the packages may be found without the network.
        problem = _apt("install", "-y", "--no-install-recommends", *packages)
        if problem:
            problem = _apt("update") or _apt("install", "-y", "--no-install-recommends", *packages)
    return f"{wanted} could not be installed ({problem}); their tests will be skipped" if problem else ""


def _apt(*arguments: str) -> str:
    """What went wrong, in a few words."""
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        done = subprocess.run(
            ["apt-get", *OPTIONS, *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS[arguments[0]],
        )
    except subprocess.TimeoutExpired:
        return f"apt-get {arguments[0]} took too long"
    except OSError as error:
        return str(error)
    said = done.stdout.strip().splitlines() or [f"it ended with {done.returncode}"]
    return f"apt-get {arguments[0]}: {said[-1]}" if done.returncode else ""


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """While packages are installed; a policy that somebody else made is left as it is."""
    if POLICY.exists():
        yield
        return
    try:
        POLICY.write_text(REFUSAL)
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink(missing_ok=True)


if __name__ == "__main__":
    said = install()
    if said:
        print(said, flush=True)
