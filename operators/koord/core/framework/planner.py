"""The planner: takes units in order, finds a place for all that each needs, or says what is short.

Every unit is one transaction on the snapshot: all required pods of all its gangs are placed, or the
snapshot is rolled back to where it was. What a unit does not get, the next one may have. The same
planner serves the operators, ``koord explain`` and what-if questions.

Order of trying within a unit: shapes with the least room first, so that a picky pod is not left
without its node by an easy one. Pods that found no room by that may find some beside members that
were placed after them, so they are tried again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2s

from koord.core.framework.allocator import Allocator
from koord.core.framework.cycle import Checkpoint, Cycle
from koord.core.framework.reasons import InsufficientNodes
from koord.core.framework.scoring import Scoring
from koord.core.framework.shortage import explain_shortage
from koord.core.plan import Assignment, Demand, Placement, Plan, Refusal, Unit
from koord.core.plugins.affinity_seed import find_gatherings
from koord.core.plugins.reasons import VolumeNotReady
from koord.core.pods import Handling, Pod, PodShape
from koord.core.quota.session import Admitted
from koord.core.reasons import NeedsKubeScheduler, PinnedNodeUnfit, Reason
from koord.core.topology.strategy.gang_topology import StrategyResult, TopologyStrategy
from koord.core.topology_constraint import TopologyConstraint


def plan(snapshot: Cycle, units: Iterable[Unit], scoring: Scoring) -> Plan:
    """Decide units in the given order on ``snapshot``, which afterwards holds the outcome."""
    placements: list[Placement] = []
    refusals: list[Refusal] = []
    attempt = _Attempt(snapshot, scoring)
    units = list(units)
    _note_constraints(snapshot, units)
    for unit in units:
        admitted = snapshot.quotas.admit(unit) if snapshot.quotas else Admitted(unit)
        if isinstance(admitted, Refusal):
            refusals.append(admitted)
            continue
        outcome = attempt.decide(admitted.unit)
        if snapshot.quotas:
            snapshot.quotas.finish(admitted, outcome)
        if isinstance(outcome, Refusal):
            refusals.append(replace(outcome, pods=unit.pods))
            continue
        placements.append(outcome)
        left_over = admitted.add_left(attempt.explain_left_over(admitted.unit, outcome))
        if left_over is not None:
            refusals.append(left_over)
    return Plan(tuple(placements), tuple(refusals))


def _note_constraints(snapshot: Cycle, units: Iterable[Unit]) -> None:
    for unit in units:
        for pod in unit.pods:
            if pod.shape.constraints is not None:
                snapshot.note(pod.shape.constraints)


class _Attempt:
    """One pass over units. Refusals are remembered until something is placed."""

    def __init__(self, snapshot: Cycle, scoring: Scoring) -> None:
        self._snapshot = snapshot
        self._filler = Allocator(snapshot, scoring)
        self._refused: dict[tuple[PodShape, int], InsufficientNodes] = {}
        self._domains = TopologyStrategy(snapshot, self._keep_promise)
        self._gathered = StrategyResult([])
        """Of the unit that is being decided."""

    def decide(self, unit: Unit) -> Placement | Refusal:
        pods = unit.pods
        obstacle = _obstacle(pods, self._snapshot)
        if obstacle is not None:
            return Refusal(unit.key, pods, obstacle)
        wishes = self._domains.divide(unit)
        # What domains say goes before what all nodes together would.
        is_plain = not wishes and unit.required == len(pods)
        question = self._question_of(pods) if is_plain else None
        known = None if question is None else self._refused.get(question)
        if known is not None:
            return Refusal(unit.key, pods, replace(known, first=pods[0].key))
        self._gathered = StrategyResult([])
        placed = self._place_gathered(unit, wishes) if wishes else self._place(unit, pods)
        if not isinstance(placed, list):
            if question is not None and isinstance(placed, InsufficientNodes):
                self._refused[question] = placed
            return Refusal(unit.key, pods, placed)
        self._refused.clear()
        self._domains.confirm(unit, placed)
        placed.sort(key=lambda assignment: assignment.pod.key)
        plan_id, gathered = _plan_id(unit, placed), self._gathered.gathered
        strengths = unit.strengths_with({assignment.pod.uid for assignment in placed})
        return Placement(unit.key, plan_id, unit.group, tuple(placed), gathered, strengths)

    def explain_left_over(self, unit: Unit, placement: Placement) -> Refusal | None:
        """Return why surplus pods of the unit just placed were not placed."""
        placed = {assignment.pod.uid for assignment in placement.assignments}
        rest = tuple(pod for pod in unit.pods if pod.uid not in placed)
        if not rest:
            return None
        reason = self._gathered.left_over.get(rest[0].uid)
        if reason is None:
            reason = explain_shortage(self._snapshot, len(rest), 0, rest[0])
        return Refusal(unit.key, rest, reason)

    def _place_gathered(
        self, unit: Unit, wishes: dict[TopologyConstraint, list[Demand]]
    ) -> list[Assignment] | Reason:
        """Place a unit of which some gangs ask something of the network, the others after them."""
        mark = self._snapshot.checkpoint()
        gathered = self._domains.place(unit, wishes)
        if not isinstance(gathered, StrategyResult):
            self._snapshot.rollback(mark)
            is_asked = any(wish.layers or wish.nest for wish in wishes)
            return gathered if is_asked else self._place(unit, unit.pods)
        rest = replace(
            unit,
            demands=tuple(
                one for one in unit.demands if all(one not in met for met in wishes.values())
            ),
        )
        others = self._place(rest, rest.pods) if rest.demands else []
        if not isinstance(others, list):
            self._snapshot.rollback(mark)
            return others
        self._gathered = gathered
        return gathered.assignments + others

    def _place(self, unit: Unit, pods: Sequence[Pod]) -> list[Assignment] | InsufficientNodes:
        mark = self._snapshot.checkpoint()
        placed = self._assign(pods)
        if len(placed) == len(pods):
            return placed
        if not unit.required and any(one.least > 1 for one in unit.demands):
            self._snapshot.rollback(mark)
            placed = self._assign_surplus(unit, frozenset())
        if placed and not unit.required:
            return placed
        if unit.required in {0, len(pods)}:
            return self._refuse(unit, pods, placed, mark)
        self._snapshot.rollback(mark)
        return self._place_required_first(unit)

    def _place_required_first(self, unit: Unit) -> list[Assignment] | InsufficientNodes:
        """Quorum first, then as much of the surplus as there is room for."""
        mark = self._snapshot.checkpoint()
        for choose in (_first_required, _smallest_required):
            required = [pod for demand in unit.demands for pod in choose(demand)]
            placed = self._assign(required)
            if len(placed) == len(required):
                return placed + self._assign_surplus(unit, {pod.uid for pod in required})
            if choose is _first_required:
                self._snapshot.rollback(mark)
        return self._refuse(unit, required, placed, mark)

    def _assign_surplus(self, unit: Unit, chosen: Collection[str]) -> list[Assignment]:
        """Place more than the chosen, as there is room; of a sub-group at least what is of use.

        What is left of a chosen sub-group comes one by one, after the whole ones.
        """
        placed: list[Assignment] = []
        loose: list[Pod] = []
        for demand in unit.demands:
            rest = [pod for pod in demand.pods if pod.uid not in chosen]
            if demand.required or demand.least < 2:
                loose += rest
                continue
            mark = self._snapshot.checkpoint()
            found = self._assign(rest)
            if len(found) < demand.least:
                self._snapshot.rollback(mark)
            else:
                placed += found
        return placed + self._assign(loose)

    def _refuse(
        self,
        unit: Unit,
        wanted: Sequence[Pod],
        placed: list[Assignment],
        mark: Checkpoint,
    ) -> InsufficientNodes:
        has_place = {assignment.pod.uid for assignment in placed}
        first = next(pod for pod in wanted if pod.uid not in has_place)
        want = max(unit.required, 1)
        reason = explain_shortage(self._snapshot, want, len(placed), first)
        self._snapshot.rollback(mark)
        return reason

    def _assign(self, pods: Sequence[Pod]) -> list[Assignment]:
        """Place as many of ``pods`` as fit, gathered in one place if that is how all of them do."""
        mark = self._snapshot.checkpoint()
        placed = self._assign_once(pods)
        if len(placed) == len(pods) or not any(map(_has_affinity, _distinct(pods))):
            return placed
        self._snapshot.rollback(mark)
        shapes = Counter(self._snapshot.shapes_of(pods))
        for confined in find_gatherings(self._snapshot, shapes):
            self._snapshot.confined = confined
            placed = self._assign_once(pods)
            self._snapshot.confined = {}
            if len(placed) == len(pods):
                return placed
            self._snapshot.rollback(mark)
        return self._assign_once(pods)

    def _assign_once(self, pods: Sequence[Pod]) -> list[Assignment]:
        """Place as many of ``pods`` as fit: released ones where promised, then by shape."""
        assignments: list[Assignment] = []
        waiting: dict[PodShape, list[Pod]] = {}
        for pod, shape in zip(pods, self._snapshot.shapes_of(pods), strict=True):
            kept = None if pod.recorded is None else self._keep_promise(pod)
            if kept is None:
                waiting.setdefault(shape, []).append(pod)
            else:
                assignments.append(kept)
        while waiting:
            before = len(assignments)
            for shape in self._hardest_first(waiting):
                assignments += self._assign_shape(shape, waiting[shape])
            waiting = {s: left for s, left in waiting.items() if left and s.constraints is not None}
            if len(assignments) == before:
                break
        return assignments

    def _keep_promise(self, pod: Pod) -> Assignment | None:
        """Return a released pod's recorded node, if it still fits there.

        A pinned pod can go nowhere else and already counts as used on that node.
        """
        if pod.recorded is None:
            return None
        node = pod.recorded.node
        if pod.pinned:
            return Assignment(pod, node)
        row = self._snapshot.table.row_of.get(node)
        shape = self._snapshot.shape_of(pod)
        if row is None or not self._snapshot.room_at(shape, row):
            return None
        self._snapshot.place(shape, row)
        return Assignment(pod, node)

    def _assign_shape(self, shape: PodShape, pods: list[Pod]) -> list[Assignment]:
        """Place pods of one shape, and leave in ``pods`` those that found no room."""
        shares = self._filler.fill(shape, len(pods))
        table = self._snapshot.table
        names = sorted(
            (int(table.name_rank[share.row]), table.node_at(share.row).name, share.count)
            for share in shares
        )
        nodes = [name for _, name, count in names for _ in range(count)]
        if nodes and len(nodes) < len(pods):
            pods.sort(key=_order_of)
        chosen, pods[:] = pods[: len(nodes)], pods[len(nodes) :]
        return [Assignment(pod, node) for pod, node in zip(chosen, nodes, strict=True)]

    def _hardest_first(self, waiting: dict[PodShape, list[Pod]]) -> list[PodShape]:
        if len(waiting) < 2:
            return list(waiting)
        room = {shape: int(self._snapshot.room(shape).sum()) for shape in waiting}
        return sorted(waiting, key=lambda shape: (room[shape], shape.requests, repr(shape)))

    def _question_of(self, pods: Sequence[Pod]) -> tuple[PodShape, int] | None:
        """Return what pods that are all required ask, if others may ask exactly the same."""
        if any(pod.recorded for pod in pods):
            return None
        shapes = self._snapshot.shapes_of(pods)
        return (shapes[0], len(pods)) if len(set(map(id, shapes))) == 1 else None


def _obstacle(pods: Sequence[Pod], snapshot: Cycle) -> Reason | None:
    """Return what keeps pods from being placed by us wherever there may be room."""
    for pod in pods:
        if pod.shape.needs_kube_scheduler and pod.handling is not Handling.RELEASE_PINNED:
            return NeedsKubeScheduler(pod.key, pod.shape.needs_kube_scheduler)
        if pod.pinned and pod.recorded and not snapshot.holds(pod.shape, pod.recorded.node):
            return PinnedNodeUnfit(pod.key, pod.recorded.node)
        if not pod.claims:
            continue
        unready = snapshot.volume_obstacle(pod)
        if isinstance(unready, VolumeNotReady):
            return unready
        if unready is not None and pod.handling is not Handling.RELEASE_PINNED:
            return unready
    return None


def _distinct(pods: Sequence[Pod]) -> Iterable[PodShape]:
    return {id(pod.shape): pod.shape for pod in pods}.values()


def _has_affinity(shape: PodShape) -> bool:
    return shape.constraints is not None and bool(shape.constraints.affinity)


def _order_of(pod: Pod) -> tuple[int, float, str, str]:
    return (-pod.priority, pod.created, pod.name, pod.uid)


def _first_required(demand: Demand) -> Sequence[Pod]:
    return demand.pods[: demand.required]


def _smallest_required(demand: Demand) -> Sequence[Pod]:
    by_size = sorted(demand.pods, key=lambda pod: (max(n for _, n in pod.shape.requests), pod.key))
    return by_size[: demand.required]


def _plan_id(unit: Unit, assignments: list[Assignment]) -> str:
    digest = blake2s(unit.key.encode(), digest_size=5)
    for assignment in assignments:
        digest.update(f"\0{assignment.pod.uid}\0{assignment.node}".encode())
    return digest.hexdigest()
