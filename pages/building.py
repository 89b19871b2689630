"""Builds the site and checks it. Whatever would be wrong for a reader is an error that names it.

Zensical's strict mode finds links and anchors that lead nowhere. It does not look for pages outside the navigation, nor
for what a page loads from other hosts: that is done here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from .reference import MissingRoom, reference
from .staging import BrokenLink, stage

__all__ = ["ROOT", "Unsound", "build", "build_staged", "loads_from_elsewhere", "navigation_faults"]

ROOT = Path(__file__).parent.parent
CONFIG = "zensical.toml"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What a browser fetches by itself; a link that a person follows is none of these.
LOADING = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|srcset|data)\s*=\s*[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?=[^>]*\brel\s*=\s*[\"']?(?:stylesheet|preload|modulepreload|preconnect|dns-prefetch|icon|prefetch))"
    r"[^>]*\bhref\s*=\s*[\"']?(?:https?:)?//[^>]*>"
    r"|(?:url\(\s*|@import\s+)[\"']?(?:https?:)?//[^)\"';]*",
    re.IGNORECASE,
)


class Unsound(Exception):
    """The site cannot be built, or is not as readers need it."""


def build(into: Path, root: Path = ROOT) -> None:
    """Build the site of the repository at `root` into a folder, which is replaced."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        try:
            stage(root, folder / "docs")
            written = reference(folder / "docs")
        except (BrokenLink, MissingRoom) as error:
            raise Unsound(str(error)) from error
        for place, text in written.items():
            (folder / "docs" / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / "docs" / place).write_text(text, encoding="utf-8")
        shutil.copyfile(Path(__file__).with_name("extra.css"), folder / "docs" / "extra.css")
        shutil.copyfile(root / CONFIG, folder / CONFIG)
        build_staged(folder)
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(folder / "site", into)


def build_staged(folder: Path) -> None:
    """Build `site/` of the pages in `docs/` and the configuration beside it."""
    _check(navigation_faults(folder))
    _run_zensical(folder)
    _check(loads_from_elsewhere(folder / "site"))


def navigation_faults(folder: Path) -> list[str]:
    """What is wrong between the navigation in a folder's configuration and the pages in its `docs/`."""
    config = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
    named = list(_pages_of(config["project"]["nav"]))
    there = {path.relative_to(folder / "docs").as_posix() for path in (folder / "docs").rglob("*.md")}
    return [
        *(f"{page} is not in the navigation: name it in {CONFIG}" for page in sorted(there - set(named))),
        *(f"{CONFIG} names {page}, which is no page" for page in sorted(set(named) - there)),
        *(f"{CONFIG} names {page} twice" for page in sorted({page for page in named if named.count(page) > 1})),
    ]


def loads_from_elsewhere(site: Path) -> list[str]:
    """What pages and style sheets of a built site would load from another host."""
    return [
        f"{path.relative_to(site)} loads from another host: {found[0][:120]}"
        for path in sorted([*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")])
        for found in LOADING.finditer(path.read_text(encoding="utf-8"))
    ]


def _pages_of(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, list):
                yield from _pages_of(value)
            else:
                yield value


def _run_zensical(folder: Path) -> None:
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        said = COLOURS.sub("", done.stdout + done.stderr).partition("Traceback")[0]
        raise Unsound(f"Zensical refuses the pages:\n{said}")


def _check(faults: list[str]) -> None:
    if faults:
        raise Unsound("\n".join(faults))
