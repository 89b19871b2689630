"""Objects of S3, Google Cloud Storage and Azure, through obstore; both halves, written once.

Both call obstore's blocking functions, which let go of the interpreter's lock; the async half on a thread beside its
loop. obstore's own coroutines wake the loop from a thread of Rust: a process that ended right after was seen to abort.

obstore reads its keys from the environment and from the machine's role. What it says of an error may hold a key's id or
the answer of a server, so none of it is shown: an error names the object, the place, the status and the server's code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...errors import InvalidRequest, MissingExtra, ThreadlineError, Unavailable
from ...packs.spans import merged, sliced
from ...ports.objects import Span

__all__ = ["RemoteObjects"]

_PATIENCE: Any = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
_RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
# The server gave all of the object where a part was asked for: object stores may ignore a range.
_WHOLE_INSTEAD = re.compile(r"(?i)non-partial|not partial|partial content|content-range")
_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your object store has for them, in the environment"
# The process that first used obstore: its threads do not live on in a forked child.
_first: list[int] = []


class RemoteObjects:
    """The objects below a prefix of a bucket. `call` runs what blocks: here, or beside an event loop."""

    def __init__(self, url: str, call: Any) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise MissingExtra("an object store needs the package obstore: pip install 'threadline[cold]'") from None
        self.where = url
        self._obstore: Any = obstore
        self._beside = call
        # Whether the server was seen to ignore ranges: from then on objects are read whole.
        self._gives_whole = False
        try:
            options: Any = {**_PATIENCE, "allow_http": _allows_http()}
            self._store: Any = from_url(url, client_options=options, retry_config=_RETRY)
        except Exception as error:
            raise InvalidRequest(f"no object store can be opened at {url}: {_reason(error)}") from None

    async def put(self, name: str, content: bytes) -> None:
        # In one request: an object is there whole, or not at all.
        if await self._call("put", name, content, use_multipart=False) is None:
            raise Unavailable(f"object {name} could not be stored: there is no bucket {self.where}")

    async def read(self, name: str, spans: Sequence[Span], *, is_fresh: bool = False) -> list[bytes] | None:
        if not self._gives_whole:
            try:
                return await self._read_spans(name, spans)
            except _Whole:
                self._gives_whole = True
        got = await self._call("get", name)
        if got is None:
            return None
        content = bytes(await self._content(name, got))
        return [content[offset : offset + length] for offset, length in spans]

    async def size(self, name: str) -> int | None:
        found = await self._call("head", name)
        return int(found["size"]) if found is not None else None

    async def delete(self, names: Sequence[str]) -> None:
        for name in names:
            await self._call("delete", name)

    async def _read_spans(self, name: str, spans: Sequence[Span]) -> list[bytes] | None:
        parts: list[tuple[int, bytes]] = []
        for offset, length in merged(spans):
            part = await self._call("get_range", name, start=offset, length=length)
            if part is None:
                return None
            parts.append((offset, bytes(part)))
        return sliced(spans, parts)

    async def _content(self, name: str, got: Any) -> Any:
        try:
            return await self._beside(got.bytes)
        except Exception as error:
            raise self._translated(error, name) from None

    async def _call(self, act: str, name: str, *args: Any, **options: Any) -> Any:
        """What obstore answers; None where there is no such object."""
        self._check_process()
        try:
            found = await self._beside(lambda: getattr(self._obstore, act)(self._store, name, *args, **options))
        except self._not_found() as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise Unavailable(f"object {name}: there is no bucket {self.where}") from None
            return None
        except Exception as error:
            if act == "get_range":
                if _WHOLE_INSTEAD.search(str(error)):
                    raise _Whole from None
                if _is_behind_the_end(error):
                    return b""
            raise self._translated(error, name) from None
        return True if found is None else found

    def _not_found(self) -> Any:
        return self._obstore.exceptions.NotFoundError, FileNotFoundError

    def _translated(self, error: Exception, name: str) -> ThreadlineError:
        return Unavailable(f"object {name} of {self.where} is out of reach: {_reason(error)}")

    def _check_process(self) -> None:
        if not _first:
            _first.append(os.getpid())
        elif _first[0] != os.getpid():
            raise Unavailable(
                f"{self.where} was used before this process was forked, and obstore does not survive that: fork before "
                f"its first use, or start processes by spawning"
            )


def _allows_http() -> bool:
    """Whether the environment names an endpoint without TLS, such as a server on this machine, or allows it."""
    named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    if any(os.environ.get(name, "").startswith("http://") for name in named):
        return True
    allowed = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
    return any(os.environ.get(name, "").lower() in ("1", "true") for name in allowed)


class _Whole(Exception):
    """The server ignores ranges."""


def _is_behind_the_end(error: Exception) -> bool:
    """Whether a range begins where the object has ended: it was cut short."""
    text = str(error)
    return "416" in text or "InvalidRange" in text or "Wanted range starting at" in text


def _reason(error: Exception) -> str:
    """Why, without anything that the server or the configuration said beyond a status and a code."""
    text, kind = str(error).partition("Debug source")[0], type(error).__name__
    code = re.search(r"<Code>([A-Za-z]{1,40})</Code>", text)
    status = re.search(r"\b([345]\d\d) [A-Z]", text)
    told = ", ".join(part for part in (status and f"status {status[1]}", code and code[1]) if part)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or (status and status[1] in ("401", "403")):
        shown = f" ({told})" if told else ""
        return f"the keys were refused{shown}: {_KEYS}"
    if told:
        return f"the server answered {told}"
    if re.search(r"(?i)credential|169\.254\.", text):
        return f"no keys were found: {_KEYS}"
    if re.search(r"(?i)tcp connect|dns|refused|reset|closed", text):
        return "no connection"
    if re.search(r"(?i)timed out|deadline", text):
        return "no answer in time"
    if re.search(r"(?i)connect|sending request", text):
        return "no connection"
    return f"obstore raised {kind}"
