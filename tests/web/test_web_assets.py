"""What browsers are given: files of others as they were published, little of our own, and nothing from elsewhere."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import threadline.web

ROOM = Path(threadline.web.__file__).parent
STATIC = ROOM / "static"


def test_files_of_others_are_what_they_were_when_they_came() -> None:
    noted = dict(reversed(line.split()) for line in (STATIC / "SHA256SUMS").read_text().splitlines())
    assert set(noted) == {"htmx.min.js", "hx-csp.min.js", "hx-sse.min.js", "htmx-LICENSE.txt"}
    for name, digest in noted.items():
        assert sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert "Zero-Clause BSD" in (STATIC / "htmx-LICENSE.txt").read_text()


def test_assets_are_small_and_our_own_script_is_short() -> None:
    assert sum(file.stat().st_size for file in STATIC.iterdir()) < 120_000
    assert len((STATIC / "page.js").read_text().splitlines()) <= 150


def test_nothing_comes_from_another_host_and_nothing_is_marked_safe() -> None:
    for file in [*(ROOM / "templates").iterdir(), STATIC / "page.js", STATIC / "style.css"]:
        text = file.read_text()
        assert not re.search(r"https?://|//[a-z]+\.", text.replace("http://www.w3.org/2000/svg", "")), file.name
        assert not re.search(r"\|\s*safe\b|autoescape|innerHTML\s*=|eval\(", text), file.name
        assert " style=" not in text, file.name
        assert not re.search(r"\son[a-z]+=", text), file.name
        # htmx acts on elements that have the nonce, and on no others.
        for element in re.findall(r"<(?!meta|script)[a-z]+[^>]*\bhx-[^>]*>", text):
            assert "hx-nonce" in element, f"{file.name}: {element}"


def test_everything_is_in_the_wheel() -> None:
    from threadline.web.rendering import ASSETS

    assert {"htmx.min.js", "hx-csp.min.js", "hx-sse.min.js", "page.js", "style.css", "icon.svg"} == set(ASSETS)
