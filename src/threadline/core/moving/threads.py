"""One thread, copied: what the target lacks of it, page by page, read back and compared.

A page is read from the source, compared with the same stretch of the target's thread, completed by changes of a few
hundred rows, and read back. What the target has is skipped, so a copy that was stopped is continued by running it
again, and one of a thread that has grown adds what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ...base.namespaces import ROOT
from ...errors import Conflict, Corrupt, Unavailable
from ...ports.checkpoints import Change, CheckpointKey, CheckpointRow, Found, ThreadRow, Witness, WriteRow
from ..context import Context
from ..known import witness_of
from ..paging import parts_of, walk_pages
from ..rows import name_of, write_place
from .carrier import Carrier, Missing, WentStale
from .likeness import likenesses
from .reading import Cut, cut_of, pages_of
from .report import CopyChoice, CopyReport
from .translate import Fault, are_same

__all__ = ["ThreadCopy"]

_MOST_ROWS = 250
_MOST_ROW_BYTES = 2 * 1024 * 1024
# How often rows are read again when chunks of theirs were moved or collected meanwhile, in either store. Fewer than
# ATTEMPTS: each of them brings the chunks anew, and what fails is left out and reported.
_TRIES = 8
# Retention of the target may be quicker than the read-back.
_GONE = "it is not in the target any more: it was deleted there meanwhile, or lost; run the copy again"
WriteKey = tuple[CheckpointKey, str, int]


@dataclass(slots=True)
class _Step:
    """One checkpoint of the source: its row where that is sent, and those of its writes that are."""

    key: CheckpointKey
    found: Found | None
    writes: list[WriteRow] = field(default_factory=list)
    is_renewed: bool = False
    renewed_writes: int = 0

    @property
    def links(self) -> Iterator[bytes]:
        if self.found is not None:
            yield self.found.row.links
        for write in self.writes:
            yield write.links

    @property
    def row_bytes(self) -> int:
        size = sum([len(write.data) for write in self.writes])
        return size if self.found is None else size + len(self.found.row.document) + len(self.found.row.metadata)


class ThreadCopy:
    """The copy of one thread to a thread of the target that exists."""

    def __init__(
        self,
        source: Context,
        target: Context,
        thread: ThreadRow,
        target_id: str,
        carrier: Carrier,
        choice: CopyChoice,
        report: CopyReport,
        *,
        is_new: bool,
    ) -> None:
        self.source, self.target, self.thread, self.target_id = source, target, thread, target_id
        self.carrier, self.choice, self.report = carrier, choice, report
        # Whether the target's thread was begun by this copy, so that it has nothing yet.
        self.is_new = is_new
        # Whether the target's thread has newer checkpoints than the source: then what differs there stays.
        self.has_gone_on = False
        self.cut = Cut(None, {})
        # The newest checkpoint of the root that is wanted, and those that are too late.
        self.newest: str | None = None
        self.left_out: set[CheckpointKey] = set()
        self._held_writes: dict[WriteKey, WriteRow] = {}
        # Writes that could have been replaced since, whose values are the same in both stores.
        self._alike: set[WriteKey] = set()
        self._sent_writes: dict[WriteKey, WriteRow] = {}
        self._witness: Witness | None = None

    async def run(self, advance: Callable[[int], None]) -> None:
        """Copy what the target lacks; `advance` hears of the checkpoints that were looked at."""
        thread_id = self.thread.thread_id
        self.cut = await cut_of(self.source, thread_id)
        if not self.is_new:
            await self._look_at_target()
        waiting = set(self.cut.writes)
        async for page in pages_of(self.source, thread_id, self.cut):
            self._check_same(page[0], page[-1])
            waiting.difference_update([found.key for found in page])
            await self._copy_page([found for found in page if self._is_wanted(found)])
            advance(len(page))
        if not self.choice.is_bounded:
            # Writes whose checkpoint never arrived wait for it in the target, too.
            orphans = [_Step(key, None) for key in sorted(waiting)]
            for step in orphans:
                self._choose_writes(step)
            await self._send_all([step for step in orphans if step.writes])
        await self._verify_writes()

    def _check_same(self, *rows: Found) -> None:
        """Rows of another pool are of another thread, which was begun under the id since; nothing of it comes along."""
        if any(found.stamp[0] != self.thread.pool for found in rows):
            raise Conflict("it was deleted and begun anew while it was copied; run the copy again")

    def _is_wanted(self, found: Found) -> bool:
        if not self.choice.wants(found.row):
            self.left_out.add(found.key)
            return False
        if found.key.namespace == ROOT:
            self.newest = found.row.id  # oldest first
        return True

    async def _look_at_target(self) -> None:
        for write in await self.target.thread_writes(self.target_id):
            self._held_writes[write.key, write.task_id, write.idx] = write
        head = await self.target.find(self.target_id, ROOT, None, with_writes=False)
        self.has_gone_on = head is not None and (self.cut.newest is None or head.row.id > self.cut.newest)
        await self._compare_replaceable()

    async def _compare_replaceable(self) -> None:
        """Find those writes of special channels whose values are the same in both stores, under whatever names."""
        pairs: dict[WriteKey, tuple[WriteRow, WriteRow]] = {}
        for key, writes in self.cut.writes.items():
            for write in writes:
                held = self._held_writes.get((key, write.task_id, write.idx))
                if held is not None and write.idx < 0 and write.links and len(write.links) == len(held.links):
                    pairs[key, write.task_id, write.idx] = write, held
        if not pairs or self.carrier.translator.keeps_names:
            self._alike.update(key for key, (write, held) in pairs.items() if write.links == held.links)
            return
        pools = self.carrier.translator.source_pool, self.carrier.stamp[0]
        try:
            own = await likenesses(self.source, pools[0], [write.links for write, _ in pairs.values()])
            other = await likenesses(self.target, pools[1], [held.links for _, held in pairs.values()])
        except (Corrupt, Unavailable):
            return  # they are sent again, which tells what is wrong
        self._alike.update(key for key, one, two in zip(pairs, own, other, strict=True) if one == two)

    async def _copy_page(self, page: Sequence[Found]) -> None:
        held = {} if self.is_new or not page else await self._held_rows(page)
        steps = [self._step(found, held.get(found.key)) for found in page]
        sent = [step for step in steps if step.found is not None or step.writes]
        rows = await self._send_all(sent)
        if rows:
            await self._verify_rows(page, rows)

    async def _held_rows(self, page: Sequence[Found]) -> dict[CheckpointKey, CheckpointRow]:
        """The rows of the target between the first and the last of a page."""
        first, last = page[0].key, page[-1].key
        held: dict[CheckpointKey, CheckpointRow] = {}
        # Just before the first: its id without the last character sorts below it, and hardly anything lies between.
        after = CheckpointKey(first.namespace, first.id[:-1])
        async for found in walk_pages(self.target, self.target_id, after, len(page) + 1):
            held.update({one.key: one.row for one in found})
            if found[-1].key >= last:
                break
        return held

    def _step(self, found: Found, held: CheckpointRow | None) -> _Step:
        """Decide what of a checkpoint is sent."""
        counts, row = self.report.checkpoints, found.row
        step = _Step(found.key, found)
        if held is not None and self._is_same(row, held):
            counts.present += 1
            step.found = None
            self.carrier.learn(row.links, held.links)
        elif held is not None and (held.created > row.created or self.has_gone_on):
            counts.kept += 1
            step.found = None
        else:
            step.is_renewed = held is not None
        self._choose_writes(step)
        return step

    def _is_same(self, row: CheckpointRow, held: CheckpointRow) -> bool:
        if self.carrier.translator.is_verbatim and self.target_id == self.thread.thread_id:
            return are_same(row, held)
        # Seals differ from one to the next; when a checkpoint is put again its time changes.
        return (row.created, row.parent, len(row.links)) == (held.created, held.parent, len(held.links))

    def _choose_writes(self, step: _Step) -> None:
        counts = self.report.writes
        for write in self.cut.writes.get(step.key, ()):
            held = self._held_writes.get((step.key, write.task_id, write.idx))
            if held is not None and self._is_same_write(write, held):
                counts.present += 1
            elif held is not None and (self.has_gone_on or write.idx >= 0):
                counts.kept += 1
            else:
                step.renewed_writes += held is not None
                # Those of special channels replace their predecessors; all others stay as they were first written.
                step.writes.append(write._replace(replaces=write.idx < 0))

    def _is_same_write(self, write: WriteRow, held: WriteRow) -> bool:
        translator, thread_id = self.carrier.translator, self.thread.thread_id
        if translator.is_verbatim and self.target_id == thread_id:
            return write[:9] == held[:9]
        if (write.task_path, write.channel, len(write.links)) != (held.task_path, held.channel, len(held.links)):
            return False
        try:
            own = self.source.tools.envelope.unwrap_row(write.form, write.data, write_place(thread_id, write))
            other = self.target.tools.envelope.unwrap_row(held.form, held.data, write_place(self.target_id, held))
        except Corrupt:
            return False
        # The names of chunks cannot be compared; those of a write that may have been replaced were looked into.
        is_alike = write.idx >= 0 or not write.links or (write.key, write.task_id, write.idx) in self._alike
        return own == other and is_alike

    async def _send_all(self, steps: Sequence[_Step]) -> dict[CheckpointKey, CheckpointRow]:
        """Send these steps in batches; returns the rows that were sent."""
        sent: dict[CheckpointKey, CheckpointRow] = {}
        for batch in parts_of(steps, lambda step: step.row_bytes, _MOST_ROW_BYTES, _MOST_ROWS):
            sent.update(await self._send(batch))
        return sent

    async def _send(self, batch: Sequence[_Step]) -> dict[CheckpointKey, CheckpointRow]:
        """Send some steps in one change; where a chunk or row is at fault, each by itself."""
        trouble: Corrupt | WentStale | None = None
        for _ in range(_TRIES):
            try:
                return await self._send_once(batch)
            except WentStale as stale:
                trouble = stale
                self._witness = None  # it may have been deleted itself; all that it vouched for is asked anew
            except (Missing, Fault) as fault:
                if len(batch) > 1:
                    sent: dict[CheckpointKey, CheckpointRow] = {}
                    for step in batch:
                        sent.update(await self._send([step]))
                    return sent
                trouble = fault
                if isinstance(fault, Fault) or not await self._reread(batch[0]):
                    break
        if isinstance(trouble, WentStale):
            raise trouble
        if trouble is not None and (batch[0].found is not None or batch[0].writes):
            self.report.problems.append(f"{self._name(batch[0])}: {trouble}; it was left out")
        return {}

    async def _reread(self, step: _Step) -> bool:
        """Read a checkpoint again of which chunks were not there; tells whether it is still there."""
        found = await self.source.find(self.thread.thread_id, *step.key)
        if found is None:
            step.found, step.writes = None, []
            return False
        self._check_same(found)
        if step.found is not None:
            step.found = found
        there = {(write.task_id, write.idx): write for write in found.writes}
        current = [there.get((write.task_id, write.idx)) for write in step.writes]
        step.writes = [write._replace(replaces=write.idx < 0) for write in current if write is not None]
        return True

    async def _send_once(self, batch: Sequence[_Step]) -> dict[CheckpointKey, CheckpointRow]:
        carrier, target_id, now = self.carrier, self.target_id, self.thread.active
        chunks = await carrier.bring(target_id, now, [links for step in batch for links in step.links])
        moving, names = carrier.translator, carrier.names
        rows = {step.key: moving.checkpoint(step.found, target_id, names) for step in batch if step.found is not None}
        writes = [moving.write(one, self.thread.thread_id, target_id, names) for step in batch for one in step.writes]
        change = Change(thread_id=target_id, now=now, stamp=carrier.stamp, chunks=chunks)
        change.checkpoints, change.writes = list(rows.values()), writes
        change.witnesses = [self._witness] if self._witness is not None else []
        await carrier.send(change)
        if rows:
            self._witness = witness_of(change.checkpoints[-1])
        self._sent_writes.update({(write.key, write.task_id, write.idx): write for write in writes})
        self._count(batch)
        return rows

    def _count(self, batch: Sequence[_Step]) -> None:
        checkpoints, writes = self.report.checkpoints, self.report.writes
        for step in batch:
            if step.found is not None:
                checkpoints.renewed += step.is_renewed
                checkpoints.copied += not step.is_renewed
            writes.renewed += step.renewed_writes
            writes.copied += len(step.writes) - step.renewed_writes

    async def _verify_rows(self, page: Sequence[Found], rows: dict[CheckpointKey, CheckpointRow]) -> None:
        held = await self._held_rows(page)
        for key, row in rows.items():
            there = held.get(key)
            if there is None:
                self.report.problems.append(f"{self._name(_Step(key, None))}: {_GONE}")
            elif not are_same(there, row) and there.created <= row.created:
                raise Fault(f"{self._name(_Step(key, None))}: what was read back from the target is not what was sent")

    async def _verify_writes(self) -> None:
        if not self._sent_writes:
            return
        stored = {(one.key, one.task_id, one.idx): one for one in await self.target.thread_writes(self.target_id)}
        for key, write in self._sent_writes.items():
            there = stored.get(key)
            if there is None:
                self.report.problems.append(f"{self._name(_Step(key[0], None))}: a pending write: {_GONE}")
            elif there[:6] != write[:6] or (there[:9] != write[:9] and write.idx >= 0):
                raise Fault(f"{self._name(_Step(key[0], None))}: a pending write was read back otherwise than sent")

    def _name(self, step: _Step) -> str:
        if step.found is not None:
            return name_of(step.found)
        where = f" in {step.key.namespace!r}" if step.key.namespace else ""
        return f"thread {self.thread.thread_id!r}, checkpoint {step.key.id}{where}"
