"""Which running units may move, and why others may not.

They are those that may be evicted, as the eviction domain says, of any priority: a moved pod gets
its new place before it loses the old. Besides, something has to create the pod again (a controller
that is no DaemonSet), and no disruption budget may be against it. Whether moving helps is decided
elsewhere.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import ANY_PRIORITY, find_candidates
from koord.core.eviction.model import Costs, Exempt, VictimKind, VictimUnit
from koord.core.eviction.reasons import Counts, Protection
from koord.core.model.plan import Unit
from koord.core.model.pods import Handling, Pod
from koord.core.reservation.model import NAME as RESERVATION
from koord.core.reservation.model import ReservationHints

_PINNED_KINDS: Final = frozenset({"DaemonSet", "Node"})
"""What creates pods for one node."""


@dataclass(frozen=True, slots=True)
class Movable:
    """The units that may move; ``protected`` counts the pods that may not."""

    units: tuple[VictimUnit, ...]
    protected: Counts
    terminating: tuple[Pod, ...]


def find_movable(state: ClusterState, unit: Unit, costs: Costs, exempt: Exempt) -> Movable:
    """Return the units that may move for ``unit``, the cheapest first."""
    candidates = find_candidates(state, unit, exempt, below=ANY_PRIORITY)
    protected = Counter(dict(candidates.protected))
    units = []
    for candidate in candidates.units:
        why = _find_obstacle(candidate, costs)
        if why is None:
            units.append(candidate)
        else:
            protected[why] += len(candidate.pods)
    counts = tuple((why, protected[why]) for why in Protection if protected[why])
    leaving = (*candidates.terminating, *candidates.hanging)
    return Movable(tuple(costs.sort(units)), counts, leaving)


def _find_obstacle(unit: VictimUnit, costs: Costs) -> Protection | None:
    if unit.kind is VictimKind.RESERVATION:
        return Protection.USED
    for pod in unit.pods:
        why = find_pod_obstacle(pod)
        if why is not None:
            return why
    return Protection.BUDGET if costs.count_violations(unit.pods) else None


def find_pod_obstacle(pod: Pod) -> Protection | None:
    """Return why a pod that may be evicted would not start again elsewhere; None if it would."""
    controller = next((owner for owner in pod.owners if owner.is_controller), None)
    if controller is None or not pod.node:
        return Protection.OWNERLESS
    if controller.kind in _PINNED_KINDS:
        return Protection.DAEMON
    hints = _hints_of(pod)
    return Protection.RESERVED if hints is not None and hints.has_affinity else None


def _hints_of(pod: Pod) -> ReservationHints | None:
    hints = (hints for name, hints in pod.extensions if name == RESERVATION)
    return next((hint for hint in hints if isinstance(hint, ReservationHints)), None)


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
