"""Forged references to a root with items behind it: Corrupt to a reader, damage to fsck, and nothing worse."""

import ormsgpack
import pytest
from forging import CONFIG, add_chunks, forge_channel, write_store

import threadline
from threadline import Corrupt
from threadline.chunks.digest import Digester

DIGESTS, CONTENT = Digester(b""), ormsgpack.packb("text " * 60)
ITEM = DIGESTS.item(CONTENT)
DICT, LIST = ormsgpack.packb([1, [], ["k", None]]), ormsgpack.packb([0, [], 1])
OF_DICT, OF_LIST = DIGESTS.node(ITEM, DICT), DIGESTS.node(ITEM, LIST)
CHUNKS = [(ITEM, b"", 0, CONTENT), (OF_DICT, ITEM, 0, DICT), (OF_LIST, ITEM, 0, LIST)]
FORGED = {
    "behind a dict": (2, OF_DICT + ITEM * 2),
    "a root behind a root": (2, OF_LIST + OF_LIST + ITEM),
    "fewer links": (3, OF_LIST + ITEM),
    "none behind": (0, OF_LIST),
    "a negative number": (-1, OF_LIST),
    "too many": (128, OF_LIST + ITEM * 128),
    "very many": (1 << 62, OF_LIST + ITEM),
    "a fraction": (1.0, OF_LIST + ITEM),
    "an item for a root": (1, ITEM + ITEM),
}


@pytest.fixture
def path(tmp_path):
    write_store(tmp_path / "a.db")
    add_chunks(tmp_path / "a.db", CHUNKS)
    return tmp_path / "a.db"


def test_items_behind_the_root_of_a_list_are_its_last_ones(path):
    forge_channel(path, 2, OF_LIST + ITEM * 2)
    with threadline.connect(path) as saver:
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["a"] == ["text " * 60] * 3
        assert saver.fsck().ok


@pytest.mark.parametrize(("reference", "links"), FORGED.values(), ids=FORGED)
def test_a_forged_root_is_corrupt_and_damage(path, reference, links):
    forge_channel(path, reference, links)
    with threadline.connect(path) as saver:
        with pytest.raises(Corrupt, match="'t'") as caught:
            saver.get_tuple(CONFIG)
        report = saver.fsck()
        assert not report.ok
        assert {one.thread_id for one in report.damaged} == {"t"}
        saver.thread("t").log()
        if "document" not in str(caught.value):
            saver.thread("t").put({"a": [1], "b": 2})
            assert "damaged" in str(saver.thread("t").diff(CONFIG["configurable"]["checkpoint_id"])).lower()
