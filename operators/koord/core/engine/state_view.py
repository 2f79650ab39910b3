"""What a plugin may see of the cluster state, and what it may tell it.

Stands below the domains, so that a plugin knows neither the whole state nor another domain. The
cluster state hands itself to every plugin by :meth:`~koord.core.engine.plugin.Plugin.attach`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from koord.core.engine.node_table import NodeTable
from koord.core.model.changes import Feed
from koord.core.model.gangs import GangKey, GangSpec, ObservedPodGroup
from koord.core.model.pods import Pod
from koord.core.model.reasons import NoSettings

P = TypeVar("P")


class GangGroup(Protocol):
    """Gangs that start together."""

    @property
    def gangs(self) -> Collection[GangKey]:
        """The keys of all of them."""


class GangView(Protocol):
    """Which gangs there are, and their members."""

    def spec(self, key: GangKey) -> GangSpec | None:
        """Return the settings of a gang; None for one without any."""

    def pod_group(self, key: GangKey) -> ObservedPodGroup | None:
        """Return the PodGroup of a gang, unless it is a native one."""

    def members(self, key: GangKey) -> Mapping[str, Pod]:
        """Return all members by uid, terminated and terminating ones included."""

    def group(self, key: GangKey) -> GangGroup:
        """Return the gangs that start together with this one, itself included."""

    def upsert_pod(self, pod: Pod) -> None:
        """Count a member."""

    def remove_pod(self, uid: str) -> None:
        """Count a member no longer."""

    def declare(self, key: GangKey, derived: GangSpec | NoSettings) -> None:
        """Give a gang the settings that were found for it, or say why there are none."""

    def withdraw(self, key: GangKey) -> None:
        """Take back what was found for a gang."""


class StateView(Protocol):
    """The cluster state as plugins know it."""

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Uid -> pod as planning sees it: an assumed pod carries its assumed node."""

    def observed(self, uid: str) -> Pod | None:
        """Return a pod as last observed, without assumptions."""

    @property
    def assumed(self) -> Collection[str]:
        """The pods (uid) that were placed just now, before any watch event shows it."""

    @property
    def table(self) -> NodeTable:
        """The nodes, and what is used of them."""

    @property
    def now(self) -> float:
        """The time in seconds since the epoch; the only one that planning compares with."""

    @property
    def gangs(self) -> GangView:
        """The gangs."""

    def plugin(self, kind: type[P]) -> P:
        """Return the plugin of a class; for what stands beside that plugin, not for others."""

    def is_ordered_by(self, plugin: object) -> bool:
        """Whether a plugin is the one that orders units now."""

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""

    def has_turn(self, pod: Pod) -> bool:
        """Whether room is held for a pod because what it belongs to had its turn before it came."""

    def is_complete(self, gang: GangKey) -> bool:
        """Whether a gang and all gangs of its group have their quorum."""

    def pods_on(self, node: str) -> Collection[Pod]:
        """Return the pods that are charged to a node."""

    def pods_on_nodes(self) -> Iterator[tuple[Pod, int]]:
        """Yield the pods on nodes that inter-pod rules see, with their rows, sorted by key."""

    def feed(self) -> Feed:
        """Return a new reader of changes; it starts with all known objects."""

    def upsert_pod(self, pod: Pod) -> None:
        """Apply a pod: an observed one, or one that stands for something that holds room."""

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""

    def note_freed(self, nodes: Iterable[str]) -> None:
        """Have units that wait for room tried again on these nodes."""

    def note_claims(self, claims: Iterable[str]) -> None:
        """Have units that wait for volume claims (``namespace/name``) tried again."""

    def note_relabelled(self) -> None:
        """Have all units tried again whose rules are about labels of nodes or namespaces."""
