"""Holds: room on nodes reserved for replacements of lost members, and for NonStrict gangs.

Both kinds of holds live in memory only. They are charged to the quotas of their pods, as far as
these allow it. They last for the wait time of the gang, but for a configured time at most, and the
time that a gang has used up is earned back second for second while it holds nothing. So nobody
keeps room from others for ever by losing members again and again.

* *Replacements*. A started gang that lost members holds their room, on the same node if it still
  exists, until they are replaced: a gang below its minimum does no work, and it had this room
  before. It holds it with its own priority. A unit of higher priority that fits in no other way
  takes the room, before anybody is preempted for it: it could evict the gang itself. Gangs that
  must not be evicted keep their room from everybody.
* *NonStrict gangs*. The room of those members that fit is held while the gang waits for room for
  the others. A unit that fits as a whole when it uses this room takes it, so two gangs cannot block
  each other. Surplus pods and holds of other NonStrict gangs may not use it.

After a restart there are no holds for NonStrict gangs, and holds for replacements start again with
the shape of a running member. Nothing here writes or reads a clock.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from koord.core.engine.allocator import Allocator
from koord.core.engine.arrays import Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.gang_rooms import GangRoom, make_holds, record_holds
from koord.core.engine.member_holds import (
    GangHold,
    MemberHold,
    count_member_holds,
    describe,
    make_member_holds,
    priority_of,
)
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.gang.quorum import find_to_replace
from koord.core.gang.reasons import HeldForReplacements
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import DEFAULT_HOLD_SECONDS, GangKey
from koord.core.model.plan import Placement, Plan, Unit, UnitKey, Unplaced
from koord.core.model.pods import Pod
from koord.core.plugins.rejections import RejectionsSession
from koord.core.topology.plugin import TopologySession
from koord.core.topology.strategy.observation import find_replacement_domain
from koord.isolation import Isolation

PlanUnits: TypeAlias = Callable[[Cycle, Sequence[Unit]], Plan]

MAX_DEPARTED = 1024
"""Lost members that are recorded per gang."""


@dataclass(slots=True)
class Holds:
    """All holds. Only the planning loop changes them; none lasts longer than ``most_seconds``."""

    most_seconds: float = DEFAULT_HOLD_SECONDS
    _isolated: Isolation = field(default_factory=lambda: Isolation("holds"))
    _replacements: dict[GangKey, GangHold] = field(default_factory=dict)
    _departed: dict[GangKey, list[Pod]] = field(default_factory=dict)
    """Gang -> deleted members that were on a node and are not replaced yet."""
    _partial: dict[UnitKey, GangHold] = field(default_factory=dict)
    _earned_at: dict[str, float] = field(default_factory=dict)
    """Gang or unit without a hold -> when all the time that its holds have used is earned back."""
    _freed: set[str] = field(default_factory=set)
    """Nodes on which planning has released room; see :meth:`take_freed`."""

    def __len__(self) -> int:
        return sum(len(hold.members) for hold in self._holds())

    def record(self) -> tuple[tuple[GangRoom, ...], tuple[GangRoom, ...]]:
        """Return what is held now: for lost members, and of NonStrict units."""
        return tuple(record_holds(self._replacements)), tuple(record_holds(self._partial))

    def restore(self, replacements: Iterable[GangRoom], partial: Iterable[GangRoom]) -> None:
        """Hold what was recorded."""
        self._replacements, self._partial = make_holds(replacements), make_holds(partial)

    def absorb(self, gangs: Iterable[GangKey], state: ClusterState, now: float) -> set[str]:
        """Update the holds of changed gangs; return the nodes on which room was released."""
        for pod in state.gangs.take_departed():
            if pod.gang is not None:
                departed = self._departed.setdefault(pod.gang.key, [])
                departed.append(pod)
                del departed[:-MAX_DEPARTED]
        freed: set[str] = set()
        for gang in sorted(gangs):
            freed |= self._isolated.call(gang, self._update, gang, state, now) or set()
        return freed

    def expire(self, now: float) -> set[str]:
        """Release expired holds; return their nodes."""
        freed: set[str] = set()
        for hold in self._holds():
            if hold.members and hold.until <= now:
                freed |= hold.nodes()
                hold.members.clear()
        return freed

    def drop(self, is_gone: Callable[[UnitKey], bool], now: float) -> set[str]:
        """Remove holds of NonStrict units that no longer exist; return their nodes."""
        gone = [key for key in self._partial if is_gone(key)]
        return set().union(*(self._close(self._partial, key, now) for key in gone))

    def take_freed(self) -> set[str]:
        """Return the nodes on which plans since the last call have released room."""
        freed, self._freed = self._freed, set()
        return freed

    def next_due(self) -> float | None:
        """Return when the next hold expires; a past time if planning has released room."""
        if self._freed:
            return float("-inf")
        return min((hold.until for hold in self._holds() if hold.members), default=None)

    def reserved_pods(self) -> dict[str, int]:
        """Return gang or unit -> number of pods that it holds room for."""
        partial = {key: len(hold.members) for key, hold in self._partial.items() if hold.members}
        return self.reserved_for_replacements() | partial

    def nodes_for_replacements(self) -> dict[GangKey, tuple[str, ...]]:
        """Return gang -> nodes of the room held for replacements; empty: none yet."""
        return {
            key: tuple(member.node for member in hold.members)
            for key, hold in self._replacements.items()
            if hold.members
        }

    def reserved_for_replacements(self) -> dict[GangKey, int]:
        """Return gang -> number of replacements of lost members that room is held for."""
        return {key: len(hold.members) for key, hold in self._replacements.items() if hold.members}

    def plan(
        self,
        cycle: Cycle,
        units: Sequence[Unit],
        run: PlanUnits,
        scoring: Scoring,
        now: float,
    ) -> Plan:
        """Plan units in order with ``run``, with the holds charged to the cycle."""
        if not len(self) and not any(unit.lease_seconds for unit in units):
            return run(cycle, units)
        before = self._count_per_node()
        planner = _HoldPlanner(
            cycle, run, scoring, now, self._replacements, self._partial, self._open
        )
        outcome = planner.plan(units)
        for unit in planner.placed:
            self._close(self._partial, unit, now)
        self._freed |= (before - self._count_per_node()).keys()
        return outcome

    def reserve(self, cycle: Cycle, unit: Unit, scoring: Scoring) -> None:
        """Charge the room for replacements of other gangs that does not yield to ``unit``."""
        own = {demand.gang for demand in unit.demands}
        unyielding = [
            hold
            for gang, hold in self._replacements.items()
            if gang not in own and not hold.yields_to(unit)
        ]
        planner = _HoldPlanner(cycle, _plan_nothing, scoring, 0.0, {}, {}, self._open)
        for hold in unyielding:
            for member in hold.members:
                member.forget()
        for hold in unyielding:
            planner.reserve(hold)

    def _count_per_node(self) -> Counter[str]:
        """Count the members on each node that room is held for."""
        return Counter(
            member.node for hold in self._holds() for member in hold.members if member.node
        )

    def _holds(self) -> Iterable[GangHold]:
        yield from self._replacements.values()
        yield from self._partial.values()

    def _open(self, key: str, seconds: float, now: float) -> GangHold:
        """Return a new hold for a gang or a unit, for ``seconds`` or the time that it has left."""
        began = now - max(0.0, self._earned_at.get(key, now) - now)
        return GangHold([], min(now + seconds, began + self.most_seconds), began)

    def _close(self, holds: dict[str, GangHold], key: str, now: float) -> set[str]:
        """End a hold if there is one; return its nodes."""
        hold = holds.pop(key, None)
        if hold is None:
            return set()
        self._earned_at = {name: at for name, at in self._earned_at.items() if at > now}
        self._earned_at[key] = now + min(now, hold.until) - hold.began
        return hold.nodes()

    def _update(self, gang: GangKey, state: ClusterState, now: float) -> set[str]:
        lost = () if state.gangs.compat else find_to_replace(state.gangs, gang)
        if not lost:
            self._departed.pop(gang, None)
            return self._close(self._replacements, gang, now)
        spec, sizes = state.gangs.spec(gang), count_member_holds(state, gang, lost)
        if not sizes or spec is None or not spec.keeps_room:
            return self._close(self._replacements, gang, now)
        hold = self._replacements.get(gang)
        if hold is None:
            hold = self._replacements[gang] = self._open(gang, spec.wait_seconds, now)
            hold.gang = gang
        before = hold.nodes()
        departed, members = self._departed.get(gang, ()), list[MemberHold]()
        for lost_by, size in sizes.items():
            kept = [member for member in hold.members if member.lost_by == lost_by]
            if size > hold.sizes.get(lost_by, 0) and hold.until > now:
                kept = make_member_holds(gang, state, departed, size, lost_by)
            members += kept[:size]
        hold.members, hold.sizes, hold.priority = members, sizes, priority_of(gang, state)
        return before - hold.nodes()


def assume_holds(state: ClusterState, now: float) -> Holds:
    """Return the holds that the operators have as far as objects tell, and not longer than that."""
    holds, gangs = Holds(), state.gangs.keys()
    for gang in gangs:
        pod_group = state.gangs.pod_group(gang)
        history = () if pod_group is None else pod_group.history
        lost_at = max(
            (episode.time for episode in history if episode.what == Happened.DEGRADED), default=now
        )
        holds.absorb((gang,), state, min(float(lost_at), now) if now else 0.0)
    holds.expire(now)
    return holds


def _plan_nothing(cycle: Cycle, units: Sequence[Unit]) -> Plan:  # noqa: ARG001 - a ``PlanUnits``
    return Plan()


@dataclass(slots=True)
class _HoldPlanner:
    """Plans units with the holds on one cycle."""

    cycle: Cycle
    run: PlanUnits
    scoring: Scoring
    now: float
    replacements: dict[GangKey, GangHold]
    partial: dict[UnitKey, GangHold]
    open: Callable[[UnitKey, float, float], GangHold]
    placed: list[UnitKey] = field(default_factory=list)
    """Units of which the hold has served its purpose."""
    in_vain: set[tuple[Hashable, int]] = field(default_factory=set)
    """Like which units some did not fit without so many holds that yield to them: as room only gets
    less, such units are planned with the others."""
    placements: list[Placement] = field(default_factory=list)
    refusals: list[Unplaced] = field(default_factory=list)

    def plan(self, units: Sequence[Unit]) -> Plan:
        for hold in (*self.replacements.values(), *self.partial.values()):
            for member in hold.members:
                member.forget()
        # Members with a node of their own come before those that may go to any node.
        for hold in self.replacements.values():
            self._reserve_on_nodes(hold)
        for hold in (*self.replacements.values(), *self.partial.values()):
            self.reserve(hold)
        plain: list[Unit] = []
        for unit in units:
            if self._is_plain(unit):
                plain.append(unit)
                continue
            self._plan_plain(plain)
            plain = []
            self._plan_special(unit)
        self._plan_plain(plain)
        return Plan(tuple(self.placements), tuple(self.refusals))

    def _is_plain(self, unit: Unit) -> bool:
        """Whether a unit has no hold, will get none, and may not use those of others."""
        if unit.lease_seconds or any(hold.members for hold in self.partial.values()):
            return False
        if self._holds_of(unit):
            return False
        yielding = self._yielding(unit)
        return not yielding or (describe(unit), len(yielding)) in self.in_vain

    def _yielding(self, unit: Unit) -> list[GangHold]:
        """Return the holds of others that a unit may take, of the highest priority first."""
        own = set(map(id, self._holds_of(unit)))
        holds = (*self.replacements.values(), *self.partial.values())
        yielding = [
            hold for hold in holds if hold.members and id(hold) not in own and hold.yields_to(unit)
        ]
        return sorted(yielding, key=lambda hold: (not hold.gang, -hold.priority))

    def _holds_of(self, unit: Unit) -> list[GangHold]:
        repairing = {
            demand.gang: hold
            for demand in unit.demands
            if (hold := self.replacements.get(demand.gang)) is not None and hold.serves(demand)
        }
        partial = self.partial.get(unit.key)
        return [*repairing.values(), *(() if partial is None else (partial,))]

    def _plan_plain(self, units: Sequence[Unit]) -> None:
        if not units:
            return
        outcome = self.run(self.cycle, units)
        self.placements += outcome.placements
        placed = {placement.unit for placement in outcome.placements}
        refused = {refusal.unit for refusal in outcome.refusals} - placed
        self.refusals += self._attribute(
            outcome.refusals, [unit for unit in units if unit.key in refused]
        )

    def _blocked_by_holds(self, units: Sequence[Unit]) -> frozenset[UnitKey]:
        """Return the units that would be placed without the holds for replacements."""
        charged = [
            hold
            for hold in self.replacements.values()
            if any(member.row is not None for member in hold.members)
        ]
        if not units or not charged:
            return frozenset()
        mark = self.cycle.checkpoint()
        for member in (member for hold in charged for member in hold.members):
            member.discharge(self.cycle)
        unblocked = frozenset(
            placement.unit for placement in self.run(self.cycle, units).placements
        )
        self.cycle.rollback(mark)
        return unblocked

    def _attribute(self, refusals: Sequence[Unplaced], units: Sequence[Unit]) -> Iterator[Unplaced]:
        """Name the holds that keep units from starting as the reason for that."""
        blocked, by_key = self._blocked_by_holds(units), {unit.key: unit for unit in units}
        for refusal in refusals:
            unit = by_key.get(refusal.unit)
            holds = [
                hold
                for _, hold in sorted(self.replacements.items())
                if hold.members and unit is not None and not hold.yields_to(unit)
            ]
            if refusal.unit not in blocked or not holds:
                yield refusal
                continue
            pods = sum(len(hold.members) for hold in holds)
            seconds = max(0, int(max(hold.until for hold in holds) - self.now))
            gangs = tuple(hold.gang for hold in holds)
            yield replace(refusal, reason=HeldForReplacements(gangs, pods, seconds))

    def _plan_special(self, unit: Unit) -> None:
        for hold in self._holds_of(unit):
            self._release(hold)
        outcome = self.run(self.cycle, (unit,))
        if not outcome.placements:
            outcome = self._plan_over_others(unit, outcome)
        self.placements += outcome.placements
        if outcome.placements:
            self._release_used(unit, outcome.placements[0])
            self.refusals += outcome.refusals
        else:
            self.refusals += self._attribute(outcome.refusals, [unit])
            self._hold_partial(unit)
        # Replacements first: they have precedence, and a partial hold may want the same room.
        for hold in self._holds_of(unit):
            self.reserve(hold, elsewhere=hold is not self.partial.get(unit.key))

    def _plan_over_others(self, unit: Unit, before: Plan) -> Plan:
        """Plan the required pods of a unit without the holds that yield to it.

        Room of their members that still fits is reserved again.
        """
        yielding = self._yielding(unit)
        if not yielding:
            return before
        for hold in yielding:
            self._release(hold)
        demands = tuple(
            replace(demand, pods=demand.pods[: demand.required])
            for demand in unit.demands
            if demand.required
        )
        outcome = self.run(self.cycle, (replace(unit, demands=demands),)) if demands else before
        for hold in yielding:
            self.reserve(hold, elsewhere=bool(hold.gang))
        if not outcome.placements:
            self.in_vain.add((describe(unit), len(yielding)))
        if outcome.placements or not outcome.refusals:
            return outcome
        reason = outcome.refusals[0].reason
        return Plan(refusals=tuple(replace(refusal, reason=reason) for refusal in before.refusals))

    def _release_used(self, unit: Unit, placement: Placement) -> None:
        """Release the room held for pods that were just placed."""
        if unit.key in self.partial:
            self.partial[unit.key].members.clear()
            self.placed.append(unit.key)
        nodes = {assignment.pod.uid: assignment.node for assignment in placement.assignments}
        for demand in unit.demands:
            hold = self.replacements.get(demand.gang)
            for pod in demand.pods if hold is not None else ():
                if hold is not None and pod.uid in nodes:
                    hold.use(demand, nodes[pod.uid])

    def _hold_partial(self, unit: Unit) -> None:
        """Hold the room of the members of a NonStrict unit that fit now."""
        if not unit.lease_seconds:
            return
        hold = self.partial.get(unit.key)
        if hold is None:
            hold = self.partial[unit.key] = self.open(unit.key, unit.lease_seconds, self.now)
        hold.members.clear()
        if hold.until <= self.now:
            return
        demands = tuple(
            replace(demand, pods=demand.pods[: demand.required], required=0)
            for demand in unit.demands
            if demand.required
        )
        mark = self.cycle.checkpoint()
        part = self.run(self.cycle, (replace(unit, demands=demands),))
        self.cycle.rollback(mark)
        hold.members += [
            MemberHold(assignment.pod, assignment.node)
            for placement in part.placements
            for assignment in placement.assignments
            if not assignment.pod.pinned
        ]

    def reserve(self, hold: GangHold, *, elsewhere: bool = True) -> None:
        """Charge members to their nodes; ``elsewhere``: otherwise to any other node with room.

        Both must be in the topology domains of the gang, and the quota must allow it.
        """
        domains = self._reserve_on_nodes(hold)
        left = [member for member in hold.members if member.row is None]
        if not elsewhere:
            hold.members = [member for member in hold.members if member.row is not None]
            return
        allocator = Allocator(self.cycle, self.scoring)
        for member in left:
            if not member.is_for_any_room or not self.cycle.hold(member.pod, 1):
                continue
            shape, domain = member.pod.shape, self._domain_of(member, domains)
            with self.cycle.only({} if domain is None else {shape: domain}):
                shares = allocator.fill(shape, 1)
            if shares:
                member.row = shares[0].row
                member.node = self.cycle.table.node_at(member.row).name
            else:
                self.cycle.hold(member.pod, -1)

    def _reserve_on_nodes(self, hold: GangHold) -> dict[str, Mask | None]:
        """Charge members to their nodes; return the rows of each sub-group (None: all)."""
        groups = {member.pod.sub_group for member in hold.members if member.row is None}
        view = self.cycle.session(TopologySession).view
        domains = {
            group: find_replacement_domain(self.cycle, view, hold.gang, group) for group in groups
        }
        for at, member in enumerate(hold.members):
            if member.row is not None:
                continue
            domain, row = (
                self._domain_of(member, domains),
                self.cycle.table.row_of.get(member.node),
            )
            is_replaced = bool(hold.gang)
            if is_replaced and member.charge_reserved(self.cycle, f"{hold.gang}/{at}", domain):
                continue
            if row is not None and (domain is None or domain[row]):
                member.charge(self.cycle, row)
        return domains

    def _domain_of(self, member: MemberHold, domains: Mapping[str, Mask | None]) -> Mask | None:
        """Return the rows of its domain that do not reject such pods; None: all."""
        domain, rejections = (
            domains[member.pod.sub_group],
            self.cycle.find_session(RejectionsSession),
        )
        taking = None if rejections is None else rejections.open_rows(member.pod)
        return taking if domain is None else domain if taking is None else domain & taking

    def _release(self, hold: GangHold) -> None:
        for member in hold.members:
            # In this order: ``discharge`` needs the row that ``forget`` drops.
            member.discharge(self.cycle)
            member.forget()
