"""Gathers the pages in one folder, as a site needs them.

In the repository a page may link to files beside `docs/`, such as ARCHITECTURE.md. A site is made of one folder. So
these files become pages below `project/`, and every relative link is written anew for the place its page is in.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

__all__ = ["BrokenLink", "stage"]

# Files beside `docs/` that are pages of the site. The README is the landing page for those who read the repository.
BESIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
PARTS = re.compile(r"^```.*?^```$|`[^`\n]*`|(\]\()([^)\s]+)(\))", re.MULTILINE | re.DOTALL)


class BrokenLink(ValueError):
    """A page links to a file that is no page."""


def stage(root: Path, into: Path) -> None:
    """Copy the pages of the repository at `root` to an empty folder `into`, with links that hold there."""
    docs = root / "docs"
    places = {path: path.relative_to(docs).as_posix() for path in docs.rglob("*") if path.is_file()}
    beside = {root / name: place for name, place in BESIDE.items() if (root / name).exists()}
    for source, place in (places | {path: at for path, at in beside.items() if at not in places.values()}).items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = source.read_text(encoding="utf-8")
            target.write_text(_relinked(text, source, place, beside | places), encoding="utf-8")
        else:
            shutil.copyfile(source, target)


def _relinked(text: str, source: Path, place: str, places: dict[Path, str]) -> str:
    def link(found: re.Match[str]) -> str:
        if not found[1] or re.match(r"[a-z]+:|#", found[2]):
            return found[0]
        path, mark, anchor = found[2].partition("#")
        target = Path(os.path.normpath(source.parent / path))
        if target not in places:
            raise BrokenLink(f"{source}: {found[2]} is no page of the site")
        return found[1] + os.path.relpath(places[target], os.path.dirname(place) or ".") + mark + anchor + found[3]

    return PARTS.sub(link, text)
