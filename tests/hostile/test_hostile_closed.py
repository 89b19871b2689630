"""After close every call says so; closing twice, or before first use, is fine."""

import pytest

import threadline

EVERYTHING = [
    ("put", "config", "checkpoint", {"step": 1}, {"text": 1}),
    ("put_many", "batch"),
    ("put_writes", "config", [("text", 1)], "task"),
    ("get_tuple", "config"),
    ("get", "config"),
    ("list", None),
    ("threads",),
    ("interrupts",),
    ("delete_thread", "kept"),
    ("delete_for_runs", ["run"]),
    ("delete_checkpoint", "config"),
    ("copy_thread", "kept", "copy"),
    ("prune", ["kept"]),
    ("count_threads",),
    ("latest", ["kept"]),
    ("stats",),
    ("setup",),
    ("open",),
    ("keys_in_use",),
]


@pytest.mark.parametrize("moment", ["after use", "before first use"])
@pytest.mark.parametrize("call", EVERYTHING, ids=lambda call: call[0])
def test_every_call_after_close_says_that_it_was_closed(saver, connect, url, half, make, unchanged, call, moment):
    closed = connect(url)
    if moment == "after use":
        closed.get_tuple(make.config("kept"))
    half.call(closed, "close")
    named = {
        "config": make.config("kept", "00000002"),
        "checkpoint": make.checkpoint(3),
        "batch": [(make.config("kept"), make.checkpoint(3), {"step": 3}, {"text": 3})],
    }
    verb, *arguments = call
    arguments = [named.get(one, one) if isinstance(one, str) else one for one in arguments]
    with unchanged(), pytest.raises(threadline.Closed, match="closed"):
        if verb in ("list", "threads", "interrupts"):
            half.listed(closed, *arguments, verb=verb)
        else:
            half.call(closed, verb, *arguments)


def test_handles_of_a_closed_saver_say_so_too(saver, connect, url, half, make):
    closed = connect(url)
    thread, lease = closed.thread("kept"), closed.lock("kept")
    clone = closed.with_allowlist([])
    half.call(closed, "close")
    with pytest.raises(threadline.Closed, match="closed"):
        half.call(thread, "versions", "text")
    with pytest.raises(threadline.Closed, match="closed"):
        lease.__enter__()
    with pytest.raises(threadline.Closed, match="closed"):
        half.call(clone, "get_tuple", make.config("kept"))
    with pytest.raises(threadline.Closed, match="closed"):
        half.call(closed, "get_delta_channel_history", config=make.config("kept", "00000002"), channels=["text"])


def test_the_health_of_a_closed_saver_is_told_not_raised(connect, url, half):
    closed = connect(url)
    half.call(closed, "close")
    health = half.call(closed, "health")
    assert not health.ok
    assert "Closed" in health.error


def test_closing_again_is_fine_and_other_savers_go_on(saver, connect, url, half, make):
    other = connect(url)
    for _ in range(3):
        half.call(other, "close")
    half.call(saver, "put", make.config("kept", "00000002"), make.checkpoint(3), {"step": 3}, {"text": 3})
    assert half.call(saver, "get_tuple", make.config("kept")).checkpoint == make.checkpoint(3)


def test_a_list_that_was_begun_ends_with_closed(connect, url, make):
    other = connect(url)
    for number in range(1, 60):
        other.put(make.config("t"), make.checkpoint(number), {"step": number}, {"text": number})
    listing = other.list(make.config("t"))
    first = next(listing)
    other.close()
    assert first.checkpoint["channel_values"]["small"] == 59
    with pytest.raises(threadline.Closed, match="closed"):
        list(listing)


def test_leaving_a_with_block_closes(connect, url, make):
    with connect(url) as used:
        used.put(make.config("t"), make.checkpoint(1), {"step": 1}, {"text": 1})
    with pytest.raises(threadline.Closed, match="closed"):
        used.get_tuple(make.config("t"))
