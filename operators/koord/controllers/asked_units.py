"""Units of over-used quotas whose pods were asked to end by themselves before they are evicted.

All units of one plan wait for the last deadline among them, so that nobody is evicted while the
plan may still be cancelled: it is when the unit that benefits waits no longer, or, without one,
when the quota is not over any more. Nothing is written here. After a crash only the marks of pods
and what they wish for are known, and each unit waits for its own deadline.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from koord.core.engine.state import ClusterState
from koord.core.eviction.progress import find_deadline, grant_time
from koord.core.eviction.reclaim import Reclaim
from koord.core.model.plan import UnitKey
from koord.core.model.pods import Pod
from koord.core.quota.model import QuotaName

WANTED_SECONDS: Final = 5.0
"""A unit that is being planned or committed does not wait for as long."""

_Plan: TypeAlias = tuple[QuotaName, UnitKey]
"""The quota that is over, and the unit that benefits."""


class SoftEvictionAction(Enum):
    """What happens to marked pods now."""

    WAIT = auto()
    EVICT = auto()
    SPARE = auto()


@dataclass(slots=True)
class SoftEvictions:
    """``most_seconds`` is the longest time that anybody gets."""

    state: ClusterState
    most_seconds: float
    _units: dict[str, Reclaim] = field(default_factory=dict)
    _wanted: dict[_Plan, float] = field(default_factory=dict)
    """When each plan was last seen to be of use."""

    def grant(self, pod: Pod) -> float:
        """Return how many seconds a pod gets."""
        return grant_time(pod, self.most_seconds)

    def wants_time(self, units: Iterable[Reclaim]) -> bool:
        return any(self.grant(pod) for unit in units for pod in unit.pods)

    def note(self, unit: Reclaim, now: float) -> None:
        """Remember a unit whose pods are all marked."""
        self._units[unit.key] = unit
        self._wanted[_plan_of(unit)] = now

    def look(
        self, waiting: Collection[UnitKey], over: Collection[QuotaName], now: float
    ) -> list[Reclaim]:
        """Note which plans are still of use; return the units whose pods have all ended."""
        for quota, beneficiary in self._wanted:
            if beneficiary in waiting if beneficiary else quota in over:
                self._wanted[quota, beneficiary] = now
        ended = [unit for unit in self._units.values() if not self._alive((unit,))]
        for reclaim in ended:
            self._forget(reclaim)
        return ended

    @property
    def has_any(self) -> bool:
        return bool(self._units)

    def judge(self, pods: Sequence[Pod], now: float, wall_now: float) -> SoftEvictionAction:
        """Return what is to happen to marked pods of one unit."""
        unit = self._find(pods)
        if unit is not None and now > self._wanted[_plan_of(unit)] + WANTED_SECONDS:
            return SoftEvictionAction.SPARE
        if unit is not None:
            plan = _plan_of(unit)
            pods = self._alive(unit for unit in self._units.values() if _plan_of(unit) == plan)
        until = find_deadline(pods, self.most_seconds, wall_now)
        return SoftEvictionAction.WAIT if until > wall_now else SoftEvictionAction.EVICT

    def take(self, pods: Sequence[Pod]) -> Reclaim | None:
        """Forget the unit of some pods, and return it; None if nobody was asked."""
        unit = self._find(pods)
        if unit is not None:
            self._forget(unit)
        return unit

    def _forget(self, unit: Reclaim) -> None:
        del self._units[unit.key]
        if all(_plan_of(reclaim) != _plan_of(unit) for reclaim in self._units.values()):
            self._wanted.pop(_plan_of(unit), None)

    def _find(self, pods: Iterable[Pod]) -> Reclaim | None:
        uids = {pod.uid for pod in pods}
        units = self._units.values()
        return next((unit for unit in units if any(pod.uid in uids for pod in unit.pods)), None)

    def _alive(self, units: Iterable[Reclaim]) -> list[Pod]:
        pods = (self.state.pods.get(pod.uid) for unit in units for pod in unit.pods)
        return [pod for pod in pods if pod is not None and not pod.phase.is_terminal]


def _plan_of(unit: Reclaim) -> _Plan:
    return unit.over[0].quota, unit.beneficiary
