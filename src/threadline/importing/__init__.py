"""Threads of LangGraph's own savers, brought into a Threadline store.

    from threadline.importing import import_threads
    report = import_threads("postgresql://me@host/agents", "sqlite:///new.db")

`source` says what is read, `sqlite_source` and `postgres_source` read the tables, `transcode` makes their bytes into
ours without the classes they stand for, `compare` tells whether two checkpoints are the same, `copying` goes through
the threads.
"""

from __future__ import annotations

from .copying import Counts, ImportReport, import_postgres, import_sqlite, import_threads

__all__ = ["Counts", "ImportReport", "import_postgres", "import_sqlite", "import_threads"]
