"""Fluent builders of pods, nodes and PodGroups for the tests of the core.

A test sets only the fields that matter; the defaults are a waiting pod with our gate and scheduler
name, and a healthy, empty node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from koord.core.model.constraints import (
    AffinityTerm,
    ClaimUse,
    PodConstraints,
    PodLabels,
    PodSelector,
    SpreadConstraint,
    WeightedTerm,
)
from koord.core.model.gangs import (
    DEFAULT_WAIT_SECONDS,
    GangKey,
    GangMembership,
    GangMode,
    GangPhase,
    GangSource,
    GangSpec,
    MatchPolicy,
    ObservedPodGroup,
    OnBindFailure,
    OnMemberFailure,
)
from koord.core.model.nodes import Node, Taint
from koord.core.model.pods import (
    Handling,
    HostPort,
    OwnerReference,
    Pod,
    PodPhase,
    PodShape,
    RecordedPlan,
    Toleration,
)
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator, SelectorTerm
from koord.core.quota.model import EVERYONE, QuotaSpec

if TYPE_CHECKING:
    from collections.abc import Hashable

    from koord.core.model.topology_constraint import TopologyConstraint

GPU = "nvidia.com/gpu"

_SHAPES: dict[PodShape, PodShape] = {}


def intern_shape(shape: PodShape) -> PodShape:
    """Return one object for equal shapes, as the decoder of pods does."""
    return _SHAPES.setdefault(shape, shape)


def select_labels(**labels: str) -> tuple[Requirement, ...]:
    """Select objects that have all these labels."""
    return tuple(Requirement(k, SelectorOperator.IN, (v,)) for k, v in sorted(labels.items()))


def select_pods(*namespaces: str, by_labels: LabelSelector = None, **labels: str) -> PodSelector:
    """Select pods with these labels in some namespaces, or in those that ``by_labels`` selects."""
    named = namespaces or (() if by_labels is not None else ("default",))
    return PodSelector(select_labels(**labels), named, by_labels)


def make_gang_spec(  # every setting of a gang, by name
    key: GangKey,
    *,
    min_member: int = 1,
    total: int | None = None,
    wait_seconds: int = DEFAULT_WAIT_SECONDS,
    mode: GangMode = GangMode.STRICT,
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED,
    group: tuple[GangKey, ...] = (),
    source: GangSource = GangSource.POD_GROUP,
) -> GangSpec:
    """Make settings; without ``group`` the gang is alone."""
    return GangSpec(
        key=key,
        min_member=min_member,
        total=min_member if total is None else total,
        wait_seconds=wait_seconds,
        mode=mode,
        match_policy=match_policy,
        group=tuple(sorted(group)) or (key,),
        source=source,
    )


def make_quota(name: str, namespace: str = "", **settings: Any) -> QuotaSpec:
    """Make a quota that pods of every namespace may use, unless ``shared_with`` says otherwise."""
    return QuotaSpec(name, namespace, **{"shared_with": (EVERYONE,), **settings})


class PodBuilder:
    """Collects the fields of one pod; every method returns the builder."""

    def __init__(self, name: str) -> None:
        namespace, _, bare = name.rpartition("/")
        namespace = namespace or "default"
        self._requests: dict[str, int] = {"pods": 1}
        self._shape = PodShape(requests=())
        self._labels: dict[str, str] = {}
        self._constraints = PodConstraints()
        self._pod = Pod(
            uid=f"uid-{namespace}-{bare}",
            namespace=namespace,
            name=bare,
            shape=self._shape,
            handling=Handling.RELEASE_AND_BIND,
            is_gated=True,
        )

    def _set(self, **fields: object) -> Self:
        self._pod = replace(self._pod, **fields)  # type: ignore[arg-type]
        return self

    def _set_shape(self, **fields: object) -> Self:
        self._shape = replace(self._shape, **fields)  # type: ignore[arg-type]
        return self

    def uid(self, uid: str) -> Self:
        return self._set(uid=uid)

    def says(self, extensions: tuple[tuple[str, Hashable], ...]) -> Self:
        """Say something to plugins, by their names."""
        return self._set(extensions=extensions)

    def quota(self, name: str, *, is_non_preemptible: bool = False) -> Self:
        """Name a quota by label; ``is_non_preemptible``: non-preemptible."""
        return self._set(quota=name, is_non_preemptible=is_non_preemptible)

    def gang(self, key: GangKey) -> Self:
        """Name a PodGroup by label."""
        return self._set(gang=GangMembership(key=key, source=GangSource.POD_GROUP))

    def annotation_gang(self, key: GangKey, min_member: int | None = None, **spec: object) -> Self:
        """Name a gang by annotation; without ``min_member`` the pod gives no usable minimum."""
        declared = None
        if min_member is not None:
            declared = make_gang_spec(
                key,
                min_member=min_member,
                source=GangSource.ANNOTATION,
                **spec,  # type: ignore[arg-type]
            )
        return self._set(
            gang=GangMembership(key=key, source=GangSource.ANNOTATION, declared=declared)
        )

    def requests(self, cpu: int = 0, memory: int = 0, **amounts: int) -> Self:
        """Request milli-CPU and bytes; other resources by name."""
        self._requests |= {k: v for k, v in {"cpu": cpu, "memory": memory, **amounts}.items() if v}
        return self

    def resource(self, name: str, amount: int) -> Self:
        self._requests[name] = amount
        return self

    def gpu(self, count: int) -> Self:
        return self.resource(GPU, count)

    def bound(self, node: str) -> Self:
        """Bind it to a node, which removes the gate."""
        return self._set(node=node, is_gated=False, handling=Handling.BIND)

    def running(self, node: str) -> Self:
        return self.bound(node)._set(phase=PodPhase.RUNNING)

    def phase(self, phase: PodPhase) -> Self:
        return self._set(phase=phase)

    def terminating(self) -> Self:
        return self._set(is_terminating=True)

    def priority(self, priority: int) -> Self:
        return self._set(priority=priority)

    def created(self, seconds: float) -> Self:
        return self._set(created=seconds)

    def owners(self, *names: str) -> Self:
        return self._set(owners=tuple(map(OwnerReference, names)))

    def handling(self, handling: Handling) -> Self:
        """Set the handling; only gated kinds keep our gate."""
        gated = handling in {Handling.RELEASE_AND_BIND, Handling.RELEASE_PINNED}
        return self._set(handling=handling, is_gated=gated)

    def not_ours(self) -> Self:
        return self.handling(Handling.NOT_OURS)

    def foreign_gates(self, *gates: str) -> Self:
        """Add gates of others."""
        return self._set(foreign_gates=gates, handling=Handling.FOREIGN_GATE, is_gated=True)

    def released(
        self,
        node: str,
        plan_id: str,
        group: str = "",
        member_count: int = 1,
        strength: int = 0,
        *,
        youngest: float = 0.0,
        start_id: str = "",
    ) -> Self:
        """Remove the gate and record the plan; the pod is not bound yet."""
        recorded = RecordedPlan(
            node=node,
            plan_id=plan_id,
            group=group,
            member_count=member_count,
            strength=strength,
            youngest=youngest,
            start_id=start_id,
        )
        return self._set(recorded=recorded, is_gated=False, handling=Handling.BIND)

    def pinned(self) -> Self:
        return self._set(pinned=True)

    def reserved_node(self, node: str) -> Self:
        """Let a DaemonSet create it for a node."""
        return self.not_ours()._set(reserved_node=node)

    def index(self, index: int) -> Self:
        """Set its index in the gang."""
        return self._set(index=index)

    def attraction(self, selector: str) -> Self:
        """Prefer nodes near pods with the same selector."""
        return self._set(attraction=selector)

    def wait_reason(self, code: str) -> Self:
        return self._set(wait_reason=code)

    def selector(self, **labels: str) -> Self:
        return self._set_shape(node_selector=tuple(sorted(labels.items())))

    def select(self, key: str, value: str) -> Self:
        pairs = {**dict(self._shape.node_selector), key: value}
        return self._set_shape(node_selector=tuple(sorted(pairs.items())))

    def terms(self, *terms: SelectorTerm) -> Self:
        return self._set_shape(terms=terms)

    def tolerates(
        self, key: str = "", value: str = "", effect: str = "", operator: str = "Equal"
    ) -> Self:
        toleration = Toleration(key=key, operator=operator, value=value, effect=effect)
        return self._set_shape(tolerations=(*self._shape.tolerations, toleration))

    def host_port(self, port: int, protocol: str = "TCP") -> Self:
        ports = (*self._shape.host_ports, HostPort(port=port, protocol=protocol))
        return self._set_shape(host_ports=ports)

    def labels(self, **labels: str) -> Self:
        self._labels |= labels
        return self

    def _constrain(self, **fields: object) -> Self:
        self._constraints = replace(self._constraints, **fields)  # type: ignore[arg-type]
        return self

    def near(self, pods: PodSelector, key: str = "zone") -> Self:
        """Require pods within one value of a node label."""
        terms = (*self._constraints.affinity, AffinityTerm(pods, key))
        return self._constrain(affinity=terms)

    def apart(self, pods: PodSelector, key: str = "zone") -> Self:
        """Require no such pods within one value of a node label."""
        terms = (*self._constraints.anti_affinity, AffinityTerm(pods, key))
        return self._constrain(anti_affinity=terms)

    def prefers(self, weight: int, pods: PodSelector, key: str = "zone") -> Self:
        """Prefer (negative weight: avoid) pods within one value of a node label."""
        terms = (*self._constraints.preferred, WeightedTerm(AffinityTerm(pods, key), weight))
        return self._constrain(preferred=terms)

    def spread(self, pods: PodSelector, key: str = "zone", skew: int = 1, **more: object) -> Self:
        constraint = SpreadConstraint(pods, key, skew, **more)  # type: ignore[arg-type]
        return self._constrain(spread=(*self._constraints.spread, constraint))

    def even(self, pods: PodSelector, key: str = "zone", skew: int = 1, **more: object) -> Self:
        """Spread with ScheduleAnyway."""
        constraint = SpreadConstraint(pods, key, skew, **more)  # type: ignore[arg-type]
        return self._constrain(even=(*self._constraints.even, constraint))

    def likes_nodes(self, weight: int, term: SelectorTerm) -> Self:
        return self._set_shape(preferences=(*self._shape.preferences, (weight, term)))

    def claims(self, *names: str, own: bool = False) -> Self:
        """Use volume claims of its namespace; ``own``: ephemeral volumes."""
        namespace = self._pod.namespace
        uses = tuple(ClaimUse(f"{namespace}/{name}", at, own) for at, name in enumerate(names))
        return self._set(claims=uses)

    def needs_kube_scheduler(self, *fields: str) -> Self:
        return self._set_shape(needs_kube_scheduler=fields)

    def build(self) -> Pod:
        shape = replace(
            self._shape,
            requests=tuple(sorted(self._requests.items())),
            constraints=None if self._constraints == PodConstraints() else self._constraints,
        )
        profile = PodLabels(self._pod.namespace, self._labels)
        return replace(self._pod, shape=intern_shape(shape), profile=profile)


def make_pod(name: str) -> PodBuilder:
    """Start a waiting pod with our gate; ``name`` may contain a namespace (``ns/name``)."""
    return PodBuilder(name)


def make_pods(prefix: str, count: int, gang: GangKey | None = None) -> list[Pod]:
    """Make ``prefix-0`` … ``prefix-(count-1)``, one second apart, members of ``gang`` if named."""
    builders = [make_pod(f"{prefix}-{index}").created(float(index)) for index in range(count)]
    return [(builder.gang(gang) if gang else builder).build() for builder in builders]


class NodeBuilder:
    """Collects the fields of one node; every method returns the builder."""

    def __init__(self, name: str) -> None:
        self._node = Node(name=name, uid=f"uid-{name}")
        self._labels = {"kubernetes.io/hostname": name}
        self._allocatable = {"cpu": 64_000, "memory": 256 << 30, "pods": 110}

    def cpu(self, milli: int) -> Self:
        return self.resource("cpu", milli)

    def memory(self, size: int) -> Self:
        return self.resource("memory", size)

    def pods(self, slots: int) -> Self:
        return self.resource("pods", slots)

    def gpu(self, count: int) -> Self:
        return self.resource(GPU, count)

    def resource(self, name: str, amount: int) -> Self:
        self._allocatable[name] = amount
        return self

    def label(self, key: str, value: str) -> Self:
        self._labels[key] = value
        return self

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        taint = Taint(key=key, value=value, effect=effect)
        self._node = replace(self._node, taints=(*self._node.taints, taint))
        return self

    def unschedulable(self) -> Self:
        self._node = replace(self._node, is_unschedulable=True)
        return self

    def terminating(self) -> Self:
        self._node = replace(self._node, is_terminating=True)
        return self

    def build(self) -> Node:
        return replace(self._node, labels=dict(self._labels), allocatable=dict(self._allocatable))


def make_node(name: str) -> NodeBuilder:
    """Start a healthy, empty node of 64 CPU, 256 GiB and 110 pods."""
    return NodeBuilder(name)


class PodGroupBuilder:
    """Collects the fields of one PodGroup; every method returns the builder."""

    def __init__(self, key: GangKey, min_member: int) -> None:
        self._spec = make_gang_spec(key, min_member=min_member)
        self._pod_group = ObservedPodGroup(
            key=key, uid=f"uid-{key.replace('/', '-')}", spec=self._spec
        )

    def _set_spec(self, **fields: object) -> Self:
        self._spec = replace(self._spec, **fields)  # type: ignore[arg-type]
        return self

    def _set(self, **fields: object) -> Self:
        self._pod_group = replace(self._pod_group, **fields)  # type: ignore[arg-type]
        return self

    def group(self, *keys: GangKey) -> Self:
        return self._set_spec(group=tuple(sorted(keys)))

    def match_policy(self, policy: MatchPolicy) -> Self:
        return self._set_spec(match_policy=policy)

    def mode(self, mode: GangMode) -> Self:
        return self._set_spec(mode=mode)

    def wait(self, seconds: int) -> Self:
        return self._set_spec(wait_seconds=seconds)

    def topology(self, constraint: TopologyConstraint | None) -> Self:
        """Set the topology constraint."""
        return self._set_spec(topology=constraint)

    def keeps_room(self, *, is_kept: bool) -> Self:
        return self._set_spec(keeps_room=is_kept)

    def on_member_failure(self, policy: OnMemberFailure) -> Self:
        return self._set_spec(on_member_failure=policy)

    def on_bind_failure(self, policy: OnBindFailure) -> Self:
        return self._set_spec(on_bind_failure=policy)

    def total(self, total: int) -> Self:
        return self._set_spec(total=total)

    def created(self, seconds: float) -> Self:
        return self._set(created=seconds)

    def phase(self, phase: GangPhase) -> Self:
        return self._set(phase=phase)

    def occupied_by(self, owners: str) -> Self:
        return self._set(occupied_by=owners)

    def schedule_start(self, seconds: float) -> Self:
        return self._set(schedule_start=seconds)

    def terminating(self) -> Self:
        return self._set(is_terminating=True)

    def build(self) -> ObservedPodGroup:
        return replace(self._pod_group, spec=self._spec)


def make_pod_group(key: GangKey, min_member: int = 1) -> PodGroupBuilder:
    """Start a PodGroup with upstream's defaults."""
    return PodGroupBuilder(key, min_member)
