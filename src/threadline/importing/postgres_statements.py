"""What is asked of the tables of langgraph-checkpoint-postgres, whichever of their columns there are.

In every statement rows are called c (checkpoints), b (blobs) and w (writes), and v is a channel of a checkpoint with
its version. Texts are ordered by code point, as LangGraph's ids are made to be.
"""

from __future__ import annotations

__all__ = ["PostgresStatements"]

# A damaged document is named when its checkpoint is read; it must not end the statement.
_VERSIONS = (
    "jsonb_each_text(CASE jsonb_typeof(c.checkpoint -> 'channel_versions') WHEN 'object' "
    "THEN c.checkpoint -> 'channel_versions' ELSE '{}' END) AS v(channel, version)"
)
_IN_PLACE = "w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns"


class PostgresStatements:
    """The statements for tables of one kind."""

    def __init__(self, *, is_shallow: bool, has_versions: bool, has_task_path: bool) -> None:
        self._id = "coalesce(c.checkpoint ->> 'id', '')" if is_shallow else "c.checkpoint_id"
        self._parent = "NULL" if is_shallow else "c.parent_checkpoint_id"
        self._task_path = "w.task_path" if has_task_path else "''"
        self._same_version = "AND b.version = v.version" if has_versions else ""
        self._of_checkpoint = f"{_IN_PLACE} AND w.checkpoint_id = {self._id}"
        self._chosen = (
            f"c.thread_id = %(thread)s AND (c.checkpoint_ns, {self._id}) IN "
            f"(SELECT * FROM unnest(%(namespaces)s::text[], %(ids)s::text[]))"
        )
        self._of_lost_parent = f"{_IN_PLACE} AND " + (
            f"w.checkpoint_id <> {self._id}"
            if is_shallow
            else "w.checkpoint_id = c.parent_checkpoint_id AND NOT EXISTS (SELECT 1 FROM checkpoints p "
            "WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns "
            "AND p.checkpoint_id = c.parent_checkpoint_id)"
        )

    # How many rows, and the bytes in them.
    checkpoint_totals = (
        "SELECT count(*), coalesce(sum(octet_length(c.checkpoint::text) + octet_length(c.metadata::text)), 0)::bigint "
        "FROM checkpoints c"
    )
    blob_totals = "SELECT coalesce(sum(octet_length(b.blob)), 0)::bigint FROM checkpoint_blobs b"
    write_totals = "SELECT count(*), coalesce(sum(octet_length(w.blob)), 0)::bigint FROM checkpoint_writes w"

    @property
    def orphans(self) -> str:
        """How many writes belong to no checkpoint."""
        return (
            "SELECT count(*) FROM checkpoint_writes w "
            f"WHERE NOT EXISTS (SELECT 1 FROM checkpoints c WHERE {self._of_checkpoint})"
        )

    # `empty` marks a channel that had no value: there are no bytes to read.
    tags = (
        "SELECT b.type FROM checkpoint_blobs b WHERE b.type <> 'empty' "
        "UNION SELECT w.type FROM checkpoint_writes w WHERE w.type IS NOT NULL"
    )
    threads = 'SELECT thread_id FROM (SELECT DISTINCT thread_id FROM checkpoints) t ORDER BY thread_id COLLATE "C"'

    @property
    def keys(self) -> str:
        """The checkpoints of a thread, oldest first, with the bytes of all that they have."""
        blob_bytes = (
            f"SELECT sum(octet_length(b.blob)) FROM {_VERSIONS} JOIN checkpoint_blobs b ON b.thread_id = c.thread_id "
            f"AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = v.channel {self._same_version}"
        )
        write_bytes = f"SELECT sum(octet_length(w.blob)) FROM checkpoint_writes w WHERE {self._of_checkpoint}"
        return (
            f"SELECT c.checkpoint_ns, {self._id}, (octet_length(c.checkpoint::text) + coalesce(({blob_bytes}), 0) "
            f"+ coalesce(({write_bytes}), 0))::bigint FROM checkpoints c WHERE c.thread_id = %s "
            f'ORDER BY {self._id} COLLATE "C", c.checkpoint_ns COLLATE "C"'
        )

    @property
    def checkpoints(self) -> str:
        """Chosen checkpoints without their blobs."""
        return (
            f"SELECT c.checkpoint_ns, {self._id}, {self._parent}, c.checkpoint::text, c.metadata::text "
            f"FROM checkpoints c WHERE {self._chosen}"
        )

    @property
    def blobs(self) -> str:
        """The blobs of chosen checkpoints: each once, with the ids of all that have it."""
        return (
            "SELECT v.checkpoint_ns, v.ids, b.channel, b.type, b.blob FROM "
            f"(SELECT c.checkpoint_ns, v.channel, v.version, array_agg({self._id}) AS ids FROM checkpoints c "
            f"CROSS JOIN LATERAL {_VERSIONS} WHERE {self._chosen} GROUP BY c.checkpoint_ns, v.channel, v.version) v "
            "JOIN checkpoint_blobs b ON b.thread_id = %(thread)s AND b.checkpoint_ns = v.checkpoint_ns "
            f"AND b.channel = v.channel {self._same_version} AND b.type <> 'empty'"
        )

    @property
    def writes(self) -> str:
        """The writes of chosen checkpoints."""
        return (
            f"SELECT c.checkpoint_ns, {self._id}, w.task_id, {self._task_path}, w.idx, w.channel, w.type, w.blob "
            f"FROM checkpoints c JOIN checkpoint_writes w ON {self._of_checkpoint} WHERE {self._chosen} "
            'ORDER BY w.task_id COLLATE "C", w.idx'
        )

    @property
    def sends(self) -> str:
        """Sends to chosen checkpoints of formats 1 to 3 whose parent, to which they are written, is not there."""
        return (
            f"SELECT c.checkpoint_ns, {self._id}, w.channel, w.type, w.blob FROM checkpoints c "
            f"JOIN checkpoint_writes w ON {self._of_lost_parent} AND w.channel = '__pregel_tasks' "
            f"WHERE {self._chosen} AND c.checkpoint -> 'v' < '4'::jsonb "
            f'ORDER BY {self._task_path} COLLATE "C", w.task_id COLLATE "C", w.idx'
        )
