"""The status of a gang, computed from its members: phase, counts, conditions.

Depends on objects and the given time only, so it is the same after every restart. The condition
Placed is made here if it is True; the reasons why a gang is not placed come from the planner.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from koord.core.gang.cache import GangCache, order_of
from koord.core.gang.done import count_done, is_all_done, record_run
from koord.core.gang.group import Group
from koord.core.gang.lost_members import has_minimum, needed_strength
from koord.core.gang.phase import PhaseInput, make_occupied_by, settle_phase
from koord.core.gang.quorum import completed_at, find_lost, is_satisfied, report_quorum
from koord.core.gang.reasons import (
    AllBound,
    AtStrength,
    BelowMin,
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    PartiallyBound,
    Reached,
    ScheduleTimeout,
    SpecValid,
    WithinTime,
)
from koord.core.gang.sub_group_members import (
    SubGroupCount,
    count_sub_groups,
    first_incomplete,
    is_placed_whole,
    is_present_whole,
)
from koord.core.gang.tally import Tally, find_refused
from koord.core.model.gangs import GangKey, GangPhase, GangSpec, RunRecord
from koord.core.model.reasons import Planned, Reason


class ConditionType(StrEnum):
    """Condition types of a PodGroup."""

    QUORUM_REACHED = "QuorumReached"
    SPEC_VALID = "SpecValid"
    QUOTA_RESERVED = "QuotaReserved"
    PLACED = "Placed"
    BOUND = "Bound"
    DEGRADED = "Degraded"
    TIMEOUT = "Timeout"
    PREEMPTED = "Preempted"
    QUEUED = "Queued"


Condition: TypeAlias = tuple[ConditionType, bool, Reason]
"""Type, status, reason."""


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """Numbers of members by state, named as in ``status.members``."""

    total: int
    present: int
    held: int
    planned: int
    bound: int
    running: int
    succeeded: int
    failed: int
    terminating: int


@dataclass(frozen=True, slots=True)
class GangStatus:
    """The status of one gang.

    ``plan_id`` is that of the latest release of a living member, ``incarnation`` that of the
    first; both are empty if none was released by us. ``timeout_at`` is when Timeout turns True
    unless something changes before, None if no member waits to be placed. ``is_denied``: the
    status says that the planner does not place the gang. Placed is left to the planner then, as
    each of the two writers would overwrite the other without end.
    """

    key: GangKey
    phase: GangPhase
    members: MemberCounts
    occupied_by: str
    schedule_start: float | None
    conditions: tuple[Condition, ...]
    plan_id: str = ""
    incarnation: str = ""
    runs: RunRecord = ()
    nodes: tuple[str, ...] = ()
    timeout_at: float | None = None
    is_denied: bool = False
    sub_groups: tuple[SubGroupCount, ...] = ()


MAX_SUB_GROUPS: Final = 64
"""Sub-groups that a status lists: all, or the first of those that lack members."""
_BEFORE_SCHEDULING = frozenset(
    {GangPhase.UNSET, GangPhase.UNKNOWN, GangPhase.PENDING, GangPhase.PRE_SCHEDULING}
)


@dataclass(frozen=True, slots=True)
class _View:
    """The input of the conditions."""

    cache: GangCache
    key: GangKey
    spec: GangSpec
    tally: Tally
    now: float

    @property
    def done(self) -> int:
        return count_done(self.cache, self.key)

    @property
    def strength(self) -> int:
        return self.tally.bound_alive + self.done

    @property
    def has_place(self) -> bool:
        return self.strength + self.tally.planned >= self.spec.min_member

    @property
    def is_denied(self) -> bool:
        """Whether the status says that the planner does not place it.

        Released members that are not bound may not fit any more, which only the planner knows.
        """
        pod_group = self.cache.pod_group(self.key)
        is_reported = pod_group is not None and pod_group.attempts is not None
        return is_reported and not has_minimum(self.cache, self.key)

    @property
    def has_started(self) -> bool:
        return is_satisfied(self.cache, self.key)


def observe(cache: GangCache, key: GangKey, now: float) -> GangStatus:
    """Return the status of a gang at ``now``, in seconds since the epoch."""
    spec = cache.spec(key) or GangSpec(key=key, min_member=0, total=0, group=(key,))
    view = _View(cache, key, spec, cache.tally(key), now)
    pod_group = cache.pod_group(key)
    before = pod_group.phase if pod_group is not None else GangPhase.UNSET
    counts = _count_for_phase(view)
    is_settled = cache.compat and pod_group is not None and pod_group.is_settled
    path = (before,) if is_settled else settle_phase(before, counts)
    start = pod_group.schedule_start if pod_group is not None else None
    if start is None and path[-1] not in _BEFORE_SCHEDULING:
        start = now
    occupied_by = pod_group.occupied_by if pod_group is not None else ""
    if GangPhase.PRE_SCHEDULING in path and before is not GangPhase.PRE_SCHEDULING:
        occupied_by = _find_owners(cache, key) or occupied_by
    status = GangStatus(
        key=key,
        phase=path[-1],
        members=_count_members(spec, view.tally),
        occupied_by=occupied_by,
        schedule_start=start,
        conditions=(),
        sub_groups=first_incomplete(count_sub_groups(cache, key), MAX_SUB_GROUPS),
    )
    return _add_conditions(_add_plan(status, view), view)


def _count_for_phase(view: _View) -> PhaseInput:
    counts = PhaseInput(view.spec.min_member, view.tally, view.done, compat=view.cache.compat)
    if view.cache.compat or view.spec.sub_groups is None:
        return counts
    return replace(
        counts,
        is_whole_done=is_all_done(view.cache, view.key),
        is_whole_placed=is_placed_whole(view.cache, view.key),
        is_whole_present=is_present_whole(view.cache, view.key),
    )


def _find_owners(cache: GangCache, key: GangKey) -> str:
    first = min(cache.members(key).values(), key=order_of, default=None)
    names = () if first is None else tuple(owner.name for owner in first.owners)
    return make_occupied_by(first.namespace, names) if first is not None else ""


def _count_members(spec: GangSpec, tally: Tally) -> MemberCounts:
    return MemberCounts(
        total=max(spec.total, spec.min_member),
        present=len(tally.present),
        held=tally.held,
        planned=tally.planned,
        bound=tally.bound,
        running=tally.running,
        succeeded=tally.succeeded,
        failed=tally.failed,
        terminating=tally.terminating,
    )


def _add_plan(status: GangStatus, view: _View) -> GangStatus:
    living = [pod for pod in view.cache.members(view.key).values() if pod.is_alive]
    released = sorted((pod for pod in living if pod.recorded is not None), key=order_of)
    plans = [pod.recorded.plan_id for pod in released if pod.recorded is not None]
    return replace(
        status,
        plan_id=plans[-1] if plans else "",
        incarnation=plans[0] if plans else "",
        runs=() if view.cache.compat else record_run(view.cache, view.key),
        nodes=tuple(sorted({node for pod in living if (node := pod.planned_node)})),
    )


def _add_conditions(status: GangStatus, view: _View) -> GangStatus:
    quorum = _quorum(view)
    conditions = [quorum, _spec_valid(view)]
    if view.has_place and view.spec.min_member and not view.is_denied:
        pods = view.strength + view.tally.planned
        planned = Planned(pods, len(status.nodes), status.plan_id, view.tally.by_others)
        conditions.append((ConditionType.PLACED, True, planned))
    if view.strength:
        conditions.append(_bound(view))
    conditions.append(_degraded(view))
    is_pending = quorum[1] and not view.has_place and not view.has_started
    conditions.append(_timeout(view, is_pending=is_pending))
    timeout_at = _timeout_at(view) if is_pending else None
    return replace(
        status,
        conditions=tuple(conditions),
        timeout_at=timeout_at,
        is_denied=view.is_denied,
    )


def _quorum(view: _View) -> Condition:
    quorum = report_quorum(view.cache, view.key)
    return ConditionType.QUORUM_REACHED, isinstance(quorum, Reached), quorum


def _spec_valid(view: _View) -> Condition:
    group = view.cache.group(view.key)
    if group.unreturned:
        return ConditionType.SPEC_VALID, False, _own_first(group, view.key)
    if view.spec.bad_values:
        return ConditionType.SPEC_VALID, False, InvalidAnnotation(view.spec.bad_values)
    members = view.cache.members(view.key).values()
    used = {
        deprecated_key
        for pod in members
        if pod.gang is not None
        for deprecated_key in pod.gang.deprecated
    }
    return (
        ConditionType.SPEC_VALID,
        True,
        SpecValid(tuple(sorted(used, key=lambda deprecated_key: deprecated_key.key))),
    )


def _own_first(group: Group, key: GangKey) -> InconsistentGroup:
    """Return the one-sided list of the gang itself if there is one, else the first."""
    lister, silent = min(group.unreturned, key=lambda entry: (entry[0] != key, entry[0]))
    return InconsistentGroup(lister, silent)


def _bound(view: _View) -> Condition:
    present = len(view.tally.present) + view.done
    if view.strength >= view.spec.min_member and not view.tally.waiting:
        return ConditionType.BOUND, True, AllBound(view.strength, present)
    wanted = max(present, view.spec.min_member)
    return ConditionType.BOUND, False, PartiallyBound(view.strength, wanted)


def _degraded(view: _View) -> Condition:
    lost = find_lost(view.cache, view.key, with_planned=True)
    if not lost:
        return ConditionType.DEGRADED, False, AtStrength(view.has_place)
    needed = needed_strength(view.cache.gang(view.key))
    if view.spec.sub_groups is not None:
        needed = view.strength + sum(lost_member.missing for lost_member in lost)
    sub_groups = tuple(
        GangCount(f"{view.key}/{lost_member.sub_group}", lost_member.left, lost_member.needed)
        for lost_member in lost
        if lost_member.sub_group
    )
    refused = find_refused(view.cache.members(view.key).values())
    below = BelowMin(view.strength, needed, view.spec.on_member_failure, refused, sub_groups)
    return ConditionType.DEGRADED, True, below


def _timeout(view: _View, *, is_pending: bool) -> Condition:
    limit = view.spec.wait_seconds
    if is_pending and view.now >= _timeout_at(view):
        waited = int(view.now - _timeout_at(view)) + limit
        return ConditionType.TIMEOUT, True, ScheduleTimeout(waited, limit)
    return ConditionType.TIMEOUT, False, WithinTime(limit)


def _timeout_at(view: _View) -> float:
    """Return when the complete group will have waited as long as this gang allows."""
    return completed_at(view.cache, view.key) + view.spec.wait_seconds
