"""What has been seen on the API server, as values. Knows neither how it was read nor what for.

Moments are seconds of one clock that never goes back; they tell when something was *seen*.
"""

from dataclasses import dataclass

_ENDED = frozenset({"Succeeded", "Failed"})
_OBSTACLES = ("Placed", "QuorumReached", "Bound")
"""Condition types of a PodGroup, in the order in which they say why it is not further."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a pod or PodGroup."""

    type: str
    is_true: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod, and when it reached what. It stays after it was deleted."""

    name: str
    gang: str
    gpus: int
    created_at: float
    phase: str = ""
    node: str = ""
    conditions: tuple[Condition, ...] = ()
    bound_at: float | None = None
    ended_at: float | None = None

    @property
    def is_present(self) -> bool:
        """Whether it exists and has not ended."""
        return self.ended_at is None

    @property
    def is_bound(self) -> bool:
        """Whether it occupies a node."""
        return self.is_present and self.bound_at is not None

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.is_present and self.phase == "Running"


@dataclass(frozen=True, slots=True)
class SeenGang:
    """A PodGroup."""

    name: str
    min_member: int
    phase: str = ""
    conditions: tuple[Condition, ...] = ()

    def obstacle(self) -> Condition | None:
        """Return the condition that says why the gang is not further, if one does."""
        by_type = {one.type: one for one in self.conditions if not one.is_true}
        return next((by_type[kind] for kind in _OBSTACLES if kind in by_type), None)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node, and how many GPUs it has."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """All that has been seen so far; pods and gangs in the order in which they appeared."""

    nodes: tuple[SeenNode, ...] = ()
    gangs: tuple[SeenGang, ...] = ()
    pods: tuple[SeenPod, ...] = ()

    def gang(self, name: str) -> SeenGang | None:
        """Return the PodGroup of that name."""
        return next((gang for gang in self.gangs if gang.name == name), None)

    def members(self, gang: str) -> list[SeenPod]:
        """Return all pods of a gang, those that ended too."""
        return [pod for pod in self.pods if pod.gang == gang]

    def on_node(self, node: str) -> list[SeenPod]:
        """Return the pods that occupy a node."""
        return [pod for pod in self.pods if pod.node == node and pod.is_bound]


def has_ended(phase: str) -> bool:
    """Whether a pod in this phase occupies nothing any more."""
    return phase in _ENDED
