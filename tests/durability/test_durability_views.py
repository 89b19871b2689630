"""A saver that sees a part of the threads."""

import asyncio

import lives
import pytest

import threadline
from threadline.backends.layers.prefix import WithinLayer
from threadline.errors import InvalidRequest


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
