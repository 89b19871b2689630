"""Rows that somebody forged who can write to the database: consistent in every check, hostile in what they say."""

import sqlite3

import ormsgpack

import threadline
from threadline.chunks.digest import Digester
from threadline.codec.envelope import Envelope
from threadline.core.rows import checkpoint_place

ID = "00000000-0000-6000-8000-000000000001"
CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ID}}
OBJECT, FOREIGN, KEPT = 32, 33, 35
_ENVELOPE = Envelope(compression=None)


def extension(code, data):
    return ormsgpack.packb(ormsgpack.Ext(code, data))


def named(name, state):
    """An object in our form; the state is packed already."""
    encoded = name.encode()
    return extension(OBJECT, bytes((len(encoded),)) + encoded + state)


def langgraphs(code, module, name, state, method="model_validate_json"):
    """One of LangGraph's extension types."""
    return extension(code, ormsgpack.packb([module, name, state, method]))


def kept(packed):
    """The same, marked as an import marks what it kept."""
    inner = []
    ormsgpack.unpackb(packed, ext_hook=lambda code, data: inner.append((code, data)))
    code, data = inner[0]
    return extension(KEPT, bytes((code,)) + data)


def write_store(path, content=b"\xc0"):
    """A store with one checkpoint, whose channel `a` holds these encoded bytes, and so does an interrupt."""
    with threadline.connect(path) as saver:
        checkpoint = {
            **threadline.empty_checkpoint(),
            "id": ID,
            "channel_values": {"a": 1},
            "channel_versions": {"a": 1},
        }
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        stored = saver.put(config, checkpoint, {"source": "loop", "step": 1}, {"a": 1})
        saver.put_writes(stored, [("__interrupt__", "?")], "task")
    forge_channel(path, content)
    return path


def forge_channel(path, reference, links=b""):
    """Put a packed reference (bytes: an inline item) in the place of the channel's and the interrupt's value."""
    channels = {"a": [1, reference]}
    forge_document(path, ormsgpack.packb([4, "2026-01-01T00:00:00+00:00", {}, False, {}, channels]), links)
    place = ormsgpack.packb(["write", "t", "", ID, "task", -3, "", "__interrupt__", links])
    with sqlite3.connect(path) as db:
        [(idx, task_path)] = db.execute("SELECT idx, task_path FROM threadline_writes").fetchall()
        place = ormsgpack.packb(["write", "t", "", ID, "task", idx, task_path, "__interrupt__", links])
        form, data = _ENVELOPE.wrap_row(ormsgpack.packb(reference), place)
        db.execute("UPDATE threadline_writes SET form = ?, data = ?, links = ?", (form, data, links))
    db.close()


def forge_document(path, content, links=b""):
    """Put a document, and the metadata that goes with its links, in the checkpoint's row."""
    form, document = _ENVELOPE.wrap_row(content, checkpoint_place("document", "t", "", ID, None, links))
    place = checkpoint_place("metadata", "t", "", ID, None, links)
    metadata_form, metadata = _ENVELOPE.wrap_row(ormsgpack.packb({"source": "loop", "step": 1}), place)
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE threadline_checkpoints SET form = ?, document = ?, links = ?, metadata_form = ?, metadata = ?",
            (form, document, links, metadata_form, metadata),
        )
    db.close()


def add_chunks(path, chunks):
    """Insert chunks (digest, links, form, data) into the pool of the thread."""
    with sqlite3.connect(path) as db:
        [(pool,)] = db.execute("SELECT pool FROM threadline_threads").fetchall()
        db.executemany(
            "INSERT OR REPLACE INTO threadline_chunks (pool, digest, links, form, data) VALUES (?, ?, ?, ?, ?)",
            [(pool, *chunk) for chunk in chunks],
        )
    db.close()


def fan_out(width, levels, item=b"\x01"):
    """Chunks that name one child `width` times on each of some levels: the digest of the uppermost, and the rows."""
    digester = Digester(b"")
    content = ormsgpack.packb([item] * width)
    digest = digester.node(b"", content)
    rows = [(digest, b"", 0, content)]
    for _ in range(levels - 1):
        links, content = digest * width, ormsgpack.packb(width)
        digest = digester.node(links, content)
        rows.append((digest, links, 0, content))
    return digest, rows


def tree(kind, depth, count=1):
    """A packed reference to a list or dict that has nothing but some nodes of this depth."""
    return [kind, [count] + [0] * (depth - 1), [] if kind else 0]


def trees_in_trees(kind, width, levels, item=b"\x80"):
    """Chunks of trees within trees, each naming the one below `width` times: the uppermost digest, and the rows."""
    digester, rows, digest = Digester(b""), [], b""
    for level in range(levels):
        entries = [tree(kind, 1) if level else item] * width
        if kind:
            entries = [part for number, entry in enumerate(entries) for part in (f"key {number}", entry)]
        links, content = digest * width, ormsgpack.packb(entries)
        digest = digester.node(links, content)
        rows.append((digest, links, 0, content))
    return digest, rows


def in_pieces(kind, count, *, is_repeated):
    """An item of many empty dicts, cut into pieces that compress well: its links, and the rows."""
    header = b"\xdd" + (count * 65_536).to_bytes(4, "big")
    if kind == "tuple":
        header = b"\xc9" + (2 + len(header) + count * 65_536).to_bytes(4, "big") + bytes((OBJECT,)) + b"\x01t" + header
    bodies = [b"\x80" * 65_536 for _ in range(count)]
    if not is_repeated:
        bodies = [
            number.to_bytes(2, "big").translate(bytes(range(128)) * 2) + b"\x80" * 65_534 for number in range(count)
        ]
    digester, envelope = Digester(b""), Envelope()
    digests = [digester.item(body) for body in (header, *bodies)]
    rows = {
        digest: (digest, b"", *envelope.wrap(body, b""))
        for digest, body in zip(digests, (header, *bodies), strict=True)
    }
    return b"".join(digests), list(rows.values())


def read_in_every_way(path, only=None, **options):
    """What each way of reading raised, or only some, by its name; a value is None."""
    found = {}
    ways = {
        "get_tuple": lambda saver: saver.get_tuple(CONFIG),
        "list": lambda saver: [dict(one.checkpoint["channel_values"]) for one in saver.list(None)],
        "latest": lambda saver: saver.latest(["t"]),
        "interrupts": lambda saver: list(saver.interrupts()),
        "fsck": lambda saver: saver.fsck(),
        "state": lambda saver: dict(saver.thread("t").state()),
        "writes": lambda saver: saver.thread("t").writes(),
    }
    for name, way in ways.items():
        if only is not None and name not in only:
            continue
        with threadline.connect(path, **options) as saver:
            try:
                way(saver)
                found[name] = None
            except threadline.ThreadlineError as error:
                # Its frames would keep all that was read for it.
                found[name], error.__context__ = error.with_traceback(None), None
    return found
