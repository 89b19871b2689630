"""After an import, LangGraph finds the state and the history that its own saver had, and goes on with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import travel_app
from import_cases import original, tuples_of

import threadline
from threadline.langgraph import Checkpointer

CHECKPOINTS = re.compile(r"checkpoints +(\d+) \((\d+) copied, (\d+) there already\)")


def test_every_checkpoint_and_write_is_what_langgraphs_saver_gives(
    source: Path, target: Path, run_import: Callable[..., Any]
) -> None:
    wanted = original(source)
    told = run_import(source, "--to", target).stdout
    with Checkpointer(target) as saver:
        found = tuples_of(saver)
    assert found.keys() == wanted.keys()
    for place in wanted:
        assert found[place] == wanted[place]
    counted = CHECKPOINTS.search(told)
    assert counted is not None
    assert list(map(int, counted.groups())) == [len(wanted), len(wanted), 0]
    writes = sum(len(one.pending_writes) for one in wanted.values())
    assert f"verified        {len(wanted) + writes} read back" in told


def test_every_namespace_comes_along(imported: Path) -> None:
    with Checkpointer(imported) as saver:
        places = tuples_of(saver).keys()
    assert {namespace.partition(":")[0] for thread, namespace, _ in places if thread == "waits"} == {"", "desk"}


def test_an_interrupt_inside_a_subgraph_is_answered_in_another_process(
    imported: Path, resume: Callable[..., Any]
) -> None:
    told = resume(
        imported,
        """
        graph = app.build_booking().compile(checkpointer=saver)
        config = app.config_of("waits")
        waiting = graph.get_state(config)
        asked = waiting.interrupts[0].value
        offer = app.Offer("DB", app.Decimal("21.00"))
        assert asked == {"offer": offer, "seat": app.Class.FIRST, "at": app.Stop("Basel", 4)}
        graph.invoke(Command(resume="gladly"), config)
        after = graph.get_state(config)
        show([waiting.next, after.next, after.values["confirmed"], sorted(after.values["visited"])])
        """,
    )
    assert told == [["desk"], [], "Ann takes DB: gladly", ["Basel", "Lyon"]]


def test_a_failed_step_resumes_without_running_finished_tasks_again(
    imported: Path, resume: Callable[..., Any], tmp_path: Path
) -> None:
    told = resume(
        imported,
        """
        graph = app.build_booking().compile(checkpointer=saver)
        graph.invoke(None, app.config_of("failed"))
        show(graph.get_state(app.config_of("failed")).values["offers"])
        """,
    )
    assert [re.search(r"'(\w+)'", offer)[1] for offer in told] == ["SNCF", "DB", "SBB"]  # type: ignore[index]
    assert (tmp_path / "journal.txt").read_text().split() == ["SBB"]


def test_versions_go_on_in_the_form_they_have(imported: Path, resume: Callable[..., Any]) -> None:
    before, after = resume(
        imported,
        """
        config = app.config_of("chat")
        before = saver.get(config)["channel_versions"]
        app.ask(app.build_chat().compile(checkpointer=saver), config, 99)
        show([before["messages"], saver.get(config)["channel_versions"]["messages"]])
        """,
    )
    assert re.fullmatch(r"\d{32}\.\d+\.?\d*", before)
    assert re.fullmatch(r"\d{32}\.\d+\.?\d*", after)
    assert int(after.partition(".")[0]) > int(before.partition(".")[0])
    assert after > before


def test_a_chat_that_goes_on_stores_only_what_is_new(imported: Path, resume: Callable[..., Any]) -> None:
    # One more message, put directly: the message itself and the path of tree nodes above it.
    messages, one_put, one_turn = resume(
        imported,
        """
        from threadline.base.ids import new_id
        config = app.config_of("chat")
        counts = [saver.stats().chunks]
        head = saver.get_tuple(config)
        values = head.checkpoint["channel_values"]
        values["messages"].append(app.HumanMessage("one more " * 30, id="more"))
        version = saver.get_next_version(head.checkpoint["channel_versions"]["messages"])
        versions = {**head.checkpoint["channel_versions"], "messages": version}
        checkpoint = {**head.checkpoint, "id": new_id(99), "channel_versions": versions}
        # Everything is named as new, so nothing can be taken over from the parent unread.
        saver.put(head.config, checkpoint, {"source": "loop", "step": 99}, versions)
        counts.append(saver.stats().chunks)
        app.ask(app.build_chat().compile(checkpointer=saver), config, 99)
        counts.append(saver.stats().chunks)
        show([len(values["messages"]), counts[1] - counts[0], counts[2] - counts[1]])
        """,
    )
    assert messages == 4 * travel_app.TURNS + 1
    assert 1 <= one_put <= 4
    assert 1 <= one_turn <= 20


def test_going_back_in_time_works_on_imported_history(imported: Path, resume: Callable[..., Any]) -> None:
    lengths = resume(
        imported,
        """
        graph = app.build_chat().compile(checkpointer=saver)
        config = app.config_of("chat")
        earlier = next(s for s in graph.get_state_history(config) if len(s.values["messages"]) == 40 and not s.next)
        branch = graph.update_state(earlier.config, {"turn": 7})
        show([len(graph.get_state(branch).values["messages"]), graph.get_state(branch).values["turn"]])
        """,
    )
    assert lengths == [40, 7]


def test_times_are_those_of_the_checkpoints_not_of_the_import(source: Path, imported: Path) -> None:
    times = [
        datetime.fromisoformat(one.checkpoint["ts"]).timestamp()
        for place, one in original(source).items()
        if place[0] == "waits"
    ]
    with threadline.connect(imported) as saver:
        [thread] = saver.threads(prefix="waits")
    assert min(times) <= thread.created <= thread.last_active <= max(times)
