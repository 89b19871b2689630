"""Threads of LangGraph's own savers and items of its stores, brought into a Threadline store.

    from threadline.transfer import import_threads
    report = import_threads("postgresql://me@host/agents", "sqlite:///new.db")

`source` says what is read, `langgraph_sqlite` and `langgraph_postgres` read the tables, `transcode` makes their bytes
into ours without the classes they stand for, `compare` tells whether two checkpoints are the same, `importing` goes
through the threads, `items` through the items of a store.
"""

from __future__ import annotations

from .importing import import_postgres, import_sqlite, import_threads
from .report import Counts, ImportReport

__all__ = ["Counts", "ImportReport", "import_postgres", "import_sqlite", "import_threads"]
