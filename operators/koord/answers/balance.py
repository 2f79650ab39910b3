"""What a round of a RebalancePolicy would do now: classes of nodes, who would move, who stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.core.balance.batch_reclaim import ReclaimPast
from koord.core.balance.memory import BalancePast
from koord.core.balance.outcome import RoundOutcome
from koord.core.balance.policy import BalancePolicy, RebalanceSettings
from koord.core.balance.thresholds import percent_of
from koord.core.engine.state import ClusterState
from koord.core.eviction.batch_reclaim import look
from koord.core.eviction.rebalance import (
    BalanceContext,
    MeasuredCluster,
    measure_cluster,
    run_round,
)


@dataclass(frozen=True, slots=True)
class ResourceLoad:
    """Percentages of one resource of a node: what is used, and its thresholds."""

    used: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LoadedNode:
    """A node in a pool, and what it is there."""

    pool: str
    node: str
    node_class: str
    resources: Mapping[str, ResourceLoad]


@dataclass(frozen=True, slots=True)
class WouldMove:
    """A pod that would move, and why."""

    pod: str
    node: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class WouldStay:
    """A pod of a hot node that would stay, and the first rule that keeps it."""

    pod: str
    node: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class BalanceView:
    """A round of a policy. ``stops`` says by pool why nothing moves there."""

    policy: str
    mode: str
    nodes: tuple[LoadedNode, ...]
    unknown: tuple[str, ...]
    stops: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[WouldMove, ...] = ()
    staying: tuple[WouldStay, ...] = ()
    caps_hit: tuple[str, ...] = ()
    reclaims: tuple[WouldMove, ...] = ()
    """Batch pods that would leave nodes on which prod pods need their room; without a target."""


def view_balance(
    state: ClusterState,
    policy: BalancePolicy,
    settings: RebalanceSettings,
    pasts: tuple[BalancePast, ReclaimPast],
    context: BalanceContext,
) -> BalanceView:
    """Return what a round would do, and a look for batch pods; both pasts are used up."""
    past, reclaim_past = pasts
    past.detectors.kept = settings.detectors_kept
    measured = measure_cluster(state, settings.expiration, context.moment.now, context.moving)
    outcome = run_round(state, settings, measured, past, context)
    reclaim = look(state, settings, reclaim_past, context)
    return BalanceView(
        policy.name,
        str(settings.mode),
        tuple(_view_nodes(outcome, measured)),
        measured.unknown,
        {pool.name: str(pool.stop) for pool in outcome.pools if pool.stop is not None},
        tuple(
            WouldMove(move.pod.key, move.pod.node, move.target, move.reason.text())
            for move in outcome.moves
        ),
        (
            *(
                WouldStay(stay.pod.key, stay.pod.node, stay.refusal.rule, stay.refusal.text)
                for stay in outcome.staying
            ),
            *(
                WouldStay(held.unit.pods[0].key, held.node, held.refusal.rule, held.refusal.text)
                for held in reclaim.held
            ),
        ),
        tuple(sorted(map(str, outcome.caps_hit))),
        tuple(
            WouldMove(pod.key, pod.node, "", eviction.shortage.text())
            for eviction in reclaim.reclaims
            for pod in eviction.unit.pods
        ),
    )


def _view_nodes(outcome: RoundOutcome, measured: MeasuredCluster) -> list[LoadedNode]:
    capacities = {node.name: node.capacity for node in measured.nodes}
    nodes = []
    for pool in outcome.pools:
        for name, node_class in pool.classes.items():
            limits, used = pool.limits[name].total, pool.usage[name]
            resources = {
                resource: ResourceLoad(
                    *(
                        round(percent_of(amount, capacities[name].get(resource, 0)), 1)
                        for amount in (used.get(resource, 0), low, limits.high[resource])
                    )
                )
                for resource, low in sorted(limits.low.items())
            }
            nodes.append(LoadedNode(pool.name, name, str(node_class), resources))
    return nodes
