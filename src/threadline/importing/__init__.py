"""Threads of LangGraph's own savers, brought into a Threadline store.

    from threadline.importing import import_sqlite
    report = import_sqlite("sqlite:///old.db", "sqlite:///new.db")

`source` reads the tables, `transcode` makes their bytes into ours without the classes they stand for,
`compare` tells whether two checkpoints are the same, `copying` goes through the threads.
"""

from __future__ import annotations

from .copying import Counts, ImportReport, import_sqlite

__all__ = ["Counts", "ImportReport", "import_sqlite"]
