"""What edits of the cluster would change: for what waits and runs, and for shares of quotas.

Everything is planned by the planner before and after the edits, on a copy. Nothing is written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from koord.answers.edits import Edit, Trial, apply_edits
from koord.answers.encoding import encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.explain import PlacementState
from koord.answers.pending import find_pending
from koord.answers.preemption import find_plan
from koord.answers.queue_view import QueueEntry, view_queue
from koord.answers.reading import Reading
from koord.answers.redaction import ONE_UNIT, HiddenName, Sight, redact
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.units import format_amount
from koord.core.quota.model import QuotaName

_POD: Final = "Pod"
_GANG: Final = "PodGroup"
MOST_SEARCHES: Final = 8
"""Units for which victims are searched."""


@dataclass(frozen=True, slots=True, order=True)
class UnitRef:
    """A gang, or a pod without one."""

    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """How it is with a unit; ``standing`` None: it does not exist."""

    standing: PlacementState | None
    reason: Reason | None = None

    @property
    def is_like(self) -> tuple[object, str]:
        """What makes two outcomes different."""
        return self.standing, "" if self.reason is None else self.reason.code


_GONE: Final = UnitOutcome(None)
_HIDDEN: Final = HiddenName("")


@dataclass(frozen=True, slots=True)
class UnitChange:
    """A unit that is not as before."""

    ref: UnitRef
    before: UnitOutcome
    after: UnitOutcome


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The share of a quota that is not as before."""

    quota: QuotaName
    resource: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class EvictedUnit:
    """A unit of which pods would be preempted, and for which one."""

    ref: str
    pods: int
    by: UnitRef


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """What edits would change. ``first_problem`` is why the first unit waits that comes to wait.

    ``order`` are the units that wait then, as they are planned; ``gaps`` what was not looked at.
    """

    units: tuple[UnitChange, ...]
    shares: tuple[ShareChange, ...]
    evicted: tuple[EvictedUnit, ...]
    order: tuple[UnitRef, ...]
    gaps: tuple[AnswerGap, ...] = ()

    @property
    def first_problem(self) -> UnitChange | None:
        waiting = (change for change in self.units if change.after.standing is _WAITS)
        return next(waiting, None)


_WAITS: Final = PlacementState.WAITING
Outcomes: TypeAlias = Mapping[UnitRef, UnitOutcome]
_Shares: TypeAlias = Mapping[tuple[QuotaName, str], int]


def ask_what_if(
    reading: Reading,
    edits: Sequence[Edit],
    is_over: Callable[[], bool] = lambda: False,
    before: Outcomes | None = None,
) -> WhatIfAnswer:
    """Return what edits would change; may raise ``EditError``. The reading is as before then.

    Once ``is_over``, nothing more is searched, and the answer says so. ``before`` is what
    ``view_outcomes`` returns of the reading, if somebody has it: it plans all that waits.
    """
    state, trial = reading.state, Trial(reading.state)
    if before is None:
        before = view_outcomes(reading)
    shares = view_shares(state)
    try:
        apply_edits(trial, edits)
        after, then = view_outcomes(reading), view_shares(state)
        changes = tuple(_compare(before, after))
        evicted, gaps = _find_evicted(reading, changes, is_over)
    finally:
        trial.undo()
        state.refresh()
    answer = WhatIfAnswer(
        changes,
        tuple(compare_shares(shares, then)),
        evicted,
        tuple(ref for ref, outcome in after.items() if outcome.standing is _WAITS),
        gaps,
    )
    return answer if reading.sight.is_whole else _hide_names(answer, reading.sight)


def _hide_names(answer: WhatIfAnswer, sight: Sight) -> WhatIfAnswer:
    """Return an answer without the names of units that the asker may not list."""

    def hide(ref: UnitRef) -> UnitRef:
        if sight.sees(ref.namespace):
            return ref
        return UnitRef(ref.kind, _HIDDEN, ONE_UNIT, _HIDDEN)

    answer = redact(answer, sight.hide)
    return replace(
        answer,
        units=tuple(replace(change, ref=hide(change.ref)) for change in answer.units),
        evicted=tuple(replace(unit, by=hide(unit.by)) for unit in answer.evicted),
        order=tuple(map(hide, answer.order)),
    )


def view_shares(state: ClusterState) -> _Shares:
    """Return (quota, resource) -> the share."""
    if not state.quotas.is_in_use:
        return {}
    ledger = state.open_ledger()
    return {
        (name, key): share
        for name in ledger.names()
        for key, share in sorted(ledger.account(name).share.items())
    }


def compare_shares(before: _Shares, after: _Shares) -> Iterator[ShareChange]:
    """Yield the shares that differ; those of quotas that are gone come last."""
    for quota, key in dict.fromkeys((*after, *before)):
        was, then = before.get((quota, key), 0), after.get((quota, key), 0)
        if was != then:
            yield ShareChange(quota, key, was, then)


def view_outcomes(reading: Reading) -> Outcomes:
    """Return how it is with everything that waits, in order, and then with what has its nodes."""
    state = reading.state
    state.refresh()
    outcomes: dict[UnitRef, UnitOutcome] = {}
    for entry in view_queue(state, Scoring(), reading.reclaim):
        standing = PlacementState.PLACEABLE if entry.starts else PlacementState.WAITING
        for ref in _refs_of(state, entry):
            outcomes[ref] = UnitOutcome(standing, None if entry.starts else entry.reason)
    bound = UnitOutcome(PlacementState.BOUND)
    for key in sorted({_unit_of(pod) for pod in state.pods.values() if pod.is_alive and pod.node}):
        outcomes.setdefault(_make_ref(state, *key), bound)
    return outcomes


def _unit_of(pod: Pod) -> tuple[str, str]:
    return (_POD, pod.key) if pod.gang is None else (_GANG, pod.gang.key)


def _refs_of(state: ClusterState, entry: QueueEntry) -> Iterator[UnitRef]:
    kind = _POD if entry.kind == "pod" else _GANG
    return (_make_ref(state, kind, name) for name in entry.names)


def _make_ref(state: ClusterState, kind: str, key: str) -> UnitRef:
    group = state.gangs.pod_group(key) if kind == _GANG else None
    namespace, _, name = key.partition("/")
    return UnitRef(kind, namespace, name, "" if group is None else group.uid)


def _compare(
    before: Mapping[UnitRef, UnitOutcome], after: Mapping[UnitRef, UnitOutcome]
) -> Iterator[UnitChange]:
    """Yield what differs: in the order of planning afterwards, then what is gone."""
    for ref in (*after, *(ref for ref in before if ref not in after)):
        was, then = before.get(ref, _GONE), after.get(ref, _GONE)
        if was.is_like != then.is_like:
            yield UnitChange(ref, was, then)


def _find_evicted(
    reading: Reading, changes: Sequence[UnitChange], is_over: Callable[[], bool]
) -> tuple[tuple[EvictedUnit, ...], tuple[AnswerGap, ...]]:
    """Find whom the operators would preempt for what comes to wait for room."""
    settings, state = reading.preemption, reading.state
    if settings is None or not settings.enabled:
        return (), ()
    waiting = [
        change
        for change in changes
        if change.after.reason is not None and change.after.reason.is_capacity
    ]
    units = {name: unit for unit in find_pending(state) for name in _names_of(unit.pods)}
    evicted: list[EvictedUnit] = []
    for at, change in enumerate(waiting):
        if at >= MOST_SEARCHES or is_over():
            left = f"whom {len(waiting) - at} of the units would preempt"
            return tuple(evicted), (AnswerGap("victims", GapCause.TOO_EXPENSIVE, left),)
        unit = units.get(f"{change.ref.namespace}/{change.ref.name}")
        plan = unit and find_plan(state, unit, settings, PreemptionContext(state.now))
        if isinstance(plan, Preemption):
            evicted += [
                EvictedUnit(victim.name, len(victim.pods), change.ref) for victim in plan.victims
            ]
    return tuple(evicted), ()


def _names_of(pods: Sequence[Pod]) -> set[str]:
    return {pod.key if pod.gang is None else pod.gang.key for pod in pods}


@encode.register
def _(outcome: UnitOutcome) -> dict[str, Any]:
    reason = outcome.reason
    return {
        "standing": outcome.standing,
        "reason": None if reason is None else reason.code,
        "message": None if reason is None else reason.text(),
    }


@encode.register
def _(change: ShareChange) -> dict[str, Any]:
    return {
        "quota": change.quota,
        "resource": change.resource,
        "before": format_amount(change.resource, change.before),
        "after": format_amount(change.resource, change.after),
    }


@encode.register
def _(answer: WhatIfAnswer) -> dict[str, Any]:
    problem = answer.first_problem
    return {
        "units": encode(answer.units),
        "shares": encode(answer.shares),
        "evicted": encode(answer.evicted),
        "firstProblem": None
        if problem is None
        else {"ref": encode(problem.ref), **encode(problem.after)},
        "order": encode(answer.order),
    }
