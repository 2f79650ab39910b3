"""Pods that go for a unit, until they are gone: each is told of once. Within a bound, no clock."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koord.core.audit.records import RecordedUnit, VictimGone
from koord.core.eviction.model import EvictionPlan
from koord.core.model.pods import Pod

MOST_VICTIMS: Final = 1024
"""That are followed; of more the oldest are forgotten."""


@dataclass(slots=True)
class _Victim:
    """A pod that goes, by which plan, for whom and since when, in seconds."""

    name: str
    plan: str
    policy: str
    unit: RecordedUnit
    since: float


class Victims(dict[str, _Victim]):
    """Those that are not gone yet, by uid."""

    def follow(
        self, plan: EvictionPlan, pods: Sequence[Pod], unit: RecordedUnit, now: float
    ) -> None:
        for pod in pods:
            if len(self) >= MOST_VICTIMS:
                del self[next(iter(self))]
            self[pod.uid] = _Victim(pod.title, plan.key, plan.policy, unit, now)

    def take_gone(
        self, pods: Mapping[str, Pod], now: float
    ) -> Iterator[tuple[RecordedUnit, VictimGone]]:
        """Yield those of which there is no pod any more, or which have ended."""
        gone = [uid for uid in self if (pod := pods.get(uid)) is None or pod.phase.is_terminal]
        for uid in gone:
            victim = self.pop(uid)
            left = sum(other.plan == victim.plan for other in self.values())
            took = int((now - victim.since) * 1000)
            yield victim.unit, VictimGone(victim.policy, victim.name, left, took)
