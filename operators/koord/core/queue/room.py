"""Room in time, as the rules of protection need it: who ends when, what is reserved from when.

``RoomInTime`` is what those rules ask of whoever places units. Times and amounts are integers.
Nothing here knows queues, turns or who may go first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

FOREVER: Final = 2**62
"""An end that nobody knows."""

Places = Mapping[str, int]
"""Node -> amount."""


@dataclass(frozen=True, slots=True)
class UnitAsk:
    """What a unit needs: ``pods`` equal pods of ``amount`` each."""

    key: str
    quota: str
    pods: int
    amount: int
    limit: int | None = None
    """After how long it ends for certain."""
    gathers: bool = False
    """Whether all pods must be in one block."""
    pool: str | None = None
    is_enforced: bool = True
    """Whether it is killed after ``limit``; otherwise that is an estimate."""
    may_overtake: bool = True
    """Whether it starts while an earlier one waits that competes with it."""
    is_evictable: bool = False
    """Whether it may use room that is held without known ends: it goes when that is ready."""

    @property
    def total(self) -> int:
        return self.pods * self.amount

    def end_from(self, start: int) -> int:
        return FOREVER if self.limit is None else start + self.limit


@dataclass(frozen=True, slots=True)
class Reserved:
    """RoomInTime that is reserved for a unit, from ``start`` until ``end``.

    Without known ends it ``is_open``: held from now on, on places of which some are still busy.
    """

    job: UnitAsk
    start: int
    end: int
    places: Places
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A unit that runs; ``bound`` is when it has ended at the latest."""

    job: UnitAsk
    places: Places
    start: int
    bound: int = FOREVER
    lender: str = ""
    """Whose room it uses until all of that is ready."""


class RoomInTime(Protocol):
    """What the rules of protection ask of whoever places units."""

    now: int

    def fit(self, job: UnitAsk, reserved: Sequence[Reserved]) -> Places | None:
        """Return where a unit can start now so that it delays none of the ``reserved``."""

    def find_start(
        self, job: UnitAsk, reserved: Sequence[Reserved], until: int = FOREVER, since: int = 0
    ) -> Reserved | None:
        """Return the earliest start by known ends, beside the ``reserved``.

        None: none from ``since`` up to ``until``, or nobody knows.
        """

    def hold_open(
        self, job: UnitAsk, reserved: Sequence[Reserved], held: Reserved | None
    ) -> Reserved | None:
        """Return what to hold from now on: all that is ready, and what is expected to end first."""

    def is_possible(self, reserved: Reserved, beside: Sequence[Reserved]) -> bool:
        """Whether a unit can still start then and there."""

    def ready(self, reserved: Reserved, beside: Sequence[Reserved] = ()) -> int:
        """Return how much of what is reserved is idle now, and not idle for others."""

    def fits_ever(self, job: UnitAsk) -> bool:
        """Whether a unit fits when nothing else runs."""

    def gains_guarantee(self, job: UnitAsk, start: int, later: int) -> bool:
        """Whether a quota of a unit is within its guarantee with it ``later``, not at ``start``."""

    def competes(self, job: UnitAsk, other: UnitAsk) -> bool:
        """Whether what one gets may matter to the other."""

    def capacity(self) -> int:
        """Return how much there is in all."""

    def start(self, job: UnitAsk, places: Places, lender: str = "") -> None:
        """Note that a unit runs from now on; those that use its own room on loan have to go."""
