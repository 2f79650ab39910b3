"""RebalancePolicies: what their specs say, and the parts of their status that are read back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from koord.api.rebalancepolicy import (
    DEFAULT_INTERVAL,
    DEFAULT_PER_NODE,
    DEFAULT_PER_WORKLOAD,
    DEFAULT_TOTAL,
    BalanceAnomalyCondition,
    BalanceThresholds,
    BatchReclaim,
    BatchReclaimStatus,
    MoveCapsSpec,
    NodeDetector,
    OvercommittedNode,
    RebalancePolicySpec,
    RebalancePolicyStatus,
    ReclaimedPod,
    RememberedMove,
    ReportedMove,
)
from koord.api.resource import LabelSelector as SelectorSpec
from koord.api.shape import Shape
from koord.core.balance.batch_reclaim import (
    MEMORY_THRESHOLD,
    BatchReclaimRules,
    PastReclaim,
    ReclaimPast,
)
from koord.core.balance.detectors import Detector, DetectorKey, DetectorKind
from koord.core.balance.memory import BalancePast, PastMove
from koord.core.balance.model import MoveCaps, Thresholds
from koord.core.balance.policy import (
    DEFAULT_POOL,
    BalanceMode,
    PoolSettings,
    RebalanceSettings,
)
from koord.core.model.selectors import LabelSelector
from koord.kube.translate.node_affinity import translate_selector
from koord.kube.translate.policies import make_spec_reader, read_seconds

MOST_DETECTORS: Final = 500
"""More do not fit into a status beside all else."""
_STATUS: Final = Shape(RebalancePolicyStatus, ("status",))


def _make_settings(spec: RebalancePolicySpec) -> RebalanceSettings:
    namespaces = spec.evictable_namespaces
    include = namespaces.include if namespaces is not None else None
    exclude = namespaces.exclude if namespaces is not None else None
    pools = [_make_pool(DEFAULT_POOL, spec, spec, spec.node_selector)]
    pools += [
        _make_pool(pool.name, pool, spec, pool.node_selector) for pool in spec.node_pools or ()
    ]
    return RebalanceSettings(
        tuple(pools),
        BalanceMode(spec.mode or BalanceMode.ADVISE) if not spec.dry_run else BalanceMode.ADVISE,
        read_seconds(spec.interval or DEFAULT_INTERVAL),
        bool(spec.paused),
        _make_caps(spec.caps or MoveCapsSpec()),
        spec.number_of_nodes or 0,
        float(spec.node_metric_expiration_seconds or 180),
        None if spec.detector_cache_timeout is None else read_seconds(spec.detector_cache_timeout),
        None if include is None else frozenset(include),
        frozenset(exclude or ()),
        tuple(translate_selector(named.selector) for named in spec.pod_selectors or ()),
        None if spec.batch_reclaim is None else _make_reclaim(spec.batch_reclaim),
    )


def _make_reclaim(reclaim: BatchReclaim) -> BatchReclaimRules:
    threshold, grace = reclaim.memory_threshold, reclaim.overcommit_grace
    return BatchReclaimRules(
        MEMORY_THRESHOLD if threshold is None else threshold,
        None if grace is None else read_seconds(grace),
    )


def _make_caps(caps: MoveCapsSpec) -> MoveCaps:
    return MoveCaps(
        DEFAULT_TOTAL if caps.total is None else caps.total,
        DEFAULT_PER_NODE if caps.per_node is None else caps.per_node,
        caps.per_namespace,
        DEFAULT_PER_WORKLOAD if caps.per_workload is None else caps.per_workload,
    )


def _make_pool(
    name: str, pool: BalanceThresholds, policy: BalanceThresholds, selector: SelectorSpec | Any
) -> PoolSettings:
    """Return a pool, with what is absent taken from the policy."""
    total = pool if pool.low_thresholds is not None else policy
    prod = pool if pool.prod_low_thresholds is not None else policy
    deviates = pool.use_deviation_thresholds
    condition = pool.anomaly_condition or policy.anomaly_condition or BalanceAnomalyCondition()
    return PoolSettings(
        name,
        Thresholds(
            total.low_thresholds or {},
            total.high_thresholds or {},
            prod.prod_low_thresholds or {},
            prod.prod_high_thresholds or {},
            bool(policy.use_deviation_thresholds if deviates is None else deviates),
        ),
        _translate_nodes(selector),
        pool.resource_weights or policy.resource_weights or {},
        condition.consecutive_abnormalities,
        condition.consecutive_normalities,
        None if condition.timeout is None else read_seconds(condition.timeout),
    )


def _translate_nodes(selector: Any) -> LabelSelector:
    return None if selector is None else translate_selector(selector)


translate_settings: Final = make_spec_reader(RebalancePolicySpec, _make_settings)


@dataclass(frozen=True, slots=True)
class EarlierRounds:
    """What a status says of the rounds so far."""

    past: BalancePast
    last_at: float = 0.0
    rounds: int = 0
    moves: int = 0
    last_moves: tuple[ReportedMove, ...] = ()
    reclaim: ReclaimPast = field(default_factory=ReclaimPast)
    evicted: int = 0
    """Batch pods that were to leave."""


def read_rounds(status: Mapping[str, Any]) -> EarlierRounds:
    """Return what a status remembers of earlier rounds; nothing if it cannot be read."""
    past = BalancePast()
    try:
        seen = _STATUS.read(msgspec.json.encode(dict(status)))
        past.detectors.put(dict(map(_read_detector, seen.detectors or ())))
    except ValueError:
        return EarlierRounds(BalancePast())
    past.moves.put(
        PastMove(move.workload, move.left, move.target, float(move.at), move.returns)
        for move in seen.remembered or ()
    )
    return EarlierRounds(
        past,
        seen.last_round_time.timestamp() if seen.last_round_time is not None else 0.0,
        seen.rounds or 0,
        seen.moves or 0,
        tuple(seen.last_moves or ()),
        *_read_reclaim(seen.batch_reclaim or BatchReclaimStatus()),
    )


def _read_reclaim(seen: BatchReclaimStatus) -> tuple[ReclaimPast, int]:
    past = ReclaimPast(
        {node.node: float(node.since) for node in seen.overcommitted or ()},
        [
            PastReclaim(pod.uid, pod.pod, pod.node, pod.memory, float(pod.at), float(pod.left))
            for pod in seen.recent or ()
        ],
    )
    return past, seen.evicted or 0


def _read_detector(seen: NodeDetector) -> tuple[DetectorKey, Detector]:
    key = (seen.pool, DetectorKind(seen.kind), seen.node)
    return key, Detector(
        seen.is_anomalous, seen.bad, seen.good, float(seen.since), float(seen.last_bad)
    )


def write_detectors(past: BalancePast) -> list[NodeDetector]:
    """Return the counters of hot nodes, those that are furthest first, as a status keeps them."""
    detectors = sorted(
        past.detectors.values().items(),
        key=lambda item: (not item[1].is_anomalous, -item[1].bad, item[0]),
    )
    return [
        NodeDetector(
            pool=pool,
            kind=kind,
            node=node,
            is_anomalous=detector.is_anomalous,
            bad=detector.bad,
            good=detector.good,
            since=int(detector.since),
            last_bad=int(detector.last_bad),
        )
        for (pool, kind, node), detector in detectors[:MOST_DETECTORS]
    ]


def write_remembered(past: BalancePast) -> list[RememberedMove]:
    return [
        RememberedMove(
            workload=move.workload,
            left=move.left,
            target=move.target,
            at=int(move.at),
            returns=move.returns,
        )
        for move in past.moves.values()
    ]


def write_overcommitted(past: ReclaimPast) -> list[OvercommittedNode]:
    """Return the nodes that offer too little, the first ones first, as many as a status keeps."""
    by_time = sorted(past.overcommitted.items(), key=lambda item: (item[1], item[0]))
    return [
        OvercommittedNode(node=node, since=int(since)) for node, since in by_time[:MOST_DETECTORS]
    ]


def write_reclaimed(past: ReclaimPast) -> list[ReclaimedPod]:
    return [
        ReclaimedPod(
            uid=each.uid,
            pod=each.pod,
            node=each.node,
            memory=each.memory,
            at=int(each.at),
            left=int(each.left),
        )
        for each in past.reclaims
    ]
