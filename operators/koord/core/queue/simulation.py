"""Turns in virtual time: what would start when, of units whose real run times are given.

For simulations of traces and for laws in tests; room is counted (``CountedRoom``). Nothing here
reads a clock or a file.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import Final

from koord.core.queue.counted_room import CountedNode, CountedRoom, QuotaLimit
from koord.core.queue.order import Aging, Heads, OrderTerms, QueueQuota, Tournament, Waiting
from koord.core.queue.protection import QueueTurns
from koord.core.queue.room import Run, UnitAsk
from koord.core.queue.settings import QueueSettings

RESOURCE: Final = "gpu"


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


@dataclass
class Simulation:
    """One cluster with its queues, from time 0 on."""

    nodes: Iterable[CountedNode]
    quotas: Iterable[SimulatedQuota]
    settings: Callable[[str], QueueSettings]
    least_gain: int = 60
    starts: dict[str, int] = field(default_factory=dict)
    """Unit -> when it started."""
    idle: int = 0
    """Amount * time that was reserved, ready, and refused to others."""

    def __post_init__(self) -> None:
        self.limits = {quota.name: quota for quota in self.quotas}
        self.room = CountedRoom({node.name: node for node in self.nodes}, {})
        for quota in self.limits.values():
            self.set_quota(quota)
        self.turns = QueueTurns(self.room, self.settings, least_gain=self.least_gain)
        self.heads = Heads()
        self.waiting: dict[str, TraceUnit] = {}
        self.ends: list[tuple[int, str]] = []

    def set_quota(self, quota: SimulatedQuota) -> None:
        self.limits[quota.name] = quota
        self.room.quotas[quota.name] = QuotaLimit(quota.runtime, quota.max)

    def set_usable(self, node: str, *, is_usable: bool) -> None:
        self.room.nodes[node] = replace(self.room.nodes[node], is_usable=is_usable)

    def lose(self, node: str) -> None:
        """Take a node away with all that runs on it."""
        self.set_usable(node, is_usable=False)
        for key in [key for key, run in self.room.runs.items() if node in run.places]:
            del self.room.runs[key]

    def add_run(self, run: Run, end: int) -> None:
        """Add what runs already; ``end`` is when it really ends."""
        self.room.runs[run.job.key] = run
        heappush(self.ends, (end, run.job.key))

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
            timer = self.turns.next_due()
            self.advance(min(due if timer is None else [*due, timer]), idle)

    def advance(self, now: int, idle: Mapping[str, int]) -> None:
        """Let time pass; what ends by ``now`` has ended."""
        passed = now - self.room.now
        self.turns.note_time(idle, passed)
        self.idle += sum(idle.values()) * passed
        self.room.now = now
        while self.ends and self.ends[0][0] <= now:
            self.room.runs.pop(heappop(self.ends)[1], None)

    def decide(self) -> Mapping[str, int]:
        """Let all have their turns; return what is idle from now on."""
        jobs = {key: unit.job for key, unit in self.waiting.items()}
        units = [self._waiting_of(unit) for unit in self.waiting.values()]
        heads = self.heads.note(units, self.room.now)
        units = [replace(unit, head_since=heads.get(unit.key)) for unit in units]
        terms = OrderTerms(self.room.now, self._aging_of, _Equal())
        outcome = self.turns.decide(Tournament(self._quotas_now(), units, terms), jobs)
        for key in outcome.started:
            self.starts[key] = self.room.now
            heappush(self.ends, (self.room.now + self.waiting.pop(key).duration, key))
        return outcome.idle

    def _aging_of(self, queue: str) -> Aging:
        settings = self.settings(queue)
        return Aging(settings.age_step, settings.age_tiers)

    def _quotas_now(self) -> list[QueueQuota]:
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


class _Equal:
    """Users are equal."""

    def of(self, queue: str, user: str) -> Fraction:  # noqa: ARG002 - the same for all
        return Fraction(0)

    def note_start(self, unit: Waiting) -> None:
        """Change nothing."""
