"""Whether an agent, ours or LangGraph's, comes to the same end wherever it is killed.

    from threadline.testing import crashes

    def test_my_agent_survives():
        report = crashes(graph, {"messages": ["book a flight"]}, answers=lambda question: "yes")
        assert report.is_safe, str(report)

With `pytest_plugins = ["threadline.testing.fixtures"]` in a conftest.py, the fixture `survives_crashes` does both.
"""

from ..graph.testing.crashing import Crash, CrashReport, CrashRun, CrashSaver, crash_after, crashes

__all__ = ["Crash", "CrashReport", "CrashRun", "CrashSaver", "crash_after", "crashes"]
