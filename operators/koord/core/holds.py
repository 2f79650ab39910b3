"""Room that is kept for pods that are not there yet: for lost members, and for NonStrict gangs.

Two kinds, both in the memory of whoever plans, both for the wait time of the gang at most:

* *For lost members*. A started gang that lost members keeps their room, on the same node if that is
  still there, until they are replaced. Nobody else gets it, whatever their priority: a gang below
  its minimum helps nobody, and it had this room before.
* *For NonStrict gangs*. What fits of a gang that does not fit whole is kept for it while it waits
  for the rest. It gives way to every unit that fits whole with it, so no two gangs can block each
  other; what may not have it are surplus pods, and what others keep the same way.

After a restart nothing is kept for NonStrict gangs, and what is kept for lost members begins anew,
with the shape of a living member. Nothing here writes, and time is handed in.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from koord.core.framework.allocator import Allocator
from koord.core.framework.arrays import Mask
from koord.core.framework.cycle import Cycle
from koord.core.framework.scoring import Scoring
from koord.core.gang.cache import order_of
from koord.core.gang.model import GangKey
from koord.core.gang.quorum import count_to_replace
from koord.core.gang.reasons import KeptForReplacements
from koord.core.plan import Placement, Plan, Refusal, Unit, UnitKey
from koord.core.pods import Pod, PodPhase, PodShape
from koord.core.state import ClusterState
from koord.core.topology.plugin import TopologySession
from koord.core.topology.strategy.observation import find_replacement_domain

PlanUnits: TypeAlias = Callable[[Cycle, Sequence[Unit]], Plan]

MAX_DEPARTED = 1024
"""Lost members of one gang that are remembered."""


@dataclass(slots=True)
class _Slot:
    """Room for one pod; ``node`` is where it was or is kept, empty for anywhere."""

    shape: PodShape
    node: str = ""
    sub_group: str = ""
    row: int | None = None
    """Where it is charged on the cycle that is planned on."""


@dataclass(slots=True)
class _Hold:
    """Slots until a time; a hold that has run out stays, so that it does not begin again."""

    slots: list[_Slot]
    until: float
    size: int
    """How many it was asked to keep, run out or not."""
    gang: GangKey = ""
    """Whose replacements it is for; empty for what fits of a NonStrict unit."""

    def nodes(self) -> set[str]:
        return {slot.node for slot in self.slots if slot.node}


@dataclass(slots=True)
class Holds:
    """What is kept for whom. One writer, the one that plans."""

    _lost: dict[GangKey, _Hold] = field(default_factory=dict)
    _departed: dict[GangKey, list[Pod]] = field(default_factory=dict)
    """Gang -> members that were on a node and are gone, as long as they are missed."""
    _partial: dict[UnitKey, _Hold] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(hold.slots) for hold in self._holds())

    def absorb(self, gangs: Iterable[GangKey], state: ClusterState, now: float) -> set[str]:
        """Follow changes of these gangs; return the nodes on which room is no longer kept."""
        for pod in state.gangs.take_departed():
            if pod.gang is not None:
                departed = self._departed.setdefault(pod.gang.key, [])
                departed.append(pod)
                del departed[:-MAX_DEPARTED]
        freed: set[str] = set()
        for gang in sorted(gangs):
            freed |= self._follow(gang, state, now)
        return freed

    def expire(self, now: float) -> set[str]:
        """Let go of what was kept long enough; return its nodes."""
        freed: set[str] = set()
        for hold in self._holds():
            if hold.slots and hold.until <= now:
                freed |= hold.nodes()
                hold.slots.clear()
        return freed

    def drop(self, is_gone: Callable[[UnitKey], bool]) -> set[str]:
        """Forget what was kept for NonStrict units that are gone; return its nodes."""
        gone = [key for key in self._partial if is_gone(key)]
        return set().union(*(self._partial.pop(key).nodes() for key in gone))

    def next_expiry(self) -> float | None:
        """Return when :meth:`expire` has something to do next."""
        return min((hold.until for hold in self._holds() if hold.slots), default=None)

    def reserved_pods(self) -> dict[str, int]:
        """Return gang or unit -> number of pods for which room is kept."""
        partial = {key: len(hold.slots) for key, hold in self._partial.items() if hold.slots}
        return self.reserved_for_replacements() | partial

    def reserved_for_replacements(self) -> dict[GangKey, int]:
        """Return gang -> number of lost members for which room is kept."""
        return {key: len(hold.slots) for key, hold in self._lost.items() if hold.slots}

    def plan(
        self,
        cycle: Cycle,
        units: Sequence[Unit],
        run: PlanUnits,
        scoring: Scoring,
        now: float,
    ) -> Plan:
        """Plan units in order with ``run``, and keep what is to be kept from all others."""
        if not len(self) and not any(unit.lease_seconds for unit in units):
            return run(cycle, units)
        return _Session(cycle, run, scoring, now, self._lost, self._partial).plan(units)

    def _holds(self) -> Iterable[_Hold]:
        yield from self._lost.values()
        yield from self._partial.values()

    def _follow(self, gang: GangKey, state: ClusterState, now: float) -> set[str]:
        lost = 0 if state.gangs.compat else count_to_replace(state.gangs, gang)
        # Who is on the way out still has its room.
        leaving = sum(
            pod.is_terminating and bool(pod.node) and not pod.phase.is_terminal
            for pod in (state.gangs.members(gang).values() if lost else ())
        )
        size = max(0, lost - leaving)
        hold = self._lost.get(gang)
        if not size:
            if not lost:
                self._departed.pop(gang, None)
            return self._lost.pop(gang).nodes() if hold is not None else set()
        spec = state.gangs.spec(gang)
        if spec is None or (hold is not None and hold.size == size):
            return set()
        if hold is None:
            hold = self._lost[gang] = _Hold([], 0.0, 0, gang)
        before = hold.nodes()
        if size > hold.size:
            hold.until = now + spec.wait_seconds
            hold.slots = _slots_of(gang, state, self._departed.get(gang, ()), size)
        else:
            del hold.slots[size:]
        hold.size = size
        return before - hold.nodes()


def _slots_of(
    gang: GangKey, state: ClusterState, departed: Sequence[Pod], size: int
) -> list[_Slot]:
    """Return the room that was planned for who waits, then that of those lost last.

    Of whom nothing is known, it is the room of a living member.
    """
    members = state.gangs.members(gang).values()
    planned = [
        _Slot(pod.shape, pod.recorded.node, pod.sub_group)
        for pod in sorted(members, key=order_of)
        if pod.is_waiting and pod.recorded is not None
    ]
    failed = [pod for pod in members if pod.phase is PodPhase.FAILED and pod.node]
    gone = [*reversed(departed), *sorted(failed, key=order_of, reverse=True)]
    slots = [*planned, *(_Slot(pod.shape, pod.node, pod.sub_group) for pod in gone)][:size]
    sibling = min((pod for pod in members if pod.is_alive and pod.node), key=order_of, default=None)
    if sibling is not None:
        slots += [_Slot(sibling.shape) for _ in range(size - len(slots))]
    return slots


@dataclass(slots=True)
class _Session:
    """One round of planning on one cycle."""

    cycle: Cycle
    run: PlanUnits
    scoring: Scoring
    now: float
    lost: dict[GangKey, _Hold]
    partial: dict[UnitKey, _Hold]
    placements: list[Placement] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def plan(self, units: Sequence[Unit]) -> Plan:
        for hold in (*self.lost.values(), *self.partial.values()):
            for slot in hold.slots:
                slot.row = None
        # Who lost its node is not to take the room that another one knows.
        for hold in self.lost.values():
            self._keep_there(hold)
        for hold in (*self.lost.values(), *self.partial.values()):
            self._keep(hold)
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
        """Whether a unit neither keeps anything nor may take what gives way."""
        gives_way = any(hold.slots for hold in self.partial.values())
        return not gives_way and not unit.lease_seconds and not self._own(unit)

    def _own(self, unit: Unit) -> list[_Hold]:
        holds = [self.lost.get(demand.gang) for demand in unit.demands if demand.gang]
        return [hold for hold in (*holds, self.partial.get(unit.key)) if hold is not None]

    def _plan_plain(self, units: Sequence[Unit]) -> None:
        if not units:
            return
        outcome = self.run(self.cycle, units)
        self.placements += outcome.placements
        placed = {placement.unit for placement in outcome.placements}
        refused = {refusal.unit for refusal in outcome.refusals} - placed
        held_up = self._held_up([unit for unit in units if unit.key in refused])
        self.refusals += [self._blame(refusal, held_up) for refusal in outcome.refusals]

    def _held_up(self, units: Sequence[Unit]) -> frozenset[UnitKey]:
        """Return those that would have a place if nothing was kept for lost members."""
        kept = [hold for hold in self.lost.values() if any(s.row is not None for s in hold.slots)]
        if not units or not kept:
            return frozenset()
        mark = self.cycle.checkpoint()
        for hold in kept:
            for slot in hold.slots:
                if slot.row is not None:
                    self.cycle.place(slot.shape, slot.row, -1)
        found = frozenset(placement.unit for placement in self.run(self.cycle, units).placements)
        self.cycle.rollback(mark)
        return found

    def _blame(self, refusal: Refusal, held_up: frozenset[UnitKey]) -> Refusal:
        if refusal.unit not in held_up:
            return refusal
        kept = sorted((g, h) for g, h in self.lost.items() if h.slots)
        pods = sum(len(hold.slots) for _, hold in kept)
        seconds = max(0, int(max(hold.until for _, hold in kept) - self.now))
        gangs = tuple(gang for gang, _ in kept)
        return replace(refusal, reason=KeptForReplacements(gangs, pods, seconds))

    def _plan_special(self, unit: Unit) -> None:
        for hold in self._own(unit):
            self._lift(hold)
        outcome = self.run(self.cycle, (unit,))
        if not outcome.placements:
            outcome = self._plan_over_partial(unit, outcome)
        self.placements += outcome.placements
        if outcome.placements:
            self._settle(unit, outcome.placements[0])
            self.refusals += outcome.refusals
        else:
            held_up = self._held_up([unit])
            self.refusals += [self._blame(refusal, held_up) for refusal in outcome.refusals]
            self._find_part(unit)
        # What was lost comes first: it gives way to nobody, and what fits may be the same room.
        for hold in self._own(unit):
            self._keep(hold, elsewhere=hold is not self.partial.get(unit.key))

    def _plan_over_partial(self, unit: Unit, before: Plan) -> Plan:
        """Let what is kept for NonStrict gangs give way to what a unit needs, not to its surplus.

        Of what was kept that is kept on which is left.
        """
        others = [hold for key, hold in self.partial.items() if hold.slots and key != unit.key]
        if not others:
            return before
        for hold in others:
            self._lift(hold)
        demands = tuple(
            replace(demand, pods=demand.pods[: demand.required])
            for demand in unit.demands
            if demand.required
        )
        outcome = self.run(self.cycle, (replace(unit, demands=demands),)) if demands else before
        for hold in others:
            self._keep(hold, elsewhere=False)
        if outcome.placements or not outcome.refusals:
            return outcome
        reason = outcome.refusals[0].reason
        return Plan(refusals=tuple(replace(one, reason=reason) for one in before.refusals))

    def _settle(self, unit: Unit, placement: Placement) -> None:
        """Keep nothing more for those that have just been placed."""
        self.partial.pop(unit.key, None)
        nodes = {assignment.pod.uid: assignment.node for assignment in placement.assignments}
        for demand in unit.demands:
            hold = self.lost.get(demand.gang)
            for pod in demand.pods if hold is not None else ():
                if hold is not None and hold.slots and pod.uid in nodes:
                    at = [slot.node for slot in hold.slots]
                    node = nodes[pod.uid]
                    del hold.slots[at.index(node) if node in at else -1]

    def _find_part(self, unit: Unit) -> None:
        """Find what is to be kept for a NonStrict unit: what fits of it now."""
        if not unit.lease_seconds:
            return
        hold = self.partial.get(unit.key)
        if hold is None:
            hold = self.partial[unit.key] = _Hold([], self.now + unit.lease_seconds, 0)
        hold.slots.clear()
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
        hold.slots += [
            _Slot(assignment.pod.shape, assignment.node)
            for placement in part.placements
            for assignment in placement.assignments
            if not assignment.pod.pinned
        ]

    def _keep(self, hold: _Hold, *, elsewhere: bool = True) -> None:
        """Charge what is kept: on its node, or else wherever there is room, if that will do.

        Either must be where the gang may be.
        """
        homes = self._keep_there(hold)
        left = [slot for slot in hold.slots if slot.row is None]
        if not elsewhere:
            hold.slots = [slot for slot in hold.slots if slot.row is not None]
            return
        filler = Allocator(self.cycle, self.scoring)
        for slot in left:
            home = homes[slot.sub_group]
            with self.cycle.only({} if home is None else {slot.shape: home}):
                shares = filler.fill(slot.shape, 1)
            if shares:
                slot.row = shares[0].row
                slot.node = self.cycle.table.node_at(slot.row).name

    def _keep_there(self, hold: _Hold) -> dict[str, Mask | None]:
        """Charge what has room on its node; return where each sub-group may be."""
        groups = {slot.sub_group for slot in hold.slots if slot.row is None}
        view = self.cycle.session(TopologySession).view
        homes = {
            group: find_replacement_domain(self.cycle, view, hold.gang, group)
            for group in groups
        }
        for slot in hold.slots:
            row = self.cycle.table.row_of.get(slot.node)
            if slot.row is not None or row is None:
                continue
            home = homes[slot.sub_group]
            if (home is None or home[row]) and self.cycle.has_room(slot.shape, row):
                self.cycle.place(slot.shape, row)
                slot.row = row
        return homes

    def _lift(self, hold: _Hold) -> None:
        for slot in hold.slots:
            if slot.row is not None:
                self.cycle.place(slot.shape, slot.row, -1)
                slot.row = None
