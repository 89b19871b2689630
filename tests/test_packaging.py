"""What people get who install Threadline from a package index: the README's line, its examples, and its links."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = PROJECT["urls"]["Repository"] + "/blob/main/"
EXAMPLE = re.compile(r"^<!-- run -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input"]


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """What a command says that is run in a folder outside the repository, by somebody who has set nothing up."""
    private = ("LANG", "THREADLINE", "PYTHON", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    variables |= {"PYTHONUTF8": "1"}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )


def installed(done: subprocess.CompletedProcess[str]) -> None:
    """Fail, and say what is missing, unless pip did what it was asked."""
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
        pytest.fail(
            "the README's install line does not work here. This test needs a package index that pip can reach; it is "
            "not skipped, because nothing else tries the line. pip says:\n" + "\n".join(said[-3:]),
            pytrace=False,
        )


def test_the_install_line_and_every_example_of_the_readme_work_in_an_empty_environment(tmp_path: Path) -> None:
    line = re.search(r"^    pip install '(threadline\[[\w,]+\])'$", README, re.MULTILINE)
    assert line, "the README has no install line"
    installed(run(tmp_path, sys.executable, *PIP, "wheel", "-q", "--no-deps", "-w", tmp_path / "wheels", ROOT))
    (wheel,) = (tmp_path / "wheels").glob("threadline-*.whl")
    assert natives_in(wheel) or shutil.which(COMPILER) is None
    assert run(tmp_path, sys.executable, "-m", "venv", tmp_path / "empty").returncode == 0
    python = next(path for path in (tmp_path / "empty").glob("*/python*") if path.stem == "python")
    # Whatever an index has under this name, it is this wheel that is tried; the rest has the versions of the tests.
    wanted = f"{line[1]} @ {wheel.as_uri()}"
    installed(run(tmp_path, python, *PIP, "install", "-q", "-c", ROOT / "constraints.txt", wanted))

    imports = re.findall(r"`(from threadline\.langgraph import \w+)` \|$", README, re.MULTILINE)
    script = "\n".join([*imports, *EXAMPLE.findall(README)])
    (tmp_path / "readme.py").write_text(script, encoding="utf-8")
    done = run(tmp_path, python, "readme.py")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"# -> (.*)$", script, re.MULTILINE)
    assert len(imports) > 5
    threads = run(tmp_path, python.with_name("threadline"), "threads", "--url", "sqlite:///notes.db")
    assert (threads.returncode, "notes" in threads.stdout) == (0, True), threads.stderr


def test_without_a_compiler_the_package_is_pure_python(tmp_path: Path) -> None:
    """What cannot compile is left out, and said; what is compiled beside the source is not taken along."""
    wheel = ["wheel", "-q", "--no-deps", "-w", tmp_path, ROOT]
    installed(run(tmp_path, "env", "CC=no-such-compiler", "CXX=no-such-compiler", sys.executable, *PIP, *wheel))
    (made,) = tmp_path.glob("threadline-*.whl")
    assert made.name.endswith("-py3-none-any.whl")
    assert not natives_in(made)


def natives_in(wheel: Path) -> list[str]:
    """The compiled files of a wheel."""
    return [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".pyd"))]


def links_of_the_readme() -> list[str]:
    text = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    named = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE))
    body = re.sub(r"^\[[^\]]+\]: \S+$", "", text, flags=re.MULTILINE)
    used = {name.lower() for name in re.findall(r"\]\[([^\]]+)\]", body)}
    assert used == {name.lower() for name in named}, "a link has no address, or an address no link"
    return [*named.values(), *re.findall(r"\]\(([^)\s]+)\)", body)]


def test_links_of_the_readme_work_wherever_it_is_shown() -> None:
    links = links_of_the_readme()
    assert links
    for link in links:
        # A package index shows the README without the files around it.
        assert link.startswith("https://"), f"{link} is relative"
        if link.startswith(FILES):
            path, _, anchor = link.removeprefix(FILES).partition("#")
            # `make bench` writes the page of the benchmarks.
            assert (ROOT / path).is_file() or path == "docs/benchmarks.md", f"{link} names no file"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_the_addresses_of_the_project_lead_into_its_repository() -> None:
    urls = PROJECT["urls"]
    host = urls["Repository"].split("/")[2]
    # A host that stands for one which is not known yet must not look like an address.
    assert not host.endswith(".example") or f"`{host}`, which stands for it" in README
    for name, url in urls.items():
        assert url.startswith(urls["Repository"]), name
        if url.startswith(FILES):
            assert (ROOT / url.removeprefix(FILES)).is_file(), name


def test_an_extra_installs_only_what_something_uses() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    modules = {"psycopg": "psycopg", "PyMySQL": "pymysql", "langgraph": "langgraph", "langchain-core": "langchain_core"}
    modules |= {"langgraph-checkpoint": "langgraph.checkpoint"}
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra in ("dev", "all"):
            continue
        for requirement in requirements:
            package = re.split(r"[\[<>=]", requirement)[0]
            if package != "pyarrow":  # pandas uses it
                assert re.search(rf"\b{re.escape(modules.get(package, package))}\b", source), f"{extra}: {package}"
    named = PROJECT["optional-dependencies"]["all"][0]
    assert set(re.findall(r"\w+", named)[1:]) == set(PROJECT["optional-dependencies"]) - {"dev", "all"}
    assert all(f"`[{extra}]`" in README for extra in PROJECT["optional-dependencies"] if extra != "dev")


def test_the_versions_of_python_are_those_that_are_tested() -> None:
    said = re.search(r"python3 \(3\.(\d+) to 3\.(\d+)\)", README)
    assert said
    tested = {f"3.{minor}" for minor in range(int(said[1]), int(said[2]) + 1)}
    named = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert named == tested
    constraint = f"({min(tested)} to {max(tested)} are supported"
    assert constraint in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
