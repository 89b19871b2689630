"""What packed bytes must satisfy before anything is built from them: depth, number of values, memory, exact kinds.

**Depth.** ormsgpack unpacks recursively: an array or a map takes about 540 bytes of the thread's stack, an extension,
whose hook unpacks again, 1,300. ormsgpack stops at 1,024 levels, but counts anew inside each extension, so forged
bytes could nest until the process dies. Encoding and decoding share two rules:

  - outside of all extensions the 1,024 levels of ormsgpack hold;
  - an extension inside of that, with everything in it, has a *depth* of at most `DEEPEST`: a container that is not
    empty
    counts 1, an extension 3. Its bytes are checked once, when the decoder meets it.

Together these need 830 KB of stack, and up to twice as much where LangGraph's types nest. A thread with less than 2
MB (`threading.stack_size`) has all bytes checked, against one level for every 4 KB of its stack.

**Memory.** Where ormsgpack gets no memory it ends the process, or waits for itself for ever. So before many bytes are
unpacked, as much memory as they can take is asked for and given back: Python says whether it can be had.

**Kinds.** A state may be any value that bytes can become, an instance of a class of the program too, whose methods
would run if a builder took it for a list or a text. So each builder asks for the exact type and the size that it
wrote.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import ormsgpack

from ..errors import Corrupt, TooLarge
from .framing import EXT_HEADERS

__all__ = [
    "DEEPEST",
    "FEW_BYTES",
    "SHALLOW",
    "a_dict",
    "a_list",
    "a_number",
    "a_text",
    "bytes_of",
    "check_depth",
    "check_extension",
    "check_room",
    "check_stack_and_room",
    "copied_by",
    "entries_in",
    "is_ample",
    "is_deeper",
    "of_length",
    "stack",
    "text_dict",
    "unpack",
]


DEEPEST = 520
_EXTENSION = 3
# A level takes a byte at least, an extension three more: what is as short as this is not too deep.
SHALLOW = DEEPEST - _EXTENSION
# Threads of every platform have at least this, unless the program asked for less.
_ROOMY_STACK = 1 << 21
_STACK_FOR_LEVEL = 4096
# As few bytes as these are unpacked without asking for memory: whatever they hold, they take little.
FEW_BYTES = 1 << 20
# The memory that a value takes beside its bytes, as part of a list or dict that grows; a dict takes most. And what a
# byte takes of a text with one wide character; of other texts half as much, of bytes a fourth.
_VALUE_BYTES, _WIDEST = 128, 4
_WIDE = re.compile(rb"[\xf0-\xff]")
# The same for bytes of which nothing is known: each may be a value, and stand in as many extensions as may be nested.
_MOST_TIMES = _VALUE_BYTES + _WIDEST + DEEPEST // _EXTENSION
_MANY = 1 << 62
# What is longer is looked at by itself.
_SHORT = 1 << 16
_asking = threading.Lock()
# The extensions whose content is packed, too: an object, LangGraph's, and what an import kept of LangGraph.
_OBJECT, _FOREIGN, _KEPT = 32, 33, 35
_PACKED_TAG = b"\x07msgpack"
# First bytes of containers that are not empty, or may not be, and of extensions.
_CONTAINERS = bytes((*range(0x81, 0x90), *range(0x91, 0xA0), *range(0xDC, 0xE0)))
_EXTENSIONS = bytes(EXT_HEADERS)
_MARKERS = _CONTAINERS + _EXTENSIONS
_EXT_SIZES = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def _fixed_sizes() -> list[int]:
    """How many bytes a value takes, by its first byte; 0 where more must be looked at."""
    sizes = [0] * 256
    for first in (*range(0x80), *range(0xE0, 0x100), 0x80, 0x90, 0xC0, 0xC1, 0xC2, 0xC3):
        sizes[first] = 1
    for first in range(0xA0, 0xC0):
        sizes[first] = first - 0x9F
    for first, size in {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}.items():
        sizes[first] = size
    for first, size in {0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}.items():
        sizes[first] = size
    return sizes


_FIXED = _fixed_sizes()
# How many bytes say the length, by the first byte: of texts and bytes, of arrays and maps, of extensions.
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_LONG_TEXTS = frozenset((0xD9, 0xDA, 0xDB))
_LONG_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_LONG_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
# Values of one byte, one behind the other.
_SINGLE = re.compile(rb"[\x00-\x80\x90\xa0\xc0-\xc3\xe0-\xff]+")


class _Stack(threading.local):
    """The stack of the calling thread; each thread asks once."""

    # In bytes, 0 for what is usual; and whether it is so little that all bytes must be checked. A signal handler may
    # ask before the thread knows: then it is little.
    size, is_little = 1 << 20, True

    def __init__(self) -> None:
        size = 0
        if threading.current_thread() is not threading.main_thread():
            with _asking:
                size = threading.stack_size()  # which sets it to 0, too
                if size:
                    threading.stack_size(size)
        self.size, self.is_little = size, 0 < size < _ROOMY_STACK


stack = _Stack()


def check_extension(code: int, data: bytes) -> None:
    """Corrupt for an extension that is nested too deep."""
    if len(data) > SHALLOW and is_deeper(data, DEEPEST - _EXTENSION, _start(code, data)):
        raise Corrupt(f"undecodable bytes (nested deeper than {DEEPEST} levels)")


def check_stack_and_room(data: bytes) -> None:
    """Corrupt for bytes that are nested too deep for this thread, TooLarge for those that take too much memory."""
    if stack.is_little:
        check_depth(data)
    if len(data) > FEW_BYTES:
        check_room(data)


def is_ample(size: int) -> bool:
    """Whether there is stack and memory for so many bytes, whatever they hold."""
    return not stack.is_little and (size <= FEW_BYTES or _can_be_had(_MOST_TIMES * size))


def check_depth(data: bytes) -> None:
    """Corrupt for bytes that are nested too deep for a thread with little stack."""
    most = min(DEEPEST, stack.size // _STACK_FOR_LEVEL)
    if len(data) > most and is_deeper(data, most):
        raise Corrupt(f"undecodable bytes (nested deeper than {most} levels, which is the most for threads like this)")


def is_deeper(data: bytes, most: int, start: int | None = 0) -> bool:
    """Whether packed bytes, from `start` on, have a greater depth than `most`."""
    if start is None or len(data) - start <= most:
        return False
    # Bytes that look like markers are no fewer than those that are: few of them settle it.
    count = len(data) - len(data.translate(None, _MARKERS))
    if count * _EXTENSION <= most:
        return False
    extensions = len(data) - len(data.translate(None, _EXTENSIONS))
    if count + (_EXTENSION - 1) * extensions <= most:
        return False
    return _scan(data, start, most)


def check_room(data: bytes) -> None:
    """TooLarge for packed bytes that take more memory than can be had."""
    if len(data) <= FEW_BYTES or _can_be_had(_MOST_TIMES * len(data)):
        return
    large: list[tuple[int, int, int]] = []
    size = _VALUE_BYTES * entries_in(data, _MANY, large) + copied_by(large) + _WIDEST * len(data)
    for first, begin, end in large:
        if first in _TEXTS:
            size -= (_WIDEST - _width(data, first, begin, end)) * (end - begin)
    if not _can_be_had(size):
        raise TooLarge(f"it takes up to {size:,} bytes of memory, more than this process can have")


def unpack(data: bytes) -> Any:
    """The plain value of packed bytes that stand in no envelope; TooLarge where there is no memory for it."""
    if len(data) > FEW_BYTES:
        check_room(data)
    return ormsgpack.unpackb(data)


def _can_be_had(size: int) -> bool:
    import mmap

    # A mapping of this process alone: limits of its data do not count shared ones. Windows has no such choice.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mmap.mmap(-1, size, **private).close()  # the system reserves it, and no more: nobody looks at a page of it
    except (MemoryError, OSError, OverflowError):
        return False
    return True


def _width(data: bytes, first: int, begin: int, end: int) -> int:
    """How many bytes each of a long text or of bytes may become."""
    if first not in _LONG_TEXTS:
        return 1
    return _WIDEST if _WIDE.search(data, begin, end) else _WIDEST // 2


def copied_by(large: list[tuple[int, int, int]]) -> int:
    """How many bytes extensions that stand in each other take together, at most: each is copied to be unpacked."""
    held, most = 0, 0
    around: list[tuple[int, int]] = []
    for first, begin, end in large:
        if first not in EXT_HEADERS:
            continue
        while around and around[-1][1] <= begin:
            start, stop = around.pop()
            held -= stop - start
        around.append((begin, end))
        held += end - begin
        most = max(most, held)
    return most


def entries_in(data: bytes, most: int, large: list[tuple[int, int, int]] | None = None) -> int:
    """How many values packed bytes hold, those of extensions included; looks no further once it is more than `most`.

    `large` gets the first byte, the begin and the end of long texts, bytes and extensions.
    """
    count, position, end = 0, 0, len(data)
    while position < end and count <= most:
        first = data[position]
        size = _FIXED[first]
        if size == 1:
            single = _SINGLE.match(data, position)
            assert single is not None
            count += single.end() - position
            position = single.end()
            continue
        count += 1
        if size:
            position += size
        elif first in _TEXTS:
            width = _TEXTS[first]
            length = int.from_bytes(data[position + 1 : position + 1 + width], "big")
            position += 1 + width + length
            if large is not None and length > _SHORT:
                large.append((first, position - length, min(position, end)))
        elif first in EXT_HEADERS:
            position, inside = _extension(data, position, first)
            if inside is not None:
                position = inside[0]
                if large is not None and inside[1] - position > _SHORT:
                    large.append((first, *inside))
        else:
            _, position = _container(data, position, first)
    return count


def _start(code: int, data: bytes) -> int | None:
    """Where the packed content of an extension begins; None where it has none."""
    if code == _OBJECT:
        return data[0] + 1 if data else None
    if code == _FOREIGN:
        return len(_PACKED_TAG) if data.startswith(_PACKED_TAG) else None
    if code == _KEPT and data:
        inside = None if data[0] == _KEPT else _start(data[0], data[1:])
        return None if inside is None else 1 + inside
    return 0 if 0 <= code <= 7 else None


def _scan(data: bytes, position: int, most: int) -> bool:
    """Look at each value in turn. Bytes that cannot be unpacked end what they stand in, as they do for ormsgpack."""
    left, end, depth = 1, len(data), 0  # values to come in the innermost container, its end, its depth
    outer: list[tuple[int, int, int, int]] = []  # of those around it; and where to go on, or -1
    while True:
        while not left or position >= end:
            if not outer:
                return False
            is_cut = bool(left)
            left, end, depth, resume = outer.pop()
            if resume >= 0:
                position = resume
            elif is_cut:
                left = 0  # cut short inside a container: so is the container
        first = data[position]
        size = _FIXED[first]
        left -= 1
        if size:
            position += size
        elif first in _TEXTS:
            width = _TEXTS[first]
            position += 1 + width + int.from_bytes(data[position + 1 : position + 1 + width], "big")
        elif first in EXT_HEADERS:
            position, inside = _extension(data, position, first)
            if inside is not None and inside[0] < inside[1] <= end:
                outer.append((left, end, depth, position))
                left, end, depth, position = 1, inside[1], depth + _EXTENSION, inside[0]
        else:
            count, position = _container(data, position, first)
            if count:
                outer.append((left, end, depth, -1))
                left, depth = count, depth + 1
        if depth > most:
            return True


def _container(data: bytes, position: int, first: int) -> tuple[int, int]:
    """How many values an array or a map has, and where they begin."""
    width = _LONG_CONTAINERS.get(first, 0)
    count = int.from_bytes(data[position + 1 : position + 1 + width], "big") if width else first & 0x0F
    is_map = first < 0x90 or first in (0xDE, 0xDF)
    return 2 * count if is_map else count, position + 1 + width


def _extension(data: bytes, position: int, first: int) -> tuple[int, tuple[int, int] | None]:
    """Where an extension ends, and from where to where its packed content is."""
    width = _LONG_EXTENSIONS.get(first, 0)
    begin = position + EXT_HEADERS[first]
    size = _EXT_SIZES.get(first) or int.from_bytes(data[position + 1 : position + 1 + width], "big")
    end = begin + size
    if end > len(data) or not size:
        return end, None
    start = _start(data[begin - 1], data[begin : begin + 256])
    return end, None if start is None else (begin + start, end)


def a_list(state: Any) -> list[Any]:
    """The state, which must be a list."""
    if type(state) is not list:
        raise _wrong("a list", state)
    return state


def of_length(state: Any, *lengths: int) -> list[Any]:
    """The state, which must be a list of one of these lengths."""
    if type(state) is not list or len(state) not in lengths:
        raise _wrong(f"a list of {' or '.join(map(str, lengths))}", state)
    return state


def a_dict(state: Any) -> dict[Any, Any]:
    """The state, which must be a dict."""
    if type(state) is not dict:
        raise _wrong("a dict", state)
    return state


def text_dict(state: Any) -> dict[str, Any]:
    """The state, which must be a dict whose keys are text."""
    if type(state) is not dict or not {str}.issuperset(map(type, state)):
        raise _wrong("a dict with texts for keys", state)
    return state


def a_text(state: Any, longest: int | None = None) -> str:
    """The state, which must be text of at most so many characters."""
    if type(state) is not str or (longest is not None and len(state) > longest):
        raise _wrong("a text" if longest is None else f"a text of at most {longest:,} characters", state)
    return state


def bytes_of(state: Any) -> bytes:
    """The state, which must be bytes."""
    if type(state) is not bytes:
        raise _wrong("bytes", state)
    return state


def a_number(state: Any, kind: type = int) -> Any:
    """The state, which must be an integer, or a number of this kind."""
    if type(state) is not kind:
        raise _wrong(f"a number ({kind.__name__})", state)
    return state


def _wrong(wanted: str, state: Any) -> Corrupt:
    # Of the state no more than its type: what it holds is nobody's business, and its repr may be code of a class.
    return Corrupt(
        f"a stored object has a state that is not {wanted}, but {type.__getattribute__(type(state), '__name__')}"
    )
