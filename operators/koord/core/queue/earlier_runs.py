"""For how long the pods before have run that a waiting pod replaces: they used up its limit.

Answered from pods that exist, so that it is the same after a restart. A gang that starts again as
a whole, and a pod of which nobody can tell what it replaces, have all their time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from koord.core.engine.state_view import StateView
from koord.core.model.pods import OwnerReference, Pod, PodPhase


class EarlierRuns:
    """The runs of a cluster that has limits."""

    def __init__(self, view: StateView) -> None:
        self._view = view
        self._feed = view.feed()
        self._owner_of: dict[str, str] = {}
        """Pod without gang -> its controller."""
        self._owned: defaultdict[str, set[str]] = defaultdict(set)

    def passed(self, pod: Pod) -> int:
        """Return how many seconds of its limit a waiting pod does not have any more."""
        now = int(self._view.now)
        if pod.gang is None:
            return _add_up(self._find_replaced(pod), now)
        gangs = self._view.gangs.group(pod.gang.key).gangs
        members = [member for gang in gangs for member in self._view.gangs.members(gang).values()]
        running = [member for member in members if member.is_alive and member.started]
        if running:
            return max(0, now - min(int(member.started) for member in running))
        controller = controller_of(pod)
        if controller is None:
            return 0
        return _add_up((member for member in members if controller_of(member) == controller), now)

    def _find_replaced(self, pod: Pod) -> Iterable[Pod]:
        """Return what a pod without gang replaces: all before it in its place have failed."""
        controller = controller_of(pod)
        if controller is None:
            return ()
        self._update()
        earlier = [
            before
            for uid in self._owned.get(controller.uid, ())
            if uid != pod.uid
            and (before := self._view.pods.get(uid)) is not None
            and place_of(before, controller) == place_of(pod, controller)
        ]
        have_failed = all(
            before.is_terminating or before.phase is PodPhase.FAILED for before in earlier
        )
        return earlier if have_failed else ()

    def _update(self) -> None:
        for uid in self._feed.drain().singles:
            pod = self._view.pods.get(uid)
            controller = None if pod is None or pod.gang is not None else controller_of(pod)
            owner, before = (
                "" if controller is None else controller.uid,
                self._owner_of.get(uid, ""),
            )
            if owner == before:
                continue
            if before:
                self._drop(uid, before)
            if owner:
                self._owner_of[uid] = owner
                self._owned[owner].add(uid)

    def _drop(self, uid: str, owner: str) -> None:
        del self._owner_of[uid]
        self._owned[owner].discard(uid)
        if not self._owned[owner]:
            del self._owned[owner]


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return what makes pods in place of others."""
    return next((owner for owner in pod.owners if owner.is_controller and owner.uid), None)


def place_of(pod: Pod, controller: OwnerReference) -> str:
    """Return the index that an indexed Job has put into the name of a pod; empty without one."""
    ending = pod.name.removeprefix(f"{controller.name}-")
    return ending.rpartition("-")[0] if ending != pod.name else ""


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
