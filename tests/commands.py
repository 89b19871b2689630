"""Commands of `threadline`, run in the process of the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from threadline.cli import main

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; gives its output and its complaints, after checking how it ended."""

    def call(*arguments: object, status: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        ended = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert ended == status, said.out + said.err
        return said.out, said.err

    return call
