from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

INTERFACE: int
LANES: int

@final
class Shot: ...

def built(names: list[Any], states: list[Any], plans: dict[Any, tuple[Any, ...]], /) -> list[Any] | None: ...
def packed(
    values: list[Any],
    types: list[type],
    states: list[Any],
    classes: Mapping[type, tuple[int, int]],
    start: int,
    end: int,
    pack: Callable[..., bytes],
    hook: Callable[[Any], Any] | None,
    options: int,
    /,
) -> tuple[bytes, list[Shot] | None, int]: ...
def unchanged(shots: list[Shot], values: list[Any], classes: Mapping[type, tuple[int, int]]) -> int: ...
def holds_bytes(packed: bytes) -> bool: ...
def holds_mutable_bytes(value: Any) -> bool: ...
def hook(
    members: dict[int, Any],
    other: Callable[[Any], Any],
    packb: Callable[[Any], bytes],
    extension: Callable[[int, bytes], Any],
    type: int,
    header: bytes,
    /,
) -> Callable[[Any], Any]: ...
def slot_offset(descriptor: Any) -> int: ...
def hashed(contents: Sequence[bytes], prefix: bytes, key: bytes, person: bytes, size: int) -> list[bytes]: ...
