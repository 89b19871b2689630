"""LangGraph's published conformance suite on MySQL and MariaDB, through both halves."""

import pytest

from tests.test_conformance import CAPABILITIES, check_capability
from threadline.langgraph import Checkpointer


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability_is_there_and_passes(capability, half, mysql_url, prefix):
    check_capability(capability, half, lambda: Checkpointer(mysql_url, table_prefix=prefix))
