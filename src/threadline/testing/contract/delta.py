"""Delta channels: most checkpoints hold no value, which is replayed from the writes along the parent chain.

So those writes are state. LangGraph names the channels concerned in the metadata, under
`counters_since_delta_snapshot`: updates and supersteps since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.checkpoint import Config
from ...base.ids import new_id
from ...errors import Conflict
from ..half import Half
from ..making import checkpoint, everything, id_of, ids_of, place, put
from ..marks import two_savers
from ..raising import refused


class _Chat:
    """A thread with the delta channels `words` and `notes`, as LangGraph writes one."""

    def __init__(self, saver: Half, thread: str, snapshot_every: int = 5) -> None:
        self.saver, self.thread, self.snapshot_every = saver, thread, snapshot_every
        self.configs: list[Config] = []
        self.words: list[list[str]] = []  # what the channel has at each checkpoint

    async def turns(self, count: int, **metadata: Any) -> _Chat:
        for _ in range(count):
            step = len(self.configs)
            before = self.words[-1] if self.words else []
            if self.configs:
                await self.saver.put_writes(self.configs[-1], [("words", f"{step}a"), ("n", step)], "task-2", "b")
                await self.saver.put_writes(self.configs[-1], [("words", f"{step}b")], "task-1", "a")
                before = [*before, f"{step}b", f"{step}a"]
            self.words.append(before)
            await self._put(step, before, metadata)
        return self

    async def _put(self, step: int, words: list[str], metadata: dict[str, Any]) -> None:
        since = step % self.snapshot_every
        values: dict[str, Any] = {"n": step}
        if since == 0 and step:
            values["words"] = words
        versions = {"words": step + 1, "notes": 1, "n": step + 1}
        counters = {"notes": (0, step + 1), **({"words": (since, since)} if since else {})}
        described = {
            "source": "loop",
            "step": step,
            "parents": {},
            "counters_since_delta_snapshot": counters,
            **metadata,
        }
        at = self.configs[-1] if self.configs else place(self.thread)
        self.configs.append(await self.saver.put(at, checkpoint(values, versions), described, versions))


async def _history(saver: Half, config: Config, *channels: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = await saver.get_delta_channel_history(config=config, channels=channels)
    return found


async def _replayed(saver: Half, config: Config) -> list[str]:
    """The words at a checkpoint, by its own value or by replaying the chain."""
    found = await saver.get_tuple(config)
    if "words" in found.checkpoint["channel_values"]:
        return [*found.checkpoint["channel_values"]["words"]]
    history = (await _history(saver, config, "words"))["words"]
    return [*history.get("seed", []), *(value for _, _, value in history["writes"])]


async def test_the_history_of_a_channel_is_its_writes_since_the_nearest_value(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(9)
    history = await _history(saver, chat.configs[8], "words")
    assert history == {
        "words": {
            "seed": chat.words[5],
            "writes": [
                (task, "words", f"{step}{letter}")
                for step in (6, 7, 8)
                for task, letter in (("task-1", "b"), ("task-2", "a"))
            ],
        }
    }


async def test_every_checkpoint_replays_to_its_own_value(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread, 4).turns(14)
    for config, words in zip(chat.configs, chat.words, strict=True):
        assert await _replayed(saver, config) == words


async def test_a_history_without_a_stored_value_has_no_seed(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(4)
    history = await _history(saver, chat.configs[-1], "words", "notes", "unknown")
    assert "seed" not in history["words"]
    assert [value for _, _, value in history["words"]["writes"]] == chat.words[-1]
    assert history["notes"] == history["unknown"] == {"writes": []}


async def test_each_channel_has_its_own_seed(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(8)
    history = await _history(saver, chat.configs[-1], "n", "words")
    assert history["n"] == {"seed": 6, "writes": [("task-2", "n", 7)]}
    assert history["words"]["seed"] == chat.words[5]
    assert len(history["words"]["writes"]) == 4


async def test_a_seed_of_none_is_a_seed(saver: Half, thread: str) -> None:
    first = await put(saver, place(thread), {"a": None})
    second = await put(saver, first, {})
    assert await _history(saver, second, "a") == {"a": {"seed": None, "writes": []}}


async def test_the_newest_checkpoint_is_the_target_when_none_is_named(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(4)
    assert await _history(saver, place(thread), "words") == await _history(saver, chat.configs[-1], "words")


async def test_the_targets_own_writes_are_not_history(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(3)
    before = await _history(saver, chat.configs[-1], "words")
    await saver.put_writes(chat.configs[-1], [("words", "pending")], "task")
    assert await _history(saver, chat.configs[-1], "words") == before


async def test_no_channels_or_no_checkpoint_have_an_empty_history(saver: Half, thread: str) -> None:
    assert await _history(saver, place(thread), "words") == {"words": {"writes": []}}
    chat = await _Chat(saver, thread).turns(2)
    assert await _history(saver, chat.configs[-1]) == {}
    assert await _history(saver, place(thread, new_id()), "words") == {"words": {"writes": []}}
    assert await _history(saver, chat.configs[0], "words") == {"words": {"writes": []}}


async def test_only_ancestors_are_history(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(4)
    fork = await put(saver, chat.configs[1], {"n": 0})
    await put(saver, chat.configs[2], {"words": ["a value on another branch"]})
    assert await _replayed(saver, fork) == ["1b", "1a", "2b", "2a"]
    assert await _replayed(saver, chat.configs[3]) == chat.words[3]


async def test_a_chain_longer_than_any_page_is_walked_to_its_seed(saver: Half, thread: str) -> None:
    made = [checkpoint({"words": ["seed"]} if at == 0 else {}, {"words": at + 1}) for at in range(450)]
    parents = [place(thread), *(place(thread, one["id"]) for one in made)]
    metadata = {"source": "loop", "step": 0, "parents": {}}
    await saver.put_many([(parents[at], one, metadata, one["channel_versions"]) for at, one in enumerate(made)])
    for at in (0, 1, 199, 200, 201, 399, 400, 448, 449):
        await saver.put_writes(parents[at + 1], [("words", str(at))], "task")
    assert await _replayed(saver, parents[-1]) == ["seed", "0", "1", "199", "200", "201", "399", "400", "448"]


async def test_pruning_keeps_the_chain_of_what_it_keeps(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(13)
    await saver.prune([thread])
    await saver.clear_cache()
    assert await _replayed(saver, chat.configs[-1]) == chat.words[-1]
    assert await _replayed(saver, place(thread)) == chat.words[-1]


async def test_pruning_drops_what_lies_before_the_seeds(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(13)
    # From here on `notes` has a value of its own, so that no chain reaches further back than step 10.
    versions = {"words": 14, "notes": 2, "n": 14}
    counters = {"counters_since_delta_snapshot": {"words": (3, 3)}}
    made = checkpoint({"n": 13, "notes": []}, versions)
    last = await saver.put(chat.configs[-1], made, {"source": "loop", "step": 13, "parents": {}, **counters}, versions)

    await saver.prune([thread])

    assert ids_of(await everything(saver, place(thread))) == [
        id_of(config) for config in (last, *reversed(chat.configs[10:]))
    ]
    assert await _replayed(saver, last) == chat.words[-1]


async def test_a_snapshot_needs_no_chain(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(4)
    versions = {"words": 5, "notes": 2}
    made = checkpoint({"words": chat.words[-1], "notes": []}, versions)
    last = await saver.put(chat.configs[-1], made, {"source": "loop", "step": 4, "parents": {}}, versions)
    await saver.prune([thread])
    assert ids_of(await everything(saver, place(thread))) == [id_of(last)]
    assert await _replayed(saver, last) == chat.words[-1]


async def test_a_copy_carries_the_chain(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(8)
    await saver.copy_thread(thread, thread + "-copy")
    await saver.delete_thread(thread)
    await saver.clear_cache()
    for config, words in zip(chat.configs, chat.words, strict=True):
        assert await _replayed(saver, place(thread + "-copy", id_of(config))) == words


async def test_deleting_runs_keeps_the_chain_of_others(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(3, run_id=f"{thread}-old")
    await chat.turns(4, run_id=f"{thread}-new")
    await saver.delete_for_runs([f"{thread}-old"])
    assert await _replayed(saver, chat.configs[-1]) == chat.words[-1]
    assert await _replayed(saver, chat.configs[4]) == chat.words[4]

    await saver.delete_for_runs([f"{thread}-old", f"{thread}-new"])
    assert await everything(saver, place(thread)) == []


async def test_a_link_of_a_chain_is_not_deleted_alone(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(8)
    with refused(Conflict):
        await saver.delete_checkpoint(chat.configs[6])
    assert await _replayed(saver, chat.configs[7]) == chat.words[7]
    await saver.delete_checkpoint(chat.configs[7])
    await saver.delete_checkpoint(chat.configs[6])
    assert await _replayed(saver, chat.configs[5]) == chat.words[5]


async def test_a_put_that_counts_on_a_chain_whose_parent_is_gone_is_a_conflict(saver: Half, thread: str) -> None:
    chat = await _Chat(saver, thread).turns(4)
    await saver.delete_checkpoint(chat.configs[-1])
    with refused(Conflict, saying="words"):
        await chat.turns(1)
    assert ids_of(await everything(saver, place(thread))) == [id_of(config) for config in reversed(chat.configs[:3])]
    assert await _replayed(saver, chat.configs[2]) == chat.words[2]


@two_savers
async def test_a_parent_that_somebody_else_deletes_is_missed_by_a_put_that_counts_on_it(
    saver: Half, thread: str
) -> None:
    chat = await _Chat(saver, thread).turns(4)
    await saver.another().delete_checkpoint(chat.configs[-1])
    with refused(Conflict, saying="replayed"):
        await chat.turns(1)
    assert len(await everything(saver, place(thread))) == 3
