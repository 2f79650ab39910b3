"""The planner: places units in order, or says why they do not fit.

Every unit is one transaction on the cycle: all its required pods are placed, or the cycle is rolled
back. The operators, ``koord explain`` and what-if questions use the same planner.

Within a unit, shapes with the least room come first, so that easier pods do not take their nodes.
Pods that did not fit are tried again after the others, which may have made nodes feasible for them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2s
from operator import attrgetter
from typing import Final

import numpy as np

from koord.core.engine.allocator import Allocator
from koord.core.engine.assigned import explain_assigned
from koord.core.engine.cycle import Cycle, Mark, Place
from koord.core.engine.plugin import Admission, StrategyResult, StrategyShare
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.engine.shortage import explain_shortage
from koord.core.engine.steps import TooManySteps, budget_of
from koord.core.model.kube_scheduler_reasons import NeedsKubeScheduler, PlacementUnknown
from koord.core.model.plan import Assignment, Demand, Placement, Plan, Unit, Unplaced
from koord.core.model.pods import Handling, Pod, PodShape
from koord.core.model.reasons import PinnedNodeUnfit, Reason, TooExpensive, TooLarge

_recorded_of: Final = attrgetter("recorded")


def plan(cycle: Cycle, units: Iterable[Unit], scoring: Scoring) -> Plan:
    """Plan units in the given order on ``cycle``, which afterwards contains the outcome.

    If ``cycle.steps`` are limited, the last units may be neither placed nor refused.
    """
    run = _Run(cycle, scoring)
    units = list(units)
    cycle.expect([pod for unit in units for demand in unit.demands for pod in demand.pods])
    for at, unit in enumerate(run.in_turn(units)):
        if at and cycle.steps.is_over:
            break
        run.decide(unit)
    return Plan(tuple(run.placements), tuple(run.refusals))


class _Run:
    """One call of :func:`plan`."""

    def __init__(self, cycle: Cycle, scoring: Scoring) -> None:
        self.placements: list[Placement] = []
        self.refusals: list[Unplaced] = []
        self._cycle, self._scoring, self._turns = cycle, scoring, cycle.ordering
        self._attempt = _Attempt(cycle, scoring)
        self._version = 0 if self._turns is None else self._turns.version

    def in_turn(self, units: Sequence[Unit]) -> Iterable[Unit]:
        if self._turns is None:
            return units
        return self._turns.in_turn(units, self._try_plan)

    def decide(self, unit: Unit) -> None:
        not_now = self._cycle.not_now(unit)
        if not_now is not None:
            self._refuse(Unplaced(unit.key, unit.pods, not_now), unit)
            return
        if self._cycle.before_unit is not None:
            self._cycle.before_unit(unit)
        mark = self._cycle.checkpoint()
        outcome, admission = self._place(unit)
        if isinstance(outcome, Placement) and not self._may_keep(unit, outcome):
            self._cycle.rollback(mark)
            outcome, admission = self._place(unit)
        if isinstance(outcome, Unplaced):
            self._cycle.rollback(mark)
            self._refuse(outcome, unit)
            return
        self.placements.append(outcome)
        if len(outcome.assignments) == len(unit.pods):
            return
        left_over = self._attempt.explain_left_over(admission.unit, outcome)
        left_over = _add_left(unit, admission, left_over)
        if left_over is not None:
            self.refusals.append(left_over)

    def _place(self, unit: Unit) -> tuple[Placement | Unplaced, Admission]:
        """Place a unit if it is admitted; who calls it rolls back."""
        cycle = self._cycle
        admission = _pre_filter(cycle, unit) if cycle.pre_filtering else Admission(unit)
        if isinstance(admission, Unplaced):
            return admission, Admission(unit)
        if self._turns is not None and self._turns.version != self._version:
            self._attempt, self._version = _Attempt(cycle, self._scoring), self._turns.version
        outcome = _decide(cycle, self._attempt, admission.unit)
        if isinstance(outcome, Unplaced) and cycle.relieving:
            outcome = self._relieve(admission.unit) or outcome
        if isinstance(outcome, Unplaced):
            if isinstance(outcome.reason, TooExpensive):
                self._attempt = _Attempt(cycle, self._scoring)  # the old one stopped anywhere
        elif cycle.pre_filtering:
            cycle.settle(admission.unit, [assignment.pod for assignment in outcome.assignments])
        return outcome, admission

    def _relieve(self, unit: Unit) -> Placement | None:
        """Plan a refused unit once more without the limits that may be lifted for it."""
        mark = self._cycle.checkpoint()
        lifted = [session.relieve(unit) for session in self._cycle.relieving]
        if not any(lifted):
            return None
        attempt = _Attempt(self._cycle, self._scoring)  # the shapes of the pods have changed
        outcome = _decide(self._cycle, attempt, unit)
        if isinstance(outcome, Placement):
            self._attempt = attempt
            return outcome
        self._cycle.rollback(mark)
        return None

    def _may_keep(self, unit: Unit, placement: Placement) -> bool:
        return self._turns is None or self._turns.may_keep(unit, placement)

    def _refuse(self, refusal: Unplaced, unit: Unit) -> None:
        reason = explain_assigned(self._cycle, unit, refusal.reason)
        if self._turns is not None:
            reason = self._turns.refused(unit, reason)
        self.refusals.append(replace(refusal, pods=unit.pods, reason=reason))

    def _try_plan(self, unit: Unit) -> Placement | Unplaced:
        """Plan a unit apart from the others, as if the cycle were another one."""
        run = _Run(self._cycle, self._scoring)
        outcome, _ = run._place(unit)
        return outcome


def _decide(cycle: Cycle, attempt: "_Attempt", unit: Unit) -> Placement | Unplaced:
    """Decide a unit within its budget."""
    pods, steps = unit.pods, cycle.steps
    before = steps.taken
    wasted = steps.wasted.get(pods[0].namespace, 0) if pods else 0
    most = budget_of(cycle.used.shape[1], len(pods), wasted)
    steps.begin(most)
    try:
        return attempt.decide(unit)
    except TooManySteps as error:
        taken = int(error.taken - steps.limit) + most
        rules = (pod.shape.constraints for pod in pods)
        terms = max((len(rule.selectors) for rule in rules if rule is not None), default=0)
        reason = TooExpensive(pods[0].key, len(pods), terms, taken, most, wasted)
        return Unplaced(unit.key, pods, reason)
    finally:
        steps.end()
        if pods:
            steps.spent[pods[0].namespace] += steps.taken - before


def _pre_filter(cycle: Cycle, unit: Unit) -> Admission | Unplaced:
    """Ask every session in order; each sees the unit as the one before has trimmed it."""
    admission = None
    for session in cycle.pre_filtering:
        trimmed = session.pre_filter(unit if admission is None else admission.unit)
        if isinstance(trimmed, Unplaced):
            return replace(trimmed, pods=unit.pods)
        if admission is not None:
            left = (*admission.left, *trimmed.left)
            trimmed = Admission(trimmed.unit, left, admission.reason or trimmed.reason)
        admission = trimmed
    return admission or Admission(unit)


def _add_left(unit: Unit, admission: Admission, refusal: Unplaced | None) -> Unplaced | None:
    """Return why surplus was not placed, including surplus that was not admitted."""
    if admission.reason is None:
        return refusal
    unplaced_pods = refusal.pods if refusal else ()
    return Unplaced(unit.key, (*unplaced_pods, *admission.left), admission.reason)


class _Attempt:
    """Plans units one by one. Refusals are cached until something is placed."""

    def __init__(self, cycle: Cycle, scoring: Scoring) -> None:
        self._cycle = cycle
        self._allocator = Allocator(cycle, scoring)
        self._refused: dict[tuple[PodShape, int], InsufficientNodes] = {}
        strategies = (
            session.strategy(partial(_keep_recorded, cycle)) for session in cycle.strategic
        )
        self._strategies = [strategy for strategy in strategies if strategy is not None]
        self._latest: tuple[Sequence[Pod], list[PodShape], list[PodShape]] = ((), [], [])
        self._result = StrategyResult([])
        """The result of a strategy for the current unit."""

    def decide(self, unit: Unit) -> Placement | Unplaced:
        pods = unit.pods
        reason = _blocking_reason(unit, self._cycle)
        if reason is not None:
            return Unplaced(unit.key, pods, reason)
        share = None
        for strategy in self._strategies:
            share = share or strategy.divide(unit)
        # Refusals by a strategy are not cached: they differ from those by all nodes together.
        is_plain = share is None and unit.required == len(pods)
        cache_key = self._cache_key_of(pods) if is_plain else None
        insufficient_nodes = None if cache_key is None else self._refused.get(cache_key)
        if insufficient_nodes is not None:
            return Unplaced(unit.key, pods, replace(insufficient_nodes, first=pods[0].key))
        self._result = StrategyResult([])
        placed = self._place(unit, pods) if share is None else self._place_share(unit, share)
        if not isinstance(placed, list):
            if cache_key is not None and isinstance(placed, InsufficientNodes):
                self._refused[cache_key] = placed
            return Unplaced(unit.key, pods, placed)
        self._refused.clear()
        for strategy in self._strategies:
            strategy.confirm(unit, placed)
        placed = _leave_open(self._cycle, unit, placed)
        placed.sort(key=lambda assignment: assignment.pod.key)
        plan_id, details = _plan_id(unit, placed), self._result.details
        strengths = unit.strengths_with({assignment.pod.uid for assignment in placed})
        return Placement(unit.key, plan_id, unit.group, tuple(placed), details, strengths)

    def explain_left_over(self, unit: Unit, placement: Placement) -> Unplaced | None:
        """Return why surplus pods of the unit just placed were not placed."""
        placed = {assignment.pod.uid for assignment in placement.assignments}
        unplaced = tuple(pod for pod in unit.pods if pod.uid not in placed)
        if not unplaced:
            return None
        reason = self._result.left_over.get(unplaced[0].uid)
        if reason is None:
            reason = explain_shortage(self._cycle, len(unplaced), unplaced[0])
        return Unplaced(unit.key, unplaced, reason)

    def _place_share(self, unit: Unit, share: StrategyShare) -> list[Assignment] | Reason:
        """Place some demands of a unit by a strategy, then the others."""
        mark = self._cycle.checkpoint()
        result = share.place()
        if not isinstance(result, StrategyResult):
            self._cycle.rollback(mark)
            return result if share.is_required else self._place(unit, unit.pods)
        remaining = replace(unit, demands=tuple(d for d in unit.demands if d not in share.demands))
        assignments = self._place(remaining, remaining.pods) if remaining.demands else []
        if not isinstance(assignments, list):
            self._cycle.rollback(mark)
            return assignments
        self._result = result
        return result.assignments + assignments

    def _place(self, unit: Unit, pods: Sequence[Pod]) -> list[Assignment] | InsufficientNodes:
        mark = self._cycle.checkpoint()
        placed = self._assign(pods, mark)
        if len(placed) == len(pods):
            return placed
        if placed and not unit.required:
            return placed
        if unit.required in {0, len(pods)}:
            return self._refuse(unit, pods, placed, mark)
        self._cycle.rollback(mark)
        return self._place_required_first(unit)

    def _place_required_first(self, unit: Unit) -> list[Assignment] | InsufficientNodes:
        """Place the quorum, then as much of the surplus as fits."""
        mark = self._cycle.checkpoint()
        for choose in (Demand.first_required, Demand.smallest_required):
            required = [pod for demand in unit.demands for pod in choose(demand)]
            placed = self._assign(required, mark)
            if len(placed) == len(required):
                return placed + self._assign_surplus(unit, {pod.uid for pod in required})
            if choose is Demand.first_required:
                self._cycle.rollback(mark)
        return self._refuse(unit, required, placed, mark)

    def _assign_surplus(self, unit: Unit, chosen: Collection[str]) -> list[Assignment]:
        """Place as many other pods as fit."""
        surplus = [pod for pod in unit.pods if pod.uid not in chosen]
        return self._assign(surplus, self._cycle.checkpoint())

    def _refuse(
        self,
        unit: Unit,
        wanted: Sequence[Pod],
        placed: list[Assignment],
        mark: Mark,
    ) -> InsufficientNodes:
        placed_uids = {assignment.pod.uid for assignment in placed}
        first = next(pod for pod in wanted if pod.uid not in placed_uids)
        want = max(unit.required, 1)
        reason = explain_shortage(
            self._cycle, want, first, [assignment.node for assignment in placed]
        )
        self._cycle.rollback(mark)
        return reason

    def _assign(self, pods: Sequence[Pod], mark: Mark) -> list[Assignment]:
        """Place as many pods as fit, within a restriction if all of them fit only that way.

        ``mark`` is that of this moment.
        """
        cycle = self._cycle
        placed = self._assign_once(pods)
        if len(placed) == len(pods) or not cycle.retrying:
            return placed
        shapes, distinct = self._shapes_of(pods)
        if not any(map(cycle.depends_on_others, distinct)):
            return placed
        counts = Counter(shapes)
        cycle.rollback(mark)
        for session in cycle.retrying:
            for rows in session.retry_within(counts):
                with cycle.only(rows):
                    placed = self._assign_once(pods)
                if len(placed) == len(pods):
                    return placed
                cycle.rollback(mark)
        return self._assign_once(pods)

    def _assign_once(self, pods: Sequence[Pod]) -> list[Assignment]:
        """Place as many pods as fit: released ones on their recorded nodes, then by shape."""
        assignments, waiting = self._keep_and_group(pods)
        while waiting:
            before = len(assignments)
            for shape in self._hardest_first(waiting):
                assignments += self._assign_shape(shape, waiting[shape])
            later = self._cycle.depends_on_others
            waiting = {shape: left for shape, left in waiting.items() if left and later(shape)}
            if len(assignments) == before:
                break
        return assignments

    def _keep_and_group(
        self, pods: Sequence[Pod]
    ) -> tuple[list[Assignment], dict[PodShape, list[Pod]]]:
        """Keep released pods on their recorded nodes if they fit; return the others by shape."""
        shapes, distinct = self._shapes_of(pods)
        if len(distinct) == 1 and not any(map(_recorded_of, pods)):
            return [], {distinct[0]: list(pods)}
        assignments: list[Assignment] = []
        waiting: dict[PodShape, list[Pod]] = {}
        for pod, shape in zip(pods, shapes, strict=True):
            kept = None if pod.recorded is None else _keep_recorded(self._cycle, pod)
            if kept is None:
                waiting.setdefault(shape, []).append(pod)
            else:
                assignments.append(kept)
        return assignments, waiting

    def _assign_shape(self, shape: PodShape, pods: list[Pod]) -> list[Assignment]:
        """Place pods of one shape; those that do not fit remain in ``pods``."""
        if self._cycle.needs_reserve(shape):
            return self._reserve_shape(shape, pods)
        shares = self._allocator.fill(shape, len(pods))
        table = self._cycle.table
        names = sorted(
            (int(table.name_rank[share.row]), table.node_at(share.row).name, share.count)
            for share in shares
        )
        nodes = [name for _, name, count in names for _ in range(count)]
        if nodes and len(nodes) < len(pods):
            pods.sort(key=_order_of)
        chosen, pods[:] = pods[: len(nodes)], pods[len(nodes) :]
        self._cycle.note_places(chosen, nodes)
        return [Assignment(pod, node) for pod, node in zip(chosen, nodes, strict=True)]

    def _reserve_shape(self, shape: PodShape, pods: list[Pod]) -> list[Assignment]:
        pods.sort(key=_order_of)
        placed = self._allocator.reserve(shape, pods)
        del pods[: len(placed)]
        node_at = self._cycle.table.node_at
        return [
            Assignment(pod, node_at(place.row).name, place.allocations) for pod, place in placed
        ]

    def _hardest_first(self, waiting: dict[PodShape, list[Pod]]) -> list[PodShape]:
        if len(waiting) < 2:
            return list(waiting)
        room = {shape: int(self._cycle.room(shape).sum()) for shape in waiting}
        return sorted(waiting, key=lambda shape: (room[shape], shape.requests, repr(shape)))

    def _shapes_of(self, pods: Sequence[Pod]) -> tuple[list[PodShape], list[PodShape]]:
        """Return the shapes of pods, and the distinct ones; cached for repeated calls."""
        if self._latest[0] is not pods:
            shapes = self._cycle.shapes_of(pods)
            is_one = shapes.count(shapes[0]) == len(shapes) if shapes else False
            self._latest = (pods, shapes, shapes[:1] if is_one else list(dict.fromkeys(shapes)))
        return self._latest[1:]

    def _cache_key_of(self, pods: Sequence[Pod]) -> tuple[PodShape, int] | None:
        """Return the key under which a refusal of these pods is cached; None: not cached."""
        if any(map(_recorded_of, pods)):
            return None
        _, distinct = self._shapes_of(pods)
        return (distinct[0], len(pods)) if len(distinct) == 1 else None


def _keep_recorded(cycle: Cycle, pod: Pod) -> Assignment | None:
    """Return a released pod's recorded node, if it still fits there.

    A pinned pod can go nowhere else and already counts as used on that node.
    """
    if pod.recorded is None:
        return None
    node = pod.recorded.node
    if pod.pinned:
        return Assignment(pod, node)
    row = cycle.table.row_of.get(node)
    shape = cycle.shape_of(pod)
    if row is None or not cycle.bounds(shape, np.array([row]))[0]:
        return None
    if cycle.needs_reserve(shape):
        place = cycle.reserve(pod, shape, row)
        return Assignment(pod, node, place.allocations) if isinstance(place, Place) else None
    cycle.place(shape, row)
    cycle.note_place(pod, Place(row))
    return Assignment(pod, node)


def _blocking_reason(unit: Unit, cycle: Cycle) -> Reason | None:
    """Return why the operators cannot place the pods of a unit on any node."""
    reasons = cycle.blocking_reasons(unit.pods)
    for pod in unit.pods:
        if pod.exceeded_limit is not None:
            return TooLarge(
                "pod",
                pod.key,
                pod.exceeded_limit.what,
                pod.exceeded_limit.count,
                pod.exceeded_limit.most,
            )
        if pod.shape.needs_kube_scheduler and not _is_bound_by_others(pod):
            return NeedsKubeScheduler(
                pod.key, pod.shape.needs_kube_scheduler, members=unit.required
            )
        if pod.pinned and pod.recorded and not cycle.can_stay(pod.shape, pod.recorded.node):
            return PinnedNodeUnfit(pod.key, pod.recorded.node)
        reason = _own_reason(pod, reasons)
        if isinstance(reason, PlacementUnknown):
            reason = _unless_alone(reason, unit)
        elif isinstance(reason, NeedsKubeScheduler):
            reason = replace(reason, members=unit.required)
        if reason is not None:
            return reason
    return None


def _own_reason(pod: Pod, reasons: Mapping[str, Reason]) -> Reason | None:
    reason, unsupported = reasons.get(pod.uid) if reasons else None, pod.shape.needs_kube_scheduler
    if unsupported and (reason is None or isinstance(reason, PlacementUnknown)):
        return PlacementUnknown(pod.key, unsupported)
    return reason


def _leave_open(cycle: Cycle, unit: Unit, placed: list[Assignment]) -> list[Assignment]:
    """Mark pods that are not pinned, as only kube-scheduler knows which nodes serve them.

    What was given or restricted by other rules than those of kube-scheduler needs the planned node.
    """
    theirs = [assignment.pod for assignment in placed if _is_bound_by_others(assignment.pod)]
    if not any(pod.may_need_kube_scheduler for pod in theirs):
        return placed
    reasons = cycle.blocking_reasons(theirs)
    constrained = (demand.pods for demand in unit.demands if demand.constraint is not None)
    tied = {pod.uid for pods in constrained for pod in pods}

    def is_open(assignment: Assignment) -> bool:
        pod, shape = assignment.pod, cycle.shape_of(assignment.pod)
        is_unknown = isinstance(_own_reason(pod, reasons), PlacementUnknown)
        is_narrowed = (shape.node_selector, shape.terms) != (
            pod.shape.node_selector,
            pod.shape.terms,
        )
        return is_unknown and not (assignment.allocations or is_narrowed or pod.uid in tied)

    return [
        replace(assignment, is_open=True)
        if _is_bound_by_others(assignment.pod) and is_open(assignment)
        else assignment
        for assignment in placed
    ]


def _unless_alone(reason: PlacementUnknown, unit: Unit) -> PlacementUnknown | None:
    """Refuse what may be served nowhere only if other pods start with it: they cannot be held."""
    return replace(reason, members=unit.required) if unit.required > 1 else None


def _is_bound_by_others(pod: Pod) -> bool:
    return pod.handling is Handling.RELEASE_PINNED


def _order_of(pod: Pod) -> tuple[int, float, str, str]:
    return (-pod.priority, pod.created, pod.name, pod.uid)


def _plan_id(unit: Unit, assignments: list[Assignment]) -> str:
    digest = blake2s(unit.key.encode(), digest_size=5)
    for assignment in assignments:
        digest.update(f"\0{assignment.pod.uid}\0{assignment.node}".encode())
    return digest.hexdigest()
