"""The status of PodGroups: for the operator ``podgroup``.

All of it is derived from objects, so the operator may run alone. Only the placement operator knows
why a complete gang is not placed: what it reports is taken over here if it runs in this process,
and is left to it otherwise. ``Placed`` is said here of gangs that cannot be planned at all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.answers.standing import STARTED
from koord.api import podgroup
from koord.api.keys import operators
from koord.api.parse import Problem, cut
from koord.api.resource import to_time
from koord.controllers.coalescing import Pause
from koord.controllers.endangered_members import EndangeredMembers
from koord.controllers.history import HistoryRecorder
from koord.controllers.placement_reports import PlacementReports, read_gang_report
from koord.controllers.status_author import INVALID, StatusAuthor, Validation
from koord.core.engine.state import ClusterState
from koord.core.gang.reasons import (
    InconsistentGroup,
    InvalidAnnotation,
    MemberOnFailedNode,
    MemberOnLeavingNode,
    MissingMembers,
)
from koord.core.gang.status import ConditionType, GangStatus, observe
from koord.core.model.changes import Feed
from koord.core.model.gang_history import Episode, Happened, find_eviction
from koord.core.model.gangs import BadValue, BondRecord, GangKey, GangPhase, ObservedPodGroup
from koord.core.model.reasons import Reason
from koord.core.model.text import format_time
from koord.core.model.topology_constraint import TopologyConstraint
from koord.core.topology.reasons import MissingTopology, UnknownLayer
from koord.core.topology.strategy.observation import observe_gang_topology
from koord.kube.status import ConditionPatch, StatusPatch, conditions_of

PAUSE = Pause(0.8, 1.5)
_PAUSE_WHILE_EMPTY = Pause(3.0, 4.0)
"""For a new group without pods: mostly they are about to be created."""
REWORD_SECONDS = 10.0
"""A status that differs only in its wording is written after this long: where hundreds of gangs
start together, the messages of all of them count the members of all of them."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The status of a gang, and when it was written (monotonic)."""

    generation: int
    fields: Mapping[str, Any]
    conditions: tuple[ConditionPatch, ...]
    at: float
    validation: Validation | None
    """None: Kopf had not shown it, so it was not written."""

    def differs_in_wording_only(self, other: "_Written") -> bool:
        """Whether only messages differ, and some do."""
        return (
            self.conditions != other.conditions
            and (self.generation, self.fields) == (other.generation, other.fields)
            and self.validation == other.validation
            and _without_words(self.conditions) == _without_words(other.conditions)
        )


@dataclass(slots=True)
class PodGroupStatusPolicy:
    """Observes gangs that changed, and those whose wait time has run out.

    ``clock`` is monotonic, ``wall_clock`` returns seconds since the epoch.
    """

    state: ClusterState
    author: StatusAuthor[GangKey, ObservedPodGroup]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    history: HistoryRecorder
    present: Callable[[str], Mapping[str, Any] | None]
    """Returns the observed status of a PodGroup, by uid."""
    reports: PlacementReports | None = None
    """What placement says of gangs, if it runs in this process."""
    _written: dict[GangKey, _Written] = field(default_factory=dict)
    endangered: EndangeredMembers = field(init=False)
    _layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topology -> its layers, none if there is no tree."""
    _feed: Feed | None = None
    """Opened when first read: a process that does not lead must not collect changes."""

    def __post_init__(self) -> None:
        self.endangered = EndangeredMembers(self.state)

    def changed(self) -> set[GangKey]:
        if self._feed is None:
            self._feed = self.state.feed()
        changes = self._feed.drain()
        gangs = changes.gangs | self.endangered.on_changed(changes.freed | changes.removed)
        return gangs | self._on_changed_topologies()

    def pause_for(self, gang: GangKey) -> Pause:
        return _PAUSE_WHILE_EMPTY if self._is_new(gang) else PAUSE

    def _is_new(self, gang: GangKey) -> bool:
        """Whether no pod has joined and no status was written, so none can be wrong."""
        pod_group = self.state.gangs.pod_group(gang)
        is_empty = not self.state.gangs.members(gang)
        return is_empty and (pod_group is None or pod_group.phase is GangPhase.UNSET)

    async def update(self, gang: GangKey) -> float | None:
        if self._is_in_flight(gang):
            return PAUSE.quiet
        pod_group = self.state.gangs.pod_group(gang)
        if pod_group is None:
            self._written.pop(gang, None)
            return None
        now = self.wall_clock()
        status = observe(self.state.gangs, gang, now)
        again = None
        if status.timeout_at is not None and status.timeout_at > now:
            again = status.timeout_at - now
        new, is_urgent = self._make(gang, pod_group, status)
        written = self._written.get(gang)
        if written is not None and not is_urgent and new.differs_in_wording_only(written):
            remaining = written.at + REWORD_SECONDS - new.at
            if remaining > 0:
                return remaining if again is None else min(remaining, again)
        self._written[gang] = new
        self.author.write_status(pod_group, new.fields, new.conditions, is_urgent=is_urgent)
        self._tell(pod_group, new, written)
        return again

    def _tell(self, pod_group: ObservedPodGroup, new: _Written, written: _Written | None) -> None:
        """Record what has happened since the last status, written by us or by our predecessor."""
        if written is not None:
            held = {
                (condition.type, condition.reason)
                for condition in written.conditions
                if condition.status
            }
        else:
            conditions = conditions_of(self.present(pod_group.uid) or {})
            held = {
                (kind, shown.get("reason", ""))
                for kind, shown in conditions.items()
                if shown["status"] == "True"
            }
        for condition in new.conditions:
            what = _EPISODES.get(condition.type)
            # A gang on failed nodes is degraded before it falls below its minimum.
            if (
                what is not None
                and condition.status
                and (condition.type, condition.reason) not in held
            ):
                self.history.record(pod_group, what, condition.message)

    def _make(
        self, gang: GangKey, pod_group: ObservedPodGroup, status: GangStatus
    ) -> tuple[_Written, bool]:
        """Return the status, and whether it says something that people wait for."""
        validation = self.author.validation_of(pod_group.uid)
        conditions = _conditions(
            status,
            () if validation is None else validation.problems,
            self._find_unknown_topology(gang) or self._find_unknown_sub_groups(gang),
            find_eviction(pod_group.history),
            compat=self.state.gangs.compat,
        )
        conditions = _degrade(conditions, self.endangered.find(gang))
        conditions += self._report_preemption(pod_group, status)
        report = self._take_report(pod_group)
        conditions = _add_report(conditions, report.conditions)
        conditions += self._report_start(pod_group, conditions)
        wait_reason = pod_group.wait_reason if self.reports is None else ""
        state = _name_state(wait_reason, status, conditions)
        fields = {
            **_make_status(status, self._placement(gang, status), state).encode_set(),
            **report.fields,
            **self.history.fields_of(pod_group.uid),
        }
        new = _Written(pod_group.generation, fields, conditions, self.clock(), validation)
        return new, report.is_urgent

    def _take_report(self, pod_group: ObservedPodGroup) -> StatusPatch:
        """Return what placement says of a gang; what an earlier process said until it does."""
        if self.reports is None:
            return StatusPatch()
        report = self.reports.take(pod_group.uid)
        return read_gang_report(self.present(pod_group.uid) or {}) if report is None else report

    def _report_preemption(
        self, pod_group: ObservedPodGroup, status: GangStatus
    ) -> tuple[ConditionPatch, ...]:
        """Return ``Preempted``: True from an eviction until the gang runs as a whole again.

        False stays, so that members lost later, for other causes, are not laid to it. It is not
        said before True was: the history may be seen before the deletions are.
        """
        episode = find_eviction(pod_group.history)
        if episode is None or episode.what != Happened.PREEMPTED:
            return ()
        kind, when = str(ConditionType.PREEMPTED), format_time(episode.time)
        present = conditions_of(self.present(pod_group.uid) or {}).get(kind, {})
        since = str(present.get("lastTransitionTime", ""))
        is_over = present.get("status") == "False" and since >= when
        if not is_over and not _runs_whole(status):
            return (ConditionPatch(kind, True, _PREEMPTED, f"At {when}: {episode.text()}"),)
        if not present:
            return ()
        text = f"It runs as a whole again. It was preempted at {when}."
        return (ConditionPatch(kind, False, _RUNS_AGAIN, text),)

    def _report_start(
        self, pod_group: ObservedPodGroup, conditions: tuple[ConditionPatch, ...]
    ) -> tuple[ConditionPatch, ...]:
        """Return ``Queued`` of a gang that has waited for its turn, and was placed since."""
        kind = str(ConditionType.QUEUED)
        has_waited = kind in conditions_of(self.present(pod_group.uid) or {})
        is_placed = any(
            condition.type == ConditionType.PLACED and condition.status for condition in conditions
        )
        if not (has_waited and is_placed):
            return ()
        return (ConditionPatch(kind, False, STARTED, "It waits no longer for its turn."),)

    def _is_in_flight(self, gang: GangKey) -> bool:
        """Whether members are being bound: their status is about to change."""
        assumed = self.state.assumed
        return bool(assumed) and any(uid in assumed for uid in self.state.gangs.members(gang))

    def _on_changed_topologies(self) -> set[GangKey]:
        """Return the gangs with constraints on topologies whose layers have changed."""
        book, before = self.state.topologies, self._layers
        trees = ((name, book.tree(name)) for name in book)
        self._layers = {name: () if tree is None else tree.layers for name, tree in trees}
        names = self._layers.keys() | before.keys()
        changed = {name for name in names if self._layers.get(name) != before.get(name)}
        if not changed:
            return set()
        gangs = self.state.gangs.keys()
        constraints = ((gang, self._constraint(gang)) for gang in gangs)
        return {
            gang
            for gang, topology_constraint in constraints
            if topology_constraint and topology_constraint.topology in changed
        }

    def _constraint(self, gang: GangKey) -> TopologyConstraint | None:
        spec = self.state.gangs.spec(gang)
        return None if spec is None else spec.topology

    def _find_unknown_topology(self, gang: GangKey) -> UnknownLayer | MissingTopology | None:
        """Return the topology or the layers that a gang names and that do not exist."""
        spec = self.state.gangs.spec(gang)
        if spec is None or spec.topology is None:
            return None
        named = {layer_constraint.layer for layer_constraint in spec.topology.layers}
        if spec.sub_groups is not None:
            named |= {group.layer for group in spec.sub_groups.groups if group.layer}
        name, topologies = spec.topology.topology, self.state.topologies
        tree = topologies.tree(name)
        if not named or (tree is not None and named <= set(tree.layers)):
            return None
        if tree is None:
            return MissingTopology(name, exists=name in topologies)
        return UnknownLayer(name, tuple(sorted(named - set(tree.layers))), tree.layers[1:])

    def _find_unknown_sub_groups(self, gang: GangKey) -> InvalidAnnotation | None:
        """Return sub-groups that members name and the gang does not list."""
        spec = self.state.gangs.spec(gang)
        listed = spec.sub_groups.by_name if spec is not None and spec.sub_groups is not None else ()
        named = {pod.sub_group for pod in self.state.gangs.members(gang).values()} - {"", *listed}
        problem = f"is on members, and {operators.SUB_GROUPS} does not list it"
        bad = (
            BadValue(operators.SUB_GROUP, cut(name), "the gang itself", problem) for name in named
        )
        values = tuple(sorted(bad, key=lambda bad_value: bad_value.value))
        return InvalidAnnotation(values) if values else None

    def _placement(self, gang: GangKey, status: GangStatus) -> podgroup.GroupPlacement | None:
        """Return where the members are; None if they are nowhere."""
        if not status.nodes:
            return None
        nodes, state = len(status.nodes), self.state
        where = observe_gang_topology(state.gangs, state.topologies, state.table.row_of, gang)
        if where is None:
            return podgroup.GroupPlacement(nodes=nodes)
        gap = None
        if where.gap is not None:
            layer, count = where.gap
            gap = f"{layer}: {count} more than may have been needed"
        return podgroup.GroupPlacement(
            nodes=nodes,
            topology=where.topology,
            layer=where.layer,
            domain="/".join(where.domain),
            domains_per_layer=dict(where.used),
            optimal=where.is_optimal,
            gap=gap,
        )


def _without_words(conditions: tuple[ConditionPatch, ...]) -> list[tuple[str, bool, str]]:
    return [(condition.type, condition.status, condition.reason) for condition in conditions]


def _make_status(
    status: GangStatus, placement: podgroup.GroupPlacement | None, state: str
) -> podgroup.PodGroupStatus:
    members, start = status.members, status.schedule_start
    sub_groups = [
        podgroup.SubGroupMembers(
            name=sub_group.name,
            min_member=sub_group.min_member,
            present=sub_group.present,
            placed=sub_group.placed,
            complete=sub_group.is_complete,
        )
        for sub_group in status.sub_groups
    ]
    return podgroup.PodGroupStatus(
        phase=str(status.phase),
        scheduled=members.bound,
        running=members.running,
        succeeded=members.succeeded,
        failed=members.failed,
        members=podgroup.GroupMembers(
            total=members.total,
            present=members.present,
            held=members.held,
            planned=members.planned,
            bound=members.bound,
            running=members.running,
            succeeded=members.succeeded,
            failed=members.failed,
            terminating=members.terminating,
        ),
        sub_groups=sub_groups or None,
        occupied_by=status.occupied_by or None,
        schedule_start_time=to_time(start) if start is not None else None,
        runs=list(map(_make_run, status.runs)) or None,
        plan_id=status.plan_id or None,
        incarnation=status.incarnation if status.plan_id else None,
        placement=placement,
        state=state,
    )


def _make_run(record: BondRecord) -> podgroup.GroupRun:
    named = [podgroup.GroupRunSubGroup(name=name, succeeded=n) for name, n in record.sub_groups]
    return podgroup.GroupRun(
        controller=record.bond.controller,
        start=record.bond.start,
        size=record.bond.size,
        succeeded=record.done,
        sub_groups=named or None,
    )


def _conditions(
    status: GangStatus,
    problems: tuple[Problem, ...],
    fault: UnknownLayer | MissingTopology | InvalidAnnotation | None,
    evicted: Episode | None = None,
    *,
    compat: bool = False,
) -> tuple[ConditionPatch, ...]:
    conditions = {
        kind: ConditionPatch(kind, is_true, reason.code, reason.text(compat=compat))
        for kind, is_true, reason in status.conditions
    }
    kind = ConditionType.SPEC_VALID
    if fault is not None and conditions[kind].status:
        conditions[kind] = ConditionPatch(kind, False, fault.code, fault.text())
    is_said = conditions[kind].reason == InvalidAnnotation.code
    if problems and not (is_said and all(map(_is_about_annotation, problems))):
        message = "; ".join(map(str, problems))
        conditions[kind] = ConditionPatch(kind, status=False, reason=INVALID, message=message)
    obstacle = _quorum_reason(status)
    is_silent = ConditionType.PLACED not in conditions and not status.is_denied
    if is_silent and obstacle is not None:
        kind, text = ConditionType.PLACED, obstacle.text()
        if evicted is not None and isinstance(obstacle, MissingMembers):
            text = f"{evicted.text()} {text}"
        conditions[kind] = ConditionPatch(kind, False, obstacle.code, text)
    return tuple(conditions.values())


_EPISODES: Final = {
    str(ConditionType.DEGRADED): Happened.DEGRADED,
    str(ConditionType.TIMEOUT): Happened.TIMED_OUT,
}
"""Condition that turns True -> what has happened."""


_PREEMPTED: Final = str(Happened.PREEMPTED)
_RUNS_AGAIN: Final = "RunsAgain"


def _runs_whole(status: GangStatus) -> bool:
    """Whether all wanted members run, none of them about to end, and nobody waits."""
    members = status.members
    is_bound = any(
        kind is ConditionType.BOUND and is_true for kind, is_true, _ in status.conditions
    )
    done = members.running + members.succeeded
    return is_bound and not members.terminating and done >= members.total


def _name_state(
    wait_reason: str, status: GangStatus, conditions: tuple[ConditionPatch, ...]
) -> str:
    """Return one word for people; it is never empty.

    ``wait_reason`` is what placement has written, in another process.
    """
    by_type = {condition.type: condition for condition in conditions}
    if by_type[ConditionType.DEGRADED].status and not _runs_on_failed_nodes(by_type):
        return str(ConditionType.DEGRADED)
    placed = by_type.get(ConditionType.PLACED)
    if placed is not None and not placed.status:
        return placed.reason
    waits = placed is None and wait_reason
    return wait_reason if waits else str(status.phase)


def _add_report(
    own: tuple[ConditionPatch, ...], reported: tuple[ConditionPatch, ...]
) -> tuple[ConditionPatch, ...]:
    """Add what placement says of a gang that waits, unless it is known by now that it does not.

    A report on a gang that has become incomplete, or was placed, is about to be retracted.
    """
    by_type = {condition.type: condition for condition in own}
    if ConditionType.PLACED in by_type:
        return own
    return tuple((by_type | {condition.type: condition for condition in reported}).values())


def _runs_on_failed_nodes(by_type: Mapping[str, ConditionPatch]) -> bool:
    endangered = {MemberOnFailedNode.code, MemberOnLeavingNode.code}
    return by_type[ConditionType.DEGRADED].reason in endangered


def _degrade(
    conditions: tuple[ConditionPatch, ...], members: MemberOnFailedNode | MemberOnLeavingNode | None
) -> tuple[ConditionPatch, ...]:
    """Set ``Degraded`` on a gang that has its minimum but may soon lose members."""
    if members is None:
        return conditions
    kind = ConditionType.DEGRADED
    degraded = ConditionPatch(kind, status=True, reason=members.code, message=members.text())
    return tuple(
        degraded if condition.type == kind and not condition.status else condition
        for condition in conditions
    )


def _is_about_annotation(problem: Problem) -> bool:
    return problem.field.startswith("metadata.annotations")


def _quorum_reason(status: GangStatus) -> Reason | None:
    """Return the reason why the gang cannot be planned at all, if there is one."""
    for kind, is_true, reason in status.conditions:
        if is_true:
            continue
        if kind is ConditionType.QUORUM_REACHED or isinstance(reason, InconsistentGroup):
            return reason
    return None
