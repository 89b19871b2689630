"""The suite itself, as an author of a backend gets it."""

import subprocess
import sys

import threadline
from threadline.testing import CONTRACT, Store, promises_for, run_contract


def test_the_suite_needs_nothing_but_the_package():
    script = "import sys, threadline.testing; print({'pytest', 'hypothesis', 'langgraph'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_promise_is_there_once():
    assert len({promise.__name__ for promise in CONTRACT}) == len(CONTRACT) > 150


def test_what_needs_two_savers_is_not_asked_of_a_private_store():
    private = Store(connect=threadline.connect, is_shared=False)
    shared = Store(connect=threadline.connect)
    assert promises_for(shared) == CONTRACT
    assert 0 < len(CONTRACT) - len(promises_for(private)) < 20


def test_a_store_that_keeps_its_promises_has_none_broken():
    store = Store(connect=lambda **options: threadline.connect("memory://", **options), is_shared=False)
    assert run_contract(store, CONTRACT[:10]) == []


def test_a_broken_promise_is_told_with_its_half_and_its_reason():
    class Forgetful(threadline.Saver):
        def get(self, config):
            return None

    def connect(**options):
        saver = threadline.connect("memory://", **options)
        saver.__class__ = Forgetful
        return saver

    [broken] = run_contract(
        Store(connect=connect),
        [each for each in CONTRACT if each.__name__ == "test_get_is_the_checkpoint_of_the_tuple"],
    )
    assert broken.promise == "test_get_is_the_checkpoint_of_the_tuple"
    assert broken.half == "sync"
    assert "AssertionError" in broken.why
