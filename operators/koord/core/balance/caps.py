"""How much one round may move: in all, per node, per namespace and per workload.

This counts what a round decides, also if it only advises, and ends with it. What really goes, for
whatever reason and within which time, is counted by ``core.eviction.limits``.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koord.core.balance.model import BalancePod, MoveCaps


class CapScope(StrEnum):
    """What a cap counts together; the values are the fields of a policy."""

    TOTAL = "total"
    NODE = "perNode"
    NAMESPACE = "perNamespace"
    WORKLOAD = "perWorkload"


_NAMES: Final[dict[CapScope, Callable[[BalancePod], str]]] = {
    CapScope.TOTAL: lambda _: "",
    CapScope.NODE: lambda pod: pod.node,
    CapScope.NAMESPACE: lambda pod: pod.namespace,
    CapScope.WORKLOAD: lambda pod: pod.workload or pod.uid,
}


@dataclass(slots=True)
class CountedMoves:
    """The moves of a round, against its caps."""

    caps: MoveCaps
    _counts: Counter[tuple[CapScope, str]] = field(default_factory=Counter)

    def find_hit(self, pod: BalancePod) -> CapScope | None:
        """Return the cap that keeps a pod from moving; the widest first."""
        most = {
            CapScope.TOTAL: self.caps.total,
            CapScope.NODE: self.caps.per_node,
            CapScope.NAMESPACE: self.caps.per_namespace,
            CapScope.WORKLOAD: self.caps.per_workload,
        }
        for scope, cap in most.items():
            if cap is not None and self._counts[scope, _NAMES[scope](pod)] + 1 > cap:
                return scope
        return None

    def note(self, pod: BalancePod) -> None:
        for scope, name_of in _NAMES.items():
            self._counts[scope, name_of(pod)] += 1
