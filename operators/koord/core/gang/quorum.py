"""What of a gang's group is to be planned now, as which units, or what is in the way.

Three steps, for the group as a whole, so that all of its gangs get the same answer:

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
from functools import cached_property
from typing import TypeAlias

from koord.core.gang.book import GangBook, order_of
from koord.core.gang.model import GangKey, MatchPolicy
from koord.core.gang.permit import Permit, Standing, permit_member
from koord.core.gang.tally import is_placed, is_present
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
    """The units to plan now, none if nothing waits; members behind gates of others are left out."""

    units: tuple[Unit, ...] = ()


NotReady: TypeAlias = (
    MissingMembers | MissingPodGroup | MissingGang | InconsistentGroup | InvalidAnnotation
)


def is_satisfied(book: GangBook, key: GangKey, *, compat: bool = False) -> bool:
    """Whether the group of a gang has started and lives; upstream asks for any node at all."""
    return _muster(book, key, compat=compat).is_satisfied


def find_quorum(book: GangBook, key: GangKey, *, compat: bool = False) -> Reached | NotReady:
    """Tell whether every gang of the group has the members it needs, placed or not."""
    return _muster(book, key, compat=compat).quorum


def has_minimum(book: GangBook, key: GangKey) -> bool:
    """Whether the minimum of a gang has places that nobody can take away, or has succeeded."""
    spec, tally = book.spec(key), book.tally(key)
    return spec is None or tally.placed + tally.succeeded >= spec.min_member


def count_quorum(book: GangBook, key: GangKey, *, compat: bool = False) -> Reached | MissingMembers:
    """Count members as ``find_quorum`` does, whatever else stands in the way."""
    return _muster(book, key, compat=compat).count


def count_members(book: GangBook, key: GangKey, *, compat: bool = False) -> tuple[GangCount, ...]:
    """Count the members of every gang of the group, as the quorum counts them."""
    return _muster(book, key, compat=compat).members


def completed_at(book: GangBook, key: GangKey) -> float:
    """Tell when the member that completed the group was created: the same after a restart."""
    return _muster(book, key, compat=False).completed_at


def demands(book: GangBook, key: GangKey, *, compat: bool = False) -> Ready | Reason:
    """Tell what of the group of a gang is to be planned now, or the first thing in the way."""
    return _muster(book, key, compat=compat).demands


def _muster(book: GangBook, key: GangKey, *, compat: bool) -> "_Muster":
    """Look at a group; asked about again, it is looked at anew only if something has changed."""
    return book.recall(key, _muster_compat if compat else _muster_ours)


def _muster_ours(book: GangBook, key: GangKey) -> "_Muster":
    return _Muster(book, key, compat=False)


def _muster_compat(book: GangBook, key: GangKey) -> "_Muster":
    return _Muster(book, key, compat=True)


class _Muster:
    """One group at one moment, as the rules look at it; each answer is found once."""

    def __init__(self, book: GangBook, key: GangKey, *, compat: bool) -> None:
        self._book = book
        self._key = key
        self._group = book.group(key)
        self._compat = compat
        tallies = [book.tally(gang) for gang in self._group.gangs]
        self._is_idle = not any(tally.waiting for tally in tallies)
        self.is_satisfied = any(
            tally.bound_alive if compat else tally.released for tally in tallies
        )

    @cached_property
    def demands(self) -> Ready | Reason:
        """See the function of this name."""
        if not isinstance(self.quorum, Reached):
            return self.quorum
        if not self._is_permitted(self._plannable):
            tallies = map(self._book.tally, self._group.gangs)
            return _blame_gates(_sort_members(p for one in tallies for p in one.foreign.values()))
        return Ready(self._make_units())

    @cached_property
    def quorum(self) -> Reached | NotReady:
        """See ``find_quorum``."""
        return self._find_obstacle() or self.count

    @cached_property
    def count(self) -> Reached | MissingMembers:
        """See ``count_quorum``."""
        if self._is_permitted(self._present):
            return Reached(self.members)
        short = (count for count in self.members if count.present < count.min_member)
        return MissingMembers(tuple(short))

    @cached_property
    def members(self) -> tuple[GangCount, ...]:
        """See ``count_members``."""
        return tuple(self._count(gang) for gang in self._group.gangs)

    @cached_property
    def completed_at(self) -> float:
        """See the function of this name."""
        return max(_completed_at(self._book, gang) for gang in self._group.gangs)

    def _present(self, gang: GangKey) -> Standing | None:
        """How a gang stands with every waiting member of ours, behind gates or not."""
        return self._standing(gang, self._book.tally(gang).waiting)

    def _plannable(self, gang: GangKey) -> Standing | None:
        """How a gang stands with the waiting members that can be planned now."""
        return self._standing(gang, len(self._book.tally(gang).plannable))

    def _standing(self, gang: GangKey, waiting: int) -> Standing | None:
        """How a gang stands with ``waiting`` members that could start; None without settings.

        In an idle group nobody waits, so there is nothing that only-waiting could hold back: what
        runs is what counts. So it is in a group whose start was cut off, as by a crash: who has a
        node already and who waits are members of the same start.
        """
        spec = self._book.spec(gang)
        if spec is None:
            return None
        policy = spec.match_policy
        if policy is MatchPolicy.ONLY_WAITING and (self._is_idle or self._is_cut_off):
            policy = MatchPolicy.WAITING_AND_RUNNING
        bound = self._book.tally(gang).placed
        return Standing(min_member=spec.min_member, policy=policy, waiting=waiting, bound=bound)

    @cached_property
    def _is_cut_off(self) -> bool:
        """Whether members wait that were released by the same plan as others that have a place."""
        begun: set[str] = set()
        waiting: set[str] = set()
        for gang in self._group.gangs:
            for pod in self._book.members(gang).values():
                if pod.recorded is not None and pod.is_alive:
                    (begun if is_placed(pod) else waiting).add(pod.recorded.plan_id)
        return not begun.isdisjoint(waiting)

    def _is_permitted(self, standing: Callable[[GangKey], Standing | None]) -> bool:
        """Ask the rule about the whole group, every gang of it seen as ``standing`` says."""
        permit = permit_member(
            standing(self._key),
            map(standing, self._group.gangs),
            satisfied=self.is_satisfied,
            compat=self._compat,
        )
        return permit is Permit.GO

    def _find_obstacle(self) -> NotReady | None:
        """Name what no number of members can mend: missing or unusable settings, one-sided lists.

        A group that has started awaits nobody: a sibling may be gone for good. Upstream still does.
        """
        if self._book.spec(self._key) is None:
            return self._explain_no_settings(self._key)
        if self.is_satisfied and not self._compat:
            return None
        for lister, silent in self._group.unreturned:
            return InconsistentGroup(lister, silent)
        for lister, absent in self._group.absent:
            if missing := tuple(gang for gang in absent if gang not in self._book):
                return MissingGang(lister, missing)
            return self._explain_no_settings(absent[0])
        return None

    def _explain_no_settings(self, gang: GangKey) -> MissingPodGroup | InvalidAnnotation:
        """Say why a gang with members has none: no PodGroup, or nobody brought a minimum."""
        members = self._book.members(gang)
        if self._book.tally(gang).label_claims or not members:
            return MissingPodGroup(gang)
        first = min(members.values(), key=order_of)
        return InvalidAnnotation(first.gang.bad_values if first.gang is not None else ())

    def _count(self, gang: GangKey) -> GangCount:
        standing = self._present(gang) or _NO_STANDING
        waiting_only = standing.policy is MatchPolicy.ONLY_WAITING
        present = standing.waiting + (0 if waiting_only else standing.bound)
        tally = self._book.tally(gang)
        return GangCount(
            gang,
            present,
            standing.min_member,
            waiting_only=waiting_only,
            strangers=tally.alive - tally.present,
        )

    def _make_units(self) -> tuple[Unit, ...]:
        made = [self._make_demand(gang) for gang in self._group.gangs]
        made = [demand for demand in made if demand.pods]
        if not any(demand.required for demand in made):
            return tuple(self._make_single(demand, pod) for demand in made for pod in demand.pods)
        return (
            Unit(
                key=self._group.id,
                demands=tuple(made),
                group=self._group.id,
                priority=max(pod.priority for demand in made for pod in demand.pods),
                since=self.completed_at,
                is_repair=any(map(self._needs_repair, self._group.gangs)),
            ),
        )

    def _make_demand(self, gang: GangKey) -> Demand:
        standing = self._plannable(gang) or _NO_STANDING
        required = standing.required(satisfied=self.is_satisfied, compat=self._compat)
        pods = _sort_members(self._book.tally(gang).plannable.values())
        return Demand(gang=gang, pods=tuple(pods), required=required)

    def _make_single(self, demand: Demand, pod: Pod) -> Unit:
        return Unit(
            key=pod.uid,
            demands=(replace(demand, pods=(pod,), required=1),),
            group=self._group.id,
            priority=pod.priority,
            since=pod.created,
            is_repair=self._needs_repair(demand.gang),
        )

    def _needs_repair(self, gang: GangKey) -> bool:
        """Tell whether a started gang is below its minimum."""
        return self.is_satisfied and not has_minimum(self._book, gang)


def _blame_gates(behind: Sequence[Pod]) -> WaitingForForeignGate:
    """Every member is there, so those that cannot be planned are the ones behind gates."""
    gates = sorted({gate for pod in behind for gate in pod.foreign_gates})
    return WaitingForForeignGate(pod=behind[0].key, gates=tuple(gates), pods=len(behind))


def _sort_members(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (-pod.priority, *order_of(pod)))


def _completed_at(book: GangBook, gang: GangKey) -> float:
    spec = book.spec(gang)
    created = sorted(pod.created for pod in book.members(gang).values() if is_present(pod))
    if spec is None or not created:
        return 0.0
    return created[min(max(spec.min_member, 1), len(created)) - 1]
