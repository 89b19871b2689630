"""Large values come back whole, and a small change stores little."""

from __future__ import annotations

import random
from typing import Any

from ...core.stats import Stats
from ..half import Half
from ..making import everything, place, put, values_at


def _text(length: int, seed: int = 0) -> str:
    """Text that hardly compresses."""
    return f"{random.Random(seed).getrandbits(length * 4):x}"


async def _grown(saver: Half, before: Stats) -> tuple[int, int]:
    """By how many chunks and bytes the store has grown, without what each checkpoint's own row takes."""
    after = await saver.stats()
    return after.chunks - before.chunks, after.bytes_stored - before.bytes_stored


async def test_large_text_is_stored_in_pieces_that_are_shared(saver: Half, thread: str) -> None:
    text = _text(200_000)
    edited = [text[:90_000] + "edited" + text[90_000:], "front" + text, text + "end", text[500:]]
    config = await put(saver, place(thread), {"text": text})
    expected: list[Any] = [text]
    for one in edited:
        before = await saver.stats()
        config = await put(saver, config, {"text": one})
        chunks, stored_bytes = await _grown(saver, before)
        assert 1 <= chunks <= 5
        assert stored_bytes < 100_000
        expected.append(one)
    await saver.clear_cache()
    found = await everything(saver, place(thread))
    assert [one.checkpoint["channel_values"]["text"] for one in found] == expected[::-1]


async def test_large_bytes_come_back_whole(saver: Half, thread: str) -> None:
    data = random.Random(5).randbytes(300_000)
    values = {"bytes": data, "array": bytearray(data[:100_000]), "pair": (data[:50_000], [data[:40_000]])}
    config = await put(saver, place(thread), values)
    await saver.clear_cache()
    found = await values_at(saver, config)
    assert found == values
    assert type(found["array"]) is bytearray


async def test_a_list_of_megabytes_shares_all_but_what_changed(saver: Half, thread: str) -> None:
    items: list[Any] = [{"id": at, "text": _text(1400, at)} for at in range(2000)]
    config = await put(saver, place(thread), {"items": items})
    before = await saver.stats()
    items[1000] = {"id": 1000, "text": "edited " * 200}
    items.append({"id": 2000, "text": "appended " * 200})
    config = await put(saver, config, {"items": items})
    chunks, stored_bytes = await _grown(saver, before)
    # The items of the run that was changed get rows of their own, once.
    assert 2 <= chunks <= 60
    assert stored_bytes < 150_000
    await saver.clear_cache()
    assert await values_at(saver, config) == {"items": items}
    assert before.bytes_stored > 1_000_000


async def test_large_nested_values_are_cut_by_structure(saver: Half, thread: str) -> None:
    def nested(edited: int) -> dict[str, Any]:
        return {
            "docs": {
                f"doc {name}": {
                    "pages": [_text(700, name * 100 + page) for page in range(60)],
                    "meta": {"name": name, "edited": edited if name == 3 else 0},
                }
                for name in range(5)
            }
        }

    config = await put(saver, place(thread), nested(0))
    before = await saver.stats()
    config = await put(saver, config, nested(1))
    chunks, stored_bytes = await _grown(saver, before)
    assert chunks <= 12
    assert stored_bytes < 60_000
    await saver.clear_cache()
    assert await values_at(saver, config) == nested(1)


async def test_a_dict_of_files_stores_the_file_that_changed(saver: Half, thread: str) -> None:
    files = {f"file {at}": _text(2000, at) for at in range(200)}
    config = await put(saver, place(thread), {"files": files})
    for at, name in enumerate(("file 0", "file 100", "file 199") * 2):
        before = await saver.stats()
        files[name] = _text(2000, 1000 + at)
        config = await put(saver, config, {"files": files})
        # The first time, the files beside it get rows of their own.
        assert 1 <= (await _grown(saver, before))[0] <= (60 if at < 3 else 6)
        assert await values_at(saver, config) == {"files": files}
        assert [*(await values_at(saver, config))["files"]] == [*files]


async def test_small_edits_of_a_long_list_add_few_chunks(saver: Half, thread: str) -> None:
    words = [f"{at} " * 60 for at in range(1500)]
    config = await put(saver, place(thread), {"words": words})
    edits = {
        "append": [*words, "new " * 60],
        "edit": [*words[:700], "new " * 60, *words[701:]],
        "insert": [*words[:700], "more " * 60, *words[700:]],
        "remove": [*words[:700], *words[701:]],
        "trim the front": words[10:],
        "trim the end": words[:-10],
        "swap": [*words[:300], *words[310:320], *words[300:310], *words[320:]],
    }
    for name, edited in edits.items():
        before = await saver.stats()
        config = await put(saver, config, {"words": edited})
        chunks, _ = await _grown(saver, before)
        assert chunks <= 120, name
        assert await values_at(saver, config) == {"words": edited}, name


async def test_equal_content_is_stored_once_however_it_came_about(saver: Half, thread: str) -> None:
    words = [f"{at} " * 60 for at in range(400)]
    config = place(thread)
    for count in (0, 1, 7, 90, 91, 180, 399, 400):
        config = await put(saver, config, {"grown": words[:count]})
    before = await saver.stats()
    config = await put(saver, config, {"grown": words, "at once": [*words], "trimmed": ["x", *words][1:]})
    assert (await _grown(saver, before))[0] == 0
    await saver.clear_cache()
    assert await values_at(saver, config) == {"grown": words, "at once": words, "trimmed": words}
    before = await saver.stats()
    await put(saver, config, {"other": [*words]})
    assert (await _grown(saver, before))[0] == 0


async def test_a_long_chat_stores_each_message_once(saver: Half, thread: str) -> None:
    before, config = await saver.stats(), place(thread)
    messages: list[Any] = []
    for turn in range(80):
        messages.append({"role": "user", "text": _text(1400, turn)})
        config = await put(saver, config, {"messages": messages, "turn": turn})
    after = await saver.stats()
    assert after.chunks - before.chunks < 3 * 80
    assert after.bytes_without_sharing - before.bytes_without_sharing > 10 * (after.bytes_stored - before.bytes_stored)


async def test_items_that_moved_into_packs_are_found_by_older_checkpoints(saver: Half, thread: str) -> None:
    """A list that grows: older checkpoints name items one by one that later ones hold in packs."""
    words: list[str] = []
    config, states = place(thread), []
    for at in range(60):
        words.append(f"{at} " * 60)
        config = await put(saver, config, {"words": words})
        states.append((config, list(words)))
    await saver.clear_cache()
    for found, expected in states:
        assert await values_at(saver, found) == {"words": expected}
    await saver.of(thread).fork(states[20][0], to=thread + "-fork")
    await saver.prune([thread], strategy="keep_latest")
    await saver.clear_cache()
    assert await values_at(saver, place(thread + "-fork")) == {"words": states[20][1]}
    assert await values_at(saver, config) == {"words": words}


async def test_a_history_of_every_kind_of_edit_is_read_back_whole(saver: Half, thread: str) -> None:
    """Appends, edits, cuts at both ends and rewrites of a list and a dict, each read back once all are stored."""
    chance = random.Random(7)
    words: list[Any] = [f"{at} " * 50 for at in range(40)]
    pages = {f"page {at}": f"{at} " * 50 for at in range(30)}
    config, states = place(thread), []
    for turn in range(40):
        at = chance.randrange(len(words))
        act = chance.randrange(6)
        if act == 0:
            words[at] = f"edited in {turn} " * 20
        elif act == 1:
            words = words[chance.randrange(1, 5) :]
        elif act == 2 and len(words) > 12:
            words = words[: -chance.randrange(1, 12)]
        elif act == 3:
            words = [*words[:at], f"inserted in {turn} " * 20, *words[at:]]
        elif act == 4 and turn % 10 == 0:
            words = [f"new {turn} {number} " * 20 for number in range(30)]
        words = [*words, *[f"added in {turn} {number} " * 20 for number in range(chance.randrange(5))]]
        pages[f"page {chance.randrange(40)}"] = f"changed in {turn} " * 20
        config = await put(saver, config, {"words": words, "pages": pages})
        states.append((config, {"words": list(words), "pages": dict(pages)}))
        if chance.random() < 0.2:
            await saver.clear_cache()
    await saver.clear_cache()
    for found, expected in states:
        values = await values_at(saver, found)
        assert values == expected
        assert list(values["pages"]) == list(expected["pages"])
    assert (await saver.fsck([thread])).ok
