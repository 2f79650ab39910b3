"""Joins reservations to the planner: keeps their accounts, and their room on nodes and in quotas.

A reservation is a pod of the cluster state: a waiting one until it has a node, which is planned
like any other; afterwards one that uses what is held of the node besides what its owners use. So
node, quota and other rules count it without knowing reservations, and what is held and used of a
node is always P + sum(max(C, U)). Both are derived from objects: whenever a pod that
uses a reservation changes, the amounts of all its pods are added up.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from typing_extensions import override

from koord.core.engine.allocations import NodeAllocations
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin
from koord.core.model.changes import ChangeLog
from koord.core.model.constraints import PodLabels
from koord.core.model.nodes import Node
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import (
    NO_LABELS,
    Allocation,
    Handling,
    Pod,
    PodPhase,
    PodShape,
    Shareable,
)
from koord.core.model.units import PODS
from koord.core.reservation.ledger import ReservationAccount, add_up
from koord.core.reservation.lifecycle import PriorityClass, rank_held, rank_waiting
from koord.core.reservation.matcher import MatchedReservations, OwnerIndex, Reserving
from koord.core.reservation.model import (
    NAME,
    NOTHING_IGNORED,
    HoldProtection,
    IgnoredResources,
    Placeholder,
    ReservationInfo,
    ReservationPhase,
    ReservationUse,
)
from koord.core.reservation.session import PayingSession, ReservationSession
from koord.isolation import Isolation

_MOST_MATCHES: Final = 1 << 14
RememberedMatches: TypeAlias = tuple[
    dict[Hashable, MatchedReservations | None], dict[PodLabels, MatchedReservations | None]
]


class Reservations(Plugin):
    """The reservations of a cluster, by uid; ``compat``: owners are selected in all namespaces.

    Of ``ignored`` resources pods may use more than is reserved, whatever the policy.
    """

    name = NAME

    def __init__(
        self, *, compat: bool = False, ignored: IgnoredResources = NOTHING_IGNORED
    ) -> None:
        self.compat = compat
        self.ignored = ignored
        self.classes: dict[str, PriorityClass] = {}
        self.reservations: dict[str, ReservationInfo] = {}
        self.accounts: dict[str, ReservationAccount] = {}
        """Those that hold room."""
        self.index = OwnerIndex()
        """Those that pods may use."""
        self.closed = OwnerIndex()
        """The others, of which it is said why."""
        self.on_node: dict[str, dict[str, None]] = {}
        """Node -> those that hold room there."""
        self.changes = ChangeLog()
        """Of reservations and of their use, by uid."""
        self._users: dict[str, dict[str, PodCharge]] = {}
        """Reservation -> the pods that use it, by uid."""
        self._allocations = NodeAllocations[tuple[Allocation, ...]]()
        """Of pods that use one: all that they were given."""
        self._dirty: dict[str, None] = {}
        self._isolated = Isolation("reservations")
        self.exact: dict[str, tuple[Allocation, ...]] = {}
        """Those that hold more than amounts, as devices or CPUs -> what they were given."""
        self.placeholders: dict[str, Placeholder] = {}
        """Pods that hold room where others can see it, by uid."""
        self._holding: dict[str, dict[str, Placeholder]] = {}
        """Reservation -> its placeholders."""
        self.homeless: set[str] = set()
        """Those whose node was deleted since they got it, even if there is another of its name."""
        self._taking_in: set[str] = set()
        """Those without a node that take in running pods."""
        self._arrived_on: set[str] = set()
        """Nodes with pods that they might take in."""
        self._node_uids: dict[int, str] = {}
        self._edits = 0
        self._matches: tuple[tuple[int, int], RememberedMatches] = ((0, 0), ({}, {}))

    @property
    def given(self) -> Mapping[str, tuple[Allocation, ...]]:
        """Pod that uses a reservation -> what it was given when it was first seen on its node."""
        return self._allocations.given

    def matches(self, epoch: int) -> RememberedMatches:
        """Return what is known of pods, as long as neither reservations nor nodes change.

        Those of pods that say nothing and are not named are there by their labels alone, too.
        """
        version = (self._edits, epoch)
        if self._matches[0] != version or len(self._matches[1][0]) > _MOST_MATCHES:
            self._matches = (version, ({}, {}))
        return self._matches[1]

    def upsert(self, reservation: ReservationInfo) -> None:
        """Apply an observed reservation; what waits for room on its node is tried again."""
        before = self.reservations.get(reservation.uid)
        if before == reservation and before.generation == reservation.generation:
            return
        self._edits += 1
        self.reservations[reservation.uid] = reservation
        self._note_allocations(reservation)
        self._settle(reservation.uid)
        self._show(reservation.uid)
        self.view.note_freed({reservation.status.node} - {""})

    def remove(self, reservation: ReservationInfo) -> None:
        uid = reservation.uid
        self._edits += 1
        self.reservations.pop(uid, None)
        self.exact.pop(uid, None)
        self.homeless.discard(uid)
        self._settle(uid)
        self._show(uid)

    def upsert_priority_class(self, priority_class: PriorityClass) -> None:
        if self.classes.get(priority_class.name) != priority_class:
            self.classes[priority_class.name] = priority_class
            self._show_all(priority_class.name)

    def remove_priority_class(self, priority_class: PriorityClass) -> None:
        self.classes.pop(priority_class.name, None)
        self._show_all(priority_class.name)

    def _show_all(self, priority_class: str) -> None:
        """Have the reservations of a PriorityClass counted with its value."""
        for uid, reservation in self.reservations.items():
            if reservation.priority_class == priority_class:
                self.changes.note(uid)
                self._show(uid)

    def _note_allocations(self, reservation: ReservationInfo) -> None:
        """Note what it was given with its node; later annotations are not believed."""
        uid, pod = reservation.uid, reservation.pod
        if not reservation.status.is_active:
            self.exact.pop(uid, None)
        elif uid not in self.exact and pod is not None and pod.allocations:
            self.exact[uid] = pod.allocations

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        before = self._node_uids.get(row, node.uid)
        self._node_uids[row] = node.uid
        if before != node.uid:
            self._note_gone(node.name)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._node_uids.pop(row, None)
        self._note_gone(name)

    def _note_gone(self, node: str) -> None:
        for uid in self.on_node.get(node, ()):
            self.homeless.add(uid)
            self.changes.note(uid)

    @override
    def advance(self, now: float) -> Collection[str]:
        """Return the nodes with pods that a waiting reservation may take in since the last call."""
        nodes, self._arrived_on = self._arrived_on, set()
        return nodes

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if self._taking_in and count > 0:
            self._arrived_on.add(charge.load.node)
        for uid in self.on_node.get(charge.load.node, ()):
            self.changes.note(uid)  # The node may have too little for all, or enough again.
        if not charge.allocations and charge.uid not in self.given:
            return
        given = self._allocations.find(charge, charge.allocations)
        use = find_use(given or ())
        if use is None or given is None:
            return
        self._allocations.charge(row, charge, count, given)
        if count > 0:
            self._users.setdefault(use.uid, {})[charge.uid] = replace(charge, allocations=given)
        else:
            users = self._users.get(use.uid, {})
            users.pop(charge.uid, None)
            if not users:
                self._users.pop(use.uid, None)
        self._dirty[use.uid] = None

    @override
    def absorb(self) -> None:
        """Add up what changed; forget pods that are gone."""
        dirty, self._dirty = self._dirty, {}
        for uid in dirty:
            with self._isolated.of(uid):
                self._settle(uid)
                self._show(uid)
        # Only here: a pod that changes is discharged, charged again, and keeps what it was given.
        if self._allocations.discharged:
            self._allocations.forget_gone()

    def _show(self, uid: str) -> None:
        """Have a reservation counted by the cluster state as it is now.

        One that is over needs no room, but it stays a member of its gang until it is deleted, as
        pods do that have ended.
        """
        pod = self.pod_of(uid)
        if pod is not None:
            self.view.upsert_pod(pod)
            return
        self.view.remove_pod(uid)
        ended = self._ended_member(uid)
        if ended is None:
            self.view.gangs.remove_pod(uid)
        else:
            self.view.gangs.upsert_pod(ended)

    def exact_nodes(self) -> set[str]:
        """Return the nodes on which devices or CPUs are held."""
        return {self.reservations[uid].status.node for uid in self.exact}

    def users_of(self, uid: str) -> list[PodCharge]:
        """Return the pods that use a reservation, by uid."""
        reservation = self.reservations.get(uid)
        node = "" if reservation is None else reservation.status.node
        users = self._users.get(uid, {})
        return [users[user] for user in sorted(users) if users[user].load.node == node]

    def count_users(self, uid: str) -> int:
        account = self.accounts.get(uid)
        return 0 if account is None else account.pods

    def note_placeholder(self, placeholder: Placeholder, *, is_gone: bool = False) -> None:
        """Apply an observed placeholder."""
        of_reservation = self._holding.setdefault(placeholder.reservation, {})
        for placeholders in (self.placeholders, of_reservation):
            if is_gone:
                placeholders.pop(placeholder.uid, None)
            else:
                placeholders[placeholder.uid] = placeholder
        if not of_reservation:
            del self._holding[placeholder.reservation]
        self.changes.note(placeholder.reservation)

    def placeholders_of(self, uid: str) -> list[Placeholder]:
        """Return those of a reservation; of "" the guards."""
        return list(self._holding.get(uid, {}).values())

    def given_to(self, pod: str) -> ReservationUse | None:
        return find_use(self.given.get(pod, ()))

    def pod_of(self, uid: str) -> Pod | None:
        """Return the pod that stands for a reservation; None if it holds and needs no room."""
        reservation = self.reservations.get(uid)
        if reservation is None or reservation.status.is_over:
            return None
        account, pod = self.accounts.get(uid), reservation.pod
        if account is None:
            if pod is None:
                return None
            return rank_waiting(_as_waiting(pod, reservation), reservation, self.classes)
        pod = pod or Pod(uid, reservation.namespace, reservation.name, PodShape(()))
        return replace(
            pod,
            shape=PodShape(
                _sorted(account.held() | _pods_of_placeholders(reservation)),
                host_ports=account.ports,
            ),
            profile=NO_LABELS,
            claims=(),
            handling=Handling.RESERVE,
            priority=rank_held(reservation, self.classes, account.pods),
            node=reservation.status.node,
            phase=PodPhase.RUNNING,
            is_terminating=False,
            soft_eviction=0.0,
            extensions=(),
            counted=() if account.pods else pod.counted,
            exceeded_limit=None,
            allocations=self._left_now(uid) if uid in self.exact else (),
        )

    def _ended_member(self, uid: str) -> Pod | None:
        """Return the member of a gang that a reservation was: done if it was used."""
        reservation = self.reservations.get(uid)
        pod = None if reservation is None else reservation.pod
        if reservation is None or pod is None or pod.gang is None:
            return None
        status = reservation.status
        if not status.is_over:
            return None
        phase = (
            PodPhase.SUCCEEDED if status.phase == ReservationPhase.SUCCEEDED else PodPhase.FAILED
        )
        return replace(pod, node=status.node, phase=phase, extensions=(), allocations=())

    def _left_now(self, uid: str) -> tuple[Allocation, ...]:
        return self.left_of(
            uid, (allocation for user in self.users_of(uid) for allocation in user.allocations)
        )

    def left_of(self, uid: str, users: Iterable[Allocation]) -> tuple[Allocation, ...]:
        """Return what a reservation holds besides amounts, with what its pods use of it."""
        used = list(users)
        return tuple(
            allocation.shared_with(used) if isinstance(allocation, Shareable) else allocation
            for allocation in self.exact[uid]
        )

    def _settle(self, uid: str) -> None:
        self.changes.note(uid)
        before, after = self.accounts.pop(uid, None), self._account(uid)
        if before is not None:
            on_node = self.on_node[before.reservation.status.node]
            del on_node[uid]
            if not on_node:
                del self.on_node[before.reservation.status.node]
        self.index.discard(uid)
        self.closed.discard(uid)
        self._note_waiting(uid)
        if after is None or not after.is_matchable:
            if uid in self.reservations:
                self.closed.add(self.reservations[uid])
        else:
            self.index.add(after.reservation)
        if after is None:
            return
        self.accounts[uid] = after
        self.on_node.setdefault(after.reservation.status.node, {})[uid] = None

    def _note_waiting(self, uid: str) -> None:
        """Note whether pods that start are of use to a reservation."""
        reservation = self.reservations.get(uid)
        is_waiting = reservation is not None and not (
            reservation.status.node or reservation.status.is_over
        )
        if is_waiting and reservation is not None and reservation.pre_allocation is not None:
            self._taking_in.add(uid)
        else:
            self._taking_in.discard(uid)

    def _account(self, uid: str) -> ReservationAccount | None:
        reservation = self.reservations.get(uid)
        if reservation is None or not reservation.status.is_active:
            return None
        users = self.users_of(uid)
        used = add_up(dict(user.load.requests) for user in users)
        used.pop(PODS, None)
        taken = {port for user in users for port in user.load.host_ports}
        own = reservation.pod.shape.host_ports if reservation.pod is not None else ()
        ports = tuple(port for port in own if port not in taken)
        return ReservationAccount(reservation, used, len(users), self.ignored, ports)

    @override
    def open(self, cycle: Cycle) -> ReservationSession:
        return PayingSession(self, cycle) if self.index else ReservationSession(self, cycle)


def find_use(allocations: Iterable[object]) -> ReservationUse | None:
    return next(
        (allocation for allocation in allocations if isinstance(allocation, ReservationUse)), None
    )


def _as_waiting(pod: Pod, reservation: ReservationInfo) -> Pod:
    """Return the pod that is planned for a reservation."""
    requests = _sorted({**reservation.requests(), PODS: 1})
    extensions = tuple(extension for extension in pod.extensions if extension[0] != NAME)
    takes_in = reservation.uid if reservation.pre_allocation is not None else ""
    extensions = (
        *extensions,
        (NAME, Reserving(reservation.policy, reservation.pinned_to, takes_in)),
    )
    # Claims of ephemeral volumes are made for a pod, and there is none.
    claims = tuple(claim for claim in pod.claims if not claim.is_own)
    return replace(
        pod, shape=replace(pod.shape, requests=requests), extensions=extensions, claims=claims
    )


def _pods_of_placeholders(reservation: ReservationInfo) -> dict[str, int]:
    """Return the pods that hold its room besides those that use it."""
    return {PODS: 1} if reservation.protection is HoldProtection.PLACEHOLDER else {}


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, n) for name, n in amounts.items() if n > 0))
