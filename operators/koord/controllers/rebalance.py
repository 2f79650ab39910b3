"""The rounds of RebalancePolicies, and their status: for the operator ``rebalancepolicy``.

A round decides which pods move, and orders a PodMigrationJob for each; what becomes of a job is not
known here, and nothing is evicted. What later rounds need is in the status, with whole seconds, so
that a restart changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from koord.api.rebalancepolicy import BalancedNodes, RebalancePolicyStatus, ReportedMove
from koord.api.resource import to_time
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.balance.memory import BalancePast
from koord.core.balance.model import NodeClass
from koord.core.balance.outcome import HAS_JOB, Move, MoveRefusal, RoundOutcome, make_ineligible
from koord.core.balance.plugin import BalancePolicies
from koord.core.balance.policy import (
    BalanceMode,
    ObservedPolicy,
    RebalanceSettings,
    find_close_threshold,
    find_rival,
)
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Moment
from koord.core.eviction.rebalance import (
    BalanceContext,
    MeasuredCluster,
    measure_cluster,
    run_round,
)
from koord.core.migration.model import MigrationOptions
from koord.core.model.pods import Pod
from koord.kube.errors import KubeError
from koord.kube.evictor import Evictor
from koord.kube.migration_jobs import MigrationOrders, MoveOrder
from koord.kube.status import ConditionPatch
from koord.kube.translate.balance import (
    MOST_DETECTORS,
    read_rounds,
    write_detectors,
    write_remembered,
)

if TYPE_CHECKING:
    from koord.core.model.budgets import Budget

READY: Final = "Ready"
CREATOR: Final = "koord-rebalancepolicy"
TRIGGER: Final = "LowNodeLoad"
MOST_REPORTED: Final = 20
"""Moves that a status lists."""
_PAUSE: Final = Pause(0.5, 1.5)
_INVALID: Final = ("Invalid", "there are no valid settings; nothing is moved", None)
_AGAIN_SECONDS: Final = 60.0
_MOST_DECISIONS: Final = 3
"""When to look again whether a rival or a failure is gone."""


@dataclass(slots=True)
class _Run:
    """The rounds of one policy so far."""

    uid: str
    past: BalancePast
    fields: dict[str, Any]
    """What its status says of them."""
    next_at: float = 0.0
    rounds: int = 0
    moves: int = 0
    last_moves: list[ReportedMove] = field(default_factory=list)
    error: str = ""
    nodes: Counter[str] = field(default_factory=Counter)
    ineligible: dict[str, str] = field(default_factory=dict)
    """Pods that no job would move, by uid, as their manifests say; a start finds them out again."""


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
class RebalancePolicies:
    """Runs the rounds that are due, and writes their status; ``clock`` is the time of the epoch."""

    state: ClusterState
    author: StatusAuthor[str, ObservedPolicy]
    status_of: Callable[[str], Mapping[str, Any] | None]
    """Returns the status that an object shows, by its uid."""
    evictor: Evictor
    """Only to read disruption budgets."""
    orders: MigrationOrders
    clock: Callable[[], float]
    options: RebalanceOptions = field(default_factory=RebalanceOptions)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    @property
    def _policies(self) -> dict[str, ObservedPolicy]:
        return self.state.plugin(BalancePolicies).policies

    def changed(self) -> list[str]:
        return self._inputs.compare(self._policies, self._policies.get)

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        """Run a round if it is due; return after how many seconds the next one is."""
        policy = self._policies.get(name)
        if policy is None:
            self._runs.pop(name, None)
            return None
        run = self._run_of(policy)
        obstacle = self._find_obstacle(policy)
        if obstacle is not None or policy.settings is None:
            reason, text, again = obstacle or _INVALID
            self._write(policy, run, reason, text)
            return again
        now = float(int(self.clock()))  # as a status keeps it
        if now >= run.next_at:
            run.next_at = now + policy.settings.interval
            await self._run_round(policy.settings, run, now)
            if self._policies.get(name) is None:
                return None  # deleted meanwhile, which is a change of its own
        reason, text = _tell(policy.settings, run, is_carried_out=self.options.migration.is_on)
        self._write(policy, run, reason, text, is_ready=not run.error)
        return max(1.0, run.next_at - now)

    def _find_obstacle(self, policy: ObservedPolicy) -> tuple[str, str, float | None] | None:
        """Return why there are no rounds: reason, text, and when to look again."""
        settings = policy.settings
        if settings is None:
            return _INVALID
        if settings.is_paused:
            return "Paused", "no rounds take place while spec.paused is true", None
        if not settings.moves:
            return None
        rival = find_rival(policy, self._policies.values())
        if rival:
            text = f"RebalancePolicy {rival} is older and moves pods; only one policy can"
            return "OtherPolicy", text, _AGAIN_SECONDS
        close = find_close_threshold(settings, self.options.placed_to)
        return None if close is None else ("ThresholdsTooClose", close.text(), None)

    def _run_of(self, policy: ObservedPolicy) -> _Run:
        run = self._runs.get(policy.name)
        if run is not None and run.uid == policy.uid:
            if policy.settings is not None:
                run.past.detectors.kept = policy.settings.detectors_kept
            return run
        shown = self.status_of(policy.uid) or {}
        earlier = read_rounds(shown)
        interval = policy.settings.interval if policy.settings is not None else 0.0
        run = self._runs[policy.name] = _Run(
            policy.uid,
            earlier.past,
            {name: shown[name] for name in _KEPT_FIELDS if name in shown},
            earlier.last_at + interval,
            earlier.rounds,
            earlier.moves,
            list(earlier.last_moves),
        )
        return self._run_of(policy) if policy.settings is not None else run

    async def _run_round(self, settings: RebalanceSettings, run: _Run, now: float) -> None:
        run.error = ""
        budgets: tuple[Budget, ...] = ()
        jobs: frozenset[str] = frozenset()
        try:
            budgets = await self.evictor.list_budgets()
            jobs = await self.orders.list_pods()
        except KubeError as error:
            run.error = f"disruption budgets and PodMigrationJobs cannot be read: {error}"
            if settings.moves:
                return  # what is not known is not risked
        measured = measure_cluster(self.state, settings.expiration, now)
        context = BalanceContext(
            Moment(now, self.options.min_runtime),
            self.options.scoring,
            budgets,
            lambda pod: _find_refusal(pod, jobs, run.ineligible),
        )
        outcome = await self._decide(settings, run, measured, context)
        run.rounds += 1
        if settings.moves:
            await self._order(settings, run, outcome.moves, now)
        run.nodes = _count_nodes(outcome, measured)
        run.fields = _make_fields(settings, run, outcome, now)

    async def _decide(
        self,
        settings: RebalanceSettings,
        run: _Run,
        measured: MeasuredCluster,
        context: BalanceContext,
    ) -> RoundOutcome:
        """Decide a round, again without pods that turn out to be ones that no job would move."""
        present = self.state.pods
        run.ineligible = {uid: text for uid, text in run.ineligible.items() if uid in present}
        for _ in range(_MOST_DECISIONS):
            past = deepcopy(run.past)
            outcome = run_round(self.state, settings, measured, past, context)
            pods = [move.pod for move in outcome.moves]
            try:
                ineligible = await self.orders.find_ineligible(pods, self.options.migration)
            except KubeError as error:
                run.error = f"a pod cannot be read: {error}"
                ineligible = {pod.uid: "" for pod in pods}
                break
            run.ineligible |= ineligible
            if not ineligible:
                break
        run.past = past
        outcome.moves = [move for move in outcome.moves if move.pod.uid not in ineligible]
        return outcome

    async def _order(
        self,
        settings: RebalanceSettings,
        run: _Run,
        moves: Iterable[Move],
        now: float,
    ) -> None:
        for move in moves:
            order = _make_order(move, settings)
            try:
                is_new = await self.orders.create(order)
            except KubeError as error:
                run.error = f"a PodMigrationJob cannot be created: {error}"
                return
            run.past.moves.note(move.pod, move.target, now)
            if is_new:
                run.moves += 1
                run.last_moves.insert(0, _report(move, now, order.job_name))
        del run.last_moves[MOST_REPORTED:]

    def _write(
        self, policy: ObservedPolicy, run: _Run, reason: str, text: str, *, is_ready: bool = False
    ) -> None:
        ready = ConditionPatch(READY, is_ready, reason, text, policy.generation)
        fields = {**run.fields, "lastValidSpec": dict(policy.kept)} if policy.kept else run.fields
        self.author.write_status(policy, fields, (ready,))

    def counts(self) -> Iterable[tuple[tuple[str, str], float]]:
        """Yield policy, class of nodes and how many nodes are of it."""
        for name, run in self._runs.items():
            yield from (((name, node_class), count) for node_class, count in run.nodes.items())

    def totals(self) -> Iterable[tuple[tuple[str], float]]:
        """Yield policy and how many pods it has moved."""
        for name, run in self._runs.items():
            yield (name,), run.moves


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
)


def _find_refusal(
    pod: Pod, jobs: Collection[str], ineligible: Mapping[str, str]
) -> MoveRefusal | None:
    if pod.uid in jobs or pod.key in jobs:
        return HAS_JOB
    text = ineligible.get(pod.uid)
    return None if text is None else make_ineligible(text)


def _tell(settings: RebalanceSettings, run: _Run, *, is_carried_out: bool) -> tuple[str, str]:
    if run.error:
        return "Failed", run.error
    hot = run.nodes[NodeClass.HIGH] + run.nodes[NodeClass.PROD_HIGH]
    would = len(run.fields.get("wouldEvict") or ())
    text = f"{hot} nodes are hot; {run.moves} pods were moved so far"
    if not settings.moves:
        return "Advising", f"{hot} nodes are hot; {would} pods would be moved, and none is"
    if not is_carried_out:
        text += "; PodMigrationJobs wait, since the setting migration.enabled is false"
    return "Balancing", text


def _make_order(move: Move, settings: RebalanceSettings) -> MoveOrder:
    return MoveOrder(
        move.pod.namespace,
        move.pod.name,
        move.pod.uid,
        move.reason.text(),
        TRIGGER,
        CREATOR,
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
    run: _Run,
    outcome: RoundOutcome,
    now: float,
) -> dict[str, Any]:
    status = RebalancePolicyStatus(
        rounds=run.rounds,
        last_round_time=to_time(now),
        nodes=BalancedNodes(
            high=run.nodes[NodeClass.HIGH],
            prod_high=run.nodes[NodeClass.PROD_HIGH],
            normal=run.nodes[NodeClass.NORMAL],
            prod_low=run.nodes[NodeClass.PROD_LOW],
            both_low=run.nodes[NodeClass.BOTH_LOW],
            low=run.nodes[NodeClass.LOW],
            unknown=run.nodes["Unknown"],
        ),
        detectors=write_detectors(run.past),
        detectors_omitted=max(0, len(run.past.detectors.values()) - MOST_DETECTORS),
        moves=run.moves,
        last_moves=run.last_moves,
        would_evict=[]
        if settings.moves
        else [_report(move, now) for move in outcome.moves[:MOST_REPORTED]],
        caps_hit=sorted(map(str, outcome.caps_hit)),
        remembered=write_remembered(run.past),
    )
    return status.encode_set()
