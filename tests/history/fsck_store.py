"""Threads for fsck to look at, and ways to damage the file they are in."""

import sqlite3

from threadline.chunks.cutting import ends_run
from threadline.chunks.gather import chunk_place
from threadline.chunks.pack import PACK, unpack_pack

# A multiple of eight: the root of the last checkpoint names all its messages (chunks/runs.py).
STEPS = 16


def config(thread_id="t", checkpoint_id=None, namespace=""):
    configurable = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def name(number):
    return f"{number:08d}"


def message(number, thread_id="t"):
    # A word by which no run of messages closes within the steps of these threads: each stays a chunk of its own.
    return {"id": f"m{number}", "text": f"{thread_id} says3065 {number} " * 20}


def add(left, right):
    """Messages joined, those with a known id replaced."""
    joined = {one["id"]: one for one in left}
    joined.update((one["id"], one) for one in right)
    return list(joined.values())


def state(number, thread_id="t"):
    return {
        "messages": [message(n, thread_id) for n in range(1, number + 1)],
        "step": number,
        "large": "0123456789" * 20_000 if number > 2 else "short",
        "book": {f"page {n}": f"{thread_id} page {n} " * 15 for n in range(40)},
    }


def put(saver, number, thread_id="t", *, parent=..., values=None):
    """One checkpoint; like LangGraph, what it added to the messages stands among the writes of its parent."""
    held = state(number, thread_id) if values is None else values
    versions = {"messages": number, "step": number, "large": min(number, 3), "book": 1}
    checkpoint = {
        "v": 4,
        "id": name(number),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": held,
        "channel_versions": {channel: versions.get(channel, number) for channel in held},
        "versions_seen": {"node": {"messages": number}},
        "updated_channels": ["messages"],
        "note": "kept",
    }
    before = (name(number - 1) if number > 1 else None) if parent is ... else parent
    new = {channel: version for channel, version in checkpoint["channel_versions"].items() if version == number}
    metadata = {"source": "loop", "step": number, "run_id": "run"}
    saver.put(config(thread_id, before), checkpoint, metadata, new)


def write(saver, number, thread_id="t"):
    """What the step after this checkpoint wrote."""
    task = f"task {number}"
    saver.put_writes(config(thread_id, name(number)), [("messages", [message(number + 1, thread_id)])], task)


def fill(saver, thread_id="t", steps=STEPS):
    for number in range(1, steps + 1):
        put(saver, number, thread_id)
        write(saver, number, thread_id)


def alter(path, statement, values=()):
    connection = sqlite3.connect(path)
    changed = connection.execute(statement, values).rowcount
    connection.commit()
    connection.close()
    assert changed
    return changed


def rows(path, statement, values=()):
    connection = sqlite3.connect(path)
    found = connection.execute(statement, values).fetchall()
    connection.close()
    return found


def flip(content, position=-1):
    changed = bytearray(content)
    changed[position] ^= 1
    return bytes(changed)


def chunk_of(saver, value, pool=1):
    """The digest under which an item is stored in a pool; that of the first thread if none is named."""
    return saver._tools.digesters.of(pool).item(saver._tools.codec.encode(value))


def packs_in(saver, path, pool=1):
    """The packs of a pool, by digest."""
    found = {}
    for digest, form, stored in rows(path, "SELECT digest, form, data FROM threadline_chunks WHERE pool = ?", (pool,)):
        content = saver._tools.envelope.unwrap(form, stored, chunk_place(pool, digest))
        if content.startswith(PACK):
            found[digest] = unpack_pack(content)
    return found


def pack_of(saver, path, value):
    """The digest of the pack that holds an item."""
    content = saver._tools.codec.encode(value)
    [digest] = [digest for digest, pack in packs_in(saver, path).items() if content in pack.contents()]
    return digest


def closes_run(saver, thread_id, number, after=0):
    """Whether the run of messages that began behind the one of this number ends with this message."""
    return ends_run((chunk_of(saver, message(number, thread_id)), None), number - after)


def flip_chunk(path, digest):
    [(content,)] = rows(path, "SELECT data FROM threadline_chunks WHERE digest = ?", (digest,))
    alter(path, "UPDATE threadline_chunks SET data = ? WHERE digest = ?", (flip(content, len(content) // 2), digest))


def delete_chunk(path, digest):
    alter(path, "DELETE FROM threadline_chunks WHERE digest = ?", (digest,))


def places(damages):
    """Damages as number of the checkpoint and channel."""
    return [(int(damage.checkpoint_id), damage.channel) for damage in damages]
