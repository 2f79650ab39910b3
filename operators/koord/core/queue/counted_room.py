"""Room in time by counts of one resource per node, for simulations of many units.

It knows topology blocks and pools, but no devices, queues or turns.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

from koord.core.queue.room import FOREVER, Places, Reserved, Run, UnitAsk

LEAST_REMAINDER: Final = 3600
"""Units that run are expected to go on as long as they have run, and for so long at least."""


@dataclass(frozen=True, slots=True)
class CountedNode:
    """A node, in units of one resource."""

    name: str
    amount: int
    block: str = ""
    pool: str | None = None
    is_usable: bool = True


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """What a quota may use: its share by now, and at most."""

    runtime: int
    max: int
    min: int = 0


_Domain = tuple[str, list[CountedNode]]
_Shape = tuple[int, bool, str | None]


@dataclass
class CountedRoom:
    """Nodes with counts of one resource, and quotas that are leaves."""

    nodes: dict[str, CountedNode]
    quotas: dict[str, QuotaLimit]
    now: int = 0
    least_remainder: int = LEAST_REMAINDER
    runs: dict[str, Run] = field(default_factory=dict)
    """What runs: changed by ``add`` and ``end``."""
    evicted: list[str] = field(default_factory=list)
    """Those that had to go for the unit whose room they used."""

    def __post_init__(self) -> None:
        self._on: dict[str, dict[str, Run]] = {name: {} for name in self.nodes}
        self._of: dict[str, dict[str, Run]] = defaultdict(dict)
        self._free_now = {name: node.amount for name, node in self.nodes.items()}
        self._used_now: Counter[str] = Counter()
        self._lent: Counter[str] = Counter()
        """Unit -> how many use its room on loan."""
        self._profile: dict[tuple[int, str], dict[str, int]] = {}
        """Time, lender -> node -> what is free then; until something starts or ends."""
        self._choices: dict[_Shape, list[_Domain]] = {}
        """Where a shape may be placed when nothing runs."""
        self._names: dict[_Shape, frozenset[str]] = {}
        self._largest: dict[_Shape, int] = {}
        """How many pods of a shape fit there, in one domain."""
        self._too_large: set[tuple[int, int, str, bool, str | None]] = set()
        """What does not fit now, whatever is reserved; until something ends or changes."""

    # What changes

    def set_node(self, node: CountedNode) -> None:
        self._free_now[node.name] += node.amount - self.nodes[node.name].amount
        self.nodes[node.name] = node
        self._profile.clear()
        self._choices.clear()
        self._names.clear()
        self._largest.clear()
        self._too_large.clear()

    def set_quota(self, name: str, limit: QuotaLimit) -> None:
        self.quotas[name] = limit
        self._too_large.clear()

    def add(self, run: Run) -> None:
        self.end(run.job.key)
        self.runs[run.job.key] = self._of[run.job.quota][run.job.key] = run
        for name, amount in run.places.items():
            self._on[name][run.job.key] = run
            self._free_now[name] -= amount
            self._used_now[run.job.quota] += amount
        self._lent[run.lender] += 1
        self._profile.clear()

    def end(self, key: str) -> None:
        run = self.runs.pop(key, None)
        if run is None:
            return
        del self._of[run.job.quota][key]
        for name, amount in run.places.items():
            del self._on[name][key]
            self._free_now[name] += amount
            self._used_now[run.job.quota] -= amount
        self._lent[run.lender] -= 1
        self._profile.clear()
        self._too_large.clear()

    def start(self, job: UnitAsk, places: Places, lender: str = "") -> None:
        self.add(Run(job, places, self.now, job.end_from(self.now), lender))
        for name in places:
            lent = [key for key, run in self._on[name].items() if run.lender == job.key]
            while self._free_now[name] < 0 and lent:
                self.evicted.append(lent[-1])
                self.end(lent.pop())

    # What is asked

    def fit(self, job: UnitAsk, reserved: Sequence[Reserved]) -> Places | None:
        shape = (job.pods, job.amount, job.quota, job.gathers, job.pool)
        has_lent = self._lent[job.key] > 0
        if shape in self._too_large and not has_lent:
            return None
        places = self._place(job, self.now, reserved)
        if places is None and not reserved and not has_lent:
            self._too_large.add(shape)
        return places

    def find_start(
        self, job: UnitAsk, reserved: Sequence[Reserved], until: int = FOREVER, since: int = 0
    ) -> Reserved | None:
        ends = {run.bound for run in self.runs.values()} | {other.end for other in reserved}
        last = min(until, FOREVER - 1)
        first = max(self.now, since)
        times = sorted(at for at in {first, *ends} if first <= at <= last)
        for start in self._find_possible(job, times, reserved):
            places = self._place_idling_least(job, start, reserved)
            return Reserved(job, start, job.end_from(start), places)
        return None

    def hold_open(
        self, job: UnitAsk, reserved: Sequence[Reserved], held: Reserved | None
    ) -> Reserved | None:
        kept = held.places if held else {}
        choices = [
            (-ready, due, name, places)
            for name, nodes in self.domains(job)
            if not held or set(kept) <= {node.name for node in nodes}
            if (choice := self._choose_open(job, nodes, reserved, kept)) is not None
            for ready, due, places in (choice,)
        ]
        if not choices:
            return None
        *_, places = min(choices)
        return Reserved(job, self.now, FOREVER, places, is_open=True)

    def is_possible(self, reserved: Reserved, beside: Sequence[Reserved]) -> bool:
        if reserved.start < self.now:
            return False
        room = self._room(reserved.job, reserved.start, beside)
        return self._is_within_quota(reserved.job, reserved.start, beside) and all(
            self.nodes[name].is_usable and room[name] >= amount
            for name, amount in reserved.places.items()
        )

    def ready(self, reserved: Reserved, beside: Sequence[Reserved] = ()) -> int:
        return sum(
            max(
                0,
                min(
                    amount,
                    self._free_now[name] - sum(other.places.get(name, 0) for other in beside),
                ),
            )
            for name, amount in reserved.places.items()
            if name in self.nodes
        )

    def fits_ever(self, job: UnitAsk) -> bool:
        shape = (job.amount, job.gathers, job.pool)
        if shape not in self._largest:
            self._largest[shape] = max(
                (
                    sum(node.amount // job.amount for node in nodes)
                    for _, nodes in self.domains(job)
                ),
                default=0,
            )
        return job.pods <= self._largest[shape] and job.total <= self.quotas[job.quota].max

    def gains_guarantee(self, job: UnitAsk, start: int, later: int) -> bool:
        most = self.quotas[job.quota].min - job.total
        return self.used(job.quota, later) <= most < self.used(job.quota, start)

    def competes(self, job: UnitAsk, other: UnitAsk) -> bool:
        return not self._nodes_of(job).isdisjoint(self._nodes_of(other))

    def capacity(self) -> int:
        return sum(node.amount for node in self.nodes.values())

    def free(self, name: str) -> int:
        """Return what is free of a node now."""
        return self._free_now[name]

    def used(self, quota: str, at: int) -> int:
        """Return what those use of a quota that have not ended by then."""
        if at <= self.now:
            return self._used_now[quota]
        runs = self._of[quota].values()
        return sum(sum(run.places.values()) for run in runs if run.bound > at)

    def domains(self, job: UnitAsk) -> list[_Domain]:
        """Return where all pods of a unit may be together: names, and usable nodes."""
        shape = (job.amount, job.gathers, job.pool)
        if shape not in self._choices:
            nodes = [node for node in self.nodes.values() if _takes(node, job)]
            if job.gathers:
                nodes.sort(key=lambda node: node.block)
                blocks = groupby(nodes, key=lambda node: node.block)
                self._choices[shape] = [(block, list(inside)) for block, inside in blocks]
            else:
                self._choices[shape] = [("", nodes)]
        return self._choices[shape]

    def _nodes_of(self, job: UnitAsk) -> frozenset[str]:
        shape = (job.amount, job.gathers, job.pool)
        if shape not in self._names:
            domains = self.domains(job)
            self._names[shape] = frozenset(node.name for _, nodes in domains for node in nodes)
        return self._names[shape]

    def _free_at(self, at: int, lender: str) -> dict[str, int]:
        """Return node -> what is free by then of what runs now; less than nothing if more is used.

        What is on loan counts as free for its lender.
        """
        lender = lender if self._lent[lender] > 0 else ""
        if at <= self.now and not lender:
            return self._free_now
        key = (max(at, self.now), lender)
        if key not in self._profile:
            free = self._profile[key] = dict(self._free_now)
            for run in self.runs.values():
                if self.now < run.bound <= at or (lender and run.lender == lender):
                    for name, amount in run.places.items():
                        free[name] += amount
        return self._profile[key]

    def _room(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> dict[str, int]:
        """Return the least room of each node from ``start`` until the unit has ended."""
        end = job.end_from(start)
        starts = {other.start for other in reserved if start < other.start < end}
        rooms = [self._room_at(at, job.key, reserved) for at in (start, *starts)]
        if len(rooms) == 1:
            return rooms[0]
        return dict(zip(rooms[0], map(min, *(room.values() for room in rooms)), strict=True))

    def _room_at(self, at: int, lender: str, reserved: Sequence[Reserved]) -> dict[str, int]:
        free = self._free_at(at, lender)
        there = [other.places for other in reserved if other.start <= at < other.end]
        if there:
            free = dict(free)
            for places in there:
                for name, amount in places.items():
                    free[name] -= amount
        return free

    def _is_within_quota(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> bool:
        end = job.end_from(start)
        mine = [other for other in reserved if other.job.quota == job.quota]
        limit = self.quotas[job.quota]
        lent = self._lent[job.key] and sum(
            sum(run.places.values())
            for run in self._of[job.quota].values()
            if run.lender == job.key
        )
        return all(
            self.used(job.quota, at) - lent + _total_reserved(at, mine) + job.total
            <= min(limit.runtime, limit.max)
            for at in (start, *(other.start for other in mine if start < other.start < end))
        )

    def _find_possible(
        self, job: UnitAsk, times: Sequence[int], reserved: Sequence[Reserved]
    ) -> Iterator[int]:
        """Yield the earliest of the times at which a unit can start, if there is one.

        Room only grows with time, except where something reserved begins or comes into reach.
        """
        limit = FOREVER if job.limit is None else job.limit
        edges = [(other.start, other.end, other.start - limit) for other in reserved]

        def stretch(time: int) -> tuple[int, ...]:
            return tuple(
                (time >= start) + (time >= end) + (time > reach) for start, end, reach in edges
            )

        for _, group in groupby(times, key=stretch):
            inside = list(group)
            if self._is_room(job, inside[-1], reserved):
                possible: Callable[[int], bool] = lambda at: self._is_room(job, at, reserved)  # noqa: E731
                yield inside[bisect_left(inside, True, hi=len(inside) - 1, key=possible)]
                return

    def _is_room(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> bool:
        if not self._is_within_quota(job, start, reserved):
            return False
        room = self._room(job, start, reserved)
        return any(
            sum(free // job.amount for node in nodes if (free := room[node.name]) >= job.amount)
            >= job.pods
            for _, nodes in self.domains(job)
        )

    def _place(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> Places | None:
        if not self._is_within_quota(job, start, reserved):
            return None
        room = self._room(job, start, reserved)
        for _, nodes in self.domains(job):
            places = _fill(job, [(room[node.name], node.name) for node in nodes])
            if places is not None:
                return places
        return None

    def _place_idling_least(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> Places:
        """Return the places that are idle for the least time before the start."""
        room = self._room(job, start, reserved)
        best = min(
            choice
            for _, nodes in self.domains(job)
            for choice in _combine(
                job,
                [
                    (node.name, room[node.name], self._idle_until(node.name, start))
                    for node in nodes
                    if room[node.name] >= job.amount
                ],
            )
        )
        return dict(best[-1])

    def _idle_until(self, name: str, start: int) -> Sequence[tuple[int, int]]:
        """Return (time left until ``start``, free from then on) of a node.

        What is reserved for others in the meantime counts as free: nobody knows whether it is used.
        """
        free, idle = self._free_now[name], Counter[int]()
        for run in self._on[name].values():
            if self.now < run.bound < start:
                idle[run.bound] += run.places[name]
        steps = [(start - self.now, free)]
        for at in sorted(idle):
            free += idle[at]
            steps.append((start - at, free))
        return steps

    def _choose_open(
        self, job: UnitAsk, nodes: Iterable[CountedNode], reserved: Sequence[Reserved], kept: Places
    ) -> tuple[int, int, Places] | None:
        """Return how many pods are ready, when all are expected to be, and where they go."""
        places: dict[str, int] = {}
        ready, left, due = 0, job.pods, self.now
        used: dict[str, list[tuple[int, int]]] = {
            node.name: [
                (self._expected_end(run), run.places[node.name])
                for run in self._on[node.name].values()
                if not run.lender or run.lender != job.key
            ]
            for node in nodes
        }
        for at in sorted({self.now, *(end for ends in used.values() for end, _ in ends)}):
            room = {
                name: self.nodes[name].amount
                - sum(amount for end, amount in ends if end > at)
                - _reserved_on(name, max(at, self.now), reserved)
                - places.get(name, 0)
                for name, ends in used.items()
                if at == self.now or reserved or any(end == at for end, _ in ends)
            }
            while left:
                name = min(
                    (name for name, free in room.items() if free >= job.amount),
                    key=lambda name: (
                        places.get(name, 0) >= kept.get(name, 0),
                        room[name],
                        name,
                    ),
                    default=None,
                )
                if name is None:
                    break
                places[name] = places.get(name, 0) + job.amount
                room[name] -= job.amount
                left -= 1
                due = at
                ready += at == self.now
            if not left:
                return ready, due, places
        return None

    def _expected_end(self, run: Run) -> int:
        if run.bound < FOREVER:
            return run.bound
        return self.now + max(self.now - run.start, self.least_remainder)


def _takes(node: CountedNode, job: UnitAsk) -> bool:
    return node.is_usable and node.amount >= job.amount and job.pool in {None, node.pool}


def _reserved_on(name: str, at: int, reserved: Iterable[Reserved]) -> int:
    return sum(other.places.get(name, 0) for other in reserved if other.start <= at < other.end)


def _total_reserved(at: int, reserved: Iterable[Reserved]) -> int:
    return sum(other.job.total for other in reserved if other.start <= at < other.end)


def _fill(job: UnitAsk, room: Iterable[tuple[int, str]]) -> Places | None:
    """Place pod by pod on the node with the least room that holds it: so one after the other."""
    places: dict[str, int] = {}
    left = job.pods
    for free, name in sorted(node for node in room if node[0] >= job.amount):
        pods = min(left, free // job.amount)
        places[name] = pods * job.amount
        left -= pods
        if not left:
            return places
    return None


_Choice = tuple[int, int, int, tuple[tuple[str, int], ...]]


def _combine(
    job: UnitAsk, nodes: Sequence[tuple[str, int, Sequence[tuple[int, int]]]]
) -> Iterator[_Choice]:
    """Yield the best way to place all pods: idle room * time, nodes, room left, places."""
    nodes = sorted(nodes, key=itemgetter(0))
    if all(room < 2 * job.amount for _, room, _ in nodes):
        yield from _choose_nodes(job, nodes)
        return
    best: dict[int, _Choice] = {0: (0, 0, 0, ())}
    for name, room, idle in nodes:
        for before, (idling, count, left, places) in sorted(best.items(), reverse=True):
            for pods in range(1, min(job.pods - before, room // job.amount) + 1):
                amount = pods * job.amount
                choice = (
                    idling + _idling(amount, idle),
                    count + 1,
                    left + room - amount,
                    (*places, (name, amount)),
                )
                if before + pods not in best or choice < best[before + pods]:
                    best[before + pods] = choice
    if job.pods in best:
        yield best[job.pods]


def _choose_nodes(
    job: UnitAsk, nodes: Sequence[tuple[str, int, Sequence[tuple[int, int]]]]
) -> Iterator[_Choice]:
    """Yield the same where each node holds one pod: the nodes can be judged one by one."""
    costs = sorted(
        (_idling(job.amount, idle), room - job.amount, name) for name, room, idle in nodes
    )[: job.pods]
    if len(costs) == job.pods:
        places = tuple((name, job.amount) for name in sorted(name for _, _, name in costs))
        idling, left = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
        yield idling, job.pods, left, places


def _idling(amount: int, idle: Sequence[tuple[int, int]]) -> int:
    """Return for how long which part of an amount is idle, given what is free for how long."""
    total = before = 0
    for time, free in idle:
        ready = max(before, min(amount, free))
        total += (ready - before) * time
        before = ready
    return total
