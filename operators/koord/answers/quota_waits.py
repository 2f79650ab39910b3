"""What waits in quotas, in the order of the queue: for people. Decides nothing."""

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from koord.answers.encoding import encode, encode_amounts
from koord.answers.queue_view import QueueEntry, view_queue
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time
from koord.core.model.units import Amounts
from koord.core.quota.capacity import add_up
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting
from koord.core.quota.model import QuotaName
from koord.core.quota.usage import count_devices


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """A gang, or a pod without one, of which ``pods`` wait in a quota, and for what reason.

    ``position`` is its place in the queue, 0 if it is not complete yet. ``asks`` is what its pods
    ask for together. ``since`` is when it became complete, in seconds since the epoch.
    """

    kind: str
    """``gang`` or ``pod``."""
    name: str
    """``namespace/name``."""
    quota: QuotaName
    position: int
    pods: int
    asks: Amounts
    reason: Reason
    since: float

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    def limited_to(self, keys: Container[str]) -> "WaitingUnit":
        """Return it without what it asks for of other resources."""
        return replace(self, asks={key: n for key, n in self.asks.items() if key in keys})


def find_waits(
    state: ClusterState,
    scoring: Scoring,
    reclaim: ReclaimSetting = UNKNOWN,
    quotas: Collection[QuotaName] | None = None,
) -> tuple[WaitingUnit, ...]:
    """Return what waits in these quotas, by default all, in order; it is planned together."""
    waiting = view_queue(state, scoring, reclaim)
    return tuple(unit for waiting_unit in waiting for unit in _find_in(state, waiting_unit, quotas))


def _find_in(
    state: ClusterState, waiting: QueueEntry, quotas: Collection[QuotaName] | None
) -> Iterator[WaitingUnit]:
    cache = state.quotas
    for name in waiting.names:
        in_quota: dict[QuotaName, list[Pod]] = {}
        for pod in _pods_of(state, waiting.kind, name):
            quota = cache.quota_of(pod)
            if pod.is_waiting and (quotas is None or quota in quotas):
                in_quota.setdefault(quota, []).append(pod)
        for quota, pods in sorted(in_quota.items()):
            requests = (count_devices(dict(cache.requests_of(pod)), cache.rules) for pod in pods)
            yield WaitingUnit(
                kind="pod" if waiting.kind == "pod" else "gang",
                name=name if waiting.kind != "pod" else pods[0].title,
                quota=quota,
                position=waiting.position,
                pods=len(pods),
                asks=add_up(requests),
                reason=waiting.reason,
                since=waiting.since,
            )


def _pods_of(state: ClusterState, kind: str, name: str) -> Collection[Pod]:
    if kind != "pod":
        return state.gangs.members(name).values()
    pod = state.pod_by_key(name)
    return () if pod is None else (pod,)


@encode.register
def _(waiting_unit: WaitingUnit) -> dict[str, Any]:
    return {
        "position": waiting_unit.position or None,
        "kind": waiting_unit.kind,
        "name": waiting_unit.name,
        "quota": waiting_unit.quota,
        "asks": encode_amounts(waiting_unit.asks),
        "pods": waiting_unit.pods,
        "reason": waiting_unit.reason.code,
        "since": format_time(waiting_unit.since),
    }
