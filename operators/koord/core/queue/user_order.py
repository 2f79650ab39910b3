"""The turns of users within a queue: whoever has used less lately comes first (rule Q7).

The places that a queue has among all that waits stay as they are; its units share them out anew,
among equal priority. A unit counts as started as soon as it has had its place, so that one user
without any use does not have all of them. Knows neither pods nor a clock.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class HasTurn(Protocol):
    """A unit that waits."""

    @property
    def key(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def since(self) -> float: ...


U = TypeVar("U", bound=HasTurn)


class UserOrder(Generic[U]):
    """Puts units in order; ``queue_of`` returns "" for those of queues without such turns.

    ``place_of`` is the place among those whose reserved room has refused others: they go first.
    """

    def __init__(
        self,
        queue_of: Callable[[U], str],
        user_of: Callable[[U], str],
        share_of: Callable[[str, str], Fraction],
        charge_of: Callable[[str, str, U], Fraction],
        place_of: Callable[[str], int | None],
    ) -> None:
        self._queue_of, self._user_of = queue_of, user_of
        self._share_of, self._charge_of, self._place_of = share_of, charge_of, place_of

    def sort(self, units: Sequence[U]) -> Iterable[U]:
        """Return units, which come in order, with those of a queue in the turns of its users."""
        groups: defaultdict[tuple[str, int], list[U]] = defaultdict(list)
        keys = [(self._queue_of(unit), unit.priority) for unit in units]
        for key, unit in zip(keys, units, strict=True):
            if key[0]:
                groups[key].append(unit)
        if not groups:
            return units
        turns = {key: self._take_turns(key[0], group) for key, group in groups.items()}
        return (next(turns[key]) if key[0] else unit for key, unit in zip(keys, units, strict=True))

    def _take_turns(self, queue: str, units: Sequence[U]) -> Iterator[U]:
        """Yield the units of one queue and priority: those that others gave way to, then users."""
        protected = {
            unit.key: place for unit in units if (place := self._place_of(unit.key)) is not None
        }
        yield from sorted(
            (unit for unit in units if unit.key in protected), key=lambda unit: protected[unit.key]
        )
        lines: defaultdict[str, list[U]] = defaultdict(list)
        for unit in reversed(units):
            if unit.key not in protected:
                lines[self._user_of(unit)].append(unit)
        turns = [
            (self._share_of(queue, user), line[-1].since, user) for user, line in lines.items()
        ]
        heapify(turns)
        while turns:
            share, _, user = heappop(turns)
            unit = lines[user].pop()
            if lines[user]:
                share += self._charge_of(queue, user, unit)
                heappush(turns, (share, lines[user][-1].since, user))
            yield unit
