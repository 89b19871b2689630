"""The tables of a SQL database: made and migrated by steps, under a lock.

Migrations are numbered. A store's `meta` names the last one applied; a later number than ours is refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from ..setup import Setup
from .records import record_columns

__all__ = ["Migration", "SqlSetup", "migrations"]


class Migration(NamedTuple):
    """One step of the schema: its number, why it exists, and its statements."""

    number: int
    reason: str
    statements: tuple[str, ...]


class SqlSetup(Setup):
    """The tables of one store. A subclass has the steps, a lock, and the statement that writes the format's number."""

    def __init__(self, prefix: str, where: str, mode: str | bool, *, read_only: bool) -> None:
        super().__init__(where, f"Threadline tables ({prefix}*)", mode, read_only=read_only)
        self.prefix = prefix

    def ddl(self) -> str:
        """Everything that is executed on an empty database, for those who run it themselves."""
        steps = [f"-- {step.number}: {step.reason}\n" + ";\n".join(step.statements) for step in self._steps()]
        return ";\n".join([*steps, self._numbering(replaces=False)]) + ";\n"

    async def create(self, wire: Any) -> None:
        """Apply the migrations that are missing, one process at a time."""
        await self._alone(wire, self._apply)

    async def _apply(self, wire: Any) -> None:
        found = await self._format(wire) or 0
        missing = [step for step in self._steps() if step.number > found]
        for step in missing:
            await self._execute(wire, step.statements)
        if missing:
            await self._execute(wire, [self._numbering(replaces=True)])

    @abstractmethod
    def _steps(self) -> list[Migration]:
        """All steps of the schema, in order."""

    @abstractmethod
    def _numbering(self, *, replaces: bool) -> str:
        """The statement that writes the number of the format; in place of another one, where it `replaces`.

        What people run by themselves does not: it must not lower the number of a newer store.
        """

    @abstractmethod
    async def _alone(self, wire: Any, act: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Run the act while no other process sets up these tables; durable when this returns."""

    @abstractmethod
    async def _execute(self, wire: Any, statements: Sequence[str]) -> None:
        """Run statements without parameters."""


def migrations(prefix: str, types: dict[str, str]) -> list[Migration]:
    """All steps, in order; `types` maps the abstract column types to the dialect's."""
    serial, text, blob, whole, real = (types[name] for name in ("serial", "text", "blob", "whole", "real"))
    rowless, key = types["rowless"], types["key"]
    return [
        Migration(
            1,
            "the tables of format 1",
            (
                f"CREATE TABLE IF NOT EXISTS {prefix}meta (name {key} NOT NULL PRIMARY KEY, value {blob})",
                f"CREATE TABLE IF NOT EXISTS {prefix}threads (serial {serial}, thread_id {key} NOT NULL, "
                f"pool {whole} NOT NULL, epoch {whole} NOT NULL, status {text} NOT NULL, deleted_before {key}, "
                f"forked_from {key}, created {real} NOT NULL, active {real} NOT NULL, expires {real}, "
                f"tags {text} NOT NULL, metadata {blob}, asked {key})",
                f"CREATE UNIQUE INDEX IF NOT EXISTS {prefix}threads_by_id ON {prefix}threads (thread_id)",
                # Who began a pool is found by its serial.
                f"CREATE INDEX IF NOT EXISTS {prefix}threads_joined ON {prefix}threads (pool) WHERE pool <> serial",
                # Threads that may wait for an answer: few, and no cost for the others.
                f"CREATE INDEX IF NOT EXISTS {prefix}threads_asking ON {prefix}threads (thread_id) "
                f"WHERE asked IS NOT NULL",
                f"CREATE TABLE IF NOT EXISTS {prefix}checkpoints (pool {whole} NOT NULL, thread {whole} NOT NULL, "
                f"namespace {key} NOT NULL, id {key} NOT NULL, parent {key}, links {blob} NOT NULL, "
                f"form {whole} NOT NULL, document {blob} NOT NULL, metadata_form {whole} NOT NULL, "
                f"metadata {blob} NOT NULL, step {whole}, source {key}, run_id {key}, created {real} NOT NULL, "
                f"searchable {text}, PRIMARY KEY (pool, thread, namespace, id)){rowless}",
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_run ON {prefix}checkpoints (run_id) "
                f"WHERE run_id IS NOT NULL",
                f"CREATE TABLE IF NOT EXISTS {prefix}writes (pool {whole} NOT NULL, thread {whole} NOT NULL, "
                f"namespace {key} NOT NULL, checkpoint_id {key} NOT NULL, task_id {key} NOT NULL, "
                f"idx {whole} NOT NULL, task_path {text} NOT NULL, channel {text} NOT NULL, links {blob} NOT NULL, "
                f"form {whole} NOT NULL, data {blob} NOT NULL, "
                f"PRIMARY KEY (pool, thread, namespace, checkpoint_id, task_id, idx)){rowless}",
                f"CREATE TABLE IF NOT EXISTS {prefix}chunks (pool {whole} NOT NULL, digest {blob} NOT NULL, "
                f"links {blob} NOT NULL, form {whole} NOT NULL, data {blob} NOT NULL)",
                f"CREATE UNIQUE INDEX IF NOT EXISTS {prefix}chunks_by_digest ON {prefix}chunks (pool, digest)",
                f"CREATE TABLE IF NOT EXISTS {prefix}records ({record_columns(types)}){rowless}",
                f"CREATE INDEX IF NOT EXISTS {prefix}records_by_expiry ON {prefix}records (space, expires) "
                f"WHERE expires IS NOT NULL",
            ),
        ),
    ]
