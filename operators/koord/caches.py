"""Caches of what users write, bounded in bytes.

A limit on the number of entries is none on memory: texts of users may be long. Here every entry has
a size, and a cache is emptied before the sum exceeds its limit. An entry that is large compared
with the limit is not kept, so one object cannot displace those of everyone else. This module knows
neither what is cached nor where from.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

from typing_extensions import TypeVarTuple, Unpack

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIB: Final = 1 << 20
EXPANSION: Final = 8
"""What is parsed from a text takes up to about this many times its size."""
_LARGEST: Final = 32
"""An entry takes at most this part (one in n) of the bytes of a cache."""
_HEADER: Final = 64
"""Bytes of a small object, such as an empty text."""
_MISSING: Final = object()


class BoundedCache(dict[K, V]):
    """A dictionary whose entries, added with :meth:`keep`, are at most ``most`` bytes together."""

    __slots__ = ("_most", "_size")

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._size = 0

    def keep(self, key: K, value: V, size: int) -> V:
        """Add an entry that takes ``size`` bytes, if it is not too large; return the value."""
        size += 4 * _HEADER
        if size <= self._most // _LARGEST:
            self._size += size
            if self._size > self._most:
                self.clear()
                self._size = size
            self[key] = value
        return value


def cached_by_text(
    most: int = 4 * MIB,
) -> Callable[[Callable[[Unpack[Ts]], T]], Callable[[Unpack[Ts]], T]]:
    """Cache a function of texts, up to ``most`` bytes."""

    def decorate(function: Callable[[Unpack[Ts]], T]) -> Callable[[Unpack[Ts]], T]:
        bounded_cache: BoundedCache[tuple[Any, ...], Any] = BoundedCache(most)

        @wraps(function)
        def look_up(*args: *Ts) -> T:
            value = bounded_cache.get(args, _MISSING)
            if value is _MISSING:
                value = function(*args)
                bounded_cache.keep(args, value, EXPANSION * size_of(args) + size_of(value))
            return value  # type: ignore[no-any-return]

        look_up.cache_clear = bounded_cache.clear  # type: ignore[attr-defined]
        return look_up

    return decorate


def size_of(value: object) -> int:
    """Return about how many bytes a value of texts, tuples and mappings takes."""
    if isinstance(value, str | bytes):
        return _HEADER + len(value)
    if isinstance(value, tuple | list):
        return _HEADER + sum(map(size_of, value))
    if isinstance(value, Mapping):
        return _HEADER + sum(size_of(key) + size_of(element) for key, element in value.items())
    return _HEADER
