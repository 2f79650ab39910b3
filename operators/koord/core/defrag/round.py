"""One round of a policy, on a state that nobody changes meanwhile: counts, searches, nothing else.

It may take seconds, and runs beside whatever else the process does: it must not reach anything that
others change.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from koord.core.defrag.model import MovePlan
from koord.core.defrag.policy import DefragSettings, exempt_ordered
from koord.core.defrag.search import DefragOptions, plan_moves
from koord.core.defrag.shapes import ShapeCount, count_shapes, make_shape_unit
from koord.core.engine.queue import find_pending
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import name_of
from koord.core.eviction.search import PreemptionContext
from koord.core.model.budgets import Budget
from koord.core.model.plan import Unit
from koord.core.model.reasons import Reason

MOST_SUBJECTS: Final = 20
"""Jobs and shapes for which one round searches."""


@dataclass(frozen=True, slots=True)
class DefragSubject:
    """Something that is to fit."""

    title: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class DefragQuestion:
    """What a round asks of a state: ``ordered`` are pods that have a job."""

    settings: DefragSettings
    now: float
    budgets: tuple[Budget, ...] = ()
    ordered: frozenset[str] = frozenset()
    options: DefragOptions = field(default_factory=DefragOptions)


@dataclass(frozen=True, slots=True)
class DefragFinding:
    """The moves after which a subject fits, or why there are none."""

    subject: DefragSubject
    outcome: MovePlan | Reason


@dataclass(frozen=True, slots=True)
class DefragFindings:
    """What a round has found, by subject."""

    counts: tuple[ShapeCount, ...] = ()
    findings: tuple[DefragFinding, ...] = ()


def search_round(
    state: ClusterState, question: DefragQuestion, is_cancelled: Callable[[], bool] = lambda: False
) -> DefragFindings:
    """Count shapes, and search moves for all that does not fit; less once it is cancelled."""
    settings = question.settings
    state.refresh()
    with closing(state.open_cycle()) as cycle:
        counts = tuple(count_shapes(state, cycle, settings.shapes))
    exempt = exempt_ordered(state, question.ordered)
    context = PreemptionContext(question.now, question.budgets, pending=lambda: find_pending(state))
    findings = []
    for subject in _choose(state, settings, counts, question.now):
        if is_cancelled():
            break
        outcome = plan_moves(state, subject.unit, question.options, exempt, context)
        findings.append(DefragFinding(subject, outcome))
    return DefragFindings(counts, tuple(findings))


def _choose(
    state: ClusterState, settings: DefragSettings, counts: Iterable[ShapeCount], now: float
) -> Iterator[DefragSubject]:
    """Yield what is to fit and may not: waiting jobs in their order, then shapes."""
    waiting = settings.choose(find_pending(state), now)
    for unit in waiting[:MOST_SUBJECTS]:
        yield DefragSubject(name_of(unit), unit)
    for count in counts:
        if not count.fitting:
            yield DefragSubject(str(count.shape), make_shape_unit(state, count.shape))
