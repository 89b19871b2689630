"""Which parts of an object are read in one request."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["merged", "sliced"]

# So many bytes that nobody asked for are read sooner than a second request is answered.
GAP_BYTES = 512 * 1024


def merged(spans: Sequence[tuple[int, int]], gap: int = GAP_BYTES) -> list[tuple[int, int]]:
    """Spans (offset, length) that cover all of these, in order; what is near each other becomes one."""
    found: list[tuple[int, int]] = []
    for offset, length in sorted(spans):
        if found and offset - sum(found[-1]) <= gap:
            start = found[-1][0]
            found[-1] = start, max(sum(found[-1]), offset + length) - start
        else:
            found.append((offset, length))
    return found


def sliced(spans: Sequence[tuple[int, int]], read: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """The bytes of each span out of parts that were read: the offset and the bytes of each."""
    parts: list[bytes] = []
    for offset, length in spans:
        for start, content in read:
            if start <= offset <= start + len(content):
                parts.append(content[offset - start : offset - start + length])
                break
        else:
            parts.append(b"")
    return parts
