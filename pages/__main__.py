"""`python -m pages [--into FOLDER]`: build the site of the documentation, or say why it cannot be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .building import ROOT, Unsound, build


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pages", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "site", help="the folder of the site (default: site/)")
    into = parser.parse_args().into
    try:
        build(into)
    except Unsound as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The site is in {into}: open {into / 'index.html'}, or run {sys.executable} -m http.server -d {into}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
