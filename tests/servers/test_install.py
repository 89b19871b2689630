"""Installing missing servers: what apt-get is asked for, that no service starts meanwhile, and that it never fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers import binaries, install

APT = """\
#!/bin/sh
if [ -x {folder}/policy-rc.d ] && ! {folder}/policy-rc.d; then policy=kept; else policy=broken; fi
echo "$policy $*" >>{folder}/calls
{then}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for a Debian machine without servers, seen by root."""
    monkeypatch.setattr(binaries, "FOLDERS", ())
    monkeypatch.setattr(install, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("THREADLINE_TEST_INSTALL", raising=False)
    put(
        tmp_path,
        "mariadbd",
        "mariadb-install-db",
        "redis-server",
        "prometheus",
        "promtool",
        "prometheus-alertmanager",
        "chromium",
    )
    return tmp_path


def put(folder: Path, *programs: str, text: str = "#!/bin/sh\n") -> None:
    for program in programs:
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def test_missing_packages_are_installed_and_no_service_starts(machine: Path) -> None:
    put(machine, "apt-get", text=APT.format(folder=machine, then=""))
    assert install.install() == ""
    (call,) = calls(machine)
    assert call.startswith("kept -qq ")
    assert call.endswith("install -y --no-install-recommends pgbouncer postgresql")
    assert not (machine / "policy-rc.d").exists()


def test_fresh_machines_get_their_lists_first(machine: Path) -> None:
    then = f'case "$*" in *update*) echo x >{machine}/lists;; *) [ -e {machine}/lists ];; esac'
    put(machine, "apt-get", text=APT.format(folder=machine, then=then))
    assert install.install() == ""
    assert [call.rpartition("=60 ")[2].split()[0] for call in calls(machine)] == ["install", "update", "install"]


def test_a_machine_without_network_is_told_in_a_line(machine: Path) -> None:
    put(machine, "apt-get", text=APT.format(folder=machine, then="echo first\necho E: no network\nexit 100"))
    said = install.install()
    assert said == (
        "pgbouncer postgresql could not be installed (apt-get update: E: no network); their tests will be skipped"
    )
    assert not (machine / "policy-rc.d").exists()


@pytest.mark.parametrize("reason", ["not root", "no apt-get", "forbidden"])
def test_what_may_not_be_installed_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason != "no apt-get":
        put(machine, "apt-get", text=APT.format(folder=machine, then=""))
    if reason == "not root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if reason == "forbidden":
        monkeypatch.setenv("THREADLINE_TEST_INSTALL", "0")
    said = install.install()
    assert said == "Servers are missing and their tests will be skipped. Install: pgbouncer postgresql"
    assert not calls(machine)


def test_a_complete_machine_hears_nothing(machine: Path) -> None:
    put(machine, "initdb", "postgres", "pgbouncer")
    assert install.install() == ""
    assert not calls(machine)


def test_somebody_elses_policy_is_left_as_it_is(machine: Path) -> None:
    put(machine, "policy-rc.d", text="#!/bin/sh\nexit 104\n")
    put(machine, "apt-get", text=APT.format(folder=machine, then=""))
    assert install.install() == ""
    assert (machine / "policy-rc.d").read_text() == "#!/bin/sh\nexit 104\n"
