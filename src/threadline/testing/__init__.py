"""The contract of a saver as tests, for authors of backends and for the project itself.

    import pytest

    pytest.register_assert_rewrite("threadline.testing")

    from threadline.testing import CONTRACT, Store, run_promise

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("promise", CONTRACT)
    def test_the_contract(promise, is_async, url):
        run_promise(promise, Store(connect=lambda **options: threadline.connect(url, **options)), is_async=is_async)

Each promise is one body for both halves of a saver. It uses threads of its own and needs nobody else to use
the store while it runs. Without pytest, `run_contract(store)` gives what is broken.

`crashes(graph, input)` is for authors of agents: it kills a graph, ours or LangGraph's, around each of its storage
operations, resumes it, and tells whether it came to the same end.
"""

from .contract import CONTRACT, Broken, promises_for, run_contract
from .crashes import Crash, CrashReport, CrashRun, CrashSaver, crash_after, crashes
from .half import Half, Promise, Store, run_promise

__all__ = [
    "Broken",
    "CONTRACT",
    "Crash",
    "CrashReport",
    "CrashRun",
    "CrashSaver",
    "Half",
    "Promise",
    "Store",
    "crash_after",
    "crashes",
    "promises_for",
    "run_contract",
    "run_promise",
]
