"""Looks at the queues now and then: where all that waits stands, and when it is expected to start.

A look is in nobody's way: it is taken while nothing is being bound, if that comes soon, a moment
after units were refused, and takes a small part of the time. What was promised is compared from
look to look; what an earlier process promised is read from statuses.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from koord.answers.outlook import Look, limit_time, view_standings
from koord.answers.queue_view import gpus_of
from koord.answers.standing import AT_POSITION, QueueStanding
from koord.controllers.queue_status import read_promise
from koord.core.engine.queue import Queue
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.engine.steps import MOST_PER_CALL
from koord.core.maintenance.plugin import Maintenances
from koord.core.model.gang_history import Happened, find_eviction
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.queue.eta import MOST_UNITS
from koord.core.queue.plugin import Queues
from koord.core.queue.promises import (
    Certainty,
    Competitor,
    MoveCause,
    PromiseBasis,
    PromiseMove,
    explain_move,
)
from koord.core.quota.ledger import Ledger
from koord.core.quota.plugin import Quotas
from koord.isolation import Isolation

QUIET_SECONDS: Final = 0.3
"""After a refusal; units that are placed soon are not looked at."""
EVERY_SECONDS: Final = 60.0
"""While anything waits, at the latest."""
LONGEST_BUSY_SECONDS: Final = 10.0
"""For so long a look is put off while pods are being bound: who waits is told in any case."""
LEAST_SECONDS: Final = 5.0
REST: Final = 40
"""Each look is followed by a pause of this many times its own length."""
MOST_SECONDS: Final = 0.25
"""What foreseeing starts may take."""
MOST_STARTS: Final = 200
"""Starts of which it is remembered whether they came when they were expected."""
LEAST_COVERED_PERCENT: Final = 80
ENOUGH_STARTS: Final = 5
"""With fewer starts of a user it is not judged what expectations are worth."""
MOST_LINES: Final = 1000
"""Users of queues whose starts are remembered: who started nothing for longest is forgotten."""
MOST_STARTED: Final = 512
"""Units that started as promised of which that is remembered, should they lose their place."""
_LOSSES: Final = {
    str(Happened.PREEMPTED): MoveCause.PREEMPTED,
    str(Happened.RECLAIMED): MoveCause.GUARANTEE,
}


@dataclass(frozen=True, slots=True)
class ForecastError:
    """How far a start was from what was expected first, in seconds.

    It ``is_covered`` if it came by the bound of that: nothing that it waited for was late.
    """

    certainty: Certainty
    seconds: float
    is_covered: bool


@dataclass(frozen=True, slots=True)
class UnitStart:
    """A unit that has started: ``overtaken`` are those with earlier turns that it competed with."""

    queue: str
    gpus: int
    waited: float
    overtaken: int = 0
    error: ForecastError | None = None


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """What waits in one queue; ``head`` is who is first, refused since ``head_since``."""

    policy: str
    pending: int
    running: int | None = None
    """Units that have started; None: not counted, for nothing limits them."""
    head: str = ""
    head_since: int | None = None
    reservations: int = 0


@dataclass(slots=True)
class QueueLooks:
    """The last look, by unit; ``clock`` is that of planning.

    ``recorded`` returns the status that a PodGroup shows, by its uid.
    """

    state: ClusterState
    queue: Queue
    scoring: Scoring
    clock: Callable[[], float]
    is_synced: Callable[[], bool]
    is_busy: Callable[[], bool]
    recorded: Callable[[str], Mapping[str, Any] | None] = lambda _: None
    standings: Mapping[str, QueueStanding] = field(default_factory=dict)
    broken: Counter[MoveCause] = field(default_factory=lambda: Counter(dict.fromkeys(MoveCause, 0)))
    """Promises that were moved later, by cause."""
    errors: deque[ForecastError] = field(default_factory=lambda: deque(maxlen=MOST_STARTS))
    _covered: dict[tuple[str, str], deque[bool]] = field(default_factory=dict)
    """Queue, user -> whether his last starts came in time: what others say of their run times is no
    reason to doubt his. Who started something last is the last."""
    seconds: float = 0.0
    """What the last look took."""
    on_told: Callable[[set[GangKey]], None] = lambda _: None
    """Called with gangs of which something is told for the first time."""
    on_start: Callable[[UnitStart], None] = lambda _: None
    summaries: dict[str, QueueSummary] = field(default_factory=dict)
    """By queue; at most once a minute."""
    _summarised_at: float = float("-inf")
    _of_gang: dict[GangKey, QueueStanding] = field(default_factory=dict)
    _promises: dict[str, PromiseBasis] = field(default_factory=dict)
    _moves: dict[str, PromiseMove] = field(default_factory=dict)
    _passed: dict[str, dict[str, Competitor]] = field(default_factory=dict)
    """Promised unit -> who had earlier turns since, by name, also those that have started."""
    _started: dict[str, PromiseBasis] = field(default_factory=dict)
    """What was promised to units that have started."""
    _expected: dict[str, QueueStanding] = field(default_factory=dict)
    """Unit -> where it stood when a start was expected of it first, of those that wait."""
    _isolated: Isolation = field(default_factory=lambda: Isolation("queue-looks"))
    _noted: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self) -> None:
        """Look soon: units were refused."""
        self._noted.set()

    def of(self, gang: GangKey) -> QueueStanding | None:
        """Return where a gang stood at the last look; None if that was not seen.

        Of one that was never refused nothing is told yet: what is told first stands for a minute.
        """
        standing = self._of_gang.get(gang)
        return None if standing is None or standing.state == AT_POSITION else standing

    def note_start(self, unit: Unit) -> None:
        """Compare when a unit starts with what was expected of it first."""
        now, expected = self.clock(), self._expected.pop(unit.key, None)
        error = None
        if expected is not None:
            error = _compare_start(expected, now)
            self.errors.append(error)
            self._note_covered(unit, is_covered=error.is_covered)
        standing = self.standings.get(unit.key)
        self._note_passing(unit)
        if unit.is_repair:
            return
        self._started.pop(unit.key, None)
        if unit.key in self._promises:
            self._started[unit.key] = self._promises[unit.key]
            for oldest in list(self._started)[:-MOST_STARTED]:
                del self._started[oldest]
        overtaken = 0 if standing is None else standing.ahead
        waited = max(0.0, now - unit.since)
        self.on_start(UnitStart(self.queue_of(unit), gpus_of(unit), waited, overtaken, error))

    def _note_passing(self, unit: Unit) -> None:
        """Note whose promises a unit that starts may have moved: by its rights, not by backfill."""
        if not self._promises:
            return
        pods = [self.state.pods.get(pod.uid, pod) for pod in unit.pods]
        standing = self.standings.get(unit.key)
        starter = self._make_competitor(unit, pods, self.state.open_ledger(), standing)
        is_by_use = self._queues.settings_of(starter.queue).user_fairness != "None"
        for key, basis in self._promises.items():
            # In time alone nobody comes before those of his queue that came earlier.
            has_turns = starter.queue != basis.queue or is_by_use
            comes_first = has_turns and (starter.is_guaranteed or not basis.is_protected)
            comes_first |= starter.is_repair or starter.priority > basis.priority
            comes_first |= starter.name in basis.ahead
            if comes_first or starter.tier > basis.tier:
                self._passed.setdefault(key, {})[starter.name] = starter

    def _make_competitor(
        self, unit: Unit, pods: Sequence[Pod], ledger: Ledger, standing: QueueStanding | None
    ) -> Competitor:
        is_guaranteed = self.state.plugin(Quotas).is_within_guarantee(pods, ledger)
        bound = self._queues.run_time_of(unit).bound
        return Competitor(
            unit.group or unit.pods[0].title,
            self.queue_of(unit),
            self._queues.priority_of(unit),
            unit.is_repair,
            is_guaranteed,
            self._queues.tier_of(unit, None if standing is None else standing.head_since),
            float("inf") if bound is None else bound,
            unit.required,
        )

    @property
    def _queues(self) -> Queues:
        return self.state.plugin(Queues)

    def queue_of(self, unit: Unit) -> str:
        return self.state.plugin(Queues).queue_of(unit.pods[0])

    def is_covered(self, unit: Unit) -> bool:
        """Whether enough of the last starts of a user came within the bounds of expectations."""
        covered = self._covered.get(self._line_of(unit), ())
        is_judged = len(covered) >= ENOUGH_STARTS
        return not is_judged or sum(covered) * 100 >= LEAST_COVERED_PERCENT * len(covered)

    def _note_covered(self, unit: Unit, *, is_covered: bool) -> None:
        line = self._line_of(unit)
        starts = self._covered.pop(line, None)
        self._covered[line] = deque(maxlen=MOST_STARTS) if starts is None else starts
        self._covered[line].append(is_covered)
        if len(self._covered) > MOST_LINES:
            del self._covered[next(iter(self._covered))]

    def _line_of(self, unit: Unit) -> tuple[str, str]:
        return self.queue_of(unit), self._queues.user_of(unit.pods[0])

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._noted.wait()
                    await asyncio.sleep(QUIET_SECONDS)
            except TimeoutError:
                pass
            self._noted.clear()
            await self._wait_for_quiet()
            began = time.monotonic()
            self._isolated.call("look", self.look)
            self.seconds = time.monotonic() - began
            await asyncio.sleep(max(LEAST_SECONDS, REST * self.seconds))

    async def _wait_for_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + LONGEST_BUSY_SECONDS
        while not self.is_synced() or (self.is_busy() and loop.time() < latest):  # noqa: ASYNC110 - it is polled
            await asyncio.sleep(QUIET_SECONDS)

    def look(self) -> None:
        """Look once."""
        if not self.queue.last_reasons and not self.standings:
            return
        units = self.queue.pending()
        self.state.refresh()
        standings = view_standings(
            Look(
                self.state,
                units,
                self.queue.last_reasons,
                self.scoring,
                limit_time(MOST_SECONDS, time.thread_time),
                self.is_covered,
                most=MOST_UNITS,
                most_steps=MOST_PER_CALL,
            )
        )
        standings = {key: self._without_lapse(key, standing) for key, standing in standings.items()}
        self._compare([unit for unit in units if unit.key in standings], standings)
        if self.clock() - self._summarised_at >= EVERY_SECONDS:
            self._summarised_at = self.clock()
            self.summaries = self._summarise(units)

    def _without_lapse(self, key: str, standing: QueueStanding) -> QueueStanding:
        """Keep what was said of a unit that is about to be tried again: it is not refused now."""
        before = self.standings.get(key)
        if standing.state != AT_POSITION or before is None or not before.is_queued:
            return standing
        return replace(standing, state=before.state, problem=before.problem)

    def _summarise(self, units: list[Unit]) -> dict[str, QueueSummary]:
        queues = self.state.plugin(Queues)
        pending = Counter(self.queue_of(unit) for unit in units)
        started = {queue: n for (queue, user), n in queues.started().items() if not user}
        reserved = Counter(
            standing.queue for standing in self.standings.values() if standing.reservation
        )
        heads: dict[str, tuple[str, int | None]] = {}
        for unit in units:
            standing = self.standings.get(unit.key)
            if standing is not None and standing.position == 1:
                head = unit.group or unit.pods[0].title
                heads.setdefault(standing.queue, (head, standing.head_since))
        return {
            queue: QueueSummary(
                str(queues.settings_of(queue).policy),
                pending[queue],
                started.get(queue, 0) if queues.is_limiting else None,
                *heads.get(queue, ("", None)),
                reservations=reserved[queue],
            )
            for queue in pending.keys() | started.keys()
        }

    def _find_competitors(
        self, standings: Mapping[str, QueueStanding]
    ) -> Callable[[Unit], Competitor]:
        """Return what makes competitors, each once: very many may wait, and few have promises."""
        ledger = self.state.open_ledger()
        made: dict[str, Competitor] = {}

        def find(unit: Unit) -> Competitor:
            if unit.key not in made:
                shown = standings.get(unit.key)
                pods = unit.pods if shown is not None else ()
                made[unit.key] = self._make_competitor(unit, pods, ledger, shown)
            return made[unit.key]

        return find

    def _compare(self, units: list[Unit], standings: dict[str, QueueStanding]) -> None:
        """Find out which promises have moved, and take the new look over."""
        competitor = self._find_competitors(standings)
        self._note_displacing(competitor)
        usable = {name for name, row in self.state.table.live_rows() if self._is_usable(row)}
        reserved = {key for key, standing in standings.items() if standing.reservation is not None}
        usable -= self.state.plugin(Maintenances).find_out_of_service(self.clock())
        for at, unit in enumerate(units):
            standing = standings.get(unit.key)
            if standing is None:
                continue
            with self._isolated.of(unit.key, self.clock()):
                lost = self._find_lost_place(unit)
                before = self._promises.get(unit.key) or self._read_promise(unit)
                if lost is not None:
                    before = self._started.pop(unit.key)
                if before is not None or _is_promised(standing):
                    # Who comes before and has no room yet has taken none.
                    ahead = [competitor(other) for other in units[:at] if other.key in reserved]
                    basis = self._make_basis(unit, standing, ahead)
                    basis = replace(basis, lost_place=lost, asks=competitor(unit))
                    self._follow(unit.key, before, basis, usable)
            if unit.key in self._moves:
                standings[unit.key] = replace(standing, last_move=self._moves[unit.key])
            if standing.expected_start is not None:
                self._expected.setdefault(unit.key, standing)
        self._forget_all_but(standings)
        self.standings = standings
        known_before = {gang for gang in self._of_gang if self.of(gang) is not None}
        self._of_gang = dict(_by_gang(units, standings))
        known_now = {gang for gang in self._of_gang if self.of(gang) is not None}
        if news := known_now - known_before:
            self.on_told(news)

    def _note_displacing(self, competitor: Callable[[Unit], Competitor]) -> None:
        """Note who had a turn before units as their promises moved, whoever comes first by now."""
        for key, units in self._queues.take_displacing().items():
            if key in self._promises:
                passed = self._passed.setdefault(key, {})
                passed |= {made.name: made for made in map(competitor, units)}

    def _forget_all_but(self, units: Collection[str]) -> None:
        for kept in (self._promises, self._moves, self._passed):
            for key in [key for key in kept if key not in units]:
                del kept[key]

    def _follow(
        self, key: str, before: PromiseBasis | None, basis: PromiseBasis, usable: Collection[str]
    ) -> None:
        """Keep what a promise was made on until it changes; explain why it moved later."""
        passed = self._passed.setdefault(key, {})
        passed |= basis.ahead
        seen = replace(basis, ahead={**basis.ahead, **passed})
        move = None if before is None else explain_move(before, seen, usable)
        if move is not None:
            self.broken[move.cause] += 1
            self._moves[key] = replace(move, after=basis.latest)
        if basis.latest is None:
            self._promises.pop(key, None)
        elif before is None or before.start != basis.latest:
            self._passed[key] = {}
            self._promises[key] = replace(basis, start=basis.latest)
        else:
            self._promises[key] = replace(
                before, nodes=basis.nodes, is_protected=basis.is_protected
            )

    def _make_basis(
        self, unit: Unit, standing: QueueStanding, ahead: list[Competitor]
    ) -> PromiseBasis:
        reservation = standing.reservation if _is_promised(standing) else None
        return PromiseBasis(
            start=reservation.start if reservation is not None else None,
            latest=standing.latest_start if reservation is not None else None,
            queue=standing.queue,
            priority=self._queues.priority_of(unit),
            tier=self._queues.tier_of(unit, standing.head_since),
            nodes=frozenset(reservation.nodes) if reservation is not None else frozenset(),
            ends={other.name: (float(other.end), other.level) for other in standing.waits_for},
            ahead={other.name: other for other in ahead},
            quota_edits=self.state.quotas.catalog.edits,
            is_hold_expired=self._has_expired(unit, standing),
            is_protected=self._queues.is_protected(unit.key),
        )

    def _find_lost_place(self, unit: Unit) -> tuple[MoveCause, str] | None:
        """Return why a unit waits again that had started as it was promised, if others took it."""
        if unit.key not in self._started or unit.is_repair:
            return None
        groups = (self.state.gangs.pod_group(demand.gang) for demand in unit.demands if demand.gang)
        histories = [group.history for group in groups if group is not None]
        last = find_eviction(episode for history in histories for episode in history)
        cause = None if last is None else _LOSSES.get(last.what)
        return None if last is None or cause is None else (cause, last.by)

    def _has_expired(self, unit: Unit, standing: QueueStanding) -> bool:
        """Whether room was given up because it was idle for as long as it may."""
        before = self.standings.get(unit.key)
        if standing.reservation is not None or before is None or before.reservation is None:
            return False
        settings = self.state.plugin(Queues).settings_of(standing.queue)
        idle = before.reservation.idle_seconds + standing.seen - before.seen
        return idle >= settings.max_hold

    def _read_promise(self, unit: Unit) -> PromiseBasis | None:
        """Return what an earlier process promised."""
        if unit.key in self.standings:
            return None
        for demand in unit.demands:
            group = self.state.gangs.pod_group(demand.gang) if demand.gang else None
            status = None if group is None else self.recorded(group.uid)
            promise = None if status is None else read_promise(status)
            if promise is not None:
                return replace(promise, queue="", quota_edits=self.state.quotas.catalog.edits)
        return None

    def _is_usable(self, row: int) -> bool:
        node = self.state.table.nodes[row]
        return node is not None and not node.has_failed and not node.is_unschedulable


def _compare_start(expected: QueueStanding, now: float) -> ForecastError:
    """Return how far a start now is from what was expected."""
    start = now if expected.expected_start is None else float(expected.expected_start)
    bound = start if expected.start_bound is None else float(expected.start_bound)
    return ForecastError(expected.certainty, abs(now - start), now <= max(start, bound))


def _is_promised(standing: QueueStanding) -> bool:
    return standing.certainty is Certainty.PROMISED


def _by_gang(
    units: list[Unit], standings: Mapping[str, QueueStanding]
) -> Iterator[tuple[GangKey, QueueStanding]]:
    for unit in reversed(units):
        standing = standings.get(unit.key)
        for demand in unit.demands if standing is not None else ():
            if demand.gang and standing is not None:
                yield demand.gang, standing
