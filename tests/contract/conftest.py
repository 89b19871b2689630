import pytest

# The promises are plain asserts in the package, and some stand in modules of this folder; this makes pytest explain
# them as it does in test files.
pytest.register_assert_rewrite("threadline.testing", "history_machine", "history_player")
