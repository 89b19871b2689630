"""Numbered migrations. A store's `meta` names the last one applied; a later number than ours is refused."""

from __future__ import annotations

__all__ = ["FORMAT", "Migration", "migrations"]

from typing import NamedTuple

# The number of the last migration, which is the storage format's number.
FORMAT = 1


class Migration(NamedTuple):
    """One step of the schema: its number, why it exists, and its statements."""

    number: int
    reason: str
    statements: tuple[str, ...]


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
                f"CREATE INDEX IF NOT EXISTS {prefix}threads_by_pool ON {prefix}threads (pool)",
                # Who may wait for an answer: few threads, and no cost for the others.
                f"CREATE INDEX IF NOT EXISTS {prefix}threads_asking ON {prefix}threads (thread_id) "
                f"WHERE asked IS NOT NULL",
                f"CREATE TABLE IF NOT EXISTS {prefix}checkpoints (pool {whole} NOT NULL, thread {whole} NOT NULL, "
                f"namespace {key} NOT NULL, id {key} NOT NULL, parent {key}, links {blob} NOT NULL, "
                f"form {whole} NOT NULL, document {blob} NOT NULL, metadata_form {whole} NOT NULL, "
                f"metadata {blob} NOT NULL, step {whole}, source {key}, run_id {key}, created {real} NOT NULL, "
                f"searchable {text}, PRIMARY KEY (pool, thread, namespace, id)){rowless}",
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_age ON {prefix}checkpoints (id)",
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_run ON {prefix}checkpoints (run_id) "
                f"WHERE run_id IS NOT NULL",
                # What somebody went on from, which is asked for everything that is to be deleted.
                f"CREATE INDEX IF NOT EXISTS {prefix}checkpoints_by_parent ON {prefix}checkpoints "
                f"(pool, thread, namespace, parent)",
                f"CREATE TABLE IF NOT EXISTS {prefix}writes (pool {whole} NOT NULL, thread {whole} NOT NULL, "
                f"namespace {key} NOT NULL, checkpoint_id {key} NOT NULL, task_id {key} NOT NULL, "
                f"idx {whole} NOT NULL, task_path {text} NOT NULL, channel {text} NOT NULL, links {blob} NOT NULL, "
                f"form {whole} NOT NULL, data {blob} NOT NULL, "
                f"PRIMARY KEY (pool, thread, namespace, checkpoint_id, task_id, idx)){rowless}",
                f"CREATE TABLE IF NOT EXISTS {prefix}chunks (pool {whole} NOT NULL, digest {blob} NOT NULL, "
                f"links {blob} NOT NULL, form {whole} NOT NULL, data {blob} NOT NULL)",
                f"CREATE UNIQUE INDEX IF NOT EXISTS {prefix}chunks_by_digest ON {prefix}chunks (pool, digest)",
            ),
        ),
    ]
