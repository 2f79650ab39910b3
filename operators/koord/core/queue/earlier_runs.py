"""For how long the pods before have run that a waiting pod replaces: they used up its limit.

Answered from pods that exist, so that it is the same after a restart. A gang that starts again as
a whole, and a pod of which nobody can tell what it replaces, have all their time. What pods share
is found once for all of them: a gang may have thousands, and anybody may name one owner in any
number of pods.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from koord.core.engine.state_view import StateView
from koord.core.model.gangs import GangKey
from koord.core.model.pods import OwnerReference, Pod, PodPhase

_Place: TypeAlias = tuple[str, str, str]
"""Namespace, uid of the controller, and index of a pod."""


@dataclass(slots=True)
class _PodsInPlace:
    """Pods without gang of one place, by uid: those that have failed, or are leaving, apart."""

    failed: dict[str, None] = field(default_factory=dict)
    present: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _GangRuns:
    """Since when members of a gang run that live; None: none does. What ran, by controller."""

    running_since: int | None
    pods: dict[OwnerReference, list[Pod]]


class EarlierRuns:
    """The runs of a cluster that has limits."""

    def __init__(self, view: StateView) -> None:
        self._view = view
        self._feed = view.feed()
        self._place_of: dict[str, _Place] = {}
        """Pod without gang -> its place."""
        self._places: defaultdict[_Place, _PodsInPlace] = defaultdict(_PodsInPlace)
        self._gangs: dict[GangKey, _GangRuns] = {}
        self._passed: dict[tuple[tuple[GangKey, ...], OwnerReference], int] = {}
        """Gangs of a group, controller -> for how long its members have run by ``_now``."""
        self._now = 0

    def passed(self, pod: Pod) -> int:
        """Return how many seconds of its limit a waiting pod does not have any more."""
        controller = controller_of(pod)
        if pod.gang is None and controller is None:
            return 0
        self._update()
        if pod.gang is None:
            return _add_up(self._find_replaced(pod), self._now)
        group = tuple(self._view.gangs.group(pod.gang.key).gangs)
        gangs = [self._runs_of(gang) for gang in group]
        since = [gang.running_since for gang in gangs if gang.running_since is not None]
        if since:
            return max(0, self._now - min(since))
        if controller is None:
            return 0
        key = (group, controller)
        if key not in self._passed:
            runs = (run for gang in gangs for run in gang.pods.get(controller, ()))
            self._passed[key] = _add_up(runs, self._now)
        return self._passed[key]

    def _find_replaced(self, pod: Pod) -> Iterable[Pod]:
        """Return what a pod without gang replaces: all before it in its place have failed."""
        controller = controller_of(pod)
        place = None if controller is None else self._places.get(_find_place(pod, controller))
        if place is None or place.present.keys() - {pod.uid}:
            return ()
        pods = self._view.pods
        return [pods[uid] for uid in place.failed if uid != pod.uid and uid in pods]

    def _runs_of(self, gang: GangKey) -> _GangRuns:
        runs = self._gangs.get(gang)
        if runs is None:
            started: dict[OwnerReference, list[Pod]] = {}
            since = None
            for member in self._view.gangs.members(gang).values():
                controller = controller_of(member)
                if member.started and controller is not None:
                    started.setdefault(controller, []).append(member)
                if member.started and member.is_alive:
                    since = min(int(member.started), since or int(member.started))
            runs = self._gangs[gang] = _GangRuns(since, started)
        return runs

    def _update(self) -> None:
        changes, now = self._feed.drain(), int(self._view.now)
        if changes.gangs or now != self._now:
            self._passed, self._now = {}, now
        for gang in changes.gangs:
            self._gangs.pop(gang, None)
        for uid in changes.singles:
            self._note(uid, self._view.pods.get(uid))

    def _note(self, uid: str, pod: Pod | None) -> None:
        """Note in which place a pod is, and whether it has failed."""
        before = self._place_of.pop(uid, None)
        if before is not None:
            place = self._places[before]
            place.failed.pop(uid, None)
            place.present.pop(uid, None)
            if not (place.failed or place.present):
                del self._places[before]
        controller = None if pod is None or pod.gang is not None else controller_of(pod)
        if pod is not None and controller is not None:
            key = self._place_of[uid] = _find_place(pod, controller)
            has_failed = pod.is_terminating or pod.phase is PodPhase.FAILED
            place = self._places[key]
            (place.failed if has_failed else place.present)[uid] = None


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return what makes pods in place of others."""
    return next((owner for owner in pod.owners if owner.is_controller and owner.uid), None)


def place_of(pod: Pod, controller: OwnerReference) -> str:
    """Return the index that an indexed Job has put into the name of a pod; empty without one."""
    ending = pod.name.removeprefix(f"{controller.name}-")
    return ending.rpartition("-")[0] if ending != pod.name else ""


def _find_place(pod: Pod, controller: OwnerReference) -> _Place:
    return pod.namespace, controller.uid, place_of(pod, controller)


def _add_up(pods: Iterable[Pod], now: int) -> int:
    """Return for how long at least one of the pods ran."""
    total = until = 0
    for start, end in sorted(_find_runs(pods, now)):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def _find_runs(pods: Iterable[Pod], now: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run; of an end that nobody knows, nothing is held against."""
    for pod in pods:
        if pod.started:
            end = int(pod.finished) if pod.phase.is_terminal else now
            yield int(pod.started), max(end, int(pod.started))
