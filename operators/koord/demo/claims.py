"""What the demo claims, each a question to what was seen on the API server. Pure.

Claims about *order* ("none was bound before …") look back over moments that were recorded while the
watch told of them, so that nothing that lasted an instant is missed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

from koord.api.keys import operators
from koord.demo.observed import Cluster, Condition, SeenPod

Question: TypeAlias = Callable[[Cluster], bool]

AT_ONCE_SECONDS: Final = 1.0
"""Within this time after there is room for it, a gang has all its nodes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, and whether it is true of what has been seen so far."""

    text: str
    is_true: Question


@dataclass(frozen=True, slots=True)
class Timing:
    """How a gang was placed; seconds are counted to the last binding."""

    gang: str
    pods: int
    nodes: int
    since_complete: float
    since_room: float
    """Since it was complete and what stood in its way had ended."""
    last_bound_at: float


def waits(gang: str, pods: int) -> Claim:
    """Claim that so many members exist and none has a node."""

    def is_true(cluster: Cluster) -> bool:
        present = _present(cluster, gang)
        return len(present) == pods and not any(pod.is_bound for pod in present)

    return Claim(f"{pods} pods of {gang} exist, none of them has a node", is_true)


def group_says(gang: str, kind: str, reason: str, *words: str, status: bool = False) -> Claim:
    """Claim that the PodGroup has a condition, with these words in its message."""

    def is_true(cluster: Cluster) -> bool:
        seen = cluster.gang(gang)
        said = None if seen is None else find(seen.conditions, kind, reason, status=status)
        return said is not None and all(word in said.message for word in words)

    named = f", and names {' and '.join(words)}" if words else ""
    return Claim(f"PodGroup {gang} says {kind}={status}, reason {reason}{named}", is_true)


def members_say(gang: str, pods: int, reason: str) -> Claim:
    """Claim that so many members exist and each carries our condition with that reason."""

    def is_true(cluster: Cluster) -> bool:
        said = [
            find(pod.conditions, operators.PLACED, reason, status=False)
            for pod in _present(cluster, gang)
        ]
        return len(said) == pods and all(said)

    return Claim(f"each of the {pods} pods of {gang} says {reason}", is_true)


def is_bound_whole(gang: str, pods: int) -> Claim:
    """Claim that all members are bound, each to a node of its own."""

    def is_true(cluster: Cluster) -> bool:
        bound = [pod for pod in cluster.members(gang) if pod.bound_at is not None]
        return len(bound) == pods == len({pod.node for pod in bound})

    return Claim(f"all {pods} pods of {gang} are bound, to {pods} nodes", is_true)


def runs_whole(gang: str, pods: int) -> Claim:
    """Claim that all members run."""

    def is_true(cluster: Cluster) -> bool:
        return sum(pod.is_running for pod in cluster.members(gang)) == pods

    return Claim(f"all {pods} pods of {gang} run", is_true)


def has_finished(gang: str, pods: int) -> Claim:
    """Claim that all members have succeeded."""

    def is_true(cluster: Cluster) -> bool:
        return sum(pod.phase == "Succeeded" for pod in cluster.members(gang)) == pods

    return Claim(f"all {pods} pods of {gang} have succeeded", is_true)


def none_was_early(gang: str, pods: int, after: str | None = None) -> Claim:
    """Claim that nobody was bound before the gang was complete, and before ``after`` had ended."""

    def is_true(cluster: Cluster) -> bool:
        members = cluster.members(gang)
        return len(members) == pods and _first_bound(members) >= _room_at(cluster, gang, after)

    what = f"all {pods} existed" if after is None else f"{after} had ended"
    return Claim(f"no pod of {gang} was bound before {what}", is_true)


def came_at_once(gang: str, after: str | None = None) -> Claim:
    """Claim that the last member was bound right after there was room."""

    def is_true(cluster: Cluster) -> bool:
        timing = measure(cluster, gang, after)
        return timing is not None and timing.since_room <= AT_ONCE_SECONDS

    since = "its last pod came" if after is None else f"{after} had ended"
    return Claim(f"{gang} was bound within a second after {since}", is_true)


def measure(cluster: Cluster, gang: str, after: str | None = None) -> Timing | None:
    """Return how long the placement took; None while somebody is not bound."""
    members = cluster.members(gang)
    bound = [pod.bound_at for pod in members if pod.bound_at is not None]
    if not bound or len(bound) < len(members):
        return None
    return Timing(
        gang=gang,
        pods=len(members),
        nodes=len({pod.node for pod in members}),
        since_complete=max(bound) - _complete_at(members),
        since_room=max(bound) - _room_at(cluster, gang, after),
        last_bound_at=max(bound),
    )


def find(
    conditions: Sequence[Condition], kind: str, reason: str, *, status: bool
) -> Condition | None:
    """Return the condition of that type, reason and status."""
    wanted = (kind, reason, status)
    found = (one for one in conditions if (one.type, one.reason, one.is_true) == wanted)
    return next(found, None)


def _present(cluster: Cluster, gang: str) -> list[SeenPod]:
    return [pod for pod in cluster.members(gang) if pod.is_present]


def _first_bound(members: Sequence[SeenPod]) -> float:
    moments = [pod.bound_at for pod in members if pod.bound_at is not None]
    return min(moments, default=-inf)


def _complete_at(members: Sequence[SeenPod]) -> float:
    return max(pod.created_at for pod in members)


def _room_at(cluster: Cluster, gang: str, after: str | None) -> float:
    """When the gang was complete and all pods in its way had ended."""
    blockers = [] if after is None else cluster.members(after)
    ended = [inf if pod.ended_at is None else pod.ended_at for pod in blockers]
    return max([_complete_at(cluster.members(gang)), *ended])
