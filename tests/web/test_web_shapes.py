"""What the views are made of: rails, the time axis, conflicts by item, edits, and shapes of values."""

from __future__ import annotations

import random

import pytest

import threadline
from threadline.codec.structural import StructuralCodec, Structure
from threadline.show.editing import edited
from threadline.show.merging import conflict_of, resolved
from threadline.show.messages import message_of
from threadline.show.rails import Knot, folded, lines
from threadline.show.shapes import json_text, legible, shape_of
from threadline.show.timeline import lay_out, spoken_span


def test_every_piece_of_track_begins_where_one_ended() -> None:
    chance = random.Random(7)
    for _ in range(50):
        knots = [
            Knot(str(at), str(chance.randrange(at)) if at and chance.random() < 0.95 else None) for at in range(60)
        ]
        drawn = list(lines(knots[::-1]))
        assert [line.knot.id for line in drawn] == [str(at) for at in reversed(range(60))]
        below: set[int] = set()
        for line in drawn:
            assert {start for start, _ in line.upper} == below
            assert all(end == line.lane or start == end for start, end in line.upper)
            assert max([line.lane, *(lane for pair in (*line.upper, *line.lower) for lane in pair)]) < line.width + 1
            below = {end for _, end in line.lower}
        assert not below


def test_folding_hides_nothing_that_is_marked_and_counts_the_rest() -> None:
    knots = [Knot(str(at), str(at - 1) if at else None) for at in reversed(range(100))]
    shown = list(folded(knots, {"50"}))
    assert "50" in {knot.id for knot in shown}
    assert sum(max(knot.folded, 1) for knot in shown) == 100
    hidden = next(knot for knot in shown if knot.folded)
    assert len(list(folded(knots, {"50"}, opened=[hidden.id]))) > len(shown)


def test_idle_time_is_folded_and_the_order_stays() -> None:
    axis = lay_out([0.0, 1.0, 2.0, 3.0, 90_000.0, 90_001.0])
    assert list(axis.places) == sorted(axis.places)
    assert 0.0 <= axis.places[0] <= axis.places[-1] <= 1.0
    [gap] = axis.gaps
    assert gap.seconds == 89_997.0
    assert axis.places[1] - axis.places[0] > gap.end - gap.start
    assert lay_out([5.0]).places == (0.5,)
    assert lay_out([1.0, 1.0, 1.0]).places == (0.0, 0.0, 0.0)
    assert [spoken_span(one) for one in (0.02, 3, 90, 7200, 200_000)] == ["20 ms", "3 s", "2 min", "2 h", "2 d"]


def test_a_conflict_is_told_by_item_and_the_rest_is_joined() -> None:
    codec = StructuralCodec()
    base, ours, theirs = {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 5, "d": 1}, {"a": 3, "b": 9, "c": 5}
    found = conflict_of(codec, "x", base, ours, theirs)
    assert found.items is not None
    assert [(one.key, one.ours, one.theirs) for one in found.items] == [("a", 2, 3)]
    assert resolved(codec, base, ours, theirs, ["theirs"]) == {"a": 3, "b": 9, "c": 5, "d": 1}
    assert resolved(codec, base, ours, theirs, ["ours"]) == {"a": 2, "b": 9, "c": 5, "d": 1}
    messages = [[{"id": 1, "text": text}] for text in ("was", "ours", "theirs")]
    assert resolved(codec, *messages, ["theirs"]) == messages[2]
    assert conflict_of(codec, "x", "was", "ours", "theirs").items is None
    assert resolved(codec, "was", "ours", "theirs", ["theirs"]) == "theirs"
    assert conflict_of(codec, "x", [1], [1, 2], [1, 3]).is_joined


def test_an_edit_keeps_what_json_has_no_form_for() -> None:
    made = Structure("app:Thing", {"id": "1", "size": 1, "raw": b"\x00"}, b"app:Thing")
    value = [made, (1, 2), {"when": float("inf")}]
    assert edited(value, json_text(value)) == value
    assert edited(value, json_text(value))[0] is made
    text = json_text(value).replace('"size": 1', '"size": 2')
    changed = edited(value, text)
    assert (changed[0].fields["size"], changed[0].fields["raw"], changed[0].stored_name) == (2, b"\x00", b"app:Thing")
    for wrong in ("{", '{"$type": "os:system", "fields": {}}'):
        with pytest.raises(threadline.InvalidRequest):
            edited(value, wrong)


def test_what_is_not_to_be_seen_is_escaped_and_line_breaks_stay() -> None:
    assert legible("a\n\tb") == "a\n\tb"
    assert legible("x\u202ey\x1b[31m\x00") == "x\\u202ey\\x1b[31m\\x00"
    assert legible("👩\u200d🚀") == "👩\u200d🚀"


def test_a_long_value_is_cut_and_says_by_how_much() -> None:
    assert shape_of("x" * 5000).left_out == 3000
    assert shape_of(list(range(100))).left_out == 88
    deep: object = "end"
    for _ in range(50):
        deep = [deep]
    assert "deeper" in repr(shape_of(deep))
    assert shape_of(10**5000).text == "a whole number of about 5,001 digits"


@pytest.mark.parametrize("value", [{"content": "x"}, {"role": "user"}, {"role": 7, "content": ""}, "text", None, []])
def test_what_is_no_message_is_not_taken_for_one(value: object) -> None:
    assert message_of(value) is None
