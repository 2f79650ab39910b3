"""Running counts of the members of one gang, updated by each change without rescanning."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from koord.caches import cached_by_text
from koord.core.gang.group import GROUP_SEPARATOR
from koord.core.model.gangs import Bond, GangSource
from koord.core.model.pods import Handling, Pod, PodPhase
from koord.core.model.reasons import RefusedByScheduler

_WITHOUT_RELEASE: Final = frozenset({Handling.RESERVE, Handling.STAND_IN})
"""Placed by us, with another write than a release."""


def is_placed(pod: Pod) -> bool:
    """Whether a live member has a place for good: a node, or a release that pinned it to one.

    The scheduler that a pinned member names binds it. If that one cannot, the member is lost.
    """
    return pod.is_alive and _has_place(pod)


def _has_place(pod: Pod) -> bool:
    is_pinned = pod.recorded is not None and pod.handling is Handling.NOT_OURS
    return bool(pod.node) or (is_pinned and not pod.is_unschedulable)


def is_present(pod: Pod) -> bool:
    """Whether a member counts towards the quorum: alive, and either placed or ours to place.

    Members that another scheduler places count once they have a node.
    """
    return is_placed(pod) or (pod.is_alive and pod.handling is not Handling.NOT_OURS)


def is_planned(pod: Pod) -> bool:
    """Whether a member was released, has no node yet, and may still get it."""
    return pod.is_waiting and pod.recorded is not None and not pod.is_unschedulable


def find_refused(members: Iterable[Pod]) -> RefusedByScheduler | None:
    """Return the first pod that was released, and that its own scheduler does not bind."""
    refused = (pod for pod in members if pod.is_waiting and pod.is_unschedulable)
    first = min(refused, key=lambda pod: pod.key, default=None)
    if first is None or first.recorded is None:
        return None
    return RefusedByScheduler(first.key, first.recorded.node, first.scheduler_message)


def is_done(pod: Pod) -> bool:
    """Whether a member has succeeded on a node; see ``done`` for when it counts.

    One that was released with another gang is not done here: labels can be changed afterwards.
    """
    if pod.phase is not PodPhase.SUCCEEDED or not pod.node:
        return False
    return pod.recorded is None or _release_of(pod) is not None


def bond_of(pod: Pod) -> Bond:
    if pod.gang is not None and pod.gang.source is GangSource.OWNER:
        # Its owner divides runs into gangs; Jobs below it may come and go.
        return Bond(pod.gang.key, "", 0)
    controller = next((owner.uid for owner in pod.owners if owner.is_controller), "")
    if not controller and pod.owners:
        controller = pod.owners[0].uid
    plan = pod.recorded
    if plan is None or plan.member_count < 2:
        return Bond(controller, "", 0)
    return Bond(controller, plan.start_id or plan.plan_id, plan.member_count)


@dataclass(slots=True)
class BondCounts:
    """How many members of one bond there are, in any state, alive, and done by sub-group."""

    total: int = 0
    alive: int = 0
    done: Counter[str] = field(default_factory=Counter)


Release: TypeAlias = tuple[str, int]
"""The group released, and how much of its minimum the gang had with that release (0: unknown)."""


@cached_by_text()
def gangs_of(group: str) -> frozenset[str]:
    return frozenset(group.split(GROUP_SEPARATOR))


def _release_of(pod: Pod) -> Release | None:
    """Return the release of a pod if it was one of the gang that its labels name now."""
    if pod.recorded is None or pod.gang is None:
        return None
    if pod.gang.key not in gangs_of(pod.recorded.group):
        return None
    return pod.recorded.group, pod.recorded.strength


@dataclass(slots=True)
class Tally:
    """Counts and sets over the members of one gang."""

    total: int = 0
    terminating: int = 0
    running: int = 0
    succeeded: int = 0
    done: dict[str, Pod] = field(default_factory=dict)
    """Succeeded on a node, in whichever run, by uid."""
    bonds: dict[Bond, BondCounts] = field(default_factory=dict)
    failed: int = 0
    bound: int = 0
    """Members with a node, terminated ones included."""
    alive: int = 0
    """Neither terminated nor terminating."""
    bound_alive: int = 0
    placed: int = 0
    released: int = 0
    """Placed by a release of ours with this gang, which proves that the quorum was reached."""
    by_others: int = 0
    """Placed by other schedulers; reservations get their nodes from us, without a release."""
    releases: dict[Release, int] = field(default_factory=dict)
    """The releases of those -> how many of their members are left."""
    present: dict[str, Pod] = field(default_factory=dict)
    """Those that count towards the quorum, by uid; see :func:`is_present`."""
    held: int = 0
    """Alive behind the gate."""
    planned: int = 0
    """Alive and released, without a node, and not unschedulable since."""
    refused: int = 0
    """Alive and released, without a node, and unschedulable for their own scheduler."""
    by_kueue: int = 0
    """Members of which Kueue chooses the places in the network."""
    label_claims: int = 0
    """Members that name a PodGroup object by label."""
    plannable: dict[str, Pod] = field(default_factory=dict)
    """Waiting and ours to place now, by uid."""
    foreign: dict[str, Pod] = field(default_factory=dict)
    """Waiting and ours, behind foreign gates, by uid."""

    @property
    def waiting(self) -> int:
        """Our members without a node, whether they can be planned now or not."""
        return len(self.plannable) + len(self.foreign)

    def add(self, pod: Pod) -> None:
        is_alive = pod.is_alive
        self._count(pod, 1, is_alive=is_alive)
        if not is_alive:
            if is_done(pod):
                self.done[pod.uid] = pod
            return
        if pod.handling is not Handling.NOT_OURS or _has_place(pod):
            self.present[pod.uid] = pod
        if pod.is_plannable:
            self.plannable[pod.uid] = pod
        elif not pod.node and pod.handling is Handling.FOREIGN_GATE:
            self.foreign[pod.uid] = pod

    def discard(self, pod: Pod) -> None:
        """Remove a member; ``pod`` must equal the value that was added."""
        self._count(pod, -1, is_alive=pod.is_alive)
        self.present.pop(pod.uid, None)
        self.done.pop(pod.uid, None)
        self.plannable.pop(pod.uid, None)
        self.foreign.pop(pod.uid, None)

    def _count(self, pod: Pod, sign: int, *, is_alive: bool) -> None:
        self.total += sign
        self.terminating += sign * pod.is_terminating
        self.running += sign * (pod.phase is PodPhase.RUNNING)
        self.succeeded += sign * (pod.phase is PodPhase.SUCCEEDED)
        self.failed += sign * (pod.phase is PodPhase.FAILED)
        self.bound += sign * bool(pod.node)
        self.by_kueue += sign * (pod.kueue_node is not None)
        self._count_bond(pod, sign, is_alive=is_alive)
        if is_alive:
            self._count_alive(pod, sign)

    def _count_bond(self, pod: Pod, sign: int, *, is_alive: bool) -> None:
        bond = bond_of(pod)
        counts = self.bonds.get(bond)
        if counts is None:
            counts = self.bonds[bond] = BondCounts()
        counts.total += sign
        counts.alive += sign * is_alive
        if not is_alive and is_done(pod):
            counts.done[pod.sub_group] += sign
        if not counts.total:
            del self.bonds[bond]

    def _count_alive(self, pod: Pod, sign: int) -> None:
        self.alive += sign
        if _has_place(pod):
            self.placed += sign
            release = _release_of(pod)
            self._count_release(release, sign)
            is_by_us = release is not None or pod.handling in _WITHOUT_RELEASE
            self.by_others += sign * (not is_by_us)
        if pod.node:
            self.bound_alive += sign
        else:
            self.held += sign * pod.is_gated
            self.planned += sign * (pod.recorded is not None and not pod.is_unschedulable)
            self.refused += sign * pod.is_unschedulable

    def _count_release(self, release: Release | None, sign: int) -> None:
        if release is None:
            return
        self.released += sign
        left = self.releases.get(release, 0) + sign
        if left:
            self.releases[release] = left
        else:
            del self.releases[release]
