"""The rounds of DefragmentationPolicies, and their status: for the operator of the same name.

A round searches moves for what a policy names, and orders PodMigrationJobs for one plan at a time:
those of its steps whose places are free now. When these jobs are over, the next round plans again
with what has become of them. What is the same for all policies stands in ``rounds``.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Event
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
    find_first_steps,
)
from koord.core.defrag.round import (
    DefragFinding,
    DefragFindings,
    DefragQuestion,
    DefragSubject,
    search_round,
)
from koord.core.defrag.search import DefragOptions
from koord.core.defrag.shapes import ShapeCount
from koord.core.engine.state import ClusterState
from koord.core.model.reasons import Reason
from koord.kube.migration_jobs import MoveOrder
from koord.kube.translate.defrag import read_moves

TRIGGER: Final = "Defragmentation"


@dataclass(slots=True, kw_only=True)
class _DefragRounds(Rounds):
    recent: list[float]
    """When the moves of the last hour were ordered."""
    counts: tuple[ShapeCount, ...] = ()
    planned: int = 0
    """Pods that the last round would move."""
    running: int = 0
    """Jobs of policies that are not over."""


@dataclass(slots=True)
class DefragmentationPolicies(PolicyRounds[DefragSettings, _DefragRounds]):
    """Rounds of DefragmentationPolicies."""

    creator: ClassVar = "koord-defragmentationpolicy"
    while_paused: ClassVar = "nothing is searched while spec.paused is true"
    take_snapshot: Callable[[], Callable[[], ClusterState]]
    """Notes what is observed now; what it returns makes a state of it, in any thread."""
    options: DefragOptions = field(default_factory=DefragOptions)

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
        options = replace(self.options, most_moves=left)
        question = DefragQuestion(settings, now, inputs.budgets, inputs.ordered, options)
        findings = await self._search(question)
        rounds.counts = findings.counts
        plans = [
            (finding.subject, finding.outcome)
            for finding in findings.findings
            if isinstance(finding.outcome, MovePlan) and finding.outcome.steps
        ]
        rounds.planned = sum(len(plan.moves) for _, plan in plans)
        may_move = settings.moves and not rounds.running and settings.is_open(now)
        if plans and may_move and self._is_in_force(settings, rounds):
            await self._order(*plans[0], rounds, now)
        rounds.fields = _make_fields(rounds, map(_describe, findings.findings), now)

    async def _search(self, question: DefragQuestion) -> DefragFindings:
        """Search in a thread, on a copy: the loop has other work to do meanwhile."""
        make_state, is_cancelled = self.take_snapshot(), Event()
        try:
            return await asyncio.to_thread(
                lambda: search_round(make_state(), question, is_cancelled.is_set)
            )
        finally:
            is_cancelled.set()

    def _is_in_force(self, settings: DefragSettings, rounds: _DefragRounds) -> bool:
        """Whether a policy still says what was searched for."""
        return any(
            policy.uid == rounds.uid and policy.settings == settings
            for policy in self.policies.values()
        )

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


def _describe(finding: DefragFinding) -> DefragPlan:
    title, outcome = finding.subject.title, finding.outcome
    if isinstance(outcome, Reason):
        return DefragPlan.model_validate({"for": title, "message": outcome.text()})
    moves = [
        DefragMove(pod=move.pod.key, node=move.source, target=move.target, step=number)
        for number, step in enumerate(outcome.steps, 1)
        for move in step.moves
    ]
    return DefragPlan.model_validate(
        {"for": title, "moves": moves, "proven": outcome.proof.is_cheapest}
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


def _make_fields(rounds: _DefragRounds, plans: Iterable[DefragPlan], now: float) -> dict[str, Any]:
    status = DefragmentationPolicyStatus(
        last_round_time=to_time(now),
        shapes=[
            DefragShape(shape=str(count.shape), fitting=count.fitting, possible=count.possible)
            for count in rounds.counts
        ],
        plans=list(plans),
        moves=rounds.moves,
        recent_moves=[int(time) for time in rounds.recent],
    )
    return status.encode_set()
