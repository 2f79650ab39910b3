"""Room in time by counts of one resource per node, for simulations of many units.

It knows topology blocks and pools, but no devices, queues or turns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from koord.core.queue.room import FOREVER, Places, Reserved, Run, UnitAsk

EXPECTED_AT_LEAST: Final = 60
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


@dataclass
class CountedRoom:
    """Nodes with counts of one resource, and quotas that are leaves."""

    nodes: dict[str, CountedNode]
    quotas: dict[str, QuotaLimit]
    now: int = 0
    runs: dict[str, Run] = field(default_factory=dict)

    def fit(self, job: UnitAsk, reserved: Sequence[Reserved]) -> Places | None:
        return self._place(job, self.now, reserved)

    def find_start(self, job: UnitAsk, reserved: Sequence[Reserved]) -> Reserved | None:
        ends = {run.bound for run in self.runs.values()} | {other.end for other in reserved}
        for start in sorted({self.now, *(end for end in ends if self.now < end < FOREVER)}):
            if self._place(job, start, reserved) is not None:
                places = self._place_idling_least(job, start, reserved)
                return Reserved(job, start, job.end_from(start), places)
        return None

    def hold_open(
        self, job: UnitAsk, reserved: Sequence[Reserved], held: Reserved | None
    ) -> Reserved | None:
        kept = held.places if held else {}
        choices = [
            (-ready, due, name, places)
            for name, nodes in self._domains(job)
            if (choice := self._choose_open(job, nodes, reserved, kept)) is not None
            for ready, due, places in (choice,)
            if not held or set(kept) <= {node.name for node in nodes}
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
            room.get(name, 0) >= amount for name, amount in reserved.places.items()
        )

    def ready(self, reserved: Reserved, beside: Sequence[Reserved] = ()) -> int:
        return sum(
            max(
                0,
                min(
                    amount,
                    self._free(self.nodes[name], self.now)
                    - sum(other.places.get(name, 0) for other in beside),
                ),
            )
            for name, amount in reserved.places.items()
            if name in self.nodes
        )

    def fits_ever(self, job: UnitAsk) -> bool:
        if job.total > self.quotas[job.quota].max:
            return False
        return any(
            sum(node.amount // job.amount for node in nodes) >= job.pods
            for _, nodes in self._domains(job)
        )

    def competes(self, job: UnitAsk, other: UnitAsk) -> bool:
        return bool(self._nodes_of(job) & self._nodes_of(other))

    def capacity(self) -> int:
        return sum(node.amount for node in self.nodes.values())

    def start(self, job: UnitAsk, places: Places) -> None:
        self.runs[job.key] = Run(job, places, self.now, job.end_from(self.now))

    def used(self, quota: str, at: int) -> int:
        """Return what those use of a quota that have not ended by then."""
        return sum(
            sum(run.places.values())
            for run in self.runs.values()
            if run.job.quota == quota and run.bound > at
        )

    def _domains(self, job: UnitAsk) -> Iterator[tuple[str, list[CountedNode]]]:
        nodes = [node for node in self.nodes.values() if _takes(node, job)]
        if not job.gathers:
            yield "", nodes
            return
        for block in sorted({node.block for node in nodes}):
            yield block, [node for node in nodes if node.block == block]

    def _nodes_of(self, job: UnitAsk) -> set[str]:
        return {node.name for _, nodes in self._domains(job) for node in nodes}

    def _free(self, node: CountedNode, at: int) -> int:
        """Return what is free by then of what runs now; less than nothing if more is used."""
        used = sum(run.places.get(node.name, 0) for run in self.runs.values() if run.bound > at)
        return node.amount - used

    def _room(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> dict[str, int]:
        """Return the least room of each node from ``start`` until the unit has ended."""
        end = job.end_from(start)
        times = [start, *(other.start for other in reserved if start < other.start < end)]
        return {
            node.name: min(
                self._free(node, at) - _reserved_on(node.name, at, reserved) for at in times
            )
            for _, nodes in self._domains(job)
            for node in nodes
        }

    def _is_within_quota(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> bool:
        end = job.end_from(start)
        mine = [other for other in reserved if other.job.quota == job.quota]
        limit = self.quotas[job.quota]
        return all(
            self.used(job.quota, at) + _total_reserved(at, mine) + job.total
            <= min(limit.runtime, limit.max)
            for at in (start, *(other.start for other in mine if start < other.start < end))
        )

    def _place(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> Places | None:
        if not self._is_within_quota(job, start, reserved):
            return None
        room = self._room(job, start, reserved)
        for _, nodes in self._domains(job):
            places = _fill(job, {node.name: room[node.name] for node in nodes})
            if places is not None:
                return places
        return None

    def _place_idling_least(self, job: UnitAsk, start: int, reserved: Sequence[Reserved]) -> Places:
        """Return the places that are idle for the least time before the start."""
        room = self._room(job, start, reserved)
        best = min(
            (
                choice
                for _, nodes in self._domains(job)
                for choice in _combine(
                    job,
                    [(node.name, room[node.name], self._idle_until(node, start)) for node in nodes],
                )
            ),
        )
        return dict(best[-1])

    def _idle_until(self, node: CountedNode, start: int) -> Sequence[tuple[int, int]]:
        """Return (time left until ``start``, free from then on) of a node.

        What is reserved for others in the meantime counts as free: nobody knows whether it is used.
        """
        ends = {
            run.bound
            for run in self.runs.values()
            if node.name in run.places and self.now < run.bound < start
        }
        return [(start - at, self._free(node, at)) for at in sorted({self.now, *ends})]

    def _choose_open(
        self, job: UnitAsk, nodes: Iterable[CountedNode], reserved: Sequence[Reserved], kept: Places
    ) -> tuple[int, int, Places] | None:
        """Return how many pods are ready, when all are expected to be, and where they go."""
        places: dict[str, int] = {}
        ready = 0
        due = self.now
        expected = {
            key: replace(run, bound=self._expected_end(run)) for key, run in self.runs.items()
        }
        ends = sorted({self.now, *(run.bound for run in expected.values())})
        left = job.pods
        for at in ends:
            room = {
                node.name: node.amount
                - sum(run.places.get(node.name, 0) for run in expected.values() if run.bound > at)
                - _reserved_on(node.name, max(at, self.now), reserved)
                - places.get(node.name, 0)
                for node in nodes
            }
            while left:
                name = min(
                    (name for name, free in room.items() if free >= job.amount),
                    key=lambda name: (name not in kept, room[name], name),
                    default=None,
                )
                if name is None:
                    break
                places[name] = places.get(name, 0) + job.amount
                room[name] -= job.amount
                left -= 1
                due = at
                ready += at == self.now
        return None if left else (ready, due, places)

    def _expected_end(self, run: Run) -> int:
        if run.bound < FOREVER:
            return run.bound
        return self.now + max(self.now - run.start, EXPECTED_AT_LEAST)


def _takes(node: CountedNode, job: UnitAsk) -> bool:
    return node.is_usable and node.amount >= job.amount and job.pool in {None, node.pool}


def _reserved_on(name: str, at: int, reserved: Iterable[Reserved]) -> int:
    return sum(other.places.get(name, 0) for other in reserved if other.start <= at < other.end)


def _total_reserved(at: int, reserved: Iterable[Reserved]) -> int:
    return sum(other.job.total for other in reserved if other.start <= at < other.end)


def _fill(job: UnitAsk, room: dict[str, int]) -> Places | None:
    """Place pod by pod on the node with the least room that holds it."""
    places: dict[str, int] = {}
    for _ in range(job.pods):
        name = min(
            (name for name, free in room.items() if free >= job.amount),
            key=lambda name: (room[name], name),
            default=None,
        )
        if name is None:
            return None
        room[name] -= job.amount
        places[name] = places.get(name, 0) + job.amount
    return places


_Choice = tuple[int, int, int, tuple[tuple[str, int], ...]]


def _combine(
    job: UnitAsk, nodes: Sequence[tuple[str, int, Sequence[tuple[int, int]]]]
) -> Iterator[_Choice]:
    """Yield the best way to place all pods: idle room * time, nodes, room left, places."""
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


def _idling(amount: int, idle: Sequence[tuple[int, int]]) -> int:
    """Return for how long which part of an amount is idle, given what is free for how long."""
    total = before = 0
    for time, free in idle:
        ready = max(before, min(amount, free))
        total += (ready - before) * time
        before = ready
    return total
