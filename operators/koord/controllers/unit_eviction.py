"""Evicts units: pods that go together or not at all.

All pods of a unit are marked before the first is evicted. A marked pod counts as terminating, so
that no replacement joins its gang; the mark survives a crash, so that the next leader completes the
eviction. Who is evicted, and what is written as the mark, is the caller's.

``SoftEvictions`` are units of over-used quotas whose pods were asked to end by themselves first.

All units of one plan wait for the last deadline among them, so that nobody is evicted while the
plan may still be cancelled: it is when the unit that benefits waits no longer, or, without one,
when the quota is not over any more. They write nothing. After a crash only the marks of pods and
what they wish for are known, and each unit waits for its own deadline.

``BudgetGrace``: units of over-used quotas that disruption budgets protect, until when, and what is
written about it.

A budget is written by the owner of the pods. So it delays what others are entitled to, and does not
prevent it: a unit that has been protected for the grace period, and in whose stead no other may go,
goes whatever its budgets say. Since when it is protected is a condition of its pods, so a restart
changes nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from koord.core.engine.state import ClusterState
from koord.core.eviction.progress import find_deadline, grant_time
from koord.core.eviction.reclaim import Reclaim
from koord.core.model.plan import UnitKey
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import format_time
from koord.core.quota.model import QuotaName
from koord.kube.evictor import Eviction

T = TypeVar("T")
Evict: TypeAlias = Callable[[Pod], Awaitable[Eviction]]

MOST_AT_ONCE: Final = 64
"""Requests of one eviction in flight."""


@dataclass(slots=True)
class UnitEvictions:
    """``evict`` ends one pod; ``counts`` has the outcomes so far."""

    state: ClusterState
    evict: Evict
    counts: Counter[Eviction] = field(default_factory=Counter)
    evicted: set[str] = field(default_factory=set)
    """uids of evicted pods until the watch confirms it."""

    def forget_confirmed(self) -> None:
        pods = self.state.pods
        current = ((uid, pods.get(uid)) for uid in self.evicted)
        # A reservation loses its node, and waits for another.
        self.evicted = {uid for uid, pod in current if pod and pod.node and not pod.gone_by}

    async def mark_each(
        self, pods: Iterable[Pod], mark: Callable[[Pod], Awaitable[bool]]
    ) -> list[Pod]:
        """Mark pods; return those that could not be marked."""
        pods = list(pods)
        results = await write_each(mark, pods)
        return [pod for pod, is_marked in zip(pods, results, strict=True) if not is_marked]

    async def evict_all(self, pods: Sequence[Pod], by: Evict | None = None) -> Eviction:
        """Evict marked pods of one unit, unless the first is denied; return its outcome.

        ``by`` ends them in another way than usual. What is left is the caller's.
        """
        end = partial(self._evict, by=by)
        first, *remaining = pods
        outcome = await end(first)
        if not outcome.is_denied:
            await write_each(end, remaining)
        return outcome

    async def evict_each(self, pods: Iterable[Pod]) -> list[Pod]:
        """Evict marked pods of many units; return those that the server refuses to evict."""
        marked = list(pods)
        outcomes = await write_each(self._evict, marked)
        return [pod for pod, outcome in zip(marked, outcomes, strict=True) if outcome.is_denied]

    async def _evict(self, pod: Pod, by: Evict | None = None) -> Eviction:
        outcome = await (by or self.evict)(pod)
        self.counts[outcome] += 1
        if outcome.is_done:
            self.evicted.add(pod.uid)
        return outcome


async def write_each(call: Callable[[Pod], Awaitable[T]], pods: Iterable[Pod]) -> list[T]:
    """Write to pods, a bounded number at once; return the outcomes in order."""
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def do(pod: Pod) -> T:
        async with slots:
            return await call(pod)

    return list(await asyncio.gather(*map(do, pods)))


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
        for unit in ended:
            self._forget(unit)
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
        if all(_plan_of(other) != _plan_of(unit) for other in self._units.values()):
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


CANCELLED: Final = "not evicted: nobody needs its room any more"


class ProtectionWriter(Protocol):
    """Writes the condition; see ``Evictor``."""

    async def protect(self, pod: Pod, text: str, since: float) -> bool: ...
    async def unmark(self, pod: Pod, cancelled: str = "") -> bool: ...


@dataclass(slots=True)
class BudgetGrace:
    """``seconds`` is how long budgets protect; ``tell`` says why a unit is to go."""

    state: ClusterState
    writer: ProtectionWriter
    wall_clock: Callable[[], float]
    seconds: float
    tell: Callable[[Reclaim], str]

    def since(self, unit: Reclaim) -> float:
        """Return since when budgets protect a unit; 0: they do not yet."""
        pods = (self.state.pods.get(pod.uid) for pod in unit.pods)
        return min((pod.protected for pod in pods if pod and pod.protected), default=0.0)

    async def note(self, units: Sequence[Reclaim]) -> list[Reclaim]:
        """Write since when units are protected; return those whose time is over."""
        now = self.wall_clock()
        for unit in units:
            await self.restore(unit, self.since(unit) or now, is_missing_only=True)
        return [
            unit for unit in units if (since := self.since(unit)) and now > since + self.seconds
        ]

    async def restore(self, unit: Reclaim, since: float, *, is_missing_only: bool = False) -> None:
        """Write on the pods of a unit that they are protected since then."""
        text = self.write(unit, since)
        pods = [self.state.pods.get(pod.uid, pod) for pod in unit.pods]
        await asyncio.gather(
            *(
                self.writer.protect(pod, text, since)
                for pod in pods
                if pod.handling is not Handling.RESERVE and not (is_missing_only and pod.protected)
            )
        )

    def write(self, unit: Reclaim, since: float) -> str:
        return (
            f"{self.tell(unit).rstrip('.')}. PodDisruptionBudgets protect it until "
            f"{format_time(since + self.seconds)}; then it is evicted whatever they say"
        )

    async def retract(self, is_over: Callable[[QuotaName], bool]) -> None:
        """Take back what was written on pods of quotas from which nothing is wanted any more."""
        marked = (self.state.pods[uid] for uid in sorted(self.state.protected))
        pods = [pod for pod in marked if pod.is_alive]
        gone = [pod for pod in pods if not is_over(self.state.quotas.quota_of(pod))]
        await asyncio.gather(*(self.writer.unmark(pod, CANCELLED) for pod in gone))
