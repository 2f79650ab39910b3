"""The rounds of RebalancePolicies, and their status: for the operator ``rebalancepolicy``.

A round decides which pods leave hot nodes. What is the same for all policies stands in ``rounds``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from typing_extensions import override

from koord.api.rebalancepolicy import BalancedNodes, RebalancePolicyStatus, ReportedMove
from koord.api.resource import to_time
from koord.controllers.reclaim_rounds import ReclaimRounds, make_orders, report_reclaim
from koord.controllers.rounds import Obstacle, PolicyRounds, RoundInputs, Rounds
from koord.core.balance.batch_reclaim import LOOK_SECONDS, ReclaimPast
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import NodeClass
from koord.core.balance.outcome import HAS_JOB, Move, RoundOutcome
from koord.core.balance.plugin import BalancePolicies
from koord.core.balance.policy import (
    BalanceMode,
    BalancePolicy,
    RebalanceSettings,
    find_close_threshold,
    find_rival,
)
from koord.core.engine.scoring import Scoring
from koord.core.eviction.batch_reclaim import look
from koord.core.eviction.model import Moment
from koord.core.eviction.rebalance import (
    BalanceContext,
    MeasuredCluster,
    measure_cluster,
    run_round,
)
from koord.core.migration.model import MigrationOptions
from koord.kube.errors import KubeError
from koord.kube.migration_jobs import MoveOrder
from koord.kube.translate.balance import (
    MOST_DETECTORS,
    read_rounds,
    write_detectors,
    write_remembered,
)

TRIGGER: Final = "LowNodeLoad"
MOST_REPORTED: Final = 20
"""Moves that a status lists."""
_AGAIN_SECONDS: Final = 60.0
"""When to look again whether a rival is gone."""


@dataclass(slots=True, kw_only=True)
class _BalanceRounds(Rounds):
    past: BalancePast
    rounds: int = 0
    last_moves: list[ReportedMove] = field(default_factory=list)
    nodes: Counter[str] = field(default_factory=Counter)
    reclaim: ReclaimRounds = field(default_factory=ReclaimRounds)


@dataclass(frozen=True, slots=True)
class RebalanceOptions:
    """How it is planned, and how long pods run undisturbed.

    ``placed_to`` are the percentages up to which placement fills nodes, where it looks at load.
    """

    scoring: Scoring = field(default_factory=Scoring)
    min_runtime: float = 0.0
    placed_to: Mapping[str, float] = field(default_factory=dict)
    migration: MigrationOptions = field(default_factory=MigrationOptions)
    """Which pods jobs move, and whether they are carried out here."""


@dataclass(slots=True)
class RebalancePolicies(PolicyRounds[RebalanceSettings, _BalanceRounds]):
    """Rounds of RebalancePolicies."""

    creator: ClassVar = "koord-rebalancepolicy"
    while_paused: ClassVar = "no rounds take place while spec.paused is true"
    options: RebalanceOptions = field(default_factory=RebalanceOptions)

    @property
    @override
    def policies(self) -> Mapping[str, BalancePolicy]:
        return self.state.plugin(BalancePolicies).policies

    @override
    def find_obstacle(self, policy: BalancePolicy, settings: RebalanceSettings) -> Obstacle | None:
        if not settings.moves:
            return None
        rival = find_rival(policy, self.policies.values())
        if rival:
            text = f"RebalancePolicy {rival} is older and moves pods; only one policy can"
            return Obstacle("OtherPolicy", text, _AGAIN_SECONDS)
        close = find_close_threshold(settings, self.options.placed_to)
        return None if close is None else Obstacle("ThresholdsTooClose", close.text())

    @override
    def begin(self, policy: BalancePolicy, shown: Mapping[str, Any]) -> _BalanceRounds:
        earlier = read_rounds(shown)
        interval = policy.settings.interval if policy.settings is not None else 0.0
        return _BalanceRounds(
            uid=policy.uid,
            moves=earlier.moves,
            fields={name: shown[name] for name in _KEPT_FIELDS if name in shown},
            next_at=earlier.last_at + interval,
            past=earlier.past,
            rounds=earlier.rounds,
            last_moves=list(earlier.last_moves),
            reclaim=ReclaimRounds(earlier.reclaim, evicted=earlier.evicted),
        )

    @override
    def goes_on_without(self, settings: RebalanceSettings) -> bool:
        return not settings.moves

    @override
    async def run(
        self, settings: RebalanceSettings, rounds: _BalanceRounds, inputs: RoundInputs, now: float
    ) -> None:
        rounds.past.detectors.kept = settings.detectors_kept
        measured = measure_cluster(self.state, settings.expiration, now, inputs.moving)
        context = self._make_context(inputs, now)
        outcome = run_round(self.state, settings, measured, rounds.past, context)
        rounds.rounds += 1
        if settings.moves:
            await self._order(settings, rounds, outcome.moves, now)
        rounds.nodes = _count_nodes(outcome, measured)
        rounds.fields = {
            **_make_fields(settings, rounds, outcome, now),
            **rounds.reclaim.encode(settings),
        }

    def _make_context(self, inputs: RoundInputs, now: float) -> BalanceContext:
        return BalanceContext(
            Moment(now, self.options.min_runtime),
            self.options.scoring,
            inputs.budgets,
            lambda pod: HAS_JOB if not inputs.ordered.isdisjoint((pod.uid, pod.key)) else None,
            self.options.migration,
            inputs.moving,
        )

    @override
    async def look(
        self, settings: RebalanceSettings, rounds: _BalanceRounds, now: float
    ) -> float | None:
        """Look for nodes on which prod pods need the room of batch pods."""
        reclaim = rounds.reclaim
        if settings.batch_reclaim is None:
            reclaim.past, rounds.look_error = ReclaimPast(), ""
            rounds.fields.pop("batchReclaim", None)
            return None
        if now < reclaim.next_at:
            return reclaim.next_at - now
        reclaim.next_at = now + LOOK_SECONDS
        inputs = await self.read_inputs()
        if isinstance(inputs, str):
            rounds.look_error = inputs
            return LOOK_SECONDS
        context = self._make_context(inputs, now)
        reclaim.outcome = look(self.state, settings, reclaim.past, context)
        rounds.look_error = ""
        if settings.moves:
            await self._reclaim(rounds, now)
        rounds.fields = {**rounds.fields, **reclaim.encode(settings)}
        if rounds.last_moves:
            moves = RebalancePolicyStatus(moves=rounds.moves, last_moves=rounds.last_moves)
            rounds.fields |= moves.encode_set()
        return LOOK_SECONDS

    async def _reclaim(self, rounds: _BalanceRounds, now: float) -> None:
        for reclaim in rounds.reclaim.outcome.reclaims:
            rounds.reclaim.past.note(reclaim, now)
            for order in make_orders(reclaim, self.creator):
                try:
                    is_new = await self.orders.create(order)
                except KubeError as error:
                    rounds.look_error = f"a PodMigrationJob cannot be created: {error}"
                    return
                rounds.moves += is_new
                rounds.reclaim.evicted += is_new
            reported = report_reclaim(reclaim, now)
            rounds.last_moves[:0] = reported
            del rounds.last_moves[MOST_REPORTED:]

    async def _order(
        self,
        settings: RebalanceSettings,
        rounds: _BalanceRounds,
        moves: Iterable[Move],
        now: float,
    ) -> None:
        for move in moves:
            order = _make_order(move, settings)
            is_new = await self.order(order, rounds)
            if is_new is None:
                break
            rounds.past.moves.note(move.pod, move.target, now)
            if is_new:
                rounds.last_moves.insert(0, _report(move, now, order.job_name))
        del rounds.last_moves[MOST_REPORTED:]

    @override
    def tell(self, settings: RebalanceSettings, rounds: _BalanceRounds) -> tuple[str, str]:
        hot = rounds.nodes[NodeClass.HIGH] + rounds.nodes[NodeClass.PROD_HIGH]
        if not settings.moves:
            would = len(rounds.fields.get("wouldEvict") or ())
            text = f"{hot} nodes are hot; {would} pods would be moved, and none is"
            return "Advising", text + rounds.reclaim.tell(settings)
        text = f"{hot} nodes are hot; {rounds.moves} pods were moved so far"
        text += rounds.reclaim.tell(settings)
        if not self.options.migration.is_on:
            text += "; PodMigrationJobs wait, since the setting migration.enabled is false"
        return "Balancing", text

    def counts(self) -> Iterable[tuple[tuple[str, str], float]]:
        """Yield policy, class of nodes and how many nodes are of it."""
        for name, rounds in self._rounds.items():
            yield from (((name, node_class), count) for node_class, count in rounds.nodes.items())


_KEPT_FIELDS: Final = (
    "rounds",
    "lastRoundTime",
    "nodes",
    "detectors",
    "detectorsOmitted",
    "moves",
    "lastMoves",
    "wouldEvict",
    "capsHit",
    "remembered",
    "batchReclaim",
)


def _make_order(move: Move, settings: RebalanceSettings) -> MoveOrder:
    return MoveOrder(
        move.pod.namespace,
        move.pod.name,
        move.pod.uid,
        move.reason.text(),
        TRIGGER,
        RebalancePolicies.creator,
        move.target,
        settings.mode is BalanceMode.MIGRATE,
    )


def _report(move: Move, now: float, job: str | None = None) -> ReportedMove:
    return ReportedMove(
        pod=move.pod.key,
        node=move.pod.node,
        target=move.target,
        reason=move.reason.text(),
        job=job,
        time=to_time(now),
    )


def _count_nodes(outcome: RoundOutcome, measured: MeasuredCluster) -> Counter[str]:
    """Count nodes by their class in the first pool that they are in."""
    classes: dict[str, NodeClass] = {}
    for pool in reversed(outcome.pools):
        classes |= pool.classes
    counts = Counter({str(node_class): 0 for node_class in NodeClass})
    counts.update(map(str, classes.values()))
    counts["Unknown"] = len(measured.unknown)
    return counts


def _make_fields(
    settings: RebalanceSettings,
    rounds: _BalanceRounds,
    outcome: RoundOutcome,
    now: float,
) -> dict[str, Any]:
    status = RebalancePolicyStatus(
        rounds=rounds.rounds,
        last_round_time=to_time(now),
        nodes=BalancedNodes(
            high=rounds.nodes[NodeClass.HIGH],
            prod_high=rounds.nodes[NodeClass.PROD_HIGH],
            normal=rounds.nodes[NodeClass.NORMAL],
            prod_low=rounds.nodes[NodeClass.PROD_LOW],
            both_low=rounds.nodes[NodeClass.BOTH_LOW],
            low=rounds.nodes[NodeClass.LOW],
            unknown=rounds.nodes["Unknown"],
        ),
        detectors=write_detectors(rounds.past),
        detectors_omitted=max(0, len(rounds.past.detectors.values()) - MOST_DETECTORS),
        moves=rounds.moves,
        last_moves=rounds.last_moves,
        would_evict=[]
        if settings.moves
        else [_report(move, now) for move in outcome.moves[:MOST_REPORTED]],
        caps_hit=sorted(map(str, outcome.caps_hit)),
        remembered=write_remembered(rounds.past),
    )
    return status.encode_set()
