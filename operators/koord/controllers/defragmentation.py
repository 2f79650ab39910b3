"""The rounds of DefragmentationPolicies, and their status: for the operator of the same name.

A round searches moves for what a policy names, and orders PodMigrationJobs for one plan at a time:
those of its steps whose places are free now. When these jobs are over, the next round plans again
with what has become of them. What is the same for all policies stands in ``rounds``.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from typing_extensions import override

from koord.api.defragmentationpolicy import (
    DefragmentationPolicyStatus,
    DefragMove,
    DefragPlan,
    DefragShape,
)
from koord.api.resource import to_time
from koord.controllers.rounds import PolicyRounds, RoundInputs, Rounds
from koord.core.defrag.model import MovePlan, MoveStep
from koord.core.defrag.policy import (
    HOUR,
    DefragPolicies,
    DefragPolicy,
    DefragSettings,
    exempt_ordered,
    find_first_steps,
)
from koord.core.defrag.search import DefragOptions, plan_moves
from koord.core.defrag.shapes import ShapeCount, count_shapes, make_shape_unit
from koord.core.engine.queue import find_pending
from koord.core.engine.scoring import Scoring
from koord.core.eviction.model import Exempt
from koord.core.eviction.preemption import name_of
from koord.core.eviction.search import PreemptionContext
from koord.core.migration.model import MigrationOptions
from koord.core.model.plan import Unit
from koord.core.model.reasons import Reason
from koord.kube.migration_jobs import MoveOrder
from koord.kube.translate.defrag import read_moves

TRIGGER: Final = "Defragmentation"
MOST_SUBJECTS: Final = 20
"""Jobs and shapes for which one round searches."""
MOST_STEPS: Final = 60_000_000
"""Steps of one search: it keeps the loop that it runs in from other work meanwhile."""


@dataclass(frozen=True, slots=True)
class DefragSubject:
    """Something that is to fit."""

    title: str
    unit: Unit


@dataclass(slots=True, kw_only=True)
class _DefragRounds(Rounds):
    recent: list[float]
    """When the moves of the last hour were ordered."""
    counts: list[ShapeCount] = field(default_factory=list)
    planned: int = 0
    """Pods that the last round would move."""
    running: int = 0
    """Jobs of policies that are not over."""


@dataclass(slots=True)
class DefragmentationPolicies(PolicyRounds[DefragSettings, _DefragRounds]):
    """Rounds of DefragmentationPolicies."""

    creator: ClassVar = "koord-defragmentationpolicy"
    while_paused: ClassVar = "nothing is searched while spec.paused is true"
    scoring: Scoring = field(default_factory=Scoring)
    min_runtime: float = 0.0
    max_per_day: int = 0
    migration: MigrationOptions = field(default_factory=MigrationOptions)
    """Which pods jobs move."""

    @property
    @override
    def policies(self) -> Mapping[str, DefragPolicy]:
        return self.state.plugin(DefragPolicies).policies

    @override
    def begin(self, policy: DefragPolicy, shown: Mapping[str, Any]) -> _DefragRounds:
        moves, recent = read_moves(shown)
        return _DefragRounds(uid=policy.uid, moves=moves, recent=recent)

    @override
    async def run(
        self, settings: DefragSettings, rounds: _DefragRounds, inputs: RoundInputs, now: float
    ) -> None:
        rounds.recent = [time for time in rounds.recent if time > now - HOUR]
        rounds.running = inputs.running
        left = settings.left(rounds.recent, now) if settings.moves else settings.per_plan
        exempt = exempt_ordered(self.state, inputs.ordered)
        context = PreemptionContext(now, inputs.budgets, pending=lambda: find_pending(self.state))
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

    def _count(self, settings: DefragSettings, rounds: _DefragRounds) -> None:
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
        options = DefragOptions(
            self.min_runtime, self.max_per_day, left, MOST_STEPS, self.scoring, self.migration
        )
        return plan_moves(self.state, subject.unit, options, exempt, context)

    async def _order(
        self, subject: DefragSubject, plan: MovePlan, rounds: _DefragRounds, now: float
    ) -> None:
        for step in find_first_steps(plan):
            for order in _make_orders(subject, step):
                is_new = await self.order(order, rounds)
                if is_new is None:
                    return
                if is_new:
                    rounds.running += 1
                    rounds.recent.append(now)

    @override
    def tell(self, settings: DefragSettings, rounds: _DefragRounds) -> tuple[str, str]:
        if not settings.moves:
            return "Advising", f"{rounds.planned} pods would be moved, and none is"
        text = f"{rounds.moves} moves were ordered so far, {rounds.running} of them under way"
        return "Defragmenting", text

    def shapes(self) -> Iterable[tuple[tuple[str, str, str], float]]:
        """Yield policy, shape, ``now`` or ``together``, and how many fit."""
        for name, rounds in self._rounds.items():
            for count in rounds.counts:
                yield (name, str(count.shape), "now"), count.fitting
                yield (name, str(count.shape), "together"), count.possible


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
            DefragmentationPolicies.creator,
            move.target,
            group=step.moves[0].pod.uid if size > 1 else "",
            group_size=size if size > 1 else 0,
        )


def _make_fields(rounds: _DefragRounds, plans: list[DefragPlan], now: float) -> dict[str, Any]:
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
