"""What may be promised about a start: how certain it is, how exact, and why it moved.

Knows times and names, no units and no planner. Times are in seconds since the epoch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koord.core.queue.run_time import Knowledge

_HOUR: Final = 3600
_STEPS: Final = ((_HOUR, 60), (6 * _HOUR, 300))
"""Waits below the first number are told in steps of the second; longer ones in hours."""


class Certainty(StrEnum):
    """How much a time of start is worth."""

    PROMISED = "Promised"
    """Room is reserved, and all that it waits for has a limit: it moves for listed causes only."""
    ESTIMATED = "Estimated"
    """It rests on estimates, or nothing is reserved."""
    GUESS = "Guess"
    """It rests on defaults, or estimates were wrong too often lately."""
    UNKNOWN = "Unknown"
    """Nobody knows when what is in the way ends."""


def judge_certainty(level: Knowledge, *, is_reserved: bool, is_covered: bool = True) -> Certainty:
    """Return how certain a start is of which the worst known end is known like that.

    ``is_covered``: whether enough of the last starts came as early as they were expected to.
    """
    if level is Knowledge.NONE:
        return Certainty.UNKNOWN
    if level is Knowledge.DECLARED and is_reserved:
        return Certainty.PROMISED
    if level is Knowledge.DEFAULT or not is_covered:
        return Certainty.GUESS
    return Certainty.ESTIMATED


def round_start(now: float, start: float) -> int:
    """Return a start as it is told: never earlier, and the less exact the later it is."""
    wait = start - now
    step = next((step for limit, step in _STEPS if wait < limit), _HOUR)
    return -int(-start // step) * step


class MoveCause(StrEnum):
    """Why a promised start moved later."""

    HIGHER_PRIORITY = "HigherPriority"
    GUARANTEE = "Guarantee"
    """Another quota uses what is guaranteed to it."""
    LOAD = "Load"
    """An earlier turn of a quota that uses less of its share."""
    AGE = "Age"
    """A unit that has been the first of its user for longer, before this one was protected."""
    REPAIR = "Repair"
    """A gang that has started lost members, and takes room for them."""
    NODE = "Node"
    """A node is gone, or takes no more pods."""
    LATE_END = "LateEnd"
    """A pod runs longer than its limit."""
    ESTIMATE = "Estimate"
    """A job runs longer than expected, or says so by now, or asks for more."""
    QUOTA_CHANGED = "QuotaChanged"
    PREEMPTED = "Preempted"
    HOLD_EXPIRED = "HoldExpired"
    """It held idle room for as long as it may."""
    OTHER = "Other"
    """None of these: a defect, to be reported."""


@dataclass(frozen=True, slots=True)
class PromiseMove:
    """A promised start that moved later."""

    before: int
    after: int | None
    """None: nothing is promised any more."""
    cause: MoveCause
    by: str = ""
    """The unit, job, node or quota behind it, as people call it."""


@dataclass(frozen=True, slots=True)
class Competitor:
    """A unit whose turn is earlier: its ``name``, and what gives it that."""

    name: str
    queue: str
    priority: int = 0
    is_repair: bool = False
    is_guaranteed: bool = False
    """Its quota stays within its guarantee."""
    tier: int = 0
    """How far it has aged as the first of its user."""
    lasts: float = 0.0
    """For how long it runs at most, in seconds, as far as is known."""
    pods: int = 0
    """How many have to start together."""

    def asks_more_than(self, before: "Competitor") -> bool:
        """Whether it says by now that it runs for longer, or needs more, than it said."""
        return self.lasts > before.lasts or self.pods > before.pods


@dataclass(frozen=True, slots=True)
class PromiseBasis:
    """What a promise depends on, at one time."""

    start: int | None
    """What is promised: before, as it was told, now exactly; None: nothing."""
    queue: str = ""
    priority: int = 0
    nodes: Collection[str] = ()
    ends: Mapping[str, tuple[float, Knowledge]] = field(default_factory=dict)
    """What it waits for -> when that ends, and how that is known."""
    ahead: Mapping[str, Competitor] = field(default_factory=dict)
    """Unit -> who it is: those with earlier turns that compete with it, in their order."""
    quota_edits: object = None
    is_hold_expired: bool = False
    lost_place: tuple[MoveCause, str] | None = None
    """Why it had to give up the place in which it had started, and for whom."""
    latest: int | None = None
    """The start as it is told."""
    tier: int = 0
    """How far it has aged itself."""
    asks: Competitor | None = None
    """What it asks for itself; None: that is not known any more."""
    is_protected: bool = False
    """Whether it has kept others away: their load brings them no earlier turn any more."""


def explain_move(
    before: PromiseBasis, after: PromiseBasis, usable: Collection[str]
) -> PromiseMove | None:
    """Return what moved a promised start later, or took the promise; None: it did not.

    ``usable`` are the nodes that take pods now. What is asked first is nearer to the cause: a lost
    node also changes who is ahead.
    """
    if before.start is None or (after.start is not None and after.start <= before.start):
        return None
    cause, by = _find_cause(before, after, usable)
    return PromiseMove(before.start, after.start, cause, by)


def _find_cause(
    before: PromiseBasis, after: PromiseBasis, usable: Collection[str]
) -> tuple[MoveCause, str]:
    if after.is_hold_expired:
        return MoveCause.HOLD_EXPIRED, ""
    if after.lost_place is not None:
        return after.lost_place
    lost = min((node for node in before.nodes if node not in usable), default=None)
    if lost is not None:
        return MoveCause.NODE, lost
    return (
        _find_changed(before, after)
        or _find_late(before, after)
        or _find_turn(before, after)
        or (MoveCause.OTHER, "")
    )


def _find_late(before: PromiseBasis, after: PromiseBasis) -> tuple[MoveCause, str] | None:
    """Return what ends later than it was expected to."""
    for name, (end, level) in sorted(before.ends.items()):
        now = after.ends.get(name)
        if now is not None and now[0] > end:
            declared = level is Knowledge.DECLARED
            return (MoveCause.LATE_END if declared else MoveCause.ESTIMATE), name
    return None


def _find_changed(before: PromiseBasis, after: PromiseBasis) -> tuple[MoveCause, str] | None:
    """Return who asks for more by now than when this was promised: itself, or who is ahead."""
    own = after.asks
    if own is not None and before.asks is not None and own.asks_more_than(before.asks):
        return MoveCause.ESTIMATE, own.name
    for key, other in after.ahead.items():
        if key in before.ahead and other.asks_more_than(before.ahead[key]):
            return MoveCause.ESTIMATE, other.name
    return None


def _find_turn(before: PromiseBasis, after: PromiseBasis) -> tuple[MoveCause, str] | None:
    """Return whose turn came before: the most telling of them, or what changed the turns."""
    new = [after.ahead[key] for key in sorted(after.ahead.keys() - before.ahead.keys())]
    new = new or _find_passing(before, after)
    repair = next((other for other in new if other.is_repair), None)
    if repair is not None:
        return MoveCause.REPAIR, repair.name
    if before.quota_edits != after.quota_edits:
        return MoveCause.QUOTA_CHANGED, after.queue
    return _classify(new, after) if new else None


def _find_passing(before: PromiseBasis, after: PromiseBasis) -> list[Competitor]:
    """Return those who have passed others: what these had promised is behind that by now."""
    place = {key: at for at, key in enumerate(before.ahead)}
    lasting = [key for key in after.ahead if key in place]
    return [
        after.ahead[key]
        for at, key in enumerate(lasting)
        if any(place[other] < place[key] for other in lasting[at + 1 :])
    ]


def _classify(new: list[Competitor], after: PromiseBasis) -> tuple[MoveCause, str]:
    """Return what brought units ahead of others: the most telling of them."""
    first = max(new, key=lambda other: other.priority)
    if first.priority > after.priority:
        return MoveCause.HIGHER_PRIORITY, first.name
    guaranteed = next(
        (other for other in new if other.is_guaranteed and other.queue != after.queue), None
    )
    if guaranteed is not None:
        return MoveCause.GUARANTEE, guaranteed.name
    older = max(new, key=lambda other: other.tier)
    if older.tier > after.tier:
        return MoveCause.AGE, older.name
    return MoveCause.LOAD, first.name
