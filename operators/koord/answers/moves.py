"""Which pods would have to move so that something fits, or so that nodes can be emptied.

Computed as by the operators, on a copy of the cluster; nothing is moved.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from koord.answers.encoding import encode
from koord.answers.pending import find_pending
from koord.answers.reading import ReportedPreemption
from koord.core.defrag.drain import DrainPlan, plan_drain
from koord.core.defrag.model import MovePlan, MoveStep
from koord.core.defrag.search import DefragOptions, plan_moves
from koord.core.engine.holds import assume_holds
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.search import PreemptionContext
from koord.core.migration.model import MigrationOptions
from koord.core.model.budgets import Budget
from koord.core.model.plan import Unit
from koord.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class MoveQuestion:
    """What is asked of a state at ``now``, and what spares pods.

    ``settings`` has the operators' settings; None if they are not known: then the defaults count.
    """

    state: ClusterState
    settings: ReportedPreemption | None = None
    budgets: tuple[Budget, ...] = ()
    now: float = 0.0
    migration: MigrationOptions = field(default_factory=MigrationOptions)

    def options(self) -> DefragOptions:
        """Return the options of the search."""
        settings = self.settings or ReportedPreemption()
        return DefragOptions(settings.min_runtime, settings.max_per_day, migration=self.migration)


@dataclass(frozen=True, slots=True)
class DefragAnswer:
    """The moves after which ``title`` fits, or why there are none."""

    title: str
    outcome: MovePlan | Reason


def ask_moves(question: MoveQuestion, unit: Unit, title: str) -> DefragAnswer:
    """Return the moves after which a unit fits."""
    holds = assume_holds(question.state, question.now)
    context = PreemptionContext(
        question.now,
        question.budgets,
        prepare=lambda cycle: holds.reserve(cycle, unit, Scoring()),
        pending=lambda: find_pending(question.state),
    )
    return DefragAnswer(
        title, plan_moves(question.state, unit, question.options(), context=context)
    )


def ask_drain(question: MoveQuestion, nodes: tuple[str, ...]) -> DrainPlan:
    """Return what would become of the pods of some nodes."""
    context = PreemptionContext(
        question.now, question.budgets, pending=lambda: find_pending(question.state)
    )
    return plan_drain(question.state, nodes, question.options(), context)


def _describe(step: MoveStep) -> dict[str, Any]:
    return {
        "kind": str(step.unit.kind),
        "name": step.unit.name,
        "moves": [
            {"pod": move.pod.key, "from": move.source, "to": move.target} for move in step.moves
        ],
    }


@encode.register
def _(answer: DefragAnswer) -> dict[str, Any]:
    outcome = answer.outcome
    if isinstance(outcome, Reason):
        return {
            "shape": answer.title,
            "fits": False,
            "reason": str(outcome.code),
            "message": outcome.text(),
            "advice": list(outcome.advice()),
        }
    return {
        "shape": answer.title,
        "fits": True,
        "moves": len(outcome.moves),
        "steps": [_describe(step) for step in outcome.steps],
        "placements": {
            assignment.pod.name: assignment.node for assignment in outcome.placement.assignments
        },
        "freed": list(outcome.freed),
        "cost": asdict(outcome.cost.cost),
        "proof": asdict(outcome.proof),
    }


@encode.register
def _(drain: DrainPlan) -> dict[str, Any]:
    return {
        "nodes": list(drain.nodes),
        "unknown": list(drain.unknown),
        "steps": [_describe(step) for step in drain.steps],
        "ending": [pod.key for pod in drain.ending],
        "stuck": [
            {"pod": stuck.pod.key, "node": stuck.pod.node, "rule": stuck.code, "why": stuck.text}
            for stuck in drain.stuck
        ],
    }
