"""Nodes and namespaces as the planner sees them."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.core.model.amplification import NOT_AMPLIFIED, Amplification


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint; ``NoSchedule`` and ``NoExecute`` exclude pods, ``PreferNoSchedule`` only scores."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``allocatable`` is in canonical units and includes ``pods``; so is ``capacity``."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_unschedulable: bool = False
    is_terminating: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    published: tuple[str, ...] = ()
    """Resources and labels that the operators have added for its devices."""
    reserved: int = 0
    """CPUs that its annotation keeps for the system, as a set: bit n is CPU n."""
    amplification: Amplification = NOT_AMPLIFIED
    """How many times its CPUs and its memory are offered, as its annotation says."""
    extensions: tuple[tuple[str, Hashable], ...] = ()
    """What annotations of the node say to plugins, by their names."""
    created: float = field(default=0.0, compare=False)
    """In seconds since the epoch; 0: unknown."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    out_since: float = field(default=0.0, compare=False)
    """Since when it has failed, or else is cordoned, in seconds since the epoch; 0: neither, or
    nobody wrote when."""
    resource_version: str = field(default="", compare=False)

    @property
    def has_failed(self) -> bool:
        """Whether it is tainted as unreachable or not ready."""
        return any(taint.key in FAILED for taint in self.taints)


FAILED: Final = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"})
CORDONED: Final = frozenset({"node.kubernetes.io/unschedulable"})


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace; pod affinity may select it by its labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
