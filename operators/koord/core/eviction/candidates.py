"""Candidates: the running units that may be evicted for a waiting unit, and why others may not.

A unit of eviction is a single pod, one member of a gang above its minimum, a whole gang with its
group, or a reservation. Only pods that we placed are candidates: other schedulers would place
theirs again at once. Whether evicting somebody helps is decided elsewhere.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from koord.core.engine.state import ClusterState
from koord.core.eviction.model import (
    ANY_MOMENT,
    Exempt,
    Moment,
    VictimKind,
    VictimUnit,
    rank_of,
)
from koord.core.eviction.protection import (
    SYSTEM_CRITICAL,
    find_lasting_protection,
    is_foreign,
    spares_gang,
)
from koord.core.eviction.reasons import Counts, Protection
from koord.core.gang.done import count_done
from koord.core.gang.group import Group
from koord.core.model.device_names import CARDS, GPU_CORE, GPU_MEMORY_RATIO, KOORD_GPU, WHOLE
from koord.core.model.gang_history import count_losses, count_preemptions
from koord.core.model.patience import FOREVER, Patience
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod, PodShape

ANY_PRIORITY: Final = 1 << 31
"""More than any pod has."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who may be evicted; ``protected`` counts the other pods of lower priority.

    ``running`` counts all pods on nodes, ``terminating`` are those that free their room anyway,
    ``hanging`` those that should have done so long ago, as ``patience`` says. In the namespaces
    that are ``suspect`` pods hang which were preempted for the same unit.
    """

    units: tuple[VictimUnit, ...]
    protected: Counts
    running: int
    terminating: tuple[Pod, ...]
    hanging: tuple[Pod, ...] = ()
    suspect: frozenset[str] = frozenset()
    patience: Patience = FOREVER

    @property
    def is_nobody(self) -> bool:
        """Whether nobody has a lower priority or leaves."""
        return not (self.units or self.protected or self.terminating or self.hanging)


def find_candidates(
    state: ClusterState, unit: Unit, exempt: Exempt, below: int | None = None
) -> Candidates:
    """Return the units that may be evicted for ``unit``: all their pods have a lower priority.

    With ``below``, they have a lower one than this instead.
    """
    return _Finder(state, unit, exempt, below).find()


def is_placed(pod: Pod) -> bool:
    """Whether a pod has a node, or was released to one."""
    is_released = pod.recorded is not None and not pod.is_gated
    return (bool(pod.node) or is_released) and not pod.phase.is_terminal


def find_surplus(
    state: ClusterState, gang: str, evictable: Iterable[Pod], terminating: Collection[str]
) -> list[Pod]:
    """Return the members above the minimum of a gang, the first victims first.

    Gangs with sub-groups or multiples do not lose members one by one, nor those that say so.
    """
    spec = state.gangs.spec(gang)
    if spec is None or spec.sub_groups is not None:
        return []
    if spec.native is not None and spec.native.is_disrupted_whole:
        return []
    if spec.topology is not None and spec.topology.multiples:
        return []
    tally, members = state.gangs.tally(gang), state.gangs.members(gang)
    leaving = sum(uid in terminating for uid in members)
    count = tally.placed - leaving + count_done(state.gangs, gang) - spec.min_member
    if count <= 0:
        return []
    return sorted(evictable, key=rank_of, reverse=True)[:count]


def find_protection(
    state: ClusterState, pod: Pod, moment: Moment = ANY_MOMENT
) -> Protection | None:
    """Return why a running pod must not be evicted, whatever its priority; None if it may be."""
    lasting = find_lasting_protection(state, pod)
    if lasting is not None:
        return lasting
    if pod.uid in state.assumed:
        return Protection.STARTING
    ran = moment.now - (pod.started or moment.now)
    return Protection.YOUNG if moment.min_runtime and ran < moment.min_runtime else None


def find_core_protection(
    state: ClusterState, core: Iterable[Pod], whys: Mapping[str, Protection | None]
) -> dict[str, Protection | None]:
    """Return why members of a gang must not be evicted with it, of ``whys`` they must not alone.

    Labels spare the whole ``core`` of a gang, all but its surplus, or nobody.
    """
    is_labelled = any(why is Protection.LABEL for why in whys.values())
    if not is_labelled or spares_gang(state, core):
        return dict(whys)
    return {uid: None if why is Protection.LABEL else why for uid, why in whys.items()}


def moment_of(state: ClusterState, gangs: Iterable[str], moment: Moment) -> Moment:
    """Return what spares the pods of a gang group: the more often it lost its place, the longer."""
    if not moment.min_runtime:
        return moment
    pod_groups = (state.gangs.pod_group(gang) for gang in gangs)
    losses = (
        count_losses(pod_group.history, moment.now, pod_group.key)
        for pod_group in pod_groups
        if pod_group is not None
    )
    return replace(moment, min_runtime=moment.min_runtime * 2 ** max(losses, default=0))


class _Finder:
    def __init__(
        self, state: ClusterState, unit: Unit, exempt: Exempt, below: int | None = None
    ) -> None:
        self._state = state
        lowest = min((pod.priority for pod in unit.pods), default=0)
        self._limit = lowest if below is None else below
        self._is_urgent = below is None and lowest >= SYSTEM_CRITICAL
        self._own = frozenset(demand.gang for demand in unit.demands) | {unit.key}
        self._moment = exempt.moment
        self._patience = exempt.patience
        self._exempt = exempt
        self._name = unit.group or unit.pods[0].title
        self._protected: Counter[Protection] = Counter()
        self._gpus: dict[PodShape, int] = {}

    def find(self) -> Candidates:
        units: list[VictimUnit] = []
        terminating: list[Pod] = []
        hanging: list[Pod] = []
        groups: dict[str, Group] = {}
        running, exempt = 0, self._exempt.terminating
        for pod in self._state.pods.values():
            if not pod.node or pod.phase.is_terminal:
                continue
            running += 1
            if pod.is_terminating or pod.uid in exempt:
                hangs = self._patience.hangs(pod, self._moment.now)
                (hanging if hangs else terminating).append(pod)
            elif pod.priority >= self._limit:
                continue
            elif pod.gang is None:
                units += self._find_single(pod)
            else:
                group = self._state.gangs.group(pod.gang.key)
                groups[group.id] = group
        for group in groups.values():
            units += self._split(group)
        protected = tuple((why, self._protected[why]) for why in Protection if self._protected[why])
        return Candidates(
            tuple(units),
            protected,
            running,
            tuple(terminating),
            tuple(hanging),
            frozenset(pod.namespace for pod in hanging if self._is_for_unit(pod)),
            self._patience,
        )

    def _is_for_unit(self, victim: Pod) -> bool:
        by = victim.preempted_by
        return by is not None and by.preemptor == self._name

    def _find_single(self, pod: Pod) -> Iterator[VictimUnit]:
        why = find_protection(self._state, pod, self._moment)
        if why is None and pod.uid in self._exempt.units:
            why = Protection.EXEMPT
        if why is not None:
            self._protected[why] += 1
            return
        is_reservation = pod.handling is Handling.RESERVE
        kind = VictimKind.RESERVATION if is_reservation else VictimKind.POD
        yield self._make(pod.uid, kind, (pod,))

    def _split(self, group: Group) -> Iterator[VictimUnit]:
        """Yield the surplus members of a group, then the whole group."""
        if not self._own.isdisjoint(group.gangs):
            return
        gangs = self._state.gangs
        placed = {gang: self._placed_members(gang) for gang in group.gangs}
        members = tuple(pod for pods in placed.values() for pod in pods)
        moment = moment_of(self._state, group.gangs, self._moment)
        whys = {pod.uid: find_protection(self._state, pod, moment) for pod in members}
        free = {
            gang: [p for p in pods if whys[p.uid] is None and p.priority < self._limit]
            for gang, pods in placed.items()
        }
        surplus, core = 0, {pod.uid: pod for pod in members}
        for gang, pods in free.items():
            for pod in find_surplus(self._state, gang, pods, self._exempt.terminating):
                del core[pod.uid]
                if pod.uid not in self._exempt.units:
                    surplus += 1
                    yield self._make(pod.uid, VictimKind.SURPLUS, (pod,), group.id)
        spared = self._find_spared(group)
        whys = find_core_protection(self._state, core.values(), whys)
        if members and self._may_end(members, whys) and spared is None:
            ended = sum(1 for gang in group.gangs if gangs.tally(gang).placed and placed[gang])
            yield self._make(group.id, VictimKind.GANG, members, group.id, ended)
            return
        self._count_core(members, whys, surplus, spared or Protection.GANG)

    def _make(
        self, key: str, kind: VictimKind, pods: tuple[Pod, ...], group: str = "", gangs: int = 0
    ) -> VictimUnit:
        return VictimUnit(
            key,
            kind,
            pods,
            max(pod.priority for pod in pods),
            sum(map(self._work_of, pods)),
            group,
            gangs,
            sum(map(self._patience.is_doubtful, pods)),
        )

    def _find_spared(self, group: Group) -> Protection | None:
        """Return why a group is spared as a whole, whatever its members say."""
        if group.id in self._exempt.units:
            return Protection.EXEMPT
        most, gangs = self._moment.max_per_day, self._state.gangs
        if not most or self._is_urgent:
            return None
        pod_groups = (gangs.pod_group(gang) for gang in group.gangs)
        is_often = any(
            count_preemptions(pod_group.history, self._moment.now, pod_group.key) >= most
            for pod_group in pod_groups
            if pod_group is not None
        )
        return Protection.OFTEN if is_often else None

    def _may_end(self, members: Sequence[Pod], whys: dict[str, Protection | None]) -> bool:
        """Whether a gang may be evicted as a whole; its oldest member says how long it has run."""
        is_young = all(why is Protection.YOUNG for why in whys.values())
        return all(
            pod.priority < self._limit
            and (whys[pod.uid] is None or (whys[pod.uid] is Protection.YOUNG and not is_young))
            for pod in members
        )

    def _count_core(
        self,
        members: Sequence[Pod],
        whys: dict[str, Protection | None],
        surplus: int,
        otherwise: Protection,
    ) -> None:
        """Count why the members of a gang that cannot be evicted as a whole are protected."""
        protections = [why for why in whys.values() if why is not None]
        self._protected.update(protections)
        spareable = sum(pod.priority < self._limit for pod in members) - len(protections) - surplus
        if spareable > 0:
            self._protected[otherwise] += spareable

    def _placed_members(self, gang: str) -> list[Pod]:
        """Return the members that go with a gang: whoever placed others may place them again."""
        placed = [
            pod
            for pod in self._state.gangs.members(gang).values()
            if is_placed(pod) and not pod.is_terminating and pod.uid not in self._exempt.terminating
        ]
        foreign = [pod for pod in placed if is_foreign(pod)]
        self._protected[Protection.FOREIGN] += sum(pod.priority < self._limit for pod in foreign)
        return [pod for pod in placed if not is_foreign(pod)]

    def _work_of(self, pod: Pod) -> int:
        """Return the seconds since its start or last checkpoint, times hundredths of GPUs."""
        gpus = self._gpus.get(pod.shape)
        if gpus is None:
            gpus = self._gpus[pod.shape] = _count_gpus(pod.shape)
        since = max(pod.started, pod.checkpointed)
        return gpus * max(0, int(self._moment.now - since)) if gpus and since else 0


def _count_gpus(shape: PodShape) -> int:
    """Return how many GPUs a shape requests, in hundredths."""
    requests = dict(shape.requests)
    cards = WHOLE * sum(requests.get(name, 0) for name in CARDS)
    shares = (requests.get(name, 0) for name in (KOORD_GPU, GPU_CORE, GPU_MEMORY_RATIO))
    return max(cards, *shares)
