"""`threadline tier`: what is in the cold tier, and moving chunks there and back."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from ...core.retention.policy import HOT_WARM_COLD, TierPolicy
from ...core.tiering.running import TIERER
from ...core.tiering.shapes import Restored, Tiered, TierPlan, TierStatus
from ...errors import InvalidRequest
from ..open import COLD, open_store
from ..output import AsJson, Url, complain, counted, print_facts, print_json, progress_bar, readable_bytes

__all__ = ["tier"]

# The exit status of a run that left the tier to another process.
_ELSEWHERE = 3
_ACTIONS = ("plan", "run", "restore", "status")


def tier(
    url: Url,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="plan, run, restore or status.")],
    threads: Annotated[
        list[str] | None,
        typer.Argument(metavar="THREAD", help="Only these threads, and now, whatever their age.", show_default=False),
    ] = None,
    cold: Annotated[
        str | None,
        typer.Option("--cold", metavar="URL", help="The cold tier, such as s3://bucket/prefix; else THREADLINE_COLD."),
    ] = None,
    cold_after: Annotated[
        str | None, typer.Option("--cold-after", metavar="SPAN", help="How long threads must be idle, such as 7d.")
    ] = None,
    large: Annotated[
        int | None, typer.Option("--large", metavar="BYTES", help="Chunks of so many bytes go at once.")
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", metavar="SPAN", help="How long objects stay that nothing needs any more.")
    ] = "1d",
    moved: Annotated[
        bool, typer.Option("--moved", help="With run: the objects were moved to this place from another one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move chunks of idle threads to the cold tier, or back.

    plan tells what run would do. restore brings chunks back into the database. Keys of the object store come from the
    environment and are never shown.
    """
    if action not in _ACTIONS:
        raise InvalidRequest(f"tier takes no action {action!r}: there are {', '.join(_ACTIONS)}")
    policy = _policy(cold_after, large)
    token = COLD.set(cold)
    try:
        with open_store(url, read_only=action in ("plan", "status")) as store, progress_bar(f"tier {action}") as told:
            done: Any
            if action == "plan":
                done = store.saver.tier_plan(policy, thread_ids=threads, grace=grace)
            elif action == "run":
                done = store.saver.tier(policy, thread_ids=threads, grace=grace, moved=moved, progress=told)
            elif action == "restore":
                done = store.saver.tier_restore(threads, told)
            else:
                done = store.saver.tier_status()
    finally:
        COLD.reset(token)
    _tell(done, as_json)


def _tell(done: Any, as_json: bool) -> None:
    """Print what was done; ends with status 1 where something is lost or damaged, 3 where nothing was done."""
    if as_json:
        share = {"share_in_database": done.share_in_database} if isinstance(done, TierStatus) else {}
        print_json({**dataclasses.asdict(done), **share})
    else:
        print_facts(_facts(done))
    if isinstance(done, Tiered) and done.is_elsewhere:
        complain(f"nothing was done; if that process is gone, `threadline unlock {TIERER} --yes` ends its lease")
        raise typer.Exit(_ELSEWHERE)
    troubles = done.why_lost if isinstance(done, Restored) else getattr(done, "problems", ())
    for why in troubles:
        complain(f"{why}; fsck names the threads" if isinstance(done, Tiered) else why)
    if troubles or (isinstance(done, Restored) and done.lost):
        raise typer.Exit(1)


def _policy(cold_after: str | None, large: int | None) -> TierPolicy | None:
    """The policy that options ask for; None for the default, or that of the saver."""
    if cold_after is None and large is None:
        return None
    after: Any = HOT_WARM_COLD.after if cold_after is None else cold_after
    return TierPolicy(after=after, large_bytes=large)


def _facts(done: Any) -> list[tuple[str, str]]:
    if isinstance(done, TierStatus):
        return _status_facts(done)
    if isinstance(done, TierPlan):
        return _plan_facts(done)
    if getattr(done, "is_elsewhere", False):
        left = f"for {done.seconds_left:.0f} s more unless it is renewed"
        return [
            ("left alone", "another process is running the cold tier of this store"),
            ("holder", f"{done.holder or '(unknown)'}, {left}"),
        ]
    moved = f"{counted(done.chunks, 'chunk')}, {readable_bytes(done.bytes)}"
    if isinstance(done, Restored):
        lost = [("lost", f"{counted(done.lost, 'chunk')}: fsck names the threads")] if done.lost else []
        return [("restored", moved), *lost]
    facts = [
        ("moved", moved),
        ("objects", f"{done.objects} written, {done.rewritten} rewritten, {done.deleted} deleted"),
    ]
    return facts


def _plan_facts(plan: TierPlan) -> list[tuple[str, str]]:
    rewrites = f"{counted(len(plan.rewrites), 'object')}, {readable_bytes(plan.dead_bytes)} dead"
    return [
        ("threads", str(len(plan.threads))),
        ("move", f"{counted(plan.chunks, 'chunk')}, {readable_bytes(plan.bytes)}"),
        ("rewrite", rewrites if plan.rewrites else "nothing"),
        ("delete", f"{len(plan.deletes)} of {counted(len(plan.orphans), 'object')} that nothing needs"),
        ("not done", "tier run does it"),
    ]


def _status_facts(status: TierStatus) -> list[tuple[str, str]]:
    inside = status.hot_bytes + status.row_bytes + status.reference_bytes
    return [
        ("cold tier", status.where),
        ("in the database", f"{readable_bytes(inside)}, {status.share_in_database:.0%} of all"),
        ("hot chunks", f"{status.hot_chunks}, {readable_bytes(status.hot_bytes)}"),
        ("cold chunks", f"{status.cold_chunks}, {readable_bytes(status.cold_bytes)}"),
        (
            "objects",
            f"{status.objects}, {readable_bytes(status.object_bytes)}, {readable_bytes(status.dead_bytes)} dead",
        ),
        ("orphans", str(status.orphans)),
    ]
