"""The quorum of a gang's group: which units are planned now, or the first reason why none is.

Four steps:

1. *Parts*: gangs of the group that have started, and those that have not, are decided separately. A
   gang that is added to a running group needs its own minimum, and delays no other gang.
2. *Permit states*: minimum, policy, members that could start now, members that run.
3. *Permit*: the rule of ``start`` over all gangs. If it refuses, the first reason is the answer.
4. *Units*: members that must start together are one unit; a part whose minimum is reached (it has
   started, or needs no more) gives one unit per waiting pod.

A gang is satisfied while a member lives that we released with a group that the gang was in. Without
one, the next members are a new incarnation and need the quorum again. Koordinator never resets
this, so there a workload recreated under the same PodGroup starts member by member.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from koord.core.gang.cache import GangCache, GangStates, sort_members
from koord.core.gang.done import count_done, find_done
from koord.core.gang.group import MAX_GANGS, Group, make_group_id
from koord.core.gang.lost_members import (
    LostMembers,
    find_lost_members,
    serves,
)
from koord.core.gang.native import find_native_problem
from koord.core.gang.no_settings import explain_no_settings
from koord.core.gang.reasons import (
    GangCount,
    InconsistentGroup,
    MissingGang,
    MissingMembers,
    NotReady,
    Reached,
)
from koord.core.gang.start import Permit, PermitState, find_unbound, permit_member
from koord.core.gang.sub_group_members import (
    DivisionPart,
    blame_gates,
    count_useless,
    divide_start,
    divide_started,
    find_missing,
    is_placed_whole,
    waits_for_gates,
)
from koord.core.gang.tally import gangs_of
from koord.core.model.gangs import GangKey, GangMode, GangSpec, MatchPolicy, OnMemberFailure
from koord.core.model.plan import Demand, LeftOut, Unit
from koord.core.model.reasons import Reason, TooLarge
from koord.core.model.run_terms import NO_TERMS
from koord.core.model.topology_constraint import TopologyConstraint

_NO_SETTINGS = PermitState(min_member=0, policy=MatchPolicy.ONCE_SATISFIED, waiting=0, bound=0)


@dataclass(frozen=True, slots=True)
class Ready:
    """The units to plan now, none if no member waits; without members behind foreign gates.

    ``left_out``: members that cannot be planned now, because their sub-group cannot start.
    """

    units: tuple[Unit, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


MAX_MEMBERS: Final = 10_000
"""Waiting members of gangs that are planned together."""


def is_satisfied(cache: GangCache, key: GangKey) -> bool:
    """Whether a gang has started and has living members; with ``compat``, any bound one."""
    return _part_of(cache, key).is_satisfied


def find_quorum(cache: GangCache, key: GangKey) -> Reached | NotReady:
    """Return whether the gangs decided with this one have the members they need, placed or not."""
    return _part_of(cache, key).quorum


def report_quorum(cache: GangCache, key: GangKey) -> Reached | NotReady:
    """Return the quorum as statuses report it; one-sided lists are reported with the settings."""
    return _part_of(cache, key).reported


def find_lost(
    cache: GangCache, key: GangKey, *, with_planned: bool = False
) -> tuple[LostMembers, ...]:
    """Return what a started gang and its sub-groups have lost and need; empty if nothing.

    ``with_planned``: members that are released, and not bound yet, are left as well.
    """
    return _part_of(cache, key).find_lost(key, with_planned=with_planned)


def count_lost(cache: GangCache, key: GangKey) -> int:
    """Count the members that a started gang has lost and needs; 0 if it never started."""
    return sum(lost_member.missing for lost_member in find_lost(cache, key))


def find_to_replace(cache: GangCache, key: GangKey) -> tuple[LostMembers, ...]:
    """Return lost members whose replacements go first, and whose room is kept for them."""
    return _part_of(cache, key).find_to_replace(key)


def count_to_replace(cache: GangCache, key: GangKey) -> int:
    """Count lost members whose replacements go first, and whose room is kept for them."""
    return sum(lost_member.missing for lost_member in find_to_replace(cache, key))


def count_quorum(cache: GangCache, key: GangKey) -> Reached | MissingMembers:
    """Count members as ``find_quorum`` does, ignoring all other reasons."""
    return _part_of(cache, key).count


def count_members(cache: GangCache, key: GangKey) -> tuple[GangCount, ...]:
    """Count the members of the gangs decided with this one, as the quorum counts them."""
    return _part_of(cache, key).members


def completed_at(cache: GangCache, key: GangKey) -> float:
    """Return when the member that completed the group was created."""
    return _part_of(cache, key).completed_at


def demands(cache: GangCache, key: GangKey) -> Ready | Reason:
    """Return the units of the group of a gang to plan now, or the first reason."""
    return _part_of(cache, key).demands


def _part_of(cache: GangCache, key: GangKey) -> "_Part":
    return cache.recall(key, _make_parts)[key]


def _make_parts(cache: GangCache, group: Group, states: GangStates) -> dict[GangKey, "_Part"]:
    """Divide a group into the gangs that have started and the others."""
    started = _started(states, compat=cache.compat)
    parts: dict[GangKey, _Part] = {}
    for gangs, is_started in (
        (tuple(gang for gang in group.gangs if gang in started), True),
        (tuple(gang for gang in group.gangs if gang not in started), False),
    ):
        if gangs:
            parts |= dict.fromkeys(
                gangs, _Part(cache, group, gangs, states, is_satisfied=is_started)
            )
    return parts


def _started(gangs: GangStates, *, compat: bool) -> frozenset[GangKey]:
    """Return the gangs of groups that we released and of which a member lives."""
    if compat:
        return frozenset(gangs if any(gang.tally.bound_alive for gang in gangs.values()) else ())
    releases = {release for gang in gangs.values() for release, _ in gang.tally.releases}
    return frozenset().union(*map(gangs_of, releases))


class _Part:
    """Gangs of one group that are decided together, at one moment; answers are cached.

    ``states`` are those of all gangs of the group.
    """

    def __init__(
        self,
        cache: GangCache,
        group: Group,
        gangs: tuple[GangKey, ...],
        states: GangStates,
        *,
        is_satisfied: bool,
    ) -> None:
        self._cache = cache
        self._gangs = gangs
        self._group = group
        self._states = states
        self._compat = cache.compat
        self._waiting = {gang: states[gang].tally.waiting for gang in gangs}
        self._is_idle = not any(self._waiting.values())
        self.is_satisfied = is_satisfied

    @cached_property
    def demands(self) -> Ready | Reason:
        if not isinstance(self.quorum, Reached):
            return self.quorum
        members = sum(len(self._states[gang].tally.plannable) for gang in self._gangs)
        if members > MAX_MEMBERS:
            return TooLarge("gang", self._gangs[0], "waiting members", members, MAX_MEMBERS)
        divided = filter(self._is_divided, self._gangs_to_start)
        is_gated = any(waits_for_gates(self._cache, gang) for gang in divided)
        # With a quorum the gangs are permitted with all waiting members that are theirs.
        able = self._all_plannable
        if is_gated or not (able is self._all_present or self._is_permitted(able)):
            tallies = [self._states[gang].tally for gang in self._gangs]
            return blame_gates(pod for tally in tallies for pod in tally.foreign.values())
        return self._make_units()

    @cached_property
    def quorum(self) -> Reached | NotReady:
        return self._find_blocking_reason() or self.count

    @cached_property
    def reported(self) -> Reached | NotReady:
        # One-sided lists are reported with the settings; the members may be complete.
        result = self.count if isinstance(self.quorum, InconsistentGroup) else self.quorum
        return result if not self._compat else self._add_succeeded(result)

    def _add_succeeded(self, result: Reached | NotReady) -> Reached | NotReady:
        """Add the members that Koordinator counts in its statuses, and does not in its decision."""
        if not isinstance(result, MissingMembers | Reached):
            return result
        counts = tuple(
            replace(count, present=count.present + self._done[count.gang]) for count in result.gangs
        )
        is_complete = all(count.present >= count.min_member for count in counts)
        is_reached = is_complete or isinstance(result, Reached)
        return Reached(counts) if is_reached else MissingMembers(counts)

    @cached_property
    def count(self) -> Reached | MissingMembers:
        short = {
            gang_count.gang: gang_count
            for gang in filter(self._is_divided, self._gangs_to_start)
            for gang_count in find_missing(self._cache, gang)
        }
        if self._is_permitted(self._all_present):
            return MissingMembers(tuple(short.values())) if short else Reached(self.members)
        below = {
            member.gang: member for member in self.members if member.present < member.min_member
        }
        return MissingMembers(tuple((below | short).values()))

    @cached_property
    def members(self) -> tuple[GangCount, ...]:
        return tuple(self._count(gang) for gang in self._gangs)

    @cached_property
    def completed_at(self) -> float:
        return max(map(self._completed_by, self._gangs))

    def _completed_by(self, gang: GangKey) -> float:
        """Return when the member was created that completed a gang; 0 without settings, members."""
        spec, tally = self._states[gang].spec, self._states[gang].tally
        done = find_done(self._cache, gang) if tally.done else ()
        created = sorted(pod.created for pod in (*done, *tally.present.values()))
        if spec is None or not created:
            return 0.0
        return created[min(max(spec.min_member, 1), len(created)) - 1]

    @cached_property
    def _done(self) -> Mapping[GangKey, int]:
        return {gang: count_done(self._cache, gang) for gang in self._gangs}

    def _is_divided(self, gang: GangKey) -> bool:
        spec = self._states[gang].spec
        return spec is not None and spec.sub_groups is not None

    def find_lost(self, key: GangKey, *, with_planned: bool = False) -> tuple[LostMembers, ...]:
        if not self.is_satisfied:
            return ()
        return find_lost_members(self._cache, key, self._done[key], with_planned=with_planned)

    def find_to_replace(self, key: GangKey) -> tuple[LostMembers, ...]:
        spec = self._states[key].spec
        is_kept = spec is not None and spec.on_member_failure is OnMemberFailure.REPLACE
        return self.find_lost(key) if is_kept else ()

    @cached_property
    def _gangs_to_start(self) -> tuple[GangKey, ...]:
        """The gangs of which all that they need starts together."""
        return tuple(gang for gang in self._gangs if self._starts(gang))

    def _starts(self, gang: GangKey) -> bool:
        state = self._all_present[gang]
        if state is None or state.required(compat=self._compat):
            return True
        if self.is_satisfied or not self._is_divided(gang):
            return False
        return not is_placed_whole(self._cache, gang)

    @cached_property
    def _all_present(self) -> Mapping[GangKey, PermitState | None]:
        """The states with every waiting member of ours, behind foreign gates or not."""
        return {
            gang: self._make_permit_state(gang, waiting) for gang, waiting in self._waiting.items()
        }

    @cached_property
    def _all_plannable(self) -> Mapping[GangKey, PermitState | None]:
        """The states with the waiting members that can be planned now."""
        if not any(self._states[gang].tally.foreign for gang in self._gangs):
            return self._all_present
        return {
            gang: self._make_permit_state(gang, len(self._states[gang].tally.plannable))
            for gang in self._gangs
        }

    def _make_permit_state(self, gang: GangKey, waiting: int) -> PermitState | None:
        """Return the state of a gang with ``waiting`` members that could start.

        None without settings. Bound members count under only-waiting as well if no member waits,
        or if the start was interrupted: those with a node and those waiting start together then.
        """
        spec = self._states[gang].spec
        if spec is None:
            return None
        policy = spec.match_policy
        if policy is MatchPolicy.ONLY_WAITING and (self._is_idle or self._is_interrupted):
            policy = MatchPolicy.WAITING_AND_RUNNING
        return PermitState(
            min_member=spec.min_member,
            policy=policy,
            waiting=waiting,
            bound=self._states[gang].tally.placed,
            done=0 if self._compat else self._done[gang],
            is_satisfied=self.is_satisfied,
        )

    @cached_property
    def _is_interrupted(self) -> bool:
        """Whether members wait that were to start together with members on nodes."""
        by_gang = (self._states[gang].members.values() for gang in self._gangs)
        return bool(find_unbound(pod for members in by_gang for pod in members))

    def _is_permitted(self, states: Mapping[GangKey, PermitState | None]) -> bool:
        own = states[self._gangs[0]]
        return permit_member(own, states.values(), compat=self._compat) is Permit.GO

    def _find_blocking_reason(self) -> NotReady | None:
        """Return a reason that more members do not remove: settings missing, one-sided lists.

        Gangs that have started do not wait for missing gangs, which may be gone for good; under
        Koordinator's rules they do.
        """
        if self._states[self._gangs[0]].spec is None:
            return explain_no_settings(self._cache, self._gangs[0])
        if problem := find_native_problem({gang: self._states[gang] for gang in self._gangs}):
            return problem
        if self.is_satisfied and not self._compat:
            return None
        return self._find_exceeded_limit() or self._find_problem_of_lists()

    def _find_problem_of_lists(self) -> NotReady | None:
        for lister, silent in self._group.unreturned:
            if lister in self._gangs:
                return InconsistentGroup(lister, silent)
        for lister, absent in self._group.absent:
            if lister not in self._gangs:
                continue
            if missing := tuple(gang for gang in absent if gang not in self._cache):
                return MissingGang(lister, missing)
            return explain_no_settings(self._cache, absent[0])
        return None

    def _find_exceeded_limit(self) -> TooLarge | None:
        """Return why the gangs are too many, or list too many, to be planned together."""
        first, exceeded_limit = self._gangs[0], self._group.exceeded_limit
        if exceeded_limit is not None:
            return TooLarge(
                "gang", first, exceeded_limit.what, exceeded_limit.count, exceeded_limit.most
            )
        specs = ((gang, self._states[gang].spec) for gang in self._gangs)
        listed = ((gang, spec.listed) for gang, spec in specs if spec and spec.listed > MAX_GANGS)
        gang, count = next(listed, (first, 0))
        return TooLarge("gang", gang, "gangs in its list", count, MAX_GANGS) if count else None

    def _count(self, gang: GangKey) -> GangCount:
        state = self._all_present[gang] or _NO_SETTINGS
        waiting_only = state.policy is MatchPolicy.ONLY_WAITING
        present = state.waiting + state.done + (0 if waiting_only else state.bound)
        if self._is_divided(gang) and gang in self._gangs_to_start:
            present = max(0, present - count_useless(self._cache, gang))
        tally = self._states[gang].tally
        return GangCount(
            gang,
            present,
            state.min_member,
            waiting_only=waiting_only,
            strangers=tally.alive - len(tally.present) - tally.refused,
            done=state.done,
        )

    def _make_units(self) -> Ready:
        made = [self._make_demand(gang) for gang in self._gangs]
        made = [demand for demand in made if demand.pods]
        starting = self._gangs_to_start
        is_one = any(demand.gang in starting or self._has_multiples(demand.gang) for demand in made)
        together: list[Demand] = []
        parts: list[DivisionPart] = []
        left_out: list[LeftOut] = []
        for demand in made:
            if demand.sub_groups is None and is_one:
                together.append(demand)
                continue
            if is_one and (demand.gang in starting or not self.is_satisfied):
                division = divide_start(self._cache, demand)
                first, apart = division.parts[:1], division.parts[1:]
                together += (demand for part in first for demand in part.demands)
            else:
                division = divide_started(self._cache, demand)
                apart = division.parts
            parts += apart
            left_out += division.left_out
        units = [self._make_unit_together(together)] if together else []
        lost = {gang: self.find_to_replace(gang) for gang in self._gangs if parts}
        return Ready((*units, *(self._make_part(part, lost) for part in parts)), tuple(left_out))

    def _make_unit_together(self, demands: Sequence[Demand]) -> Unit:
        return Unit(
            key=self._id,
            demands=tuple(demands),
            group=self._id,
            priority=_priority_of(demands),
            since=self.completed_at,
            is_repair=any(map(self.find_to_replace, self._gangs)),
            lease_seconds=self._lease_seconds,
        )

    def _has_multiples(self, gang: GangKey) -> bool:
        """Whether starting members one by one may violate a multiple of the whole gang."""
        spec = self._states[gang].spec
        if spec is None or spec.topology is None or spec.sub_groups is not None:
            return False
        return bool(spec.topology.multiples)

    @cached_property
    def _id(self) -> str:
        """The group that members are released with: that of the gangs that start together."""
        is_all = len(self._gangs) == len(self._group.gangs)
        return self._group.id if is_all else make_group_id(self._gangs)

    @property
    def _lease_seconds(self) -> int:
        """How long room is kept for what fits: the shortest wait time if all are NonStrict."""
        specs = [spec for gang in self._gangs if (spec := self._states[gang].spec) is not None]
        if any(spec.mode is not GangMode.NON_STRICT or not spec.keeps_room for spec in specs):
            return 0
        return min((spec.wait_seconds for spec in specs), default=0)

    def _make_demand(self, gang: GangKey) -> Demand:
        state, tally = self._all_plannable[gang] or _NO_SETTINGS, self._states[gang].tally
        spec = self._states[gang].spec
        placed_with = () if spec is None else self._find_placed_with(gang, spec)
        return Demand(
            gang=gang,
            pods=tuple(sort_members(tally.plannable.values())),
            required=state.required(compat=self._compat),
            min_member=state.min_member,
            placed=tally.placed + self._done[gang],
            constraint=None if spec is None else spec.topology,
            is_held=spec is not None and spec.is_held,
            most_priority=None if spec is None else spec.most_priority,
            retry="" if spec is None else spec.retry,
            run=NO_TERMS if spec is None else spec.run,
            placed_with=placed_with,
            placed_there=sum(self._states[name].tally.placed for name in placed_with),
            sub_groups=None if spec is None else spec.sub_groups,
            native=None if spec is None else spec.native,
            placed_alive=0 if spec is None or spec.native is None else tally.placed,
        )

    def _find_placed_with(self, gang: GangKey, spec: GangSpec) -> tuple[GangKey, ...]:
        if spec.topology is None:
            return ()
        return (gang,) if spec.sub_groups is not None else self._by_constraint[spec.topology]

    @cached_property
    def _by_constraint(self) -> dict[TopologyConstraint, tuple[GangKey, ...]]:
        """Topology constraint -> the gangs without sub-groups that have it."""
        gangs_by_constraint: dict[TopologyConstraint, list[GangKey]] = {}
        for gang in self._group.gangs:
            spec = self._states[gang].spec
            if spec is not None and spec.topology is not None and spec.sub_groups is None:
                gangs_by_constraint.setdefault(spec.topology, []).append(gang)
        return {constraint: tuple(gangs) for constraint, gangs in gangs_by_constraint.items()}

    def _make_part(
        self, part: DivisionPart, lost: Mapping[GangKey, tuple[LostMembers, ...]]
    ) -> Unit:
        """Make a unit of one pod, or of a sub-group that starts later than the gang."""
        pods = [pod for demand in part.demands for pod in demand.pods]
        gang = part.demands[0].gang
        is_whole = len(pods) > 1 or part.demands[0].required > 1
        return Unit(
            key=f"{gang}/{part.name}" if is_whole else pods[0].uid,
            demands=part.demands,
            group=self._id,
            priority=_priority_of(part.demands),
            since=max(pod.created for pod in pods),
            is_repair=any(
                serves(part.demands[0].sub_groups, part.name, lost_member.sub_group)
                for lost_member in lost[gang]
            ),
        )


def _priority_of(demands: Iterable[Demand]) -> int:
    """Return the priority of the turn of a unit: its owner may let others go first."""
    return max(
        pod.priority if demand.most_priority is None else min(pod.priority, demand.most_priority)
        for demand in demands
        for pod in demand.pods
    )
