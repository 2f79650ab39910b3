"""Where units stand in their queues and when they are expected to start: values, with their text.

Positions and reserved room come from the queues, expected times from the planner run forward
(``core/queue/eta``). The same value is the condition ``Queued``, a part of the status, a row of
``koord queue`` and its JSON.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from koord.answers.encoding import Encoded, encode
from koord.answers.gpus import count_gpus_of_many
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.plan import UnitKey
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time, named, plural
from koord.core.queue.eta import Ending, Forecast
from koord.core.queue.promises import (
    Certainty,
    MoveCause,
    PromiseMove,
    judge_certainty,
    round_start,
)
from koord.core.queue.reasons import FailsAtOnce, NotItsTurn, TimeLimitReached, TimeLimitTooLong
from koord.core.queue.run_time import Knowledge
from koord.core.queue.turns import TIMED, StartReservation, Turn

AT_POSITION: Final = "AtPosition"
RESERVED: Final = "Reserved"
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
WAITING_FOR_NODES: Final = "WaitingForNodes"
BACKOFF: Final = "Backoff"
NEVER_FITS: Final = "NeverFits"
STARTED: Final = "Started"
HELD: Final = "Held"
NOT_QUEUED: Final = frozenset({STARTED, NEVER_FITS, TimeLimitTooLong.code, TimeLimitReached.code})
"""States in which a unit does not wait for its turn."""
_MOST_NAMED: Final = 3
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class AwaitedEnd:
    """Something that has to end before."""

    name: str
    end: int
    level: Knowledge


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """Where a unit stands. Times are in seconds since the epoch, rounded as they are told."""

    queue: str
    position: int
    """From 1 on, in its queue; 0: it has none."""
    waiting: int
    """How many units have a position in the queue."""
    ahead: int
    """How many of those before it compete with it, also of other queues."""
    gpus_ahead: int
    """What those ask for."""
    state: str
    certainty: Certainty = Certainty.UNKNOWN
    head_since: int | None = None
    expected_start: int | None = None
    latest_start: int | None = None
    """When it starts at the latest, if room is reserved for it from some time on."""
    start_bound: int | None = None
    """By when it starts if all that it waits for takes as long as it may: whether enough starts
    came by then tells what expectations are worth."""
    basis: Mapping[str, int] = field(default_factory=dict)
    """How the ends are known that it waits for -> number of units."""
    reservation: StartReservation | None = None
    waits_for: tuple[AwaitedEnd, ...] = ()
    lacks: str = ""
    """What more is needed where nobody knows when it starts."""
    problem: str = ""
    """Why it never starts, or what its state says."""
    last_move: PromiseMove | None = None
    seen: float = 0.0
    """When this was so."""
    reported: str = ""
    """The text of the operators, where they have told it."""

    @property
    def is_queued(self) -> bool:
        """The status of the condition ``Queued``."""
        return self.state not in NOT_QUEUED

    @property
    def worth_a_write(self) -> tuple[object, ...]:
        """What is worth a write, if it changes."""
        return (
            self.queue,
            self.position,
            self.state,
            self.certainty,
            self.expected_start,
            self.latest_start,
            self.last_move,
        )

    def text(self) -> str:
        """Return all of it for people."""
        if self.reported:
            return self.reported
        if not self.is_queued:
            return self.problem
        now = self.seen
        sentences = [self._position_text()]
        if self.problem:
            sentences.append(f"{self.problem[:1].upper()}{self.problem[1:].removesuffix('.')}.")
        if self.expected_start is not None or self.latest_start is not None or not self.problem:
            sentences.append(self._start_text(now))
        if self.last_move is not None:
            sentences.append(_tell_move(self.last_move, now))
        return " ".join(filter(None, sentences))

    def _position_text(self) -> str:
        if not self.position:
            return f"It has no position in {self.queue}." if self.queue else ""
        gpus = f", {plural(self.gpus_ahead, 'GPU')}" if self.gpus_ahead else ""
        compete = f"{self.ahead} ahead {'competes' if self.ahead == 1 else 'compete'}{gpus}"
        queue = f" in {self.queue}" if self.queue else ""
        return f"Position {self.position} of {self.waiting}{queue} ({compete})."

    def _start_text(self, now: float) -> str:
        waits = self._waits_text(now)
        if self.latest_start is not None:
            where = f"reserved on {self._where()}" if self.reservation is not None else ""
            because = ", ".join(filter(None, (where, waits)))
            start = f"Starts no later than {tell_time(now, self.latest_start)}"
            return f"{start}: {because}." if because else f"{start}."
        if self.expected_start is not None:
            worth = "a guess" if self.certainty is Certainty.GUESS else "estimated"
            start = f"Expected to start at {tell_time(now, self.expected_start)} ({worth})"
            return f"{start}: {waits}." if waits else f"{start}."
        held = f"Room is held for it on {self._where()}. " if self.reservation is not None else ""
        lacks = f"{self.lacks}. " if self.lacks else ""
        return f"{held}{lacks}When it starts is not known."

    def _waits_text(self, now: float) -> str:
        if not self.waits_for:
            return ""
        shown = [
            f"{other.name} ({_ENDS[other.level]} {tell_time(now, other.end)})"
            for other in self.waits_for[:_MOST_NAMED]
        ]
        more = len(self.waits_for) - len(shown)
        return f"waits for {', '.join(shown)}{f' and {more} more' if more else ''}"

    def _where(self) -> str:
        return named(sorted(self.reservation.nodes)) if self.reservation is not None else ""


_ENDS: Final = {
    Knowledge.DECLARED: "limit ends",
    Knowledge.STATED: "stated to end",
    Knowledge.HISTORY: "by earlier runs ends",
    Knowledge.DEFAULT: "by default ends",
    Knowledge.NONE: "ends",
}


def tell_time(now: float, at: float) -> str:
    """Return a time of day, with its date where it is not within a day."""
    text = format_time(at)
    day, _, time = text.partition("T")
    clock = f"{time[:5]} UTC"
    return clock if 0 <= at - now < _DAY else f"{day} {clock}"


def _tell_move(move: PromiseMove, now: float) -> str:
    by = f", {move.by}" if move.by else ""
    before = tell_time(now, move.before)
    if move.after is None:
        return f"It was promised {before} before ({move.cause}{by})."
    return f"It was promised {before} before, and moved later ({move.cause}{by})."


@dataclass(frozen=True, slots=True)
class Lookout:
    """What is known at one moment beside the turns: forecasts and refusals, by unit."""

    now: float
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    refusals: Mapping[str, Reason] = field(default_factory=dict)
    uncovered: Collection[UnitKey] = frozenset()
    """Units of whose users too many of the last starts came later than was expected of them."""


def make_standings(
    turns: Iterable[Turn], lookout: Lookout, waiting: Mapping[str, int]
) -> dict[str, QueueStanding]:
    """Return where units stand, by unit; ``waiting`` is how many do, by queue."""
    return {turn.unit: _make_standing(turn, waiting.get(turn.queue, 0), lookout) for turn in turns}


def _make_standing(turn: Turn, waiting: int, lookout: Lookout) -> QueueStanding:
    forecast = lookout.forecasts.get(turn.unit)
    refusal = lookout.refusals.get(turn.unit)
    never = forecast.never if forecast is not None else None
    state, problem = _name_state(turn, refusal, never)
    expected, latest, certainty = _tell_start(turn, forecast, lookout)
    if state in NOT_QUEUED or state == HELD:
        expected, latest, certainty = None, None, Certainty.UNKNOWN
    ends = () if forecast is None else tuple(map(_make_end, forecast.waits_for))
    is_known = expected is not None or latest is not None
    return QueueStanding(
        queue=turn.queue,
        position=turn.position,
        waiting=waiting,
        ahead=turn.ahead,
        gpus_ahead=count_gpus_of_many(turn.ahead_requests),
        state=state,
        certainty=certainty,
        head_since=turn.head_since,
        expected_start=expected,
        latest_start=latest,
        start_bound=None if expected is None else _find_bound(expected, latest, forecast, lookout),
        basis=_find_basis(turn, ends),
        reservation=turn.reservation,
        waits_for=ends,
        lacks="" if is_known or forecast is None else _tell_lack(forecast.refusal),
        problem=problem,
        seen=lookout.now,
    )


def _name_state(turn: Turn, refusal: Reason | None, never: Reason | None) -> tuple[str, str]:
    """Return the reason of the condition, and the text of what is not about room."""
    if isinstance(refusal, NotItsTurn):
        code = BACKOFF if isinstance(refusal, FailsAtOnce) else refusal.code
        return code, refusal.text()
    if never is not None:
        return NEVER_FITS, f"It would not start even if nothing else ran: {never.text()}"
    return RESERVED if turn.reservation is not None else _name_wait(refusal), ""


def _name_wait(refusal: Reason | None) -> str:
    if refusal is None or refusal.is_placed:
        return AT_POSITION
    return WAITING_FOR_QUOTA if refusal.domain == "quota" else WAITING_FOR_NODES


def _tell_start(
    turn: Turn, forecast: Forecast | None, lookout: Lookout
) -> tuple[int | None, int | None, Certainty]:
    """Return the expected start, the latest, and how certain they are."""
    reservation, now = turn.reservation, lookout.now
    is_timed = reservation is not None and reservation.kind == TIMED
    is_covered = turn.unit not in lookout.uncovered
    latest = round_start(now, reservation.start) if reservation is not None and is_timed else None
    expected = None
    if forecast is not None and forecast.start is not None:
        expected = round_start(now, forecast.start)
    if latest is not None:
        level = _find_level(reservation, forecast)
        expected = latest if expected is None else min(expected, latest)
        certainty = judge_certainty(level, is_reserved=True, is_covered=is_covered)
        return expected, latest, certainty
    if forecast is None or expected is None:
        return None, None, Certainty.UNKNOWN
    certainty = judge_certainty(forecast.level, is_reserved=False, is_covered=is_covered)
    return (None if certainty is Certainty.UNKNOWN else expected), None, certainty


def _find_bound(
    expected: int, latest: int | None, forecast: Forecast | None, lookout: Lookout
) -> int:
    """Return by when a start is expected at the latest: by its promise, or by what it waits for."""
    if latest is not None:
        return latest
    bound = None if forecast is None else forecast.bound
    return expected if bound is None else max(expected, round_start(lookout.now, bound))


def _find_level(reservation: StartReservation | None, forecast: Forecast | None) -> Knowledge:
    """Return how well is known what a reserved start waits for."""
    basis = {} if reservation is None else reservation.basis
    levels = [level for level in Knowledge if basis.get(level)]
    if levels:
        return levels[-1]
    is_seen = forecast is not None and forecast.start is not None
    return forecast.level if forecast is not None and is_seen else Knowledge.DECLARED


def _find_basis(turn: Turn, ends: Iterable[AwaitedEnd]) -> Mapping[str, int]:
    if turn.reservation is not None and turn.reservation.basis:
        return dict(turn.reservation.basis)
    return dict(Counter(str(other.level) for other in ends))


def _make_end(ending: Ending) -> AwaitedEnd:
    return AwaitedEnd(ending.name, int(ending.end or 0), ending.level)


def _tell_lack(refusal: Reason | None) -> str:
    if isinstance(refusal, InsufficientNodes) and refusal.more_nodes:
        return f"It needs {plural(refusal.more_nodes, 'more empty node')}"
    return ""


class AwaitedEndDocument(TypedDict):
    """What has to end before; ``name`` is null for a unit of others."""

    name: str | None
    end: str | None
    level: Knowledge


class QueueStandingDocument(TypedDict):
    """Where a unit stands in its queue; times as in the API."""

    queue: str | None
    position: int | None
    waiting: int
    ahead: int
    gpusAhead: int
    state: str
    certainty: Certainty
    headSince: str | None
    expectedStart: str | None
    startNoLaterThan: str | None
    basis: Mapping[str, int]
    waitsFor: list[AwaitedEndDocument]
    reservation: Encoded[StartReservation] | None
    lastMove: Encoded[PromiseMove] | None


@encode.register
def _(standing: QueueStanding) -> QueueStandingDocument:
    reservation, move = standing.reservation, standing.last_move
    return {
        "queue": encode(standing.queue),
        "position": standing.position or None,
        "waiting": standing.waiting,
        "ahead": standing.ahead,
        "gpusAhead": standing.gpus_ahead,
        "state": standing.state,
        "certainty": standing.certainty,
        "headSince": _time(standing.head_since),
        "expectedStart": _time(standing.expected_start),
        "startNoLaterThan": _time(standing.latest_start),
        "basis": dict(standing.basis),
        "waitsFor": [
            {"name": encode(other.name), "end": _time(other.end), "level": other.level}
            for other in standing.waits_for
        ],
        "reservation": None if reservation is None else encode(reservation),
        "lastMove": None if move is None else encode(move),
    }


class StartReservationDocument(TypedDict):
    """Room that is reserved for a unit: node -> number of pods."""

    kind: str
    start: str | None
    since: str | None
    idleHeldSeconds: int
    nodes: Mapping[str, int]


@encode.register
def _(reservation: StartReservation) -> StartReservationDocument:
    return {
        "kind": reservation.kind,
        "start": _time(reservation.start),
        "since": _time(reservation.since),
        "idleHeldSeconds": reservation.idle_seconds,
        "nodes": dict(sorted(reservation.nodes.items())),
    }


PromiseMoveDocument = TypedDict(
    "PromiseMoveDocument",
    {"from": str | None, "to": str | None, "cause": MoveCause, "by": str | None},
)


@encode.register
def _(move: PromiseMove) -> PromiseMoveDocument:
    return {
        "from": _time(move.before),
        "to": _time(move.after),
        "cause": move.cause,
        "by": encode(move.by),
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else format_time(seconds)
