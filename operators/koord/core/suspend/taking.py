"""Whose room a pod of a Job takes, in one cycle: what is asked of each Job is found once.

In a cycle neither pods nor stand-ins change, and a Job may have ten thousand of both.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Protocol

from koord.core.model.pods import Handling, Pod, PodShape

INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"


class RoomOwners(Protocol):
    """Knows the Jobs for whose pods room is held."""

    def has_turn(self, pod: Pod) -> bool:
        """Whether a pod is one of those for which a Job has had its turn."""

    def owner_of(self, pod: Pod) -> str:
        """Return the uid of the Job of a pod."""

    def pods_of(self, uid: str) -> Iterable[Pod]:
        """Return the pods of a Job."""

    def stand_ins_of(self, uid: str) -> Sequence[Pod]:
        """Return the stand-ins of a Job, in order."""


class RoomTaking:
    """The stand-ins of all Jobs in one cycle."""

    def __init__(self, owners: RoomOwners) -> None:
        self._owners = owners
        self._rooms: dict[str, _RoomsOfJob] = {}

    def has_turn(self, pod: Pod) -> bool:
        return self._owners.has_turn(pod)

    def choose(self, pods: Iterable[Pod], taken: Collection[str]) -> Iterator[tuple[Pod, Pod]]:
        """Yield pods, each with the stand-in whose room it takes: none of those that are taken.

        Two pods of one index are the same member: the later one waits for room like any other.
        """
        left: dict[str, _RoomsLeft] = {}
        for pod in pods:
            if pod.handling is Handling.STAND_IN or not self._owners.has_turn(pod):
                continue
            uid = self._owners.owner_of(pod)
            rooms = self._rooms.get(uid)
            if rooms is None:
                rooms = self._rooms[uid] = _RoomsOfJob(self._owners, uid)
            if rooms.is_double(pod):
                continue
            if uid not in left:
                left[uid] = _RoomsLeft(rooms, taken)
            stand_in = left[uid].take(pod.shape)
            if stand_in is not None:
                yield pod, stand_in


class _RoomsOfJob:
    """The room that is held for a Job, and which of its pods are the first of their index."""

    def __init__(self, owners: RoomOwners, uid: str) -> None:
        self.stand_ins = [made for made in owners.stand_ins_of(uid) if made.node]
        self.by_shape: defaultdict[PodShape, list[Pod]] = defaultdict(list)
        for made in self.stand_ins:
            self.by_shape[made.shape].append(made)
        self._first: dict[str, tuple[float, str]] = {}
        self._placed: defaultdict[str, list[str]] = defaultdict(list)
        for pod in owners.pods_of(uid):
            index = pod.profile.labels.get(INDEX_LABEL)
            if index is None or not pod.is_alive:
                continue
            self._first[index] = min(_age_of(pod), self._first.get(index, _age_of(pod)))
            if pod.node:
                self._placed[index].append(pod.uid)

    def is_double(self, pod: Pod) -> bool:
        """Whether a pod has the index of another one that lives, and has come before it."""
        index = pod.profile.labels.get(INDEX_LABEL)
        if index is None:
            return False
        is_placed = any(uid != pod.uid for uid in self._placed.get(index, ())[:2])
        return is_placed or self._first.get(index, _age_of(pod)) < _age_of(pod)


class _RoomsLeft:
    """Room that pods of one unit take one after the other."""

    def __init__(self, rooms: _RoomsOfJob, taken: Collection[str]) -> None:
        self._rooms, self._taken = rooms, set(taken)
        self._any = iter(rooms.stand_ins)
        self._alike: dict[PodShape, Iterator[Pod]] = {}

    def take(self, shape: PodShape) -> Pod | None:
        """Return room of this shape if there is some, else any."""
        if shape not in self._alike:
            self._alike[shape] = iter(self._rooms.by_shape.get(shape, ()))
        for made in chain(self._alike[shape], self._any):
            if made.uid not in self._taken:
                self._taken.add(made.uid)
                return made
        return None


def _age_of(pod: Pod) -> tuple[float, str]:
    return pod.created, pod.uid
