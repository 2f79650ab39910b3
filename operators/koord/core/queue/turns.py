"""The turns of all waiting units, for those who tell people of them.

A value of one moment: positions, who is ahead, since when a unit is first, what is reserved for
it. Nothing here decides whose turn it is.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from koord.core.engine.cycle import Cycle
from koord.core.model.plan import Unit, UnitKey
from koord.core.model.pods import Pod, PodShape

if TYPE_CHECKING:
    from koord.core.engine.arrays import Mask

TIMED: Final = "Timed"
OPEN: Final = "Open"


@dataclass(frozen=True, slots=True)
class StartReservation:
    """Room that is reserved for a waiting unit; times are in seconds since the epoch.

    ``Timed``: from ``start`` on, when enough that runs has ended. ``Open``: some ends are unknown,
    so all that is ready is held from now on.
    """

    kind: str
    start: int
    since: int
    """When room was reserved for it first."""
    nodes: Mapping[str, int]
    """Node -> number of pods."""
    basis: Mapping[str, int] = field(default_factory=dict)
    """How the ends that it waits for are known -> number of units."""
    idle_seconds: int = 0
    """For how long its room was idle and refused to others, in all."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a unit stands in its queue."""

    unit: UnitKey
    queue: str
    position: int
    """From 1 on, in its queue; 0: it is held by its owner, and has none."""
    ahead: int
    """How many units come before it and compete with it, of all queues."""
    ahead_requests: Mapping[str, int]
    """What those request that could run on the nodes when these are empty."""
    head_since: int | None = None
    """Since when it is the first of its queue that is refused, in seconds since the epoch."""
    reservation: StartReservation | None = None


@dataclass(frozen=True, slots=True)
class Competitors:
    """What units compete for: a queue, and the nodes that they could run on when empty."""

    queue: str
    rows: tuple[int, ...]
    """Numbers of masks of rows."""


class Competition:
    """Which units compete: those of one queue, and those that could run on the same node."""

    def __init__(self, cycle: Cycle, queue_of: Callable[[Unit], str]) -> None:
        self._cycle, self._queue_of = cycle, queue_of
        self._numbers: dict[PodShape, int] = {}
        self._by_content: dict[bytes, int] = {}
        self._masks: list[Mask] = []
        self._meets: dict[tuple[int, int], bool] = {}
        self._near: dict[tuple[tuple[int, ...], tuple[int, ...]], bool] = {}
        self._of: dict[UnitKey, Competitors] = {}

    def of(self, unit: Unit) -> Competitors:
        """Return what a unit competes for."""
        competitors = self._of.get(unit.key)
        if competitors is None:
            numbers = {self._number_of(shape) for shape in {pod.shape for pod in unit.pods}}
            competitors = Competitors(self._queue_of(unit), tuple(sorted(numbers)))
            self._of[unit.key] = competitors
        return competitors

    def competes(self, first: Competitors, other: Competitors) -> bool:
        """Whether what one gets may matter to the other."""
        return first.queue == other.queue or self.is_near(first.rows, other.rows)

    def is_near(self, first: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """Whether units with these numbers of masks could run on the same node."""
        pair = (first, other)
        is_near = self._near.get(pair)
        if is_near is None:
            is_near = self._near[pair] = any(
                self._is_shared(row, other_row) for row in first for other_row in other
            )
        return is_near

    def could_run(self, competitors: Competitors) -> bool:
        """Whether there are nodes that could run each of the pods when empty."""
        return all(self._masks[row].any() for row in competitors.rows)

    def _number_of(self, shape: PodShape) -> int:
        number = self._numbers.get(shape)
        if number is None:
            room = self._cycle.room_when_empty(shape)
            if room is None:
                room = self._cycle.node_limits(shape)
            mask = room > 0
            content = np.packbits(mask).tobytes()
            if content not in self._by_content:
                self._by_content[content] = len(self._masks)
                self._masks.append(mask)
            number = self._numbers[shape] = self._by_content[content]
        return number

    def _is_shared(self, first: int, other: int) -> bool:
        pair = (min(first, other), max(first, other))
        meets = self._meets.get(pair)
        if meets is None:
            meets = self._meets[pair] = bool((self._masks[first] & self._masks[other]).any())
        return meets


@dataclass(slots=True)
class _AskedBefore:
    """How many units come before, and what they request."""

    units: int = 0
    requests: Counter[str] = field(default_factory=Counter)

    def add(self, units: int, requests: Mapping[str, int]) -> None:
        self.units += units
        self.requests.update(requests)


_ByRows: TypeAlias = defaultdict[tuple[int, ...], _AskedBefore]


class _UnitsSoFar:
    """The units so far: by what nodes they could run on, of each queue and of all together.

    There are few kinds of nodes, so that to count those before one takes as long in a hundred
    queues as in one.
    """

    def __init__(self, competition: Competition) -> None:
        self._competition = competition
        self._all: _ByRows = defaultdict(_AskedBefore)
        self._by_queue: defaultdict[str, _ByRows] = defaultdict(lambda: defaultdict(_AskedBefore))

    def add(self, competitors: Competitors, requests: Mapping[str, int]) -> None:
        for by_rows in (self._all, self._by_queue[competitors.queue]):
            by_rows[competitors.rows].add(1, requests)

    def count_before(self, wanted: Competitors) -> _AskedBefore:
        """Return those that compete: of the same nodes, and of the same queue."""
        before, is_near = _AskedBefore(), self._competition.is_near
        for rows, asked_before in self._all.items():
            if is_near(wanted.rows, rows):
                before.add(asked_before.units, asked_before.requests)
        for rows, asked_before in self._by_queue[wanted.queue].items():
            if not is_near(wanted.rows, rows):
                before.add(asked_before.units, asked_before.requests)
        return before


def make_turns(
    units: Iterable[Unit],
    competition: Competition,
    is_held: Callable[[Unit], bool],
    find_head: Callable[[UnitKey], tuple[int | None, StartReservation | None]],
    seen: Collection[UnitKey],
) -> Iterator[Turn]:
    """Yield the turns of those that are ``seen`` of the units, which come in order: all count."""
    line, positions = _UnitsSoFar(competition), Counter[str]()
    left = len(seen)
    for unit in units:
        if not left:
            return
        is_seen, wanted = unit.key in seen, competition.of(unit)
        left -= is_seen
        if is_held(unit):
            if is_seen:
                yield Turn(unit.key, wanted.queue, 0, 0, {})
            continue
        positions[wanted.queue] += 1
        if is_seen:
            before = line.count_before(wanted)
            since, reservation = find_head(unit.key)
            yield Turn(
                unit.key,
                wanted.queue,
                positions[wanted.queue],
                before.units,
                dict(before.requests),
                since,
                reservation,
            )
        # What no node could ever run takes nothing away, and may ask for any number.
        could_run = competition.could_run(wanted)
        line.add(wanted, _requests_of(unit.pods) if could_run else {})


def _requests_of(pods: Sequence[Pod]) -> Mapping[str, int]:
    if len(pods) == 1:
        return dict(pods[0].shape.requests)
    amounts: Counter[str] = Counter()
    for shape, count in Counter(pod.shape for pod in pods).items():
        for key, amount in shape.requests:
            amounts[key] += amount * count
    return amounts
