"""Which running units may move, and why others may not.

They are those that may be evicted, as the eviction domain says, of any priority: a moved pod gets
its new place before it loses the old. Besides, a job has to be able to move the pod
(``core/eviction/mobility.py``), and no disruption budget may be against it. Whether moving helps is
decided elsewhere.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import ANY_PRIORITY, find_candidates
from koord.core.eviction.mobility import Mobility, protection_of
from koord.core.eviction.model import Costs, Exempt, VictimKind, VictimUnit
from koord.core.eviction.reasons import Counts, Protection
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.reservation.model import NAME as RESERVATION
from koord.core.reservation.model import ReservationHints


@dataclass(frozen=True, slots=True)
class Movable:
    """The units that may move; ``protected`` counts the pods that may not."""

    units: tuple[VictimUnit, ...]
    protected: Counts
    terminating: tuple[Pod, ...]


def find_movable(
    state: ClusterState, unit: Unit, costs: Costs, exempt: Exempt, mobility: Mobility
) -> Movable:
    """Return the units that may move for ``unit``, the cheapest first."""
    candidates = find_candidates(state, unit, exempt, below=ANY_PRIORITY)
    protected = Counter(dict(candidates.protected))
    units = []
    for candidate in candidates.units:
        why = _find_obstacle(candidate, costs, mobility)
        if why is None:
            units.append(candidate)
        else:
            protected[why] += len(candidate.pods)
    counts = tuple((why, protected[why]) for why in Protection if protected[why])
    leaving = (*candidates.terminating, *candidates.hanging)
    return Movable(tuple(costs.sort(units)), counts, leaving)


def _find_obstacle(unit: VictimUnit, costs: Costs, mobility: Mobility) -> Protection | None:
    if unit.kind is VictimKind.RESERVATION:
        return Protection.USED
    is_alone = unit.kind is not VictimKind.GANG
    for pod in unit.pods:
        why = mobility.find_obstacle(pod, is_alone=is_alone)
        if why is not None:
            return why if isinstance(why, Protection) else protection_of(why)
    return Protection.BUDGET if costs.count_violations(unit.pods) else None


def make_copies(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return, for each pod, what is planned to reserve its new place.

    It is a pod of its own beside the old one, and takes no room of other reservations.
    """
    return tuple(map(_copy, pods))


def _copy(pod: Pod) -> Pod:
    extensions = [(name, extension) for name, extension in pod.extensions if name != RESERVATION]
    alone = (RESERVATION, ReservationHints(is_ignoring=True))
    return replace(
        pod,
        uid=f"{pod.uid}:moved",
        node="",
        recorded=None,
        pinned=False,
        nominated=None,
        handling=Handling.RESERVE,
        allocations=(),
        extensions=tuple(sorted((*extensions, alone), key=lambda pair: pair[0])),
    )
