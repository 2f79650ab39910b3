"""Turns by namespace: what thousands of objects of one tenant wait for keeps nobody else waiting.

Knows neither what waits nor the API.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Generic, TypeVar

T = TypeVar("T")


def in_turn(
    items: Iterable[T], namespace_of: Callable[[T], str], most: Mapping[str, int] | None = None
) -> Iterator[T]:
    """Yield one of each namespace, then the next of each, and so on; of some namespaces not all."""
    by_namespace: dict[str, list[T]] = {}
    for item in items:
        by_namespace.setdefault(namespace_of(item), []).append(item)
    for namespace, count in (most or {}).items():
        del by_namespace.get(namespace, [])[count:]
    missing = object()
    for turn in zip_longest(*by_namespace.values(), fillvalue=missing):
        yield from (item for item in turn if item is not missing)  # type: ignore[misc]


class TurnQueue(Generic[T]):
    """What waits, of at most ``most``. If it is full, the namespace with the most loses one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, namespace: str, item: T) -> bool:
        """Add an item; return False if it, or one of another namespace, was dropped."""
        self._waiting.setdefault(namespace, deque()).append(item)
        self._count += 1
        if self._count <= self._most:
            return True
        longest = max(self._waiting, key=lambda name: len(self._waiting[name]))
        self._waiting[longest].pop()
        self._drop_if_empty(longest)
        return False

    def take(self) -> T:
        """Remove the oldest item of the namespace whose turn it is."""
        namespace = next(iter(self._waiting))
        item = self._waiting[namespace].popleft()
        self._waiting.move_to_end(namespace)
        self._drop_if_empty(namespace)
        return item

    def _drop_if_empty(self, namespace: str) -> None:
        self._count -= 1
        if not self._waiting[namespace]:
            del self._waiting[namespace]
