"""Makes up hostile bytes and reads them: each case must end in a value or in an error of our tree.

    python hostile_bytes.py SEED COUNT [-v]

Runs under a limit of memory, and of time for each case. Prints the cases that ended otherwise, and `calls` of methods
of stored classes that nothing should call.
"""

import contextlib
import faulthandler
import json
import logging
import random
import resource
import signal
import sys
import threading
import warnings

import numpy  # noqa: F401 - what is not imported is refused before it is looked at
import ormsgpack
import pandas  # noqa: F401
import spying
import zstandard
from forging import FOREIGN, KEPT, extension, fan_out, in_pieces, named, trees_in_trees
from langchain_core.messages import HumanMessage  # noqa: F401 - well known, and imported

import threadline.langgraph  # noqa: F401 - registers the types of LangGraph
from threadline import Serializer, ThreadlineError
from threadline.base.drive import run_now
from threadline.chunks.digest import Digesters
from threadline.chunks.gather import Pile
from threadline.chunks.pack import pointer_to
from threadline.chunks.read import Reader
from threadline.chunks.refs import LIST, MAP, Pieces, Tree, unpack_node, unpack_refs
from threadline.codec import Codec, Envelope
from threadline.codec.allowed import TypeRules
from threadline.codec.builtin import BUILTINS, RARE_NAMES
from threadline.codec.langgraph_format import _STANDARD
from threadline.codec.structural import StructuralCodec, _short
from threadline.ports.checkpoints import split_links
from threadline.transfer.transcode import TransferCodec

SECONDS = 60  # of the processor: no case comes near, however busy the machine is; one that hangs ends here
MEMORY = 3 << 30
pack = ormsgpack.packb
SCIENCE = ["nd", "np", "npdtype", "pandas.DataFrame", "pandas.Series"]
OF_PROGRAM = [f"spying:{kind}" for kind in spying.KINDS]
WELL_KNOWN = ["langchain_core.messages.human:HumanMessage", "langgraph.types:Command", "no.module:Class"]
BUILT_IN = [row.name for row in BUILTINS] + sorted(RARE_NAMES) + ["i", "m", "s", "fs", "*", "pickle"]
NAMES = BUILT_IN + SCIENCE + OF_PROGRAM + WELL_KNOWN + ["langgraph.Send", "langgraph.Item"]
TEXTS = [
    "",
    "red",
    "C",
    "<f8",
    "<U1000000000",
    "|V999999999",
    "object",
    "M8[ns]",
    "none",
    "list",
    "9" * 5000,
    "1e999999999",
]
TEXTS += ["../../etc/passwd", "Europe/Berlin", "2026-01-01T00:00:00+00:00", "(?:a{1000}){1000}", "(" * 3000, "f" * 9999]
TEXTS += [
    "[a-z]" * 3000,
    "(a+)+$",
    "builtins",
    "\x00",
    "é" * 300,
    "Spy",
    "__import__('os').system('true')",
    "::1",
    "1/3",
]
NUMBERS = [
    0,
    1,
    -1,
    2,
    5_000_000_000,
    2**63,
    -(2**63),
    10**6,
    0.5,
    float("nan"),
    float("inf"),
    True,
    False,
    None,
    128,
    255,
]


def made_up(chance, depth=0):
    """Packed bytes of anything that msgpack and our extensions can say."""
    roll = chance.random()
    if depth > 4 or roll < 0.25:
        return scalar(chance)
    if roll < 0.45:
        count = chance.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 6])
        return bytes((0x90 | count,)) + b"".join(made_up(chance, depth + 1) for _ in range(count))
    if roll < 0.55:
        count = chance.choice([0, 1, 2, 3])
        keys = [
            scalar(chance) if chance.random() < 0.2 else pack(chance.choice(TEXTS[:8] + FIELDS)) for _ in range(count)
        ]
        return bytes((0x80 | count,)) + b"".join(key + made_up(chance, depth + 1) for key in keys)
    if roll < 0.9:
        name = chance.choice(NAMES)
        return named(name + chance.choice(["", "", "", "", "@2", "?ff", "?zz"]), state_for(chance, name, depth))
    return foreign(chance, depth)


FIELDS = ["keep", "value", "api_key", "content", "type", "first", "second", "lc", "id", "kwargs", "name"]


def scalar(chance):
    roll = chance.random()
    if roll < 0.4:
        return pack(chance.choice(NUMBERS))
    if roll < 0.8:
        return pack(chance.choice(TEXTS))
    return pack(chance.randbytes(chance.choice([0, 1, 4, 8, 16, 64, 3000])))


def state_for(chance, name, depth):
    """A state that a builder may take, or nearly."""
    roll = chance.random()
    if roll < 0.25:
        return named(f"spying:{chance.choice(spying.KINDS)}", b"\x81\xa4keep\xc0")
    if roll < 0.6 or name not in LIKELY:
        return made_up(chance, depth + 1)
    parts = LIKELY[name]
    return bytes((0x90 | len(parts),)) + b"".join(
        made_up(chance, depth + 1) if chance.random() < 0.3 else pack(chance.choice(choices)) for choices in parts
    )


SHAPES = [[], [0], [3], [0, 2**40], [2**31, 2**31], [-1], [1] * 70]
LIKELY = {
    "nd": [TEXTS[3:8], SHAPES, ["C", "F"], [b"", b"12345678", bytes(64)]],
    "np": [TEXTS[3:8], [b"", b"12345678", bytes(64)]],
    "dq": [[None, 0, 3, -1, 2**62], [[], [1, 2]]],
    "dd": [["list", "none", "eval"], [{}, {"a": 1}]],
    "td": [NUMBERS, NUMBERS, NUMBERS],
    "range": [NUMBERS, NUMBERS, NUMBERS],
    "cx": [NUMBERS, NUMBERS],
    "frac": [NUMBERS, NUMBERS],
    "re": [TEXTS, [0, 2, 32, 128, 2**20, -1]],
    "exc": [TEXTS, TEXTS],
    "dt": [TEXTS, [0, 1, 2], [None]],
    "time": [TEXTS, [0, 1, 2], [None]],
    "*": [[["t"], ["*"], ["t", "s"], []], [[], [0, 1], [5]], [[], [[], [1]]]],
    "pandas.DataFrame": [[b"", b"ARROW1", bytes(200)], [None]],
    "spying:Color": [["RED", "", None], ["red", 1, None]],
    "spying:Mode": [["", None], [3, 2**63, -1]],
    "spying:OldPlain": [[{"value": 1}, {"x": 1}], [["value"], ["x"]]],
    "spying:Model": [[{"value": 1}, {}], [{}, {"x": 1}], [{}, {"_p": 1}]],
}


def foreign(chance, depth):
    """One of LangGraph's extension types: bare, kept by an import, or within a foreign value."""
    module, name = chance.choice(
        [*_STANDARD, *(("spying", kind) for kind in spying.KINDS), ("langgraph.types", "Send")]
    )
    code = chance.randrange(9)
    parts = [pack(module), pack(name), made_up(chance, depth + 1), pack("model_validate_json")]
    content = b"\x94" + b"".join(parts) if code < 6 else made_up(chance, depth + 1)
    roll = chance.random()
    if roll < 0.2:
        return extension(code, content)
    if roll < 0.6:
        return extension(KEPT, bytes((chance.choice([code, code, code, FOREIGN]),)) + content)
    if roll < 0.8:
        return extension(FOREIGN, b"\x07msgpack" + extension(code, content))
    lc = {"lc": 2, "type": "constructor", "id": [*module.split("."), name], "kwargs": {"value": {"a": [1]}}}
    lc["args"] = chance.choice([[], ["x"], [10**6], [[1, [2]]], [{"a": 1}]])
    return extension(FOREIGN, b"\x04json" + json.dumps(lc).encode())


def nested(chance):
    """Arrays, maps and extensions within each other, far deeper than anything that is written."""
    inner = scalar(chance)
    for _ in range(chance.choice([3, 60, 60, 300])):
        inner = chance.choice([b"\x91", b"\x81\xa1a", b"\x92\x01"]) * chance.choice([1, 10, 100, 1000]) + inner
        if len(inner) > 300_000:
            break
        wrap = chance.randrange(6)
        if wrap < 3:
            inner = named(chance.choice(["t", "s", "fs", "*", "dq", "m", "od", *OF_PROGRAM]), inner)
        elif wrap == 3:
            inner = extension(chance.randrange(9), b"\x94\xa8builtins\xa3set" + inner + b"\xc0")
        elif wrap == 4:
            inner = extension(FOREIGN, b"\x07msgpack" + inner)
        else:
            inner = extension(KEPT, bytes((chance.choice([0, 5, 7, FOREIGN]),)) + inner)
    return inner


def graph(chance):
    """Chunks that name each other into something huge, read as a list or a dict."""
    width, levels = chance.choice([2, 8, 128, 4000]), chance.choice([1, 2, 5, 20])
    digest, rows = fan_out(width, levels, chance.choice([b"\x01", bytes(120), b"\x91" * 100 + b"\x01"]))
    pile = Pile()
    kind = chance.choice([LIST, LIST, MAP])
    for name, links, _, content in rows:
        try:
            pile.nodes[name] = unpack_node(links, content, kind)
        except ThreadlineError:
            pile.nodes[name] = unpack_node(links, content, LIST)
    depth = max(1, levels + chance.choice([0, 0, 0, -1, 1]))
    shared = chance.random() < 0.3
    if chance.random() < 0.3:
        digest, rows = trees_in_trees(kind, chance.choice([1, 2, 8]), chance.choice([2, 20, 60]))
        pile.nodes.update({name: unpack_node(links, content, kind) for name, links, _, content in rows})
        depth = 1
    reader = Reader(CODEC, Digesters(), Envelope(), cache_bytes=0, decoded_bytes=0, share_decoded=shared)
    levels = ((digest,) * chance.choice([1, 8]), *[()] * (depth - 1))
    reader.value(Tree(kind, levels, (), () if kind == MAP else None), pile)


def references(chance):
    links = chance.randbytes(16 * chance.randrange(4))
    try:
        packed = ormsgpack.unpackb(made_up(chance), ext_hook=lambda *_: None)
    except ValueError:  # as it is caught where rows are read
        return
    unpack_refs(links, {"a": packed})


def packs(chance):
    """Packs, pointers and roots that name each other, or nothing, fetched and read as from a store."""
    digester, rows, names, leaves = Digesters().of(1), {}, [chance.randbytes(16)], []

    def add(digest, links, content):
        rows[digest] = (digest, links, 0, content)
        names.append(digest)

    for _ in range(chance.randrange(1, 6)):
        states = [made_up(chance, 3) for _ in range(chance.choice([1, 2, 5, 128, 129]))]
        heads = [b"", bytes((1,)) + b"t", b"\x0aspying:Spy", b"\x01*", b"\xff", b"\x05" + bytes(5)]
        heads = heads[:1] if chance.random() < 0.4 else chance.sample(heads, chance.choice([1, 1, 2, 3]))
        which = bytes(chance.randrange(len(heads) + (chance.random() < 0.1)) for _ in states) if len(heads) > 1 else b""
        sizes = [len(state) + (chance.random() < 0.02) for state in states]
        keys = chance.choice([None, None, [f"key {place}" for place in range(len(states))], ["a"], 5])
        header = pack([heads, which, sizes, keys]) if chance.random() < 0.9 else made_up(chance)
        content = b"\xc1" + len(header).to_bytes(4, "big") + header + b"".join(states)
        links = chance.choice([b"", b"", b"", names[-1]])
        add(digester.node(links, content), links, content)
        leaves.append(names[-1])
        item = digester.item(chance.choice(states))
        add(item, *pointer_to(digester, item, chance.choice(names), chance.choice([0, 0, 1, 200])))
    for _ in range(chance.randrange(4)):
        links = b"".join(chance.choices(names, k=chance.randrange(1, 5)))
        count = len(links) // 16
        content = pack(
            chance.choice([count, [None] * count, [0, [count], 0], [0, [], [True] * count], [1, [count], []]])
        )
        add(digester.node(links, content), links, content)
    links = b"".join(chance.choices(leaves if chance.random() < 0.6 else names, k=chance.randrange(1, 5)))
    count = len(links) // 16
    shapes = [
        [0, [count], 0],
        [0, [count, 0], 0],
        [1, [count], []],
        [0, [], count],
        [2, 0, count],
        [0, [], [True] * count],
    ]
    pairs, pile = [(links, chance.choice(shapes)), (chance.choice(names), chance.choice([None, True]))], Pile()
    is_shared = chance.random() < 0.3
    reader = Reader(CODEC, Digesters(), Envelope(), cache_bytes=1 << 16, decoded_bytes=1 << 16, share_decoded=is_shared)

    async def fetch(digests):
        return [rows[digest] for digest in digests if digest in rows]

    run_now(reader.gather(1, pairs, fetch, pile))
    for pair in pairs:
        with contextlib.suppress(ThreadlineError):
            reader.value(pair, pile)


def cut(chance):
    """An item in pieces, which name a few chunks very often."""
    links, rows = in_pieces(
        chance.choice(["list", "tuple"]), chance.choice([1, 40, 300]), is_repeated=chance.random() < 0.5
    )
    pile = Pile()
    pile.items = {digest: Envelope().unwrap(form, content, b"") for digest, _, form, content in rows}
    reader = Reader(CODEC, Digesters(), Envelope(), cache_bytes=0, decoded_bytes=0, share_decoded=chance.random() < 0.3)
    pieces = Pieces(tuple(split_links(links)))
    reader.value(pieces if chance.random() < 0.5 else Tree(LIST, (), (pieces,) * chance.choice([1, 2])), pile)


def compressed(chance):
    size = chance.choice([100, 10**6, 1 << 27])
    frame = zstandard.ZstdCompressor().compress(bytes(size))
    Envelope().unwrap(1, frame if chance.random() < 0.7 else chance.randbytes(50) + frame, b"")


CODEC, STRICT, SHOWN = Codec(), Codec(TypeRules("strict")), StructuralCodec()
READERS = {
    "codec": CODEC.decode,
    "strict": STRICT.decode,
    "items": lambda packed: CODEC.decode_items([packed, packed]),
    "shown": lambda packed: _short(SHOWN.decode(packed)),
    "loads": Serializer().loads,
    "msgpack": lambda packed: Serializer().loads_typed(("msgpack", packed)),
    "transfer": lambda packed: TransferCodec().load("msgpack", packed),
    "allowed": Codec(TypeRules([("spying", "Spy"), ("spying", "Pair")])).decode,
}


def one(chance):
    """Make up a case and read it; gives what to print of it."""
    roll = chance.random()
    if roll < 0.03:
        return "graph", graph(chance)
    if roll < 0.06:
        return "packs", packs(chance)
    if roll < 0.1:
        return "references", references(chance)
    if roll < 0.105:
        return "cut", cut(chance)
    if roll < 0.12:
        return "compressed", compressed(chance)
    if roll < 0.15:
        depth = chance.choice([10, 1000, 200_000])
        Serializer().loads_typed(
            ("json", chance.choice(["[", '{"a":', '[{"lc":2,"type":"constructor","id":[']).encode() * depth)
        )
        return None
    packed = nested(chance) if roll < 0.25 else made_up(chance)
    READERS[chance.choice([*READERS])](packed)
    return None


def run(seed, count):
    wrong = []
    for number in range(count):
        chance = random.Random(f"{seed}.{number}")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its stack says where it hangs
        if "-v" in sys.argv:
            print(number, file=sys.stderr, flush=True)
        try:
            one(chance)
        except ThreadlineError:
            pass
        except RuntimeError as error:
            wrong.append((number, repr(error)))
        except BaseException as error:
            wrong.append((number, f"{type(error).__name__}: {error}"[:300]))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return wrong


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    seed, count = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.register(signal.SIGPROF, chain=True)  # and then the process ends
    wrong = run(seed, count)
    # The deepest of what a thread with a small stack may meet.
    threading.stack_size(512 * 1024)
    worker = threading.Thread(target=lambda: [try_nested(random.Random(number)) for number in range(min(count, 200))])
    worker.start()
    worker.join()
    print(json.dumps({"wrong": wrong[:20], "count": len(wrong), "calls": dict(spying.CALLS)}))


def try_nested(chance):
    with contextlib.suppress(ThreadlineError):
        CODEC.decode(nested(chance))


if __name__ == "__main__":
    main()
