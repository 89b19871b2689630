"""Random histories: SQLite, memory and the model hold the same, whatever was done in whatever order."""

import os
import tempfile
import uuid

import pytest
from history_player import Player, histories
from hypothesis import HealthCheck, given, settings

import threadline


def compared(history, **options):
    """Plays a history, and finds the same in memory, in SQLite and in the model."""
    with tempfile.TemporaryDirectory() as folder:
        file, name = os.path.join(folder, "threads.db"), f"memory://{uuid.uuid4()}"
        stores = [
            [threadline.connect(name, **options) for _ in range(2)],
            [threadline.connect(file, synchronous="OFF", **options) for _ in range(2)],
        ]
        player = Player(stores)
        try:
            for act in history:
                player.play(act)
            player.check()
        finally:
            for savers in stores:
                for saver in savers:
                    saver.close()


def examples(count):
    return settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )


@examples(120)
@given(history=histories)
def test_every_store_holds_what_the_model_holds(history):
    compared(history)


@examples(80)
@given(history=histories)
def test_every_store_holds_what_the_model_holds_when_little_can_be_remembered(history):
    compared(history, cache_bytes=2000)


def test_a_saver_whose_put_was_refused_writes_to_the_checkpoint_that_another_has_put():
    put = ("append", 0, "words", False)
    history = [("put", "b", "child:1", 0, *put), ("delete", "b"), ("put again", 0), ("put", "b", "child:1", 1, *put)]
    history += [("put", "a", "", 0, *put), ("prune", "b"), ("put again", 1), ("writes", 1, "t1", [])]
    for turns in range(4):
        compared([("forget",)] * turns + history)


@pytest.mark.soak
@examples(3000)
@given(history=histories)
def test_every_store_holds_what_the_model_holds_after_thousands_of_histories(history):
    compared(history)
