"""Units of over-used quotas that disruption budgets protect: until when, and who is told.

A budget is written by the owner of the pods. So it delays what others are entitled to, and does not
prevent it: a unit that has been protected for the grace period, and in whose stead no other may go,
goes whatever its budgets say. Since when it is protected is a condition of its pods, so a restart
changes nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koord.core.engine.state import ClusterState
from koord.core.eviction.reclaim import Reclaim
from koord.core.model.pods import Handling, Pod
from koord.core.model.text import format_time
from koord.core.quota.model import QuotaName

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
