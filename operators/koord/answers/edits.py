"""Edits of a cluster that are only tried: on a state of one's own, in order, and taken back.

An edit changes observed objects as their watches would; what follows from it is up to the planner.
Who has the state decides when everything is undone. Nothing here plans.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from koord.core.autoscaler.nodes import find_lasting_taints
from koord.core.device.plugin import Devices
from koord.core.engine.state import ClusterState
from koord.core.eviction.mobility import Mobility
from koord.core.eviction.reasons import Protection
from koord.core.model.gangs import GangKey, ObservedPodGroup
from koord.core.model.nodes import Node
from koord.core.model.pods import NO_MOVE_HINTS, Handling, Pod, PodPhase
from koord.core.quota.catalog import key_of
from koord.core.quota.model import QuotaSpec
from koord.core.quota.plugin import Quotas

MOST_EDITS: Final = 32
MOST_NODES: Final = 1024
"""That are added by one edit."""
MOST_CHANGES: Final = 2048
"""Objects that are changed for one question where others wait for their answers meanwhile."""
HOST_NAME: Final = "kubernetes.io/hostname"
_CORDONED: Final = "node.kubernetes.io/unschedulable"
"""The taint that goes with cordoning."""
_AGAIN: Final = ":again"


class UnitSource(NamedTuple):
    """What units are made of: a gang, or a pod without one; by ``namespace/name``."""

    key: str
    is_gang: bool = False


def source_of(pod: Pod) -> UnitSource:
    return UnitSource(pod.key) if pod.gang is None else UnitSource(pod.gang.key, is_gang=True)


def find_members(state: ClusterState, source: UnitSource) -> Collection[Pod]:
    """Return the pods of a source, those that have ended included."""
    if source.is_gang:
        return state.gangs.members(source.key).values()
    pod = state.pod_by_key(source.key)
    return () if pod is None or pod.gang is not None else (pod,)


def is_bound(state: ClusterState, source: UnitSource) -> bool:
    """Whether any pod of a source has a node, and has not ended."""
    return any(pod.is_alive and pod.node for pod in find_members(state, source))


class EditError(ValueError):
    """An edit names something that does not exist, or cannot be tried."""


class TooManyChangesError(EditError):
    """Edits change more objects than are tried for somebody else."""


class Trial:
    """A state of one's own, what was changed in it, and how to take that back."""

    def __init__(self, state: ClusterState, most: int | None = None) -> None:
        """``most`` changes are made, each of one object; None: as many as there are."""
        self.state = state
        self._most = most
        self.were_bound: dict[UnitSource, bool] = {}
        """Each gang and single pod of which pods were changed -> whether it had nodes before."""
        self.groups: dict[GangKey, ObservedPodGroup | None] = {}
        """Each PodGroup that was changed, as it was before; None: it did not exist."""
        self._inverses: list[Callable[[], None]] = []

    def checkpoint(self) -> int:
        return len(self._inverses)

    def undo(self, checkpoint: int = 0) -> None:
        """Take back, the last one first, what was changed after a checkpoint."""
        while len(self._inverses) > checkpoint:
            self._inverses.pop()()

    def _log(self, inverse: Callable[[], None]) -> None:
        """Note how to take a change back that was just made."""
        self._inverses.append(inverse)
        if self._most is not None and len(self._inverses) > self._most:
            raise TooManyChangesError(
                f"these edits change more than {self._most} pods and nodes; try fewer of them"
            )

    def put_pod(self, pod: Pod) -> None:
        same_name = self.state.pod_by_key(pod.key)
        if same_name is not None and same_name.uid != pod.uid:
            self.drop_pod(same_name.uid)
        before = self.state.observed(pod.uid)
        self._note(pod if before is None else before)
        self._note(pod)
        self.state.upsert_pod(pod)
        if before is None:
            self._log(lambda: self.state.remove_pod(pod.uid))
        else:
            self._log(lambda: self.state.upsert_pod(before))

    def drop_pod(self, uid: str) -> None:
        before = self.state.observed(uid)
        if before is not None:
            self._note(before)
            self.state.remove_pod(uid)
            self._log(lambda: self.state.upsert_pod(before))

    def _note(self, pod: Pod) -> None:
        source = source_of(pod)
        if source not in self.were_bound:
            self.were_bound[source] = is_bound(self.state, source)

    def put_group(self, group: ObservedPodGroup) -> None:
        gangs = self.state.gangs
        before = gangs.pod_group(group.key)
        self.groups.setdefault(group.key, before)
        gangs.upsert_pod_group(group)
        if before is None:
            self._log(lambda: gangs.remove_pod_group(group.key))
        else:
            self._log(lambda: gangs.upsert_pod_group(before))

    def drop_group(self, key: str) -> None:
        gangs = self.state.gangs
        before = gangs.pod_group(key)
        if before is not None:
            self.groups.setdefault(key, before)
            gangs.remove_pod_group(key)
            self._log(lambda: gangs.upsert_pod_group(before))

    def put_node(self, node: Node) -> None:
        row = self.state.table.row_of.get(node.name)
        before = None if row is None else self.state.table.node_at(row)
        self.state.upsert_node(node)
        if before is None:
            self._log(lambda: self.state.remove_node(node.name))
        else:
            self._log(lambda: self.state.upsert_node(before))

    def drop_node(self, node: Node) -> None:
        self.state.remove_node(node.name)
        self._log(lambda: self.state.upsert_node(node))

    def copy_devices(self, like: str, name: str) -> None:
        """Give a node the devices that another one reports, all of them healthy."""
        devices = self.state.plugin(Devices)
        report = devices.reports.get(like)
        if report is not None:
            copy = replace(report, node=name, uid=f"{report.uid}{_AGAIN}")
            devices.upsert(copy)
            self._log(lambda: devices.remove(copy))

    def put_quota(self, spec: QuotaSpec) -> None:
        quotas = self.state.plugin(Quotas)
        catalog = quotas.cache.catalog
        before = catalog.written.get(key_of(spec))
        quotas.upsert(spec)

        def take_back() -> None:
            if before is not None:
                quotas.upsert(before)
                return
            quotas.remove(spec)
            catalog.forget(spec.name)

        self._log(take_back)


class Edit(Protocol):
    """One change."""

    def apply(self, trial: Trial) -> None:
        """Change the state; may raise ``EditError``, and then has changed nothing."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Pods and PodGroups are created."""

    pods: tuple[Pod, ...] = ()
    groups: tuple[ObservedPodGroup, ...] = ()

    def apply(self, trial: Trial) -> None:
        for group in self.groups:
            trial.put_group(group)
        for pod in self.pods:
            trial.put_pod(pod)


@dataclass(frozen=True, slots=True)
class Delete:
    """A gang with its pods, or a pod, is deleted: ``namespace/name``."""

    name: str

    def apply(self, trial: Trial) -> None:
        pods = find_pods(trial.state, self.name)
        for pod in pods:
            trial.drop_pod(pod.uid)
        trial.drop_group(self.name)


@dataclass(frozen=True, slots=True)
class SetPriority:
    """The pods of a gang, or a pod, have another priority."""

    name: str
    priority: int

    def apply(self, trial: Trial) -> None:
        for pod in find_pods(trial.state, self.name):
            trial.put_pod(replace(pod, priority=self.priority))


@dataclass(frozen=True, slots=True)
class SetMinMember:
    """A PodGroup has another ``spec.minMember``."""

    name: str
    minimum: int

    def apply(self, trial: Trial) -> None:
        group = trial.state.gangs.pod_group(self.name)
        if group is None:
            raise EditError(f"there is no PodGroup {self.name}")
        total = max(group.spec.total, self.minimum)
        spec = replace(group.spec, min_member=self.minimum, total=total)
        trial.put_group(replace(group, spec=spec, generation=group.generation + 1))


@dataclass(frozen=True, slots=True)
class SetQuota:
    """A quota has other settings."""

    spec: QuotaSpec

    def apply(self, trial: Trial) -> None:
        trial.put_quota(self.spec)


@dataclass(frozen=True, slots=True)
class Cordon:
    """Nodes take no new pods, or take them again."""

    nodes: tuple[str, ...]
    is_on: bool = True

    def apply(self, trial: Trial) -> None:
        for node in find_nodes(trial.state, self.nodes):
            taints = tuple(taint for taint in node.taints if taint.key != _CORDONED)
            taints = node.taints if self.is_on else taints
            trial.put_node(replace(node, is_unschedulable=self.is_on, taints=taints))


@dataclass(frozen=True, slots=True)
class Drain:
    """Nodes are cordoned, and their pods wait again; pods of daemons stay."""

    nodes: tuple[str, ...]

    def apply(self, trial: Trial) -> None:
        Cordon(self.nodes).apply(trial)
        mobility = Mobility(trial.state)
        for name in self.nodes:
            for pod in sorted(trial.state.pods_on(name), key=lambda pod: pod.key):
                if mobility.find_obstacle(pod) is not Protection.DAEMON:
                    _create_again(trial, pod)


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Nodes are gone; what ran on them waits again, except pods of daemons."""

    nodes: tuple[str, ...]

    def apply(self, trial: Trial) -> None:
        nodes = find_nodes(trial.state, self.nodes)
        Drain(self.nodes).apply(trial)
        for node in nodes:
            for pod in trial.state.pods_on(node.name):
                trial.drop_pod(pod.uid)
            trial.drop_node(node)


@dataclass(frozen=True, slots=True)
class AddNodes:
    """There are ``count`` more nodes like one that exists: empty, healthy, with other labels.

    They have the taints that it has for good: an autoscaler or an administrator adds such nodes.
    """

    like: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)

    def apply(self, trial: Trial) -> None:
        if not 0 < self.count <= MOST_NODES:
            raise EditError(f"at most {MOST_NODES} nodes are added, and at least 1")
        (node,) = find_nodes(trial.state, (self.like,))
        names, taints = _name_nodes(trial.state, self.like), find_lasting_taints(node)
        for _ in range(self.count):
            name = next(names)
            labels = {**node.labels, HOST_NAME: name, **self.labels}
            trial.put_node(
                replace(
                    node,
                    name=name,
                    uid=name,
                    labels=labels,
                    taints=taints,
                    is_unschedulable=False,
                    is_terminating=False,
                )
            )
            trial.copy_devices(self.like, name)


def _name_nodes(state: ClusterState, like: str) -> Iterator[str]:
    """Yield names that no node has."""
    at = 0
    while True:
        at += 1
        if f"{like}-new-{at}" not in state.table.row_of:
            yield f"{like}-new-{at}"


def apply_edits(trial: Trial, edits: Iterable[Edit]) -> None:
    """Apply edits in order; if one raises ``EditError``, none of them is left."""
    checkpoint = trial.checkpoint()
    try:
        for edit in edits:
            edit.apply(trial)
    except EditError:
        trial.undo(checkpoint)
        raise


def find_pods(state: ClusterState, name: str) -> tuple[Pod, ...]:
    """Return the members of a gang, or a pod, by ``namespace/name``."""
    if name in state.gangs:
        return tuple(state.gangs.members(name).values())
    pod = state.pod_by_key(name)
    if pod is None:
        raise EditError(f"there is no pod and no gang {name}")
    return (pod,)


def find_nodes(state: ClusterState, names: Iterable[str]) -> list[Node]:
    rows = state.table.row_of
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise EditError(f"there is no node {', '.join(unknown)}")
    return [state.table.node_at(rows[name]) for name in names]


def _create_again(trial: Trial, pod: Pod) -> None:
    """Put in the place of a pod what its owner creates once it is gone; without one it is gone."""
    trial.drop_pod(pod.uid)
    if not pod.is_alive or not (pod.owners or pod.gang):
        return
    is_ours = pod.recorded is not None or pod.handling is not Handling.NOT_OURS
    trial.put_pod(
        replace(
            pod,
            uid=f"{pod.uid}{_AGAIN}",
            node="",
            phase=PodPhase.PENDING,
            created=trial.state.now,
            recorded=None,
            pinned=False,
            nominated=None,
            preempted_by=None,
            is_reclaimed=False,
            is_gated=is_ours,
            handling=Handling.RELEASE_AND_BIND if is_ours else pod.handling,
            allocations=(),
            counted=(),
            move_hints=NO_MOVE_HINTS,
            started=0.0,
        )
    )
