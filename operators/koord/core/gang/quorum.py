"""What of a gang's group is to be planned now, as which units, or what is in the way.

Four steps, for gangs of a group that get the same answer:

1. *Parts*: gangs of the group that have started, and those that have not, each decided for itself:
   a gang that is added to a running group has to gather its own minimum, and holds up nobody.
2. *How the gangs stand*: minimum, policy, members that could start now, members that run.
3. *Permit*: the rule of ``permit`` over all gangs. If it says no, the first obstacle is the answer.
4. *Units*: what must start together is one unit; a part of which nothing more is required (it has
   started, or has its minimum) gives one unit per waiting pod.

A gang counts as satisfied while a member lives on a node that was released by us with a group that
the gang was in. When none does, the next members are a new incarnation and gather again; upstream
never forgets, so that a workload recreated under the same PodGroup starts there member by member.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from koord.core.gang.cache import GangCache, order_of
from koord.core.gang.group import make_group_id
from koord.core.gang.model import GangKey, GangMode, GangSpec, MatchPolicy, OnMemberFailure
from koord.core.gang.permit import Permit, PermitState, permit_member
from koord.core.gang.reasons import (
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    MissingGang,
    MissingMembers,
    MissingPodGroup,
    Reached,
)
from koord.core.gang.start import find_unbound
from koord.core.gang.sub_group_members import divide_demand, divide_started, find_missing
from koord.core.gang.tally import gangs_of, is_present
from koord.core.plan import Demand, Unit
from koord.core.pods import Pod
from koord.core.reasons import Reason, WaitingForForeignGate
from koord.core.topology_constraint import TopologyConstraint

_NO_STANDING = PermitState(min_member=0, policy=MatchPolicy.ONCE_SATISFIED, waiting=0, bound=0)


@dataclass(frozen=True, slots=True)
class Ready:
    """The units to plan now, none if nothing waits; members behind gates of others are left out."""

    units: tuple[Unit, ...] = ()


NotReady: TypeAlias = (
    MissingMembers | MissingPodGroup | MissingGang | InconsistentGroup | InvalidAnnotation
)


def is_satisfied(book: GangCache, key: GangKey) -> bool:
    """Whether a gang has started and lives; upstream asks its group for any node at all."""
    return _part_of(book, key).is_satisfied


def find_quorum(book: GangCache, key: GangKey) -> Reached | NotReady:
    """Tell whether the gangs decided with this one have the members they need, placed or not."""
    return _part_of(book, key).quorum


def tell_quorum(book: GangCache, key: GangKey) -> Reached | NotReady:
    """Tell the quorum as users are told: with members that have done their work."""
    return _part_of(book, key).told


def needed_strength(book: GangCache, key: GangKey) -> int:
    """Return how many members a started gang needs so as not to be degraded.

    That is its minimum, but not more than it ever had of it: a minimum that was raised since is a
    wish to grow, and no loss.
    """
    spec, releases = book.spec(key), book.tally(key).releases
    if spec is None:
        return 0
    had = max((strength for _, strength in releases), default=0)
    return min(spec.min_member, had) if had else spec.min_member


def has_minimum(book: GangCache, key: GangKey, *, without: int = 0) -> bool:
    """Whether the minimum of a gang has places that nobody can take away, or has succeeded.

    ``without`` so many members that count as placed, but whose placement is in doubt.
    """
    spec, tally = book.spec(key), book.tally(key)
    return spec is None or tally.placed + tally.succeeded - without >= spec.min_member


def count_lost(book: GangCache, key: GangKey) -> int:
    """Count the members that a started gang has lost and needs again; 0 if it never started."""
    if not is_satisfied(book, key):
        return 0
    tally = book.tally(key)
    return max(0, needed_strength(book, key) - tally.placed - tally.succeeded)


def count_to_replace(book: GangCache, key: GangKey) -> int:
    """Count lost members whose replacements go before all others, and whose room is kept."""
    spec = book.spec(key)
    if spec is None or spec.on_member_failure is not OnMemberFailure.REPLACE:
        return 0
    return count_lost(book, key)


def count_quorum(book: GangCache, key: GangKey) -> Reached | MissingMembers:
    """Count members as ``find_quorum`` does, whatever else stands in the way."""
    return _part_of(book, key).count


def count_members(book: GangCache, key: GangKey) -> tuple[GangCount, ...]:
    """Count the members of the gangs decided with this one, as the quorum counts them."""
    return _part_of(book, key).members


def completed_at(book: GangCache, key: GangKey) -> float:
    """Tell when the member that completed the group was created: the same after a restart."""
    return _part_of(book, key).completed_at


def demands(book: GangCache, key: GangKey) -> Ready | Reason:
    """Tell what of the group of a gang is to be planned now, or the first thing in the way."""
    return _part_of(book, key).demands


def _part_of(book: GangCache, key: GangKey) -> "_Part":
    """Look at a group; asked about again, it is looked at anew only if something has changed."""
    return book.recall(key, _muster)[key]


def _muster(book: GangCache, key: GangKey) -> dict[GangKey, "_Part"]:
    """Divide a group into what has started and what has not."""
    group = book.group(key).gangs
    started = _started(book, group)
    parts: dict[GangKey, _Part] = {}
    for gangs, is_started in (
        (tuple(gang for gang in group if gang in started), True),
        (tuple(gang for gang in group if gang not in started), False),
    ):
        if gangs:
            parts |= dict.fromkeys(gangs, _Part(book, gangs, is_satisfied=is_started))
    return parts


def _started(book: GangCache, group: tuple[GangKey, ...]) -> frozenset[GangKey]:
    """Return the gangs that were released with a group of which a member lives."""
    tallies = [book.tally(gang) for gang in group]
    if book.compat:
        return frozenset(group if any(tally.bound_alive for tally in tallies) else ())
    releases = {release for tally in tallies for release, _ in tally.releases}
    return frozenset().union(*map(gangs_of, releases))


class _Part:
    """Gangs of one group at one moment, as the rules look at them; each answer is found once."""

    def __init__(self, book: GangCache, gangs: tuple[GangKey, ...], *, is_satisfied: bool) -> None:
        self._book = book
        self._gangs = gangs
        self._group = book.group(gangs[0])
        self._compat = book.compat
        self._is_idle = not any(book.tally(gang).waiting for gang in gangs)
        self.is_satisfied = is_satisfied

    @cached_property
    def demands(self) -> Ready | Reason:
        """See the function of this name."""
        if not isinstance(self.quorum, Reached):
            return self.quorum
        if not self._is_permitted(self._plannable):
            tallies = map(self._book.tally, self._gangs)
            return _blame_gates(_sort_members(p for one in tallies for p in one.foreign.values()))
        return Ready(self._make_units())

    @cached_property
    def quorum(self) -> Reached | NotReady:
        """See ``find_quorum``."""
        return self._find_obstacle() or self.count

    @cached_property
    def told(self) -> Reached | NotReady:
        """See ``tell_quorum``."""
        # One-sided lists are a matter of the settings and reported there; the members may be
        # complete all the same.
        found = self.count if isinstance(self.quorum, InconsistentGroup) else self.quorum
        if not isinstance(found, MissingMembers | Reached):
            return found
        counts = tuple(
            replace(count, present=count.present + self._book.tally(count.gang).succeeded)
            for count in found.gangs
        )
        complete = all(count.present >= count.min_member for count in counts)
        is_reached = complete or isinstance(found, Reached)
        return Reached(counts) if is_reached else MissingMembers(counts)

    @cached_property
    def count(self) -> Reached | MissingMembers:
        """See ``count_quorum``."""
        if self._is_permitted(self._present):
            lacking = () if self.is_satisfied else self._lacking
            return MissingMembers(lacking) if lacking else Reached(self.members)
        short = (count for count in self.members if count.present < count.min_member)
        return MissingMembers(tuple(short))

    @property
    def _lacking(self) -> tuple[GangCount, ...]:
        """Sub-groups that keep gangs from starting."""
        return tuple(one for gang in self._gangs for one in find_missing(self._book, gang))

    @cached_property
    def members(self) -> tuple[GangCount, ...]:
        """See ``count_members``."""
        return tuple(self._count(gang) for gang in self._gangs)

    @cached_property
    def completed_at(self) -> float:
        """See the function of this name."""
        return max(_completed_at(self._book, gang) for gang in self._gangs)

    def _present(self, gang: GangKey) -> PermitState | None:
        """How a gang stands with every waiting member of ours, behind gates or not."""
        return self._standing(gang, self._book.tally(gang).waiting)

    def _plannable(self, gang: GangKey) -> PermitState | None:
        """How a gang stands with the waiting members that can be planned now."""
        return self._standing(gang, len(self._book.tally(gang).plannable))

    def _standing(self, gang: GangKey, waiting: int) -> PermitState | None:
        """How a gang stands with ``waiting`` members that could start; None without settings.

        Where nobody waits, there is nothing that only-waiting could hold back: what runs is what
        counts. So it is where a start was cut off, as by a crash: who has a node already and who
        waits are members of the same start.
        """
        spec = self._book.spec(gang)
        if spec is None:
            return None
        policy = spec.match_policy
        if policy is MatchPolicy.ONLY_WAITING and (self._is_idle or self._is_cut_off):
            policy = MatchPolicy.WAITING_AND_RUNNING
        return PermitState(
            min_member=spec.min_member,
            policy=policy,
            waiting=waiting,
            bound=self._book.tally(gang).placed,
            is_satisfied=self.is_satisfied,
        )

    @cached_property
    def _is_cut_off(self) -> bool:
        """Whether members wait that were to start together with others that have a place."""
        by_gang = (self._book.members(gang).values() for gang in self._gangs)
        return bool(find_unbound(pod for members in by_gang for pod in members))

    def _is_permitted(self, standing: Callable[[GangKey], PermitState | None]) -> bool:
        """Ask the rule about all gangs, every one of them seen as ``standing`` says."""
        own = standing(self._gangs[0])
        return permit_member(own, map(standing, self._gangs), compat=self._compat) is Permit.GO

    def _find_obstacle(self) -> NotReady | None:
        """Name what no number of members can mend: missing or unusable settings, one-sided lists.

        Gangs that have started await nobody: a sibling may be gone for good. Upstream still does.
        """
        if self._book.spec(self._gangs[0]) is None:
            return self._explain_no_settings(self._gangs[0])
        if self.is_satisfied and not self._compat:
            return None
        for lister, silent in self._group.unreturned:
            if lister in self._gangs:
                return InconsistentGroup(lister, silent)
        for lister, absent in self._group.absent:
            if lister not in self._gangs:
                continue
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
        made = [self._make_demand(gang) for gang in self._gangs]
        made = [demand for demand in made if demand.pods]
        if not any(demand.required or self._has_multiples(demand.gang) for demand in made):
            parts = (one for demand in made for one in divide_started(self._book, demand))
            return tuple(map(self._make_part, parts))
        made = [one for demand in made for one in divide_demand(self._book, demand)]
        return (
            Unit(
                key=self._id,
                demands=tuple(made),
                group=self._id,
                priority=max(pod.priority for demand in made for pod in demand.pods),
                since=self.completed_at,
                is_repair=any(count_to_replace(self._book, gang) for gang in self._gangs),
                lease_seconds=self._lease_seconds,
            ),
        )

    def _has_multiples(self, gang: GangKey) -> bool:
        """Whether one member alone may make a number that is not allowed in its domain."""
        spec = self._book.spec(gang)
        return spec is not None and spec.topology is not None and bool(spec.topology.multiples)

    @cached_property
    def _id(self) -> str:
        """What members are released as: a group, but for gangs of it that start apart."""
        is_all = len(self._gangs) == len(self._group.gangs)
        return self._group.id if is_all else make_group_id(self._gangs)

    @property
    def _lease_seconds(self) -> int:
        """How long what fits is kept: the shortest wait time if every gang is NonStrict."""
        specs = [spec for gang in self._gangs if (spec := self._book.spec(gang)) is not None]
        if any(spec.mode is not GangMode.NON_STRICT for spec in specs):
            return 0
        return min((spec.wait_seconds for spec in specs), default=0)

    def _make_demand(self, gang: GangKey) -> Demand:
        standing, tally = self._plannable(gang) or _NO_STANDING, self._book.tally(gang)
        spec = self._book.spec(gang)
        together = () if spec is None else self._find_together(gang, spec)
        return Demand(
            gang=gang,
            pods=tuple(_sort_members(tally.plannable.values())),
            required=standing.required(compat=self._compat),
            min_member=standing.min_member,
            standing=tally.placed + tally.succeeded,
            wish=None if spec is None else spec.topology,
            together=together,
            mates=sum(self._book.tally(one).placed for one in together),
            nest=None if spec is None else spec.nest,
        )

    def _find_together(self, gang: GangKey, spec: GangSpec) -> tuple[GangKey, ...]:
        if spec.topology is None:
            return ()
        return (gang,) if spec.nest is not None else self._gathering[spec.topology]

    @cached_property
    def _gathering(self) -> dict[TopologyConstraint, tuple[GangKey, ...]]:
        """What is asked of the network -> the gangs that ask it; none with sub-groups."""
        found: dict[TopologyConstraint, list[GangKey]] = {}
        for gang in self._group.gangs:
            spec = self._book.spec(gang)
            if spec is not None and spec.topology is not None and spec.nest is None:
                found.setdefault(spec.topology, []).append(gang)
        return {wish: tuple(gangs) for wish, gangs in found.items()}

    def _make_part(self, demand: Demand) -> Unit:
        """Make a unit of one pod, or of a sub-group that starts after the others."""
        is_whole = len(demand.pods) > 1 or demand.required > 1
        return Unit(
            key=f"{demand.gang}/{demand.sub_group}" if is_whole else demand.pods[0].uid,
            demands=(demand,),
            group=self._id,
            priority=max(pod.priority for pod in demand.pods),
            since=max(pod.created for pod in demand.pods),
            is_repair=count_to_replace(self._book, demand.gang) > 0,
        )


def _blame_gates(behind: Sequence[Pod]) -> WaitingForForeignGate:
    """Every member is there, so those that cannot be planned are the ones behind gates."""
    gates = sorted({gate for pod in behind for gate in pod.foreign_gates})
    return WaitingForForeignGate(pod=behind[0].key, gates=tuple(gates), pods=len(behind))


def _sort_members(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (-pod.priority, *order_of(pod)))


def _completed_at(book: GangCache, gang: GangKey) -> float:
    spec = book.spec(gang)
    created = sorted(pod.created for pod in book.members(gang).values() if is_present(pod))
    if spec is None or not created:
        return 0.0
    return created[min(max(spec.min_member, 1), len(created)) - 1]
