"""A saver that sees a part of the threads."""

import asyncio
from types import SimpleNamespace

import lives
import pytest

import threadline
from threadline.backends.layers.layer import MARKS, Layer
from threadline.backends.layers.prefix import WithinLayer, serving_every_scope
from threadline.base.drive import run_now
from threadline.errors import InvalidRequest
from threadline.ports.marks import Scope, reads


def test_a_view_binds_its_layer_once_for_each_half(tmp_path, monkeypatch):
    made, original = [], WithinLayer.__init__

    def counted(self, *args):
        made.append(args)
        original(self, *args)

    monkeypatch.setattr(WithinLayer, "__init__", counted)
    with threadline.connect(f"sqlite:///{tmp_path}/a.db") as saver:
        view = saver.within("acme/")
        for step in range(5):
            view.put(*lives.put_arguments("acme/t", step))
            assert lives.check(view.get_tuple(lives.config("acme/t")), "acme/t") == step
        assert len(made) == 1

        async def put():
            for step in range(5, 8):
                await view.aput(*lives.put_arguments("acme/t", step))

        asyncio.run(put())
        assert len(made) == 2
        with pytest.raises(InvalidRequest, match="acme/"):
            view.put(*lives.put_arguments("zoo/t", 0))


OTHER = SimpleNamespace(thread_id="other/t", joins=None)
# First arguments that name a thread outside of the view.
OUTSIDE = {
    Scope.THREAD: "other/t",
    Scope.THREADS: ["acme/t", "other/t"],
    Scope.ROW: OTHER,
    Scope.ROWS: [(OTHER, OTHER)],
    Scope.CHANGES: [SimpleNamespace(thread_id="acme/t", joins="other/t")],
    Scope.STORE: None,
}


@pytest.mark.parametrize("name", [name for name, mark in MARKS.items() if mark.scope in OUTSIDE])
def test_a_view_refuses_every_call_that_names_another_thread_or_the_whole_store(name):
    async def never(*_, **__):
        raise AssertionError(f"{name} reached the store")

    view = WithinLayer(SimpleNamespace(**dict.fromkeys(MARKS, never)), "acme/")
    with pytest.raises(InvalidRequest, match="this saver sees only threads"):
        run_now(getattr(view, name)(OUTSIDE[MARKS[name].scope]))


def test_a_method_of_a_port_says_what_it_is_about():
    with pytest.raises(TypeError, match="scope"):
        reads()


def test_a_view_that_would_pass_a_listing_on_cannot_be_made():
    with pytest.raises(TypeError, match=r"Everything does not say what becomes of \w+, whose scope is LISTING"):

        @serving_every_scope
        class Everything(Layer):
            pass
