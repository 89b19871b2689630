"""Usual puts to servers, on the calling thread: what the tests of PostgreSQL and of MySQL share."""

import pytest

from threadline.errors import Unavailable
from threadline.testing.making import checkpoint, place


def put(saver, at, step, thread_id="t"):
    """The step's checkpoint, whose list is that of the one before and an item."""
    values = {"messages": [f"message {number} " * 20 for number in range(step)]}
    made = checkpoint(values, {"messages": step})
    return saver.put(at or place(thread_id), made, {"source": "loop", "step": step, "parents": {}}, {"messages": step})


def steps(saver, thread_id="t"):
    return [found.metadata["step"] for found in saver.list(place(thread_id))]


class UsualPuts:
    """What the usual puts of a server hold to; its module has the fixtures `connect` and `lose`."""

    def test_usual_puts_and_writes_are_no_operations(self, connect, operations):
        saver = connect()
        put(saver, None, 1, "warm")
        went = operations(saver)
        at = put(saver, None, 1)
        for step in range(2, 6):
            saver.put_writes(at, [("messages", step)], "task")
            at = put(saver, at, step)
        assert not went
        assert steps(saver) == [5, 4, 3, 2, 1]

    @pytest.mark.parametrize("moment", ["asked", "answered"])
    @pytest.mark.parametrize("verb", ["put", "put_writes", "first put"])
    def test_a_connection_that_is_lost_around_a_put_leaves_it_made_once(self, connect, lose, verb, moment):
        saver = connect()
        saver.put_writes(put(saver, put(saver, None, 1, "warm"), 2), [("messages", "written")], "task")  # all prepared
        at = put(saver, put(saver, None, 1), 2)
        generation = saver._engine.identity.generation
        lose(moment)
        if verb == "put":
            put(saver, at, 3)
        elif verb == "put_writes":
            saver.put_writes(at, [("messages", "written")], "task")
        else:
            put(saver, None, 1, "new")
        assert saver._engine.identity.generation > generation
        assert saver._engine.retries == 1
        assert steps(saver) == ([3, 2, 1] if verb == "put" else [2, 1])
        assert steps(saver, "new") == ([1] if verb == "first put" else [])
        found = connect().get_tuple(at)
        assert [value for *_, value in found.pending_writes] == (["written"] if verb == "put_writes" else [])

    @pytest.mark.parametrize("moment", ["asked", "answered"])
    def test_without_retries_a_lost_connection_is_an_error_and_the_put_can_be_made_again(self, connect, lose, moment):
        saver = connect(retry=None)
        at = put(saver, put(saver, None, 1), 2)
        lose(moment)
        with pytest.raises(Unavailable):
            put(saver, at, 3)
        put(saver, at, 4)
        assert steps(saver) == ([4, 3, 2, 1] if moment == "answered" else [4, 2, 1])
