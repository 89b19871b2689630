"""A thread of very many checkpoints with pending writes is copied like any other."""

import pytest

import threadline

COUNT = 1_200


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_copy_of_a_long_thread_has_all_its_writes(kind, tmp_path):
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'long.db'}"
    with threadline.connect(url) as saver:
        config, items = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, []
        for step in range(COUNT):
            made = threadline.empty_checkpoint()
            made["channel_values"], made["channel_versions"] = {"count": step}, {"count": step + 1}
            items.append(("put", config, made, {"source": "loop", "step": step}, {"count": step + 1}))
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": made["id"]}}
            items.append(("put_writes", config, [("count", step)], "task"))
        saver.put_batch(items)
        saver.copy_thread("t", "copy")
        found = [one.pending_writes for one in saver.list({"configurable": {"thread_id": "copy"}})]
    assert found == [[("task", "count", step)] for step in reversed(range(COUNT))]
