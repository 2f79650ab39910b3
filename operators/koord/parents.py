"""Walks up trees that people write: parents may be missing, or below themselves."""

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def walk_up(
    first: T | None, name_of: Callable[[T], str], parent_of: Callable[[T], T | None]
) -> Iterator[T]:
    """Yield what is given and all above it, nearest first; each name once."""
    seen, current = set[str](), first
    while current is not None and (name := name_of(current)) not in seen:
        seen.add(name)
        yield current
        current = parent_of(current)
