"""Values of preemption: units of eviction, what they cost, and the plan that needs them.

All values are immutable. Who may be evicted and who is chosen is decided elsewhere; nothing here
knows nodes, clocks or writes.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koord.core.model.patience import FOREVER, Patience
from koord.core.model.plan import Placement, UnitKey
from koord.core.model.pods import Pod


class VictimKind(StrEnum):
    """What is evicted together."""

    POD = "Pod"
    """A pod without a gang."""
    SURPLUS = "Surplus"
    """One member of a gang above its minimum; the gang goes on."""
    GANG = "Gang"
    """All members of a gang, and of the gangs of its group."""
    RESERVATION = "Reservation"


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Pods that are evicted together or not at all.

    ``key`` is the uid of the pod, or the id of the group for a whole gang. ``group`` is the id of
    the group, ``gangs`` how many gangs of it have members on nodes; empty and 0 for other pods.
    ``priority`` is the highest of its pods. ``doubts`` are pods that may stay long after their
    deletion. ``work`` are the seconds of hundredths of GPUs that are lost.
    """

    key: str
    kind: VictimKind
    pods: tuple[Pod, ...]
    priority: int = 0
    work: int = 0
    group: str = ""
    gangs: int = 0
    doubts: int = 0

    @property
    def name(self) -> str:
        """What users call it: the pod, the reservation, or the gangs of the group."""
        return self.group if self.kind is VictimKind.GANG else self.pods[0].title


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a set of victims costs; the first difference decides.

    ``violations`` are pods whose eviction a PodDisruptionBudget does not allow, ``gangs`` those
    that are evicted as a whole, ``priority`` the highest among the victims, ``doubts`` those that
    may stay long after their deletion. These come after the priority: otherwise a finalizer would
    protect a pod at the cost of others. Where the preemptor goes is more important than how many
    ``nodes`` lose pods.
    """

    violations: int
    gangs: int
    priority: int
    doubts: int
    work: int
    pods: int
    jobs: int
    nodes: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of the victims.

    ``is_minimal``: without any one of them the preemptor does not fit. ``is_cheapest``: there are
    no victims that cost less. Both are unknown (False) if the search ran out of ``steps``.
    """

    is_minimal: bool
    is_cheapest: bool
    steps: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """Other victims that were considered, and cost more."""

    victims: tuple[VictimUnit, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Preemption:
    """The victims of a preemptor, and where its pods go once they are gone.

    There are no victims if it fits by now.
    """

    preemptor: UnitKey
    victims: tuple[VictimUnit, ...]
    placement: Placement
    cost: Cost
    certificate: Certificate
    alternatives: tuple[Alternative, ...] = ()

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods to evict."""
        return tuple(pod for unit in self.victims for pod in unit.pods)


@dataclass(frozen=True, slots=True)
class Moment:
    """The time, in seconds since the epoch, and what spares running units then.

    A pod may run undisturbed for ``min_runtime`` seconds; each time that others took the place of a
    gang within a day doubles it for that gang. A gang that was preempted ``max_per_day`` times
    within a day is spared, except by units of a system priority; 0 spares none.
    """

    now: float = 0.0
    min_runtime: float = 0.0
    max_per_day: int = 0


ANY_MOMENT: Final = Moment()


@dataclass(frozen=True, slots=True)
class Exempt:
    """Units (by key) that must not be evicted, and pods (by uid) that are being evicted.

    ``patience`` says until when room is counted on that is being left; ``moment`` is what spares
    units for a time.
    """

    units: Collection[str] = ()
    terminating: Collection[str] = ()
    patience: Patience = FOREVER
    moment: Moment = ANY_MOMENT


NOBODY: Final = Exempt()
