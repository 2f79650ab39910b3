"""The rounds of DefragmentationPolicies, and their status: for the operator of the same name.

A round searches moves for what a policy names, and orders PodMigrationJobs for one plan at a time:
those of its steps whose places are free now. When these jobs are over, the next round plans again
with what has become of them. Nothing is evicted here. What later rounds need is in the status and
in the jobs, so that a restart changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.defragmentationpolicy import (
    DefragmentationPolicyStatus,
    DefragMove,
    DefragPlan,
    DefragShape,
)
from koord.api.resource import to_time
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.defrag.model import MovePlan, MoveStep
from koord.core.defrag.policy import (
    HOUR,
    DefragPolicies,
    DefragSettings,
    ObservedDefragPolicy,
    exempt_ordered,
    find_first_steps,
)
from koord.core.defrag.search import DefragOptions, plan_moves
from koord.core.defrag.shapes import ShapeCount, count_shapes, make_shape_unit
from koord.core.engine.queue import find_pending
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Exempt
from koord.core.eviction.preemption import name_of
from koord.core.eviction.search import PreemptionContext
from koord.core.model.plan import Unit
from koord.core.model.reasons import Reason
from koord.kube.errors import KubeError
from koord.kube.evictor import Evictor
from koord.kube.migration_jobs import MigrationOrders, MoveOrder
from koord.kube.status import ConditionPatch
from koord.kube.translate.defrag import read_moves

READY: Final = "Ready"
CREATOR: Final = "koord-defragmentationpolicy"
TRIGGER: Final = "Defragmentation"
MOST_SUBJECTS: Final = 20
"""Jobs and shapes for which one round searches."""
MOST_STEPS: Final = 60_000_000
"""Steps of one search: it keeps the loop that it runs in from other work meanwhile."""
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class DefragSubject:
    """Something that is to fit."""

    title: str
    unit: Unit


@dataclass(slots=True)
class _Rounds:
    """The rounds of one policy so far."""

    uid: str
    moves: int
    recent: list[float]
    fields: dict[str, Any] = field(default_factory=dict)
    next_at: float = 0.0
    error: str = ""
    counts: list[ShapeCount] = field(default_factory=list)
    planned: int = 0
    """Pods that the last round would move."""
    running: int = 0
    """Jobs of the policy that are not over."""


@dataclass(slots=True)
class DefragmentationPolicies:
    """Runs the rounds that are due, and writes their status; ``clock`` is the time of the epoch."""

    state: ClusterState
    author: StatusAuthor[str, ObservedDefragPolicy]
    status_of: Callable[[str], Mapping[str, Any] | None]
    """Returns the status that an object shows, by its uid."""
    evictor: Evictor
    """Only to read disruption budgets."""
    orders: MigrationOrders
    clock: Callable[[], float]
    scoring: Scoring = field(default_factory=Scoring)
    min_runtime: float = 0.0
    max_per_day: int = 0
    _rounds: dict[str, _Rounds] = field(default_factory=dict)
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    @property
    def _policies(self) -> dict[str, ObservedDefragPolicy]:
        return self.state.plugin(DefragPolicies).policies

    def changed(self) -> list[str]:
        return self._inputs.compare(self._policies, self._policies.get)

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        """Run a round if it is due; return after how many seconds the next one is."""
        policy = self._policies.get(name)
        if policy is None:
            self._rounds.pop(name, None)
            return None
        rounds, settings = self._rounds_of(policy), policy.settings
        if settings is None:
            self._write(policy, rounds, "Invalid", "there are no valid settings; nothing is moved")
            return None
        if settings.is_paused:
            self._write(policy, rounds, "Paused", "nothing is searched while spec.paused is true")
            return None
        now = float(int(self.clock()))  # as a status keeps it
        if now >= rounds.next_at:
            rounds.next_at = now + settings.interval
            await self._run(settings, rounds, now)
            if self._policies.get(name) is None:
                return None  # deleted meanwhile, which is a change of its own
        reason, text = _tell(settings, rounds)
        self._write(policy, rounds, reason, text, is_ready=not rounds.error)
        return max(1.0, rounds.next_at - now)

    def _rounds_of(self, policy: ObservedDefragPolicy) -> _Rounds:
        rounds = self._rounds.get(policy.name)
        if rounds is None or rounds.uid != policy.uid:
            moves, recent = read_moves(self.status_of(policy.uid) or {})
            rounds = self._rounds[policy.name] = _Rounds(policy.uid, moves, recent)
        return rounds

    async def _run(self, settings: DefragSettings, rounds: _Rounds, now: float) -> None:
        rounds.error = ""
        rounds.recent = [time for time in rounds.recent if time > now - HOUR]
        try:
            budgets = await self.evictor.list_budgets()
            ordered = await self.orders.list_pods()
            rounds.running = await self.orders.count_running(CREATOR)
        except KubeError as error:
            # What is not known is not risked, and not advised either.
            rounds.error = f"disruption budgets and PodMigrationJobs cannot be read: {error}"
            return
        left = settings.left(rounds.recent, now) if settings.moves else settings.per_plan
        exempt = exempt_ordered(self.state, ordered)
        context = PreemptionContext(now, budgets, pending=lambda: find_pending(self.state))
        plans: list[DefragPlan] = []
        rounds.planned, is_ordered = 0, False
        self._count(settings, rounds)
        for subject in self._choose(settings, rounds.counts, now):
            outcome = self._search(subject, left, exempt, context)
            plans.append(_describe(subject, outcome))
            if isinstance(outcome, MovePlan) and outcome.steps:
                rounds.planned += len(outcome.moves)
                may_move = settings.moves and not rounds.running and settings.is_open(now)
                if may_move and not is_ordered:
                    is_ordered = True
                    await self._order(subject, outcome, rounds, now)
            await asyncio.sleep(0)
        rounds.fields = _make_fields(rounds, plans, now)

    def _count(self, settings: DefragSettings, rounds: _Rounds) -> None:
        self.state.refresh()
        with closing(self.state.open_cycle()) as cycle:
            rounds.counts = count_shapes(self.state, cycle, settings.shapes)

    def _choose(
        self, settings: DefragSettings, counts: Iterable[ShapeCount], now: float
    ) -> Iterator[DefragSubject]:
        """Yield what is to fit and may not: waiting jobs in their order, then shapes."""
        waiting = settings.choose(find_pending(self.state), now)
        for unit in waiting[:MOST_SUBJECTS]:
            yield DefragSubject(name_of(unit), unit)
        for count in counts:
            if not count.fitting:
                yield DefragSubject(str(count.shape), make_shape_unit(self.state, count.shape))

    def _search(
        self, subject: DefragSubject, left: int, exempt: Exempt, context: PreemptionContext
    ) -> MovePlan | Reason:
        options = DefragOptions(self.min_runtime, self.max_per_day, left, MOST_STEPS, self.scoring)
        return plan_moves(self.state, subject.unit, options, exempt, context)

    async def _order(
        self, subject: DefragSubject, plan: MovePlan, rounds: _Rounds, now: float
    ) -> None:
        for step in find_first_steps(plan):
            for order in _make_orders(subject, step):
                try:
                    is_new = await self.orders.create(order)
                except KubeError as error:
                    rounds.error = f"a PodMigrationJob cannot be created: {error}"
                    return
                if is_new:
                    rounds.moves += 1
                    rounds.running += 1
                    rounds.recent.append(now)

    def _write(
        self,
        policy: ObservedDefragPolicy,
        rounds: _Rounds,
        reason: str,
        text: str,
        *,
        is_ready: bool = False,
    ) -> None:
        ready = ConditionPatch(READY, is_ready, reason, text, policy.generation)
        kept = {"lastValidSpec": dict(policy.kept)} if policy.kept else {}
        self.author.write_status(policy, {**rounds.fields, **kept}, (ready,))

    def shapes(self) -> Iterable[tuple[tuple[str, str, str], float]]:
        """Yield policy, shape, ``now`` or ``together``, and how many fit."""
        for name, rounds in self._rounds.items():
            for count in rounds.counts:
                yield (name, str(count.shape), "now"), count.fitting
                yield (name, str(count.shape), "together"), count.possible

    def totals(self) -> Iterable[tuple[tuple[str], float]]:
        """Yield policy and how many moves it has ordered."""
        for name, rounds in self._rounds.items():
            yield (name,), rounds.moves


def _tell(settings: DefragSettings, rounds: _Rounds) -> tuple[str, str]:
    if rounds.error:
        return "Failed", rounds.error
    if not settings.moves:
        return "Advising", f"{rounds.planned} pods would be moved, and none is"
    text = f"{rounds.moves} moves were ordered so far, {rounds.running} of them under way"
    return "Defragmenting", text


def _describe(subject: DefragSubject, outcome: MovePlan | Reason) -> DefragPlan:
    if isinstance(outcome, Reason):
        return DefragPlan.model_validate({"for": subject.title, "message": outcome.text()})
    moves = [
        DefragMove(pod=move.pod.key, node=move.source, target=move.target, step=number)
        for number, step in enumerate(outcome.steps, 1)
        for move in step.moves
    ]
    return DefragPlan.model_validate(
        {"for": subject.title, "moves": moves, "proven": outcome.proof.is_cheapest}
    )


def _make_orders(subject: DefragSubject, step: MoveStep) -> Iterator[MoveOrder]:
    """Yield the jobs of a step: of several pods, they are a set that moves together."""
    size = len(step.moves)
    for move in step.moves:
        yield MoveOrder(
            move.pod.namespace,
            move.pod.name,
            move.pod.uid,
            f"{subject.title} would fit on {move.source}",
            TRIGGER,
            CREATOR,
            move.target,
            group=step.moves[0].pod.uid if size > 1 else "",
            group_size=size if size > 1 else 0,
        )


def _make_fields(rounds: _Rounds, plans: list[DefragPlan], now: float) -> dict[str, Any]:
    status = DefragmentationPolicyStatus(
        last_round_time=to_time(now),
        shapes=[
            DefragShape(shape=str(count.shape), fitting=count.fitting, possible=count.possible)
            for count in rounds.counts
        ],
        plans=plans,
        moves=rounds.moves,
        recent_moves=[int(time) for time in rounds.recent],
    )
    return status.encode_set()
