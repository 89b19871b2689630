import pytest

# The promises are plain asserts in the package; this makes pytest explain them as it does in test files.
pytest.register_assert_rewrite("threadline.testing")
