"""What of a gang's group is to be planned now, as which units, or what is in the way.

Three steps, each for the group as a whole so that all of its gangs get the same answer:

1. *How the gangs stand*: minimum, policy, members that could start now, members that run.
2. *Permit*: the rule of ``permit`` over all gangs. If it says no, the first obstacle is the answer.
3. *Units*: what must start together is one unit; a group of which nothing more is required (it has
   started, or has its minimum) gives one unit per waiting pod.

A group counts as satisfied while a member that we released lives on a node. When none does, the
next members are a new incarnation and gather again; upstream never forgets, so that a workload
recreated under the same PodGroup starts there member by member.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from koord.core.gang.book import GangBook, order_of
from koord.core.gang.group import Group
from koord.core.gang.model import GangKey, GangSpec, MatchPolicy
from koord.core.gang.permit import Permit, Standing, permit_member
from koord.core.gang.tally import is_present
from koord.core.plan import Demand, Unit
from koord.core.pods import Pod
from koord.core.reasons import (
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    MissingGang,
    MissingMembers,
    MissingPodGroup,
    Reached,
    Reason,
    WaitingForForeignGate,
)

_NO_STANDING = Standing(min_member=0, policy=MatchPolicy.ONCE_SATISFIED, waiting=0, bound=0)


@dataclass(frozen=True, slots=True)
class Ready:
    """The units to plan now, none if nothing waits.

    ``behind_gates`` holds waiting members that are left out because others' gates stand on them.
    """

    units: tuple[Unit, ...] = ()
    behind_gates: tuple[Pod, ...] = ()


NotReady: TypeAlias = (
    MissingMembers | MissingPodGroup | MissingGang | InconsistentGroup | InvalidAnnotation
)


@dataclass(frozen=True, slots=True)
class _Muster:
    """The group of one gang at one moment, as the rules look at it."""

    book: GangBook
    key: GangKey
    group: Group
    satisfied: bool
    compat: bool

    def standing(self, gang: GangKey, waiting: int, *, idle: bool = False) -> Standing | None:
        """How a gang stands with ``waiting`` members that could start; None without settings.

        In an idle group nobody waits, so there is nothing that only-waiting could hold back: what
        runs is what counts.
        """
        spec = self.book.spec(gang)
        if spec is None:
            return None
        policy = spec.match_policy
        if idle and policy is MatchPolicy.ONLY_WAITING:
            policy = MatchPolicy.WAITING_AND_RUNNING
        bound = self.book.tally(gang).placed
        return Standing(min_member=spec.min_member, policy=policy, waiting=waiting, bound=bound)

    def present(self, gang: GangKey) -> Standing | None:
        """How a gang stands with every waiting member of ours, behind gates or not."""
        return self.standing(gang, self.book.tally(gang).waiting, idle=self.is_idle)

    def plannable(self, gang: GangKey) -> Standing | None:
        """How a gang stands with the waiting members that can be planned now."""
        return self.standing(gang, len(self.book.tally(gang).plannable), idle=self.is_idle)

    @property
    def is_idle(self) -> bool:
        """Whether no member of the group waits."""
        return not any(self.book.tally(gang).waiting for gang in self.group.gangs)

    def permits(self, standing: Callable[[GangKey], Standing | None]) -> Permit:
        """Ask the rule about the whole group, every gang of it seen as ``standing`` says."""
        group = map(standing, self.group.gangs)
        own = standing(self.key)
        return permit_member(own, group, satisfied=self.satisfied, compat=self.compat)

    def required(self, gang: GangKey) -> int:
        standing = self.plannable(gang) or _NO_STANDING
        return standing.required(satisfied=self.satisfied, compat=self.compat)


def is_satisfied(book: GangBook, key: GangKey, *, compat: bool = False) -> bool:
    """Whether the group of a gang has started and lives; upstream asks for any node at all."""
    tallies = [book.tally(gang) for gang in book.group(key).gangs]
    return any(tally.bound_alive if compat else tally.released for tally in tallies)


def find_quorum(book: GangBook, key: GangKey, *, compat: bool = False) -> Reached | NotReady:
    """Tell whether every gang of the group has the members it needs, placed or not."""
    return _find_quorum(_muster(book, key, compat=compat))


def count_quorum(book: GangBook, key: GangKey, *, compat: bool = False) -> Reached | MissingMembers:
    """Count members as ``find_quorum`` does, whatever else stands in the way."""
    return _count_quorum(_muster(book, key, compat=compat))


def count_members(book: GangBook, key: GangKey, *, compat: bool = False) -> tuple[GangCount, ...]:
    """Count the members of every gang of the group, as the quorum counts them."""
    muster = _muster(book, key, compat=compat)
    return tuple(_count(muster, gang) for gang in muster.group.gangs)


def demands(book: GangBook, key: GangKey, *, compat: bool = False) -> Ready | Reason:
    """Tell what of the group of a gang is to be planned now, or the first thing in the way."""
    muster = _muster(book, key, compat=compat)
    reached = _find_quorum(muster)
    if not isinstance(reached, Reached):
        return reached
    gangs = muster.group.gangs
    behind = _sort_members(pod for gang in gangs for pod in book.tally(gang).foreign.values())
    if muster.permits(muster.plannable) is not Permit.GO:
        return _blame_gates(behind)
    return Ready(units=_make_units(muster), behind_gates=tuple(behind))


def _muster(book: GangBook, key: GangKey, *, compat: bool) -> _Muster:
    satisfied = is_satisfied(book, key, compat=compat)
    return _Muster(book, key, book.group(key), satisfied=satisfied, compat=compat)


def _find_quorum(muster: _Muster) -> Reached | NotReady:
    return _find_obstacle(muster) or _count_quorum(muster)


def _count_quorum(muster: _Muster) -> Reached | MissingMembers:
    counts = [_count(muster, gang) for gang in muster.group.gangs]
    if muster.permits(muster.present) is Permit.GO:
        return Reached(tuple(counts))
    return MissingMembers(tuple(count for count in counts if count.present < count.min_member))


def _find_obstacle(muster: _Muster) -> NotReady | None:
    """Name what no number of members can mend: missing or unusable settings, one-sided lists.

    A group that has started awaits nobody: a sibling may be gone for good. Upstream still does.
    """
    book, group = muster.book, muster.group
    if book.spec(muster.key) is None:
        return _explain_no_settings(book, muster.key)
    if muster.satisfied and not muster.compat:
        return None
    for lister, silent in group.unreturned:
        return InconsistentGroup(lister, silent)
    for lister, absent in group.absent:
        if missing := tuple(gang for gang in absent if gang not in book):
            return MissingGang(lister, missing)
        return _explain_no_settings(book, absent[0])
    return None


def _explain_no_settings(book: GangBook, key: GangKey) -> MissingPodGroup | InvalidAnnotation:
    """Say why a gang with members has no settings: no PodGroup, or nobody brought a minimum."""
    if book.tally(key).label_claims or not book.members(key):
        return MissingPodGroup(key)
    first = min(book.members(key).values(), key=order_of)
    return InvalidAnnotation(first.gang.bad_values if first.gang is not None else ())


def _count(muster: _Muster, gang: GangKey) -> GangCount:
    standing = muster.present(gang) or _NO_STANDING
    waiting_only = standing.policy is MatchPolicy.ONLY_WAITING
    present = standing.waiting + (0 if waiting_only else standing.bound)
    return GangCount(gang, present, standing.min_member, waiting_only=waiting_only)


def _blame_gates(behind: Sequence[Pod]) -> WaitingForForeignGate:
    """Every member is there, so those that cannot be planned are the ones behind gates."""
    gates = sorted({gate for pod in behind for gate in pod.foreign_gates})
    return WaitingForForeignGate(pod=behind[0].key, gates=tuple(gates), pods=len(behind))


def _make_units(muster: _Muster) -> tuple[Unit, ...]:
    made = [_make_demand(muster, gang) for gang in muster.group.gangs]
    made = [demand for demand in made if demand.pods]
    if not any(demand.required for demand in made):
        return tuple(_make_single(muster, demand, pod) for demand in made for pod in demand.pods)
    return (
        Unit(
            key=muster.group.id,
            demands=tuple(made),
            group=muster.group.id,
            priority=max(pod.priority for demand in made for pod in demand.pods),
            since=max(completed_at(muster.book, gang) for gang in muster.group.gangs),
            is_repair=any(_needs_repair(muster, gang) for gang in muster.group.gangs),
        ),
    )


def _make_demand(muster: _Muster, gang: GangKey) -> Demand:
    pods = _sort_members(muster.book.tally(gang).plannable.values())
    return Demand(gang=gang, pods=tuple(pods), required=muster.required(gang))


def _make_single(muster: _Muster, demand: Demand, pod: Pod) -> Unit:
    return Unit(
        key=pod.uid,
        demands=(replace(demand, pods=(pod,), required=1),),
        group=muster.group.id,
        priority=pod.priority,
        since=pod.created,
        is_repair=_needs_repair(muster, demand.gang),
    )


def _sort_members(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (-pod.priority, *order_of(pod)))


def _needs_repair(muster: _Muster, gang: GangKey) -> bool:
    """Tell whether a started gang is below its minimum; who succeeded is not lost."""
    tally = muster.book.tally(gang)
    spec = muster.book.spec(gang)
    return (
        muster.satisfied and spec is not None and tally.placed + tally.succeeded < spec.min_member
    )


def completed_at(book: GangBook, gang: GangKey) -> float:
    """When the member that completed the quorum was created: the same after a restart."""
    spec: GangSpec | None = book.spec(gang)
    created = sorted(pod.created for pod in book.members(gang).values() if is_present(pod))
    if spec is None or not created:
        return 0.0
    return created[min(max(spec.min_member, 1), len(created)) - 1]
