"""When gangs start, what a release records on members, and which ones an interrupted start missed.

With ``w`` waiting members (those that would start together), ``b`` bound and alive ones, ``d``
done ones, and the minimum ``m``, a gang is ready:

===================  ==========================================================================
once-satisfied       ``w + b + d >= m``, or the gang was satisfied before and lives
waiting-and-running  ``w + b + d >= m``
only-waiting         ``w + d >= m``
===================  ==========================================================================

Koordinator takes any member with a node as proof that the group was satisfied, and so never adds
``b`` under once-satisfied. Here a member with a node proves that only if *we* released it; one that
somebody else placed (a launcher without our gate) counts as one member more. With ``compat`` the
rules are Koordinator's, where members that are done do not count.

The record of the first release is kept: a member whose binding failed and that is placed again
later keeps the group, the count and the id of its first start. A member that started alone has
none.

A crash may come between the first release and the last. The members that were not written to are
then known by the id of the start, which is made of all uids. Creation times alone do not identify
them: they have whole seconds, and a lost member may be replaced within one.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2s

from koord.core.gang.group import GroupId
from koord.core.gang.tally import is_placed, is_present
from koord.core.model.gangs import MatchPolicy
from koord.core.model.pods import Pod, RecordedPlan


@dataclass(frozen=True, slots=True)
class PermitState:
    """What one gang needs, and what it has at a moment."""

    min_member: int
    policy: MatchPolicy
    waiting: int
    bound: int
    done: int = 0
    """Members that have succeeded: so many fewer have to wait or run."""
    is_satisfied: bool = False
    """Whether it has started before, and has living members."""

    def required(self, *, compat: bool = False) -> int:
        """Return how many waiting members must start together for the gang to be ready."""
        needed = max(0, self.min_member - (0 if compat else self.done))
        if self.policy is MatchPolicy.ONLY_WAITING:
            return needed
        if self.policy is MatchPolicy.WAITING_AND_RUNNING:
            return max(0, needed - self.bound)
        if self.is_satisfied:
            return 0
        return max(0, needed - (0 if compat else self.bound))

    def is_ready(self, *, compat: bool = False) -> bool:
        return self.waiting >= self.required(compat=compat)


class Permit(StrEnum):
    """The answer for a member of a gang that fits on a node."""

    GO = "Go"
    WAIT = "Wait"
    UNKNOWN_GANG = "UnknownGang"


def permit_member(
    own: PermitState | None,
    group: Iterable[PermitState | None],
    *,
    compat: bool = False,
) -> Permit:
    """Decide for one member, which is among the waiting ones of ``own``.

    ``group`` holds every gang that must be ready, None for unknown ones.
    """
    if own is None:
        return Permit.UNKNOWN_GANG
    if all(
        permit_state is not None and permit_state.is_ready(compat=compat) for permit_state in group
    ):
        return Permit.GO
    return Permit.WAIT


@dataclass(frozen=True, slots=True)
class BindRecord:
    """The group that a member was released with, the size of the start, and its id."""

    group: GroupId
    member_count: int
    start_id: str = ""


@lru_cache(maxsize=16)
def make_start_id(uids: frozenset[str]) -> str:
    """Identify a set of pods; the same for every member, whatever the order."""
    return blake2s("\0".join(sorted(uids)).encode(), digest_size=8).hexdigest()


def make_bind_record(pod: Pod, group: GroupId, released: Collection[str]) -> BindRecord | None:
    """Return what to record on ``pod`` when the pods with these uids are released together."""
    before = pod.recorded
    if before is not None and before.group == group and before.member_count > 1:
        return BindRecord(group, before.member_count, before.start_id)
    if not group or len(released) < 2 or pod.uid not in released:
        return None
    return BindRecord(group, len(released), make_start_id(frozenset(released)))


def find_unbound(members: Iterable[Pod]) -> list[Pod]:
    """Return the waiting members that were to start together with members that have a place.

    Those were released by the same plan, or first released in the same start. If the start is
    incomplete, further members belong to it, without a record or with that of an earlier start that
    failed: the older ones, which waited already, and those of the second in which the youngest was
    created if they complete the recorded set of pods.
    """
    members = list(members)
    begun = [pod.recorded for pod in members if pod.recorded is not None and is_placed(pod)]
    if not begun:
        return []
    plans, starts = (
        {recorded_plan.plan_id for recorded_plan in begun},
        {recorded_plan.start_id for recorded_plan in begun} - {""},
    )
    unbound: list[Pod] = []
    candidates: list[Pod] = []
    for pod in members:
        if pod.is_waiting and not is_placed(pod):
            recorded_plan = pod.recorded
            is_begun = recorded_plan is not None and (
                recorded_plan.plan_id in plans or recorded_plan.start_id in starts
            )
            (unbound if is_begun else candidates).append(pod)
    started = sum(pod.recorded is not None and bool(pod.node) for pod in members)
    if started >= max(plan.member_count for plan in begun):
        return unbound
    youngest = max(plan.youngest for plan in begun)
    candidates = [pod for pod in candidates if is_present(pod) and pod.created <= youngest]
    distinct = {(plan.plan_id, plan.start_id): plan for plan in begun}.values()
    completing = {uid for plan in distinct for uid in _completing(plan, members, candidates)}
    return unbound + [p for p in candidates if p.created < youngest or p.uid in completing]


def _completing(
    plan: RecordedPlan, members: Iterable[Pod], candidates: Iterable[Pod]
) -> frozenset[str]:
    """Return the other waiting members that complete the recorded start; none if they do not.

    Of more than are missing, the first in planning order were part of it.
    """
    if not plan.start_id:
        return frozenset()
    of_start = frozenset(
        pod.uid
        for pod in members
        if (member := pod.recorded)
        and (member.start_id == plan.start_id or member.plan_id == plan.plan_id)
    )
    ordered = sorted(candidates, key=lambda pod: (-pod.priority, pod.created, pod.name, pod.uid))
    missing = max(plan.member_count - len(of_start), 0)
    completing = frozenset(pod.uid for pod in ordered[:missing])
    return completing if make_start_id(of_start | completing) == plan.start_id else frozenset()
