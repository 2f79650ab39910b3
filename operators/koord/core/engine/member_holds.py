"""What holds consist of: room for one pod each. Where it is charged, ``holds`` decides.

Room that a reservation holds for such pods is held already. What is held here then counts as one
of its users, so that it is neither held twice nor given to others, and the reservation goes on
paying for it. For a pod that must use a reservation no other room is held: it could not use it.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from koord.core.engine.arrays import Mask
from koord.core.engine.cycle import Cycle, Place
from koord.core.engine.state import ClusterState
from koord.core.eviction.candidates import find_core_protection
from koord.core.eviction.protection import find_lasting_protection, is_foreign
from koord.core.gang.cache import order_of
from koord.core.gang.lost_members import LostMembers, serves
from koord.core.model.gangs import ROOT, GangKey
from koord.core.model.plan import Demand, Unit
from koord.core.model.pods import Pod, PodPhase, hold_owner_of
from koord.core.reservation.matcher import needs_reservation
from koord.core.reservation.session import ReservationSession


@dataclass(slots=True)
class MemberHold:
    """Room for a pod like ``pod``, preferably on ``node``; empty for any node."""

    pod: Pod
    node: str = ""
    row: int | None = None
    """Where it is charged in the current cycle; None: not charged."""
    lost_by: str = ROOT
    """The sub-group that has lost the member."""
    user: Pod | None = None
    """What uses a reservation for it in the current cycle; None: it has room of its own."""
    paid: Pod | None = None
    """What quotas are charged for it then: what the reservation does not hold."""

    @property
    def is_for_any_room(self) -> bool:
        """Whether room is of use that no reservation holds."""
        return not needs_reservation(self.pod)

    def charge(self, cycle: Cycle, row: int) -> bool:
        """Charge it to a row and to quotas, if both have room."""
        if (
            not self.is_for_any_room
            or not cycle.has_room(self.pod.shape, row)
            or not cycle.hold(self.pod, 1)
        ):
            return False
        cycle.place(self.pod.shape, row)
        self.row = row
        return True

    def charge_reserved(self, cycle: Cycle, uid: str, domain: Mask | None) -> bool:
        """Charge it to a reservation with room for such a pod: on its own node, or the first one.

        ``uid`` is one that no pod has; ``domain`` None: any node will do.
        """
        session = cycle.find_session(ReservationSession)
        if session is None:
            return False
        user = replace(self.pod, uid=uid, node="", recorded=None, pinned=False, allocations=())
        if not session.concerns(cycle.shape_of(user)):
            return False
        for row in self._rows(cycle, session, user):
            mark = cycle.checkpoint()
            if (domain is None or domain[row]) and self._use(cycle, session, user, row):
                self.row, self.node, self.user = row, cycle.table.node_at(row).name, user
                return True
            cycle.rollback(mark)
        return False

    def _rows(self, cycle: Cycle, session: ReservationSession, user: Pod) -> Iterator[int]:
        """Yield the rows with room that is held for such a pod, that of its own node first."""
        shape, table = cycle.shape_of(user), cycle.table
        own = table.row_of.get(self.node)
        if own is not None:
            yield from session.holds(shape, np.array([own]))
        rows = session.holds(shape, np.arange(len(table.nodes)))
        yield from sorted(rows.keys() - {own}, key=lambda row: int(table.name_rank[row]))

    def _use(self, cycle: Cycle, session: ReservationSession, user: Pod, row: int) -> bool:
        place = cycle.reserve(user, cycle.shape_of(user), row)
        if not isinstance(place, Place) or not hold_owner_of(place.allocations):
            return False
        held = session.let_reservation_pay(user)
        unpaid = ((name, n - held.get(name, 0)) for name, n in user.shape.requests)
        shape = replace(user.shape, requests=tuple((name, n) for name, n in unpaid if n > 0))
        self.paid = replace(self.pod, shape=shape, counted=() if held else self.pod.counted)
        return cycle.hold(self.paid, 1)

    def discharge(self, cycle: Cycle) -> None:
        """Undo what was charged; it still has its row, for a rollback."""
        if self.row is None:
            return
        if self.user is None:
            cycle.place(self.pod.shape, self.row, -1)
            cycle.hold(self.pod, -1)
        else:
            cycle.remove((self.user,))
            cycle.hold(self.paid or self.pod, -1)

    def forget(self) -> None:
        """Take note that it is charged nowhere."""
        self.row = self.user = self.paid = None


@dataclass(slots=True)
class GangHold:
    """Room held for members until a time. An expired hold stays, so that it is not renewed."""

    members: list[MemberHold]
    until: float
    began: float
    """When it began, less the time that is not earned back yet."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sub-group that has lost members -> number of members to hold room for, expired or not."""
    gang: GangKey = ""
    """The gang to be repaired; empty for the hold of a NonStrict unit."""
    priority: float = 0.0
    """The highest of the gang to be repaired; infinite if it must not be evicted."""

    def nodes(self) -> set[str]:
        return {member.node for member in self.members if member.node}

    def serves(self, demand: Demand) -> bool:
        """Whether members of a demand may use the room."""
        return any(serves(demand.sub_groups, demand.sub_group, size) for size in self.sizes)

    def yields_to(self, unit: Unit) -> bool:
        """Whether a unit may take the room if it fits in no other way."""
        lowest = min((pod.priority for pod in unit.pods), default=0)
        return not self.gang or lowest > self.priority

    def use(self, demand: Demand, node: str) -> None:
        """Release the room of a member that was placed on a node."""
        fitting = [
            member
            for member in self.members
            if serves(demand.sub_groups, demand.sub_group, member.lost_by)
        ]
        used = next(
            (member for member in fitting if member.node == node),
            fitting[-1] if fitting else None,
        )
        self.members = [member for member in self.members if member is not used]


def make_member_holds(
    gang: GangKey,
    state: ClusterState,
    departed: Sequence[Pod],
    size: int,
    lost_by: str = ROOT,
) -> list[MemberHold]:
    """Return holds for the planned nodes of waiting members, then for the nodes lost last.

    The rest has the shape of a running member and no node. Only members of the sub-group that has
    lost some count.
    """
    spec = state.gangs.spec(gang)
    tree = None if spec is None else spec.sub_groups

    def is_in(pod: Pod) -> bool:
        return tree is None or tree.is_in(pod.sub_group, lost_by)

    members = list(filter(is_in, state.gangs.members(gang).values()))
    planned = [
        MemberHold(pod, pod.recorded.node)
        for pod in sorted(members, key=order_of)
        if pod.is_waiting and pod.recorded is not None
    ]
    failed = [pod for pod in members if pod.phase is PodPhase.FAILED and pod.node]
    lost = [*filter(is_in, reversed(departed)), *sorted(failed, key=order_of, reverse=True)]
    member_holds = [*planned, *(MemberHold(pod, pod.node) for pod in lost)][:size]
    running = min((pod for pod in members if pod.is_alive and pod.node), key=order_of, default=None)
    if running is not None:
        # It pays for its own room; a pod like it has to pay as well.
        like = replace(running, uid="", sub_group=lost_by)
        member_holds += [MemberHold(like) for _ in range(size - len(member_holds))]
    for member_hold in member_holds:
        member_hold.lost_by = lost_by
    return member_holds


def priority_of(gang: GangKey, state: ClusterState) -> float:
    """Return the highest priority of the living members; infinite if they must not be evicted."""
    living = [pod for pod in state.gangs.members(gang).values() if pod.is_alive]
    ours = [pod for pod in living if pod.planned_node and not is_foreign(pod)]
    whys = {pod.uid: find_lasting_protection(state, pod) for pod in ours}
    if any(find_core_protection(state, ours, whys).values()):
        return float("inf")
    return max((pod.priority for pod in living), default=0)


def count_member_holds(
    state: ClusterState, gang: GangKey, lost: Sequence[LostMembers]
) -> dict[str, int]:
    """Return sub-group -> members to hold room for. Terminating members still use their room."""
    spec, sizes = state.gangs.spec(gang), dict[str, int]()
    tree = None if spec is None else spec.sub_groups
    members = state.gangs.members(gang).values() if lost else ()
    ending = [p for p in members if p.is_terminating and p.node and not p.phase.is_terminal]
    for lost_member in lost:
        inside = [
            pod
            for pod in ending
            if tree is None or tree.is_in(pod.sub_group, lost_member.sub_group)
        ]
        using = {pod.uid for pod in inside[: lost_member.missing]}
        ending = [pod for pod in ending if pod.uid not in using]
        if lost_member.missing > len(using):
            sizes[lost_member.sub_group] = lost_member.missing - len(using)
    return sizes


def describe(unit: Unit) -> Hashable:
    """Return what is equal for units that fit on the same nodes, and into the same quotas."""
    return tuple(
        (
            demand.required,
            demand.constraint,
            demand.gang if demand.placed or demand.sub_groups is not None else "",
            frozenset(Counter(map(_describe_pod, demand.pods)).items()),
        )
        for demand in unit.demands
    )


def _describe_pod(pod: Pod) -> Hashable:
    wants = (pod.shape, pod.claims, pod.extensions, pod.attraction, pod.planned_node)
    return (*wants, pod.namespace, pod.quota)
