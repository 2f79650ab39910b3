"""What a RebalancePolicy does and says about batch pods: jobs that evict them, and its status.

Who leaves is decided in ``core.balance.batch_reclaim``. The jobs of a gang are a group, so that all
of its pods go or none. A single pod is a group as well, because the limits of moves are not about
it: they keep a workload at its size while it moves, and this one is to become smaller.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any, Final

from koord.api.rebalancepolicy import BatchReclaimStatus, ReportedMove
from koord.api.resource import to_time
from koord.core.balance.batch_reclaim import BatchEviction, ReclaimOutcome, ReclaimPast
from koord.core.balance.policy import RebalanceSettings
from koord.core.model.text import plural
from koord.kube.migration_jobs import MoveOrder
from koord.kube.translate.balance import (
    MOST_DETECTORS,
    write_overcommitted,
    write_reclaimed,
)

TRIGGER: Final = "BatchReclaim"
MOST_HELD: Final = 5
"""Rules that a status names for units that stay."""
MOST_WOULD: Final = 20


@dataclass(slots=True)
class ReclaimRounds:
    """What a policy has seen and done about batch pods."""

    past: ReclaimPast = field(default_factory=ReclaimPast)
    evicted: int = 0
    outcome: ReclaimOutcome = field(default_factory=ReclaimOutcome)
    """Of the last look."""
    next_at: float = 0.0

    @property
    def short_nodes(self) -> int:
        return len({shortage.node for shortage in self.outcome.shortages})

    def encode(self, settings: RebalanceSettings) -> dict[str, Any]:
        """Return what the status says, by field."""
        if settings.batch_reclaim is None:
            return {}
        would = [] if settings.moves else self.outcome.reclaims
        overcommitted = self.past.overcommitted
        status = BatchReclaimStatus(
            short_nodes=self.short_nodes,
            evicted=self.evicted,
            would_evict=[move for each in would for move in report_reclaim(each)][:MOST_WOULD],
            held=list(dict.fromkeys(self._tell_held()))[:MOST_HELD],
            overcommitted=write_overcommitted(self.past),
            overcommitted_omitted=max(0, len(overcommitted) - MOST_DETECTORS),
            recent=write_reclaimed(self.past),
        )
        return {"batchReclaim": status.encode_set()}

    def _tell_held(self) -> Iterator[str]:
        for held in self.outcome.held:
            pod = held.unit.pods[0]
            yield f"{pod.key} on {held.node}: {held.refusal.rule}: {held.refusal.text}"

    def tell(self, settings: RebalanceSettings) -> str:
        """Return what the condition says of batch pods, after what it says of others."""
        if settings.batch_reclaim is None:
            return ""
        nodes = plural(self.short_nodes, "node")
        if not settings.moves:
            would = sum(len(each.unit.pods) for each in self.outcome.reclaims)
            return f"; {nodes} short of room for prod, {plural(would, 'batch pod')} would leave"
        gone = plural(self.evicted, "batch pod")
        return f"; {nodes} short of room for prod, {gone} evicted so far"


def make_orders(reclaim: BatchEviction, creator: str) -> Iterator[MoveOrder]:
    """Yield a job for each pod that leaves; all of a unit are one group."""
    pods = reclaim.unit.pods
    uids = ",".join(sorted(pod.uid for pod in pods))
    group = f"reclaim-{blake2s(uids.encode(), digest_size=8).hexdigest()}"
    for pod in pods:
        yield MoveOrder(
            pod.namespace,
            pod.name,
            pod.uid,
            reclaim.shortage.text(),
            TRIGGER,
            creator,
            reserves_first=False,
            group=group,
            group_size=len(pods),
        )


def report_reclaim(reclaim: BatchEviction, now: float | None = None) -> list[ReportedMove]:
    """Return what a status says of pods that leave, or would."""
    orders = make_orders(reclaim, "")
    return [
        ReportedMove(
            pod=pod.key,
            node=pod.node,
            reason=reclaim.shortage.text(),
            job=None if now is None else order.job_name,
            time=None if now is None else to_time(now),
        )
        for pod, order in zip(reclaim.unit.pods, orders, strict=True)
    ]
