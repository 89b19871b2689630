"""Plans: what a prune, a sweep, a deletion or a collection would take. The second click carries out exactly that.

A plan is kept by the server under a secret name for half an hour, and carried out once.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

from ...core.context import Context
from ...core.history.graph import history_of
from ...core.retention.plan import Plan, by_rule
from ...core.retention.policy import Policy, seconds_of
from ...errors import Conflict, InvalidRequest, ThreadlineError
from ...ports.checkpoints import CheckpointKey
from ...show.directory import Choice, ThreadPage, list_threads
from ...show.figures import counted
from ...show.forms import plan_json
from ..asked import Asked, Page
from ..carrying import (
    Doomed,
    Garbage,
    SweepPlan,
    carry_out,
    collect_exactly,
    delete_exactly,
    plan_deletion,
    plan_garbage,
    plan_sweep,
)
from ..desk import Desk
from ..jobs import Job
from ..snippets import command_line, python_lines
from .threads import choice_of, command_of, python_of

__all__ = ["as_json", "do", "job_json", "job_page", "page"]

_RULES = ("keep_last", "keep_within", "keep_hourly", "keep_daily", "drop_branches_older_than")
_NUMBERS = ("keep_last", "keep_hourly", "keep_daily")
# The plans that there are, and what each is told by parameters.
_KINDS = {
    "prune": ("id", *_RULES, "drop_settled_writes", "trash"),
    "sweep": ("go", "q", *_RULES, "drop_settled_writes", "trash"),
    "rm": ("id", "at", "ns", "trash"),
    "gc": (),
    "many": ("act", "q", "status", "tag", "since", "filter", "trash"),
}
_MOST_SHOWN = 200
_MOST_THREADS = 10_000
_PATIENCE_SECONDS = 2.0
_ACTS = ("archive", "restore", "delete")


class ManyThreads(NamedTuple):
    """An act on many threads, named one by one."""

    act: str
    thread_ids: tuple[str, ...]
    doomed: tuple[Doomed, ...] = ()


class Waiting(NamedTuple):
    """A plan that waits for the second click."""

    plan: Plan | SweepPlan | Doomed | Garbage | ManyThreads
    trash: Any
    # The same as a command and as Python, for the page of the job that carries it out.
    command: str
    python: str


def _policy(asked: Asked) -> Policy | None:
    rules: dict[str, Any] = {}
    for name in _RULES:
        text = asked.maybe(name)
        if text is not None:
            rules[name] = asked.number(name, 0, -(10**9), 10**9) if name in _NUMBERS else text
    if asked.has("drop_settled_writes"):
        rules["drop_settled_writes"] = True
    return Policy(**rules) if rules else None


async def _planned(asked: Asked) -> Any:
    """The plan that is asked for; a job while it is being made, None where nothing is asked yet."""
    desk, what = asked.desk, asked.text("what")
    seconds_of(asked.maybe("trash"), "trash")
    if what == "prune":
        policy = _policy(asked)
        if policy is None:
            return None
        plan: Plan = await desk.ask(desk.thread(asked.text("id")), "prune", policy, dry_run=True)
        return plan
    if what == "rm":
        thread, at = desk.thread(asked.text("id")), asked.maybe("at")
        key = (await desk.ask(thread, "at", at, namespace=asked.text("ns"))).key if at is not None else None
        doomed: Doomed = await desk.run(plan_deletion, thread.thread_id, key)
        return doomed
    if what == "many":
        return await _many(asked)
    if what == "gc":
        return await _made(desk, "looking for chunks that nothing needs", "plan-gc", plan_garbage)
    if what == "sweep" and asked.has("go"):
        policy, prefix, trash = _policy(asked), asked.text("q").strip(), asked.maybe("trash")
        key = f"plan-sweep {policy!r} {prefix!r} {trash!r}"
        return await _made(desk, "planning a sweep", key, plan_sweep, policy, prefix, trash)
    if what not in ("", "sweep"):
        raise InvalidRequest(f"there is no plan {what!r}: plans are prune, sweep, rm and gc")
    return None


async def _made(desk: Desk, title: str, key: str, operation: Any, *args: Any) -> Any:
    """The plan of an operation that may take long, or the job that makes it."""

    async def make(job: Job) -> Any:
        return await desk.run(operation, *args, job.progress)

    job = desk.jobs.begin(title, key, make, fresh_seconds=20.0)
    await desk.jobs.waited(job, _PATIENCE_SECONDS)
    if job.error is not None:
        raise InvalidRequest(job.error)
    return job.result if job.is_over else job


async def _many(asked: Asked) -> ManyThreads:
    act = asked.text("act")
    if act not in _ACTS:
        raise InvalidRequest(f"many threads can be: {', '.join(_ACTS)}; not {act!r}")
    names = await _fitting(asked, dataclasses.replace(choice_of(asked), order="id"))
    doomed = [await asked.desk.run(plan_deletion, name) for name in names] if act == "delete" else []
    return ManyThreads(act, tuple(names), tuple(doomed))


async def _fitting(asked: Asked, choice: Choice) -> list[str]:
    names: list[str] = []
    after: str | None = None
    while True:
        found: ThreadPage = await asked.desk.run(list_threads, choice, after, 500)
        names += [one.info.thread_id for one in found.threads]
        after = found.next
        if after is None:
            return names
        if len(names) > _MOST_THREADS:
            raise InvalidRequest(f"more than {_MOST_THREADS:,} threads fit: choose fewer, or use `threadline rm`")


async def page(asked: Asked) -> Page:
    """The forms of plans, and the plan that was asked for."""
    plan = await _planned(asked)
    job = plan if isinstance(plan, Job) else None
    trash = asked.maybe("trash")
    kind = {Plan: "prune", SweepPlan: "sweep", Doomed: "rm", Garbage: "gc", ManyThreads: "many"}.get(type(plan))
    values: dict[str, Any] = {
        "plan": None if job is not None else plan,
        "kind": kind,
        "job": job,
        "what": asked.text("what"),
        "thread_id": asked.maybe("id"),
        "rules": {name: asked.text(name) for name in (*_RULES, "drop_settled_writes", "q")},
        "trash": trash,
        "name": None,
        "most": _MOST_SHOWN,
        "reasons": await _reasons(asked, plan) if isinstance(plan, Plan) else {},
    }
    if kind is not None and asked.desk.can_write:
        values["name"] = asked.desk.plans.put(Waiting(plan, trash, _command(asked, yes=True), _python(asked, yes=True)))
    return Page("plan.html", "Plans", values, _command(asked), _python(asked))


async def _reasons(asked: Asked, plan: Plan) -> dict[CheckpointKey, str]:
    """Why checkpoints stay, as far as the history tells."""
    history = await asked.desk.history(plan.thread_id)
    policy = _policy(asked)
    kept: dict[str, set[CheckpointKey]] = await asked.desk.run(_by_rule, plan.thread_id, policy)
    reasons: dict[CheckpointKey, str] = {}
    for key in sorted(plan.keeps, key=lambda one: one.id, reverse=True)[:_MOST_SHOWN]:
        try:
            entry = history.entry_of(*key)
        except KeyError:
            continue
        why = [f"tagged {name}" for name in entry.tags]
        why += ["pinned"] if entry.is_pinned else []
        why += ["end of a branch"] if entry.is_head and not key.namespace else []
        why += ["a task asked here"] if entry.is_interrupted else []
        why += [_rule_told(rule, policy) for rule, keys in kept.items() if key in keys]
        reasons[key] = ", ".join(why) or _OTHERWISE[bool(key.namespace)]
    return reasons


# Why a checkpoint stays that no rule keeps, in the root graph and in a subgraph.
_OTHERWISE = ("has unsettled writes, or one that stays is made of it", "of a subgraph of one that stays")


async def _by_rule(store: Context, thread_id: str, policy: Policy) -> dict[str, set[CheckpointKey]]:
    history = await history_of(store, thread_id)
    return {"": set(history)} if policy.keeps_all else by_rule(history, policy, time.time())


def _rule_told(rule: str, policy: Policy | None) -> str:
    value = getattr(policy, rule, None)
    told = {
        "keep_last": f"one of the last {value}",
        "keep_within": f"made within {value}",
        "keep_hourly": "the last of its hour",
        "keep_daily": "the last of its day",
    }
    return told.get(rule, "only settled writes go")


async def as_json(asked: Asked) -> Any:
    """The plan as the command of the same name tells it without --yes; where none is asked for, which there are."""
    plan = await _planned(asked)
    if isinstance(plan, Job):
        return _job_json(plan)
    if isinstance(plan, Plan):
        return plan_json(plan, False)
    if isinstance(plan, Garbage):
        return {"chunks": plan.chunks, "bytes": plan.freed_bytes, "done": False}
    if isinstance(plan, SweepPlan):
        told = {"threads": plan.looked_at, "expired": [one.thread_id for one in plan.expired], "done": False}
        return {**told, "checkpoints": plan.checkpoints, "freed_bytes": plan.freed_bytes}
    if isinstance(plan, Doomed):
        return {
            "thread_id": plan.thread_id,
            "checkpoints": plan.checkpoints,
            "pending_writes": plan.writes,
            "bytes": plan.freed_bytes,
            "tags": list(plan.tags),
            "done": False,
        }
    if isinstance(plan, ManyThreads):
        return {"act": plan.act, "threads": list(plan.thread_ids), "done": False}
    return {"plans": [{"what": what, "takes": list(takes)} for what, takes in _KINDS.items()]}


async def do(asked: Asked) -> tuple[str, dict[str, Any], str]:
    """Carry out a plan that was shown."""
    waiting: Waiting | None = asked.desk.plans.take(asked.text("plan"))
    if waiting is None:
        raise Conflict("this plan is not known any more: it was carried out, or is too old. Make it again")
    plan, trash = waiting.plan, waiting.trash
    kept = f"; restorable for {trash}" if trash else ""
    if isinstance(plan, Plan):
        removed = await _run(asked.desk, carry_out, plan, trash)
        return "thread", {"id": plan.thread_id}, f"{counted(removed, 'checkpoint')} deleted{kept}."
    if isinstance(plan, Doomed):
        await _run(asked.desk, delete_exactly, plan, trash)
        if plan.checkpoint is not None:
            return "thread", {"id": plan.thread_id}, f"The checkpoint was deleted{kept}."
        return "threads", {}, f"The thread {plan.thread_id} was deleted{kept}."
    job = asked.desk.jobs.begin("carrying out a plan", asked.text("plan"), _carrying(asked.desk, plan, trash))
    job.command, job.python = waiting.command, waiting.python
    await asked.desk.jobs.waited(job, _PATIENCE_SECONDS)
    return "job", {"id": job.id}, ""


def _carrying(desk: Desk, plan: SweepPlan | Garbage | ManyThreads, trash: Any) -> Any:
    async def carry(job: Job) -> str:
        if isinstance(plan, Garbage):
            removed = await _run(desk, collect_exactly, plan, job.progress)
            return f"{counted(removed, 'chunk')} deleted."
        if isinstance(plan, SweepPlan):
            return await _sweep(desk, job, plan)
        return await _act_on_many(desk, job, plan, trash)

    return carry


async def _sweep(desk: Desk, job: Job, plan: SweepPlan) -> str:
    removed, left = 0, list[str]()
    every: list[Plan | Doomed] = [*plan.plans, *plan.expired]
    for done, one in enumerate(every, 1):
        try:
            if isinstance(one, Plan):
                removed += await _run(desk, carry_out, one, plan.trash)
            else:
                await _run(desk, delete_exactly, one, plan.trash)
                removed += one.checkpoints
        except ThreadlineError as error:
            left.append(f"{one.thread_id}: {error}")
        job.progress(done, len(every))
    return _ended(f"{counted(removed, 'checkpoint')} deleted", left)


async def _act_on_many(desk: Desk, job: Job, plan: ManyThreads, trash: Any) -> str:
    left: list[str] = []
    done = 0
    doomed = {one.thread_id: one for one in plan.doomed}
    for at, name in enumerate(plan.thread_ids, 1):
        try:
            if plan.act == "delete":
                await _run(desk, delete_exactly, doomed[name], trash)
            else:
                await desk.ask(desk.own_thread(name), plan.act)
            done += 1
        except ThreadlineError as error:
            left.append(f"{name}: {error}")
        job.progress(at, len(plan.thread_ids))
    return _ended(f"{counted(done, 'thread')}: {plan.act}", left)


def _ended(sentence: str, left: list[str]) -> str:
    return f"{sentence}. Left as they were: {'; '.join(left[:20])}" if left else f"{sentence}."


async def _run(desk: Desk, operation: Any, *args: Any) -> Any:
    return await desk.half.call(desk.writing, "run", operation, *args)


async def job_page(asked: Asked) -> Page:
    """How far something is, or how it ended."""
    job = asked.desk.jobs.get(asked.text("id"))
    return Page("job.html", job.title.capitalize(), {"job": job, "part_template": "_job.html"}, job.command, job.python)


async def job_json(asked: Asked) -> Any:
    return _job_json(asked.desk.jobs.get(asked.text("id")))


def _job_json(job: Job) -> dict[str, Any]:
    result = job.result if isinstance(job.result, str) else None
    told = {"title": job.title, "done": job.done, "total": job.total, "is_over": job.is_over}
    return {**told, "error": job.error, "result": result}


def _command(asked: Asked, *, yes: bool = False) -> str:
    what, url, trash = asked.text("what"), asked.desk.url, asked.maybe("trash")
    rules: dict[str, Any] = {name: asked.maybe(name) for name in _RULES}
    rules["drop_settled_writes"] = asked.has("drop_settled_writes")
    if what == "prune":
        return command_line(url, "prune", asked.text("id"), **rules, trash=trash, yes=yes)
    if what == "rm":
        return command_line(url, "rm", asked.text("id"), asked.maybe("at"), ns=asked.maybe("ns"), trash=trash, yes=yes)
    if what == "many":
        return command_of(asked)
    if what == "gc":
        return command_line(url, "gc", yes=yes)
    # Where nothing is chosen yet: a sweep without rules is a plan too.
    return command_line(url, "sweep", **rules, prefix=asked.maybe("q"), trash=trash, yes=yes)


def _python(asked: Asked, *, yes: bool = False) -> str:
    what, thread_id, trash = asked.text("what"), asked.text("id"), asked.maybe("trash")
    try:
        policy = _policy(asked)
    except ThreadlineError:
        policy = None
    given = f"threadline.{policy!r}" if policy is not None else ""
    place = f"{asked.maybe('at')!r}, namespace={asked.text('ns')!r}, " if asked.maybe("at") else ""
    dry = "" if yes else "dry_run=True"
    chosen = [f"{name}={asked.maybe(key)!r}" for name, key in (("prefix", "q"), ("trash", "trash")) if asked.maybe(key)]
    pruned = ", ".join(filter(None, (given or "keep_last=10", dry)))
    swept = ", ".join(filter(None, (given, *chosen, dry)))
    calls = {
        "prune": f"print(saver.thread({thread_id!r}).prune({pruned}))",
        "rm": f"saver.thread({thread_id!r}).delete({place}trash={trash or '7d'!r})",
        "gc": "saver.collect()",
    }
    if what == "many":
        return python_of(asked, f"saver.thread(thread.thread_id).{asked.text('act')}()")
    return python_lines(asked.desk.url, calls.get(what, f"print(saver.sweep({swept}))"))
