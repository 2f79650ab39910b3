"""What edits of the cluster would change: for what waits and runs, and for shares of quotas.

Everything is planned by the planner before and after the edits, on a copy. Nothing is written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypedDict

from koord.answers.edits import Edit, Trial, UnitSource, apply_edits, find_members, is_bound
from koord.answers.encoding import Encoded, encode
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.explain import PlacementState
from koord.answers.outcomes import Decision, Explainer, Outcomes, view_outcomes
from koord.answers.preemption import find_plan
from koord.answers.reading import Reading
from koord.answers.reason_context import ContextFinder
from koord.answers.redaction import ONE_UNIT, HiddenName, Sight, redact
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext
from koord.core.model.plan import Unit
from koord.core.model.reasons import Reason
from koord.core.model.text import plural
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
_BOUND: Final = UnitOutcome(PlacementState.BOUND)
_OTHERS: Final = UnitOutcome(PlacementState.NOT_OURS)
_Shares: TypeAlias = Mapping[tuple[QuotaName, str], int]


def ask_what_if(
    reading: Reading,
    edits: Sequence[Edit],
    is_over: Callable[[], bool] = lambda: False,
    before: Outcomes | None = None,
    most_changes: int | None = None,
) -> WhatIfAnswer:
    """Return what edits would change; may raise ``EditError``. The reading is as before then.

    ``most_changes`` is how many objects edits may change. Once ``is_over``, nothing more is planned
    or searched, and the answer says so. ``before`` is what ``view_outcomes`` returns of the
    reading, if somebody has it: else it is planned whole.
    """
    state, trial = reading.state, Trial(reading.state, most_changes)
    if before is None:
        before = view_outcomes(state)
    shares = view_shares(state)
    try:
        apply_edits(trial, edits)
        after, then = view_outcomes(state, is_over), view_shares(state)
        pairs = list(_find_pairs(trial, before, after))
        changes = list(_tell_after(reading, trial, after, pairs))
        evicted, gaps = _find_evicted(reading, list(_list_refused(pairs, changes)), is_over)
        waiting = (source for source, decision in after.waiting.items() if not decision.starts)
        order = tuple(_make_ref(trial, source) for source in waiting)
    finally:
        trial.undo()
        state.refresh()
    answer = WhatIfAnswer(
        tuple(_tell_before(reading, before, pairs, changes)),
        tuple(compare_shares(shares, then)),
        evicted,
        order,
        (*_find_gaps(before, after), *gaps),
    )
    return answer if reading.sight.is_whole else _hide_names(answer, reading.sight)


def _find_gaps(before: Outcomes, after: Outcomes) -> Iterator[AnswerGap]:
    left = len(before.left | after.left)
    if left:
        units = plural(len(after.waiting.keys() | after.left), "unit")
        unknown = f"what becomes of {left} of {units} that wait"
        yield AnswerGap("units", GapCause.TOO_EXPENSIVE, unknown)


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


@dataclass(frozen=True, slots=True)
class _Pair:
    """A source that is not as before; a decision is None if it did not wait, or does not."""

    source: UnitSource
    before: Decision | UnitOutcome
    after: Decision | UnitOutcome


def _find_pairs(trial: Trial, before: Outcomes, after: Outcomes) -> Iterator[_Pair]:
    """Yield what differs: in the order of planning afterwards, then what runs, or is gone."""
    state, unknown = trial.state, before.left | after.left
    for source, decision in after.waiting.items():
        was = before.waiting.get(source)
        if source in unknown:
            continue
        if was is None:
            yield _Pair(source, _view_before(trial, source), decision)
        elif was.differs_from(decision):
            yield _Pair(source, was, decision)
    sources = {*before.waiting, *trial.were_bound}.difference(after.waiting, unknown)
    for source in sorted(sources, key=lambda source: (not is_bound(state, source), source)):
        was_then = before.waiting.get(source) or _view_before(trial, source)
        is_now = _BOUND if is_bound(state, source) else _view_elsewhere(state, source)
        if was_then != is_now:
            yield _Pair(source, was_then, is_now)


def _view_before(trial: Trial, source: UnitSource) -> UnitOutcome:
    """Return how it was with what did not wait."""
    was_bound = trial.were_bound.get(source)
    if was_bound is None:
        was_bound = is_bound(trial.state, source)
    return _BOUND if was_bound else _GONE


def _view_elsewhere(state: ClusterState, source: UnitSource) -> UnitOutcome:
    """Return how it is with what neither waits for us nor has a node."""
    pods = find_members(state, source)
    return _OTHERS if any(pod.is_waiting and not pod.is_plannable for pod in pods) else _GONE


def _tell_after(
    reading: Reading, trial: Trial, after: Outcomes, pairs: Sequence[_Pair]
) -> Iterator[UnitChange]:
    """Yield changes with the reasons of now; those of before are not told yet."""
    explainer = _make_explainer(reading, after)
    for pair in pairs:
        ref, then = _make_ref(trial, pair.source), _tell(pair.after, explainer)
        yield UnitChange(ref, _GONE, then)


def _tell_before(
    reading: Reading, before: Outcomes, pairs: Sequence[_Pair], changes: Sequence[UnitChange]
) -> Iterator[UnitChange]:
    """Yield changes with the reasons of before, in the state as it was then."""
    explainer = _make_explainer(reading, before)
    for pair, change in zip(pairs, changes, strict=True):
        yield replace(change, before=_tell(pair.before, explainer))


def _make_explainer(reading: Reading, outcomes: Outcomes) -> Explainer:
    contexts = ContextFinder(reading.state, reading.reclaim, is_once=True)
    return Explainer(outcomes, contexts)


def _tell(outcome: Decision | UnitOutcome, explainer: Explainer) -> UnitOutcome:
    if isinstance(outcome, UnitOutcome):
        return outcome
    if outcome.starts:
        return UnitOutcome(PlacementState.PLACEABLE)
    return UnitOutcome(_WAITS, explainer.explain(outcome))


def _make_ref(trial: Trial, source: UnitSource) -> UnitRef:
    """Return how a source is called, with the uid that its PodGroup has, or had."""
    namespace, _, name = source.key.partition("/")
    if not source.is_gang:
        return UnitRef(_POD, namespace, name)
    group = trial.state.gangs.pod_group(source.key) or trial.groups.get(source.key)
    return UnitRef(_GANG, namespace, name, "" if group is None else group.uid)


def _find_evicted(
    reading: Reading,
    waiting: Sequence[tuple[UnitChange, Unit]],
    is_over: Callable[[], bool],
) -> tuple[tuple[EvictedUnit, ...], tuple[AnswerGap, ...]]:
    """Find whom the operators would preempt for what comes to wait for room."""
    settings, state = reading.preemption, reading.state
    if settings is None or not settings.enabled:
        return (), ()
    evicted: list[EvictedUnit] = []
    for at, (change, unit) in enumerate(waiting):
        if at >= MOST_SEARCHES or is_over():
            left = f"whom {len(waiting) - at} of the units would preempt"
            return tuple(evicted), (AnswerGap("victims", GapCause.TOO_EXPENSIVE, left),)
        plan = find_plan(state, unit, settings, PreemptionContext(state.now))
        if isinstance(plan, Preemption):
            evicted += [
                EvictedUnit(victim.name, len(victim.pods), change.ref) for victim in plan.victims
            ]
    return tuple(evicted), ()


def _list_refused(
    pairs: Sequence[_Pair], changes: Sequence[UnitChange]
) -> Iterator[tuple[UnitChange, Unit]]:
    """Yield what is refused now for lack of room, and was not, or for another reason."""
    for pair, change in zip(pairs, changes, strict=True):
        decision, reason = pair.after, change.after.reason
        unit = decision.unit if isinstance(decision, Decision) else None
        if unit is not None and reason is not None and reason.is_capacity:
            yield change, unit


class UnitRefDocument(TypedDict):
    """A gang, or a pod without one; without names if it is not the asker's to see."""

    kind: str
    namespace: str | None
    name: str | None
    uid: str | None


@encode.register
def _(ref: UnitRef) -> UnitRefDocument:
    namespace, name, uid = (
        None if isinstance(text, HiddenName) else text
        for text in (ref.namespace, ref.name, ref.uid)
    )
    return {"kind": ref.kind, "namespace": namespace, "name": name, "uid": uid}


class UnitOutcomeDocument(TypedDict):
    """How it is with a unit; ``standing`` is null if it does not exist."""

    standing: PlacementState | None
    reason: str | None
    message: str | None


class FirstProblemDocument(UnitOutcomeDocument):
    """Why the first unit waits that comes to wait."""

    ref: Encoded[UnitRef]


@encode.register
def _(outcome: UnitOutcome) -> UnitOutcomeDocument:
    reason = outcome.reason
    return {
        "standing": outcome.standing,
        "reason": None if reason is None else reason.code,
        "message": None if reason is None else reason.text(),
    }


class ShareChangeDocument(TypedDict):
    """The share of a quota before and after."""

    quota: str | None
    resource: str
    before: str
    after: str


@encode.register
def _(change: ShareChange) -> ShareChangeDocument:
    return {
        "quota": encode(change.quota),
        "resource": change.resource,
        "before": format_amount(change.resource, change.before),
        "after": format_amount(change.resource, change.after),
    }


class WhatIfAnswerDocument(TypedDict):
    """What edits would change; ``order`` is what waits then, as it is planned."""

    units: list[Encoded[UnitChange]]
    shares: list[Encoded[ShareChange]]
    evicted: list[Encoded[EvictedUnit]]
    firstProblem: FirstProblemDocument | None
    order: list[Encoded[UnitRef]]


@encode.register
def _(answer: WhatIfAnswer) -> WhatIfAnswerDocument:
    problem, first = answer.first_problem, None
    if problem is not None:
        outcome: UnitOutcomeDocument = encode(problem.after)
        first = FirstProblemDocument(ref=encode(problem.ref), **outcome)
    return {
        "units": encode(answer.units),
        "shares": encode(answer.shares),
        "evicted": encode(answer.evicted),
        "firstProblem": first,
        "order": encode(answer.order),
    }
