"""Which batch pods leave nodes on which prod pods need their room: the lowest first, one at a time.

Batch pods run on what prod pods leave. When those need it back, Kubernetes evicts nobody: it only
offers less. A node is *short* while it uses too much of its memory, or once its batch pods have
requested more than it offers for a while. Of a short node one unit goes, a pod or a gang as a
whole, and then nobody for half a minute after it was seen to leave. What is about to leave, or has
left and is still in the averages of reports, does not count as used: so no more go than needed.

Values only. Which pods are batch pods, and which may be evicted, is decided elsewhere. Amounts are
in the units of ``core.model.units``; times are seconds of the caller's.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from typing import Final, TypeAlias

from koord.core.balance.outcome import MoveRefusal
from koord.core.model.units import MEMORY, Amounts, approximate

LOOK_SECONDS: Final = 10.0
"""How often short nodes are looked for."""
PAUSE_SECONDS: Final = 30.0
"""How long nobody else leaves a node after a unit was seen to leave it."""
MEMORY_THRESHOLD: Final = 65.0
"""Five points below what Koordinator's agent evicts from, because reports are late."""
MOST_REMEMBERED: Final = 200
"""No more pods go while so many are remembered; a status holds no more."""
_FORGOTTEN_SECONDS: Final = 3600.0
"""When pods are forgotten that have left a node of which nobody reports anything any more."""


@dataclass(frozen=True, slots=True)
class BatchReclaimRules:
    """When a node is short; ``overcommit_grace`` None: never by what it offers."""

    memory_threshold: float = MEMORY_THRESHOLD
    """Percentage of its memory from which on a node is short."""
    overcommit_grace: float | None = None
    """For how many seconds batch pods may request more than is offered."""


class ShortageCause(StrEnum):
    """Why a node is short; the first is looked at first."""

    MEMORY = "Memory"
    OVERCOMMIT = "Overcommit"


@dataclass(frozen=True, slots=True)
class NodeShortage:
    """What a node has too little of: ``used`` by all that stays, and the ``most`` that may be."""

    node: str
    cause: ShortageCause
    resource: str
    used: int
    most: int
    capacity: int = 0
    """What ``most`` is a part of."""

    @property
    def excess(self) -> int:
        return self.used - self.most

    def text(self) -> str:
        if self.cause is ShortageCause.MEMORY:
            percent = 100 * self.used / max(self.capacity, 1)
            limit = 100 * (self.most + 1) / max(self.capacity, 1)
            return (
                f"the node uses {percent:.1f} % of its memory; batch pods leave from {limit:g} % on"
            )
        used, most = (approximate(self.resource, amount) for amount in (self.used, self.most))
        return f"batch pods request {used} {self.resource} of the node, which offers {most}"


def find_memory_shortage(
    node: str, used: int, capacity: int, threshold: float
) -> NodeShortage | None:
    """Return what a node uses too much of its memory; None if it is not short."""
    most = ceil(threshold * capacity / 100) - 1
    if capacity <= 0 or used <= most:
        return None
    return NodeShortage(node, ShortageCause.MEMORY, MEMORY, used, most, capacity)


@dataclass(frozen=True, slots=True)
class BatchPod:
    """A batch pod on a node: the memory that it uses, and the batch resources that it requests."""

    uid: str
    namespace: str
    name: str
    node: str
    memory: int = 0
    requests: Amounts = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def frees(self, shortage: NodeShortage) -> int:
        """Return how much of what its node has too little of is free without it."""
        if self.node != shortage.node:
            return 0
        is_memory = shortage.cause is ShortageCause.MEMORY
        return self.memory if is_memory else self.requests.get(shortage.resource, 0)


@dataclass(frozen=True, slots=True)
class BatchUnit:
    """Batch pods that leave together or not at all: a pod, or a gang.

    ``rank`` says who leaves first, by class and priority: the lowest.
    """

    key: str
    pods: tuple[BatchPod, ...]
    rank: tuple[int, ...] = ()
    is_gang: bool = False
    created: float = 0.0

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(pod.node for pod in self.pods)

    def frees(self, shortage: NodeShortage) -> int:
        return sum(pod.frees(shortage) for pod in self.pods)

    def order_for(self, shortage: NodeShortage) -> tuple[object, ...]:
        """Return the sort key of units: of equal ones a single pod, the largest, the newest."""
        return self.rank, self.is_gang, -self.frees(shortage), -self.created, self.key


@dataclass(frozen=True, slots=True)
class BatchEviction:
    """A unit that leaves, and why."""

    unit: BatchUnit
    shortage: NodeShortage


@dataclass(frozen=True, slots=True)
class HeldUnit:
    """A unit of a short node that does not leave, and the first rule that keeps it."""

    unit: BatchUnit
    node: str
    refusal: MoveRefusal


@dataclass(slots=True)
class ReclaimOutcome:
    """What a look decides. ``pausing`` are short nodes that nobody leaves at the moment."""

    shortages: tuple[NodeShortage, ...] = ()
    reclaims: list[BatchEviction] = field(default_factory=list)
    held: list[HeldUnit] = field(default_factory=list)
    pausing: set[str] = field(default_factory=set)


Refuse: TypeAlias = Callable[[BatchUnit, Sequence[BatchEviction]], MoveRefusal | None]
"""Returns why a unit may not be evicted, after others of the same look."""


def choose(
    shortages: Sequence[NodeShortage],
    units: Iterable[BatchUnit],
    pausing: Collection[str],
    refuse: Refuse,
    most: int = MOST_REMEMBERED,
) -> ReclaimOutcome:
    """Decide who leaves now: at most one unit of each node, and ``most`` pods in all."""
    return _Choice(shortages, units, pausing, refuse, most).run()


class _Choice:
    def __init__(
        self,
        shortages: Sequence[NodeShortage],
        units: Iterable[BatchUnit],
        pausing: Collection[str],
        refuse: Refuse,
        most: int,
    ) -> None:
        self._refuse = refuse
        self._most = most
        self._left = {shortage: shortage.excess for shortage in shortages}
        self._short: dict[str, list[NodeShortage]] = {}
        for shortage in shortages:
            self._short.setdefault(shortage.node, []).append(shortage)
        self._pausing = set(pausing)
        self._going: set[str] = set()
        self._outcome = ReclaimOutcome(tuple(shortages))
        self._units: dict[str, list[BatchUnit]] = {}
        for unit in units:
            for node in unit.nodes:
                self._units.setdefault(node, []).append(unit)

    def run(self) -> ReclaimOutcome:
        order = {cause: at for at, cause in enumerate(ShortageCause)}
        for shortage in sorted(
            self._left, key=lambda short: (short.node, order[short.cause], short.resource)
        ):
            if len(self._going) >= self._most:
                break
            if shortage.node in self._pausing:
                self._outcome.pausing.add(shortage.node)
            elif self._left[shortage] > 0:
                self._relieve(shortage)
        return self._outcome

    def _relieve(self, shortage: NodeShortage) -> None:
        units = [unit for unit in self._units.get(shortage.node, ()) if unit.frees(shortage) > 0]
        for unit in sorted(units, key=lambda unit: unit.order_for(shortage)):
            if not self._going.isdisjoint(pod.uid for pod in unit.pods):
                continue
            if len(self._going) + len(unit.pods) > self._most:
                continue
            if not unit.nodes.isdisjoint(self._pausing):
                self._outcome.pausing.add(shortage.node)
                continue
            refusal = self._refuse(unit, self._outcome.reclaims)
            if refusal is None:
                self._take(BatchEviction(unit, shortage))
                return
            self._outcome.held.append(HeldUnit(unit, shortage.node, refusal))

    def _take(self, reclaim: BatchEviction) -> None:
        self._outcome.reclaims.append(reclaim)
        self._going.update(pod.uid for pod in reclaim.unit.pods)
        self._pausing |= reclaim.unit.nodes
        for shortage in (
            short for node in reclaim.unit.nodes for short in self._short.get(node, ())
        ):
            self._left[shortage] -= reclaim.unit.frees(shortage)


@dataclass(frozen=True, slots=True)
class PastReclaim:
    """A pod that was to leave a node; ``left``: when it was first seen to, 0 before."""

    uid: str
    pod: str
    node: str
    memory: int
    at: float
    left: float = 0.0


@dataclass(frozen=True, slots=True)
class SeenReport:
    """When the report on a node was made, and over how many seconds it is averaged."""

    updated: float
    window: float

    def shows(self, past: PastReclaim) -> bool:
        """Whether nothing of a pod that has left is in it any more."""
        return bool(past.left) and self.updated - self.window >= past.left


@dataclass(slots=True)
class ReclaimPast:
    """What looks remember of earlier ones; a status keeps it over a restart."""

    overcommitted: dict[str, float] = field(default_factory=dict)
    """Since when batch pods request more of a node than it offers, all the time."""
    reclaims: list[PastReclaim] = field(default_factory=list)

    def observe(
        self,
        now: float,
        staying: Callable[[PastReclaim], bool],
        is_over: Callable[[PastReclaim], bool],
        reports: Mapping[str, SeenReport],
    ) -> None:
        """Note who has left, and forget what counts no longer.

        ``staying``: the pod is there and not about to end. ``is_over``: nothing evicts it any more.
        """
        kept = []
        for past in self.reclaims:
            if staying(past):
                if not is_over(past):
                    kept.append(replace(past, left=0.0))
                continue
            left = past if past.left else replace(past, left=now)
            if not self._is_settled(left, now, reports.get(left.node)):
                kept.append(left)
        self.reclaims = kept

    @staticmethod
    def _is_settled(past: PastReclaim, now: float, report: SeenReport | None) -> bool:
        if now < past.left + PAUSE_SECONDS:
            return False
        return now >= past.left + _FORGOTTEN_SECONDS or (report is not None and report.shows(past))

    def pausing(self, now: float) -> set[str]:
        """Return the nodes that nobody else leaves now."""
        return {
            past.node for past in self.reclaims if not past.left or now < past.left + PAUSE_SECONDS
        }

    def freed(self, node: str, is_gone: Callable[[PastReclaim], bool], report: SeenReport) -> int:
        """Return the memory of pods that have gone, and are in the averages of a report still."""
        return sum(
            past.memory
            for past in self.reclaims
            if past.node == node and is_gone(past) and not report.shows(past)
        )

    def note(self, reclaim: BatchEviction, now: float) -> None:
        """Note that a unit is to leave."""
        self.reclaims += [
            PastReclaim(pod.uid, pod.key, pod.node, pod.memory, now) for pod in reclaim.unit.pods
        ]

    def note_overcommitted(self, nodes: Iterable[str], now: float) -> None:
        """Note the nodes of which too much is requested now; of all others it is over."""
        self.overcommitted = {node: self.overcommitted.get(node, now) for node in nodes}
