"""Turns in virtual time: what would start when, of units whose real run times are given.

For simulations of traces and for laws in tests; room is counted (``CountedRoom``) unless another is
given. Nothing here reads a clock or a file.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import Final

from koord.core.queue.counted_room import CountedNode, CountedRoom, QuotaLimit
from koord.core.queue.order import (
    Aging,
    Heads,
    OrderTerms,
    QueueQuota,
    Waiting,
    make_tournament,
)
from koord.core.queue.protection import TurnsOutcome
from koord.core.queue.queue_turns import Offers, QueueTurns, TurnsState
from koord.core.queue.room import FOREVER, Run, UnitAsk
from koord.core.queue.settings import QueueSettings
from koord.core.queue.usage import LEAST_SECONDS, Decay

RESOURCE: Final = "gpu"
_NOTHING: Final = Fraction(0)


@dataclass(frozen=True, slots=True)
class TraceUnit:
    """A unit of a trace."""

    job: UnitAsk
    arrival: int
    duration: int
    """How long it really runs."""
    priority: int = 0
    user: str = ""


@dataclass(frozen=True, slots=True)
class SimulatedQuota:
    """A quota that is a leaf below the root."""

    name: str
    min: int
    runtime: int
    max: int


MakeOffers = Callable[[Iterable[QueueQuota], Iterable[Waiting], OrderTerms], Offers]


@dataclass
class _Charged:
    """A unit that runs, and until when what it uses is in the ledger."""

    amount: int
    start: int
    until: int


class SimulatedShares:
    """What users have used in virtual time; without ``decay`` all are equal."""

    def __init__(self, decay: Decay | None, capacity: int) -> None:
        self._decay, self._capacity = decay, capacity
        self._ledgers: dict[tuple[str, str], int] = defaultdict(int)
        self._running: dict[tuple[str, str], dict[str, _Charged]] = defaultdict(dict)
        self._now = 0
        self._values: dict[tuple[str, str], Fraction] = {}

    def note_time(self, now: int) -> None:
        self._now = now
        self._values.clear()

    def note_run(self, unit: TraceUnit) -> None:
        """Count a unit that starts to run now."""
        line = (unit.job.quota, unit.user)
        self._running[line][unit.job.key] = _Charged(unit.job.total, self._now, self._now)
        self._values.pop(line, None)

    def note_end(self, unit: TraceUnit) -> None:
        """Count what a unit used that ends now."""
        line = (unit.job.quota, unit.user)
        self._charge(line, self._running[line].pop(unit.job.key))

    def of(self, queue: str, user: str) -> Fraction:
        if self._decay is None:
            return _NOTHING
        line = (queue, user)
        if line not in self._values:
            self._values[line] = Fraction(self._used(line), self._capacity)
        return self._values[line]

    def note_start(self, unit: Waiting) -> None:
        """Change nothing: a round of turns takes the order of the users once."""

    def _used(self, line: tuple[str, str]) -> int:
        if self._decay is None:
            return 0
        early = 0
        for run in self._running[line].values():
            if self._now - run.start >= LEAST_SECONDS:
                self._charge(line, run)
            else:
                early += self._decay.charge_running(run.amount, run.start, self._now)
        return self._ledgers[line] + early

    def _charge(self, line: tuple[str, str], run: _Charged) -> None:
        if self._decay is not None:
            self._ledgers[line] += self._decay.charge(run.amount, run.until, self._now)
        run.until = self._now


@dataclass
class Simulation:
    """One cluster with its queues, from time 0 on."""

    nodes: Iterable[CountedNode]
    quotas: Iterable[SimulatedQuota]
    settings: Callable[[str], QueueSettings]
    least_gain: int = 60
    least_remainder: int = 3600
    make_offers: MakeOffers = make_tournament
    decay: Decay | None = None
    """How the use of users counts in their turns; None: it does not."""
    grace: int | None = None
    """How long evicted units take to end; None: nobody is evicted for priority."""
    depth: int | None = None
    """How many units of a queue are looked at in a round: those that came first."""
    starts: dict[str, int] = field(default_factory=dict)
    """Unit -> when it started last."""
    history: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Unit -> all its starts: one for each time that it had to go, and one."""
    evicted: list[str] = field(default_factory=list)
    """Units that had to go for others of higher priority."""
    idle: int = 0
    """Amount * time that was reserved, ready, and refused to others."""

    def __post_init__(self) -> None:
        self.limits = {quota.name: quota for quota in self.quotas}
        self.room = self.make_room({node.name: node for node in self.nodes})
        for quota in self.limits.values():
            self.set_quota(quota)
        self.turns = QueueTurns(self.room, self.settings, least_gain=self.least_gain)
        self.heads = Heads()
        self.waiting: dict[str, TraceUnit] = {}
        self.running: dict[str, TraceUnit] = {}
        self.ends: list[tuple[int, str]] = []
        self._end_of: dict[str, int] = {}
        self._leaving: set[str] = set()
        """Who is being evicted."""
        self._shares = SimulatedShares(self.decay, self.room.capacity())

    def make_room(self, nodes: dict[str, CountedNode]) -> CountedRoom:
        return CountedRoom(nodes, {}, least_remainder=self.least_remainder)

    def set_quota(self, quota: SimulatedQuota) -> None:
        self.limits[quota.name] = quota
        self.room.set_quota(quota.name, QuotaLimit(quota.runtime, quota.max, quota.min))

    def set_usable(self, node: str, *, is_usable: bool) -> None:
        self.room.set_node(replace(self.room.nodes[node], is_usable=is_usable))

    def lose(self, node: str) -> None:
        """Take a node away with all that runs on it."""
        self.set_usable(node, is_usable=False)
        for key in [key for key, run in self.room.runs.items() if node in run.places]:
            self._end(key)

    def add_run(self, run: Run, end: int, unit: TraceUnit | None = None) -> None:
        """Add what runs already; ``end`` is when it really ends. A ``unit`` may be evicted."""
        self.room.add(run)
        self._end_at(run.job.key, end)
        if unit is not None:
            self.running[run.job.key] = unit
            self._shares.note_run(unit)

    def submit(self, unit: TraceUnit) -> None:
        self.waiting[unit.job.key] = unit

    def withdraw(self, key: str) -> None:
        self.waiting.pop(key, None)

    def play(self, units: Iterable[TraceUnit], events: Mapping[int, Callable[[], None]]) -> None:
        """Play until nothing happens any more: at equal times ends, arrivals, events, turns."""
        arrivals = sorted(units, key=lambda unit: unit.arrival, reverse=True)
        times = sorted(events, reverse=True)
        while True:
            while arrivals and arrivals[-1].arrival <= self.room.now:
                self.submit(arrivals.pop())
            while times and times[-1] <= self.room.now:
                events[times.pop()]()
            idle = self.decide()
            due = [end for end, _ in self.ends[:1]]
            due += [arrivals[-1].arrival] if arrivals else []
            due += times[-1:]
            if not due:
                return
            self.advance(min([*due, *self._timers()]), idle)

    def advance(self, now: int, idle: Mapping[str, int]) -> None:
        """Let time pass; what ends by ``now`` has ended."""
        passed = now - self.room.now
        self.turns.note_time(idle, passed)
        self.idle += sum(idle.values()) * passed
        self.room.now = now
        self._shares.note_time(now)
        while self.ends and self.ends[0][0] <= now:
            end, key = heappop(self.ends)
            if self._end_of.get(key) == end:
                self._end(key)
        for run in [run for run in self.room.runs.values() if run.bound <= now]:
            self.room.add(replace(run, bound=_double(run, now)))

    def decide(self) -> Mapping[str, int]:
        """Let all have their turns; return what is idle from now on.

        A round follows if somebody may start in it by what has moved. Each one starts or evicts a
        unit, or begins as none before it did since then: so there are not endlessly many.
        """
        begun: set[TurnsState] = set()
        while True:
            outcome = self._let_all_have_their_turns()
            evicts = self._carry_out(outcome)
            if not (evicts or outcome.is_unsettled):
                return outcome.idle
            if evicts or outcome.started:
                begun.clear()
            state = self.turns.state()
            if state in begun:
                return outcome.idle
            begun.add(state)

    def _carry_out(self, outcome: TurnsOutcome) -> bool:
        """Note who has started; return whether somebody was evicted, or is being."""
        for key in outcome.started:
            self._note_start(key)
        for key in self.room.evicted:
            self._resubmit(key)
        evicted = bool(self.room.evicted)
        self.room.evicted.clear()
        evicts = self.grace is not None and any(
            self._evict_for(self.waiting[key]) for key in outcome.blocked
        )
        return evicted or evicts

    def _let_all_have_their_turns(self) -> TurnsOutcome:
        looked_at = list(self._looked_at())
        jobs = {unit.job.key: unit.job for unit in looked_at}
        units = [self._waiting_of(unit) for unit in looked_at]
        heads = self.heads.note(units, self.room.now)
        units = [
            replace(unit, head_since=heads[unit.key]) if unit.key in heads else unit
            for unit in units
        ]
        terms = OrderTerms(
            self.room.now,
            self._aging_of,
            self._shares,
            never_fits=lambda unit: not self.room.fits_ever(jobs[unit.key]),
        )
        return self.turns.decide(self.make_offers(self.quotas_now(), units, terms), jobs)

    def _looked_at(self) -> Iterator[TraceUnit]:
        if self.depth is None:
            yield from self.waiting.values()
            return
        counts: Counter[str] = Counter()
        for unit in self.waiting.values():
            counts[unit.job.quota] += 1
            if counts[unit.job.quota] <= self.depth:
                yield unit

    def _note_start(self, key: str) -> None:
        now = self.room.now
        unit = self.running[key] = self.waiting.pop(key)
        self.starts[key] = now
        self.history[key].append(now)
        self._end_at(key, now + unit.duration)
        self._shares.note_run(unit)

    def _end_at(self, key: str, end: int) -> None:
        self._end_of[key] = end
        heappush(self.ends, (end, key))

    def _end(self, key: str) -> None:
        self.room.end(key)
        self._end_of.pop(key, None)
        unit = self.running.pop(key, None)
        if unit is not None:
            self._shares.note_end(unit)

    def _resubmit(self, key: str) -> None:
        """Let a unit wait again that had to go; it keeps its place in the order."""
        unit = self.running.get(key)
        self._end(key)
        if unit is not None:
            self.submit(unit)

    def _evict_for(self, unit: TraceUnit) -> bool:
        """Evict units of lower priority so that one fits, unless it rather waits."""
        job, now = unit.job, self.room.now
        if not self._leaving.isdisjoint(self.room.runs):
            return False  # one plan after the other
        until = now + self.settings(job.quota).prefer_wait
        if self.room.find_start(job, (), until) is not None:
            return False
        victims = self._find_victims(unit)
        self._leaving = {run.job.key for run in victims}
        for run in victims:
            self.room.add(replace(run, bound=now + (self.grace or 0)))
            self._end_at(run.job.key, now + (self.grace or 0))
            self.evicted.append(run.job.key)
        return bool(victims)

    def _find_victims(self, unit: TraceUnit) -> list[Run]:
        """Return runs of lower priority, lowest and newest first, until the unit fits."""
        lower = [
            (self.running[key].priority, -run.start, key)
            for key, run in self.room.runs.items()
            if key in self.running and self.running[key].priority < unit.priority
        ]
        taken: list[Run] = []
        try:
            for *_, key in sorted(lower):
                taken.append(self.room.runs[key])
                self.room.end(key)
                if self.room.fit(unit.job, ()) is not None:
                    return list(taken)
            return []
        finally:
            for run in taken:
                self.room.add(run)

    def _timers(self) -> Iterator[int]:
        """Yield when turns are to be decided again though nothing happens."""
        timer = self.turns.next_due()
        if timer is not None:
            yield timer
        yield from (
            run.bound for run in self.room.runs.values() if self.room.now < run.bound < FOREVER
        )

    def _aging_of(self, queue: str) -> Aging:
        settings = self.settings(queue)
        return Aging(settings.age_step, settings.age_tiers)

    def quotas_now(self) -> list[QueueQuota]:
        """Return the quotas with what they use."""
        return [
            QueueQuota(
                quota.name,
                "",
                {RESOURCE: self.room.used(quota.name, self.room.now)},
                {RESOURCE: quota.min},
                {RESOURCE: quota.runtime},
            )
            for quota in self.limits.values()
        ]

    def _waiting_of(self, unit: TraceUnit) -> Waiting:
        job = unit.job
        reserved, place = self.turns.reserved(job.key), self.turns.place_of(job.key)
        used_at_start = {}
        if reserved is not None and place is not None:
            used_at_start[job.quota] = {RESOURCE: self.room.used(job.quota, reserved.start)}
        return Waiting(
            job.key,
            job.quota,
            unit.user,
            unit.priority,
            unit.arrival,
            {RESOURCE: job.total},
            protected=place,
            used_at_start=used_at_start,
        )


def _double(run: Run, now: int) -> int:
    """Return when a unit has ended that was expected to have by now: twice as long."""
    length = max(1, run.bound - run.start)
    while run.start + length <= now:
        length *= 2
    return run.start + length
