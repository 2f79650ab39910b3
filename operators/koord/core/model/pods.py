"""Pods as the planner sees them: requirements, handling, node.

A ``PodShape`` holds everything that decides *where* a pod fits. Pods of one shape are planned
together, and results per shape are cached. Shapes are interned by their makers, so that equal
shapes are identical. There is a ``Pod`` for each pod of a cluster, so they are made fast.
"""

from collections.abc import Hashable, Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from koord.core.model.constraints import (
    ClaimUse,
    PodConstraints,
    PodLabels,
)
from koord.core.model.gangs import GangMembership
from koord.core.model.selectors import SelectorTerm

T = TypeVar("T")


def fast_init(cls: type[T]) -> type[T]:
    """Return what makes objects of ``cls`` from the same arguments as its constructor.

    ``cls`` is a frozen dataclass with slots, without base classes, ``__post_init__``, default
    factories or fields that its constructor does not take.
    """

    def become(self: Any) -> None:
        self.__class__ = cls

    dataclass_fields = fields(cast("Any", cls))
    body: dict[str, Any] = {
        dataclass_field.name: dataclass_field.default
        for dataclass_field in dataclass_fields
        if dataclass_field.default is not MISSING
    }
    body["__annotations__"] = {
        dataclass_field.name: dataclass_field.type for dataclass_field in dataclass_fields
    }
    body["__post_init__"] = become
    return cast("type[T]", dataclass(slots=True)(type(cls.__name__, (), body)))


@dataclass(frozen=True, slots=True)
class Toleration:
    """Matches taints by key, value and effect; empty ``effect`` matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port taken on the node itself; ``ip`` is ``0.0.0.0`` for all addresses."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 - the API's word for "every address of the node"


DAEMON_SET: Final = ("DaemonSet", "apps/v1", True)
"""Kind and version of an owner that is a DaemonSet, and whether it is the controller."""
_OF_ONE_NODE: Final = frozenset([DAEMON_SET, ("Node", "v1", True)])
"""Those that create pods for one node; the kubelet names the node as owner of a static pod."""


@dataclass(frozen=True, slots=True, order=True)
class OwnerReference:
    """An object that a pod belongs to, as its ``ownerReferences`` name it."""

    name: str
    kind: str = ""
    api_version: str = ""
    uid: str = ""
    is_controller: bool = False

    @property
    def is_daemon_set(self) -> bool:
        """Whether it may be a DaemonSet: whoever creates a pod writes its owners.

        Pods whose owner does not exist are garbage-collected, if the cluster knows the kind.
        """
        return (self.kind, self.api_version, self.is_controller) == DAEMON_SET

    @property
    def is_of_one_node(self) -> bool:
        """Whether it creates pods for one node, so that nothing starts them again elsewhere."""
        return (self.kind, self.api_version, self.is_controller) in _OF_ONE_NODE


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """More of something than is planned: what, how many, and how many there may be."""

    what: str
    count: int
    most: int


@dataclass(frozen=True, slots=True)
class PodShape:
    """Everything that decides on which nodes a pod fits.

    ``requests`` is sorted by resource name and already effective (sidecars, init peaks, overhead,
    pod-level resources); the one pod slot that every pod takes is in it under ``pods``.
    ``terms`` are the ORed required node affinity terms: None when there is no required affinity.
    ``preferences`` are the preferred ones, each with its weight. ``constraints`` are the rules of
    the pod about other pods. ``needs_kube_scheduler`` names the spec fields that only
    kube-scheduler can serve.

    ``asks`` holds the data of each plugin about the pod beyond its spec, by the name of the plugin;
    a cycle adds it. ``spec`` is the shape without it.
    """

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    preferences: tuple[tuple[int, SelectorTerm], ...] = ()
    constraints: PodConstraints | None = None
    needs_kube_scheduler: tuple[str, ...] = ()
    asks: tuple[tuple[str, Hashable], ...] = ()
    overhead: tuple[tuple[str, int], ...] = ()
    """What of ``requests`` its runtime class added, sorted, without zeros."""
    size: int = field(repr=False, compare=False, default=0)
    """Bytes of the texts that it was made of."""
    _spec: "PodShape | None" = field(repr=False, compare=False, default=None)
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Shapes are dictionary keys in every cycle; hashing the nested tuples once is enough.
        parts = (
            (self.requests, self.node_selector, self.terms, self.tolerations, self.host_ports),
            (self.preferences, self.constraints, self.needs_kube_scheduler),
            self.asks,
        )
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def spec(self) -> "PodShape":
        """The shape without data of plugins."""
        return self if self._spec is None else self._spec

    def ask_of(self, domain: str) -> Hashable | None:
        """Return the data of one plugin; None if there is none."""
        for name, ask in self.asks:
            if name == domain:
                return ask
        return None

    def asking(self, asks: tuple[tuple[str, Hashable], ...]) -> "PodShape":
        """Return the shape with the data of plugins, by their names."""
        return replace(self, asks=asks, _spec=self.spec) if asks else self


NO_LABELS: Final = PodLabels("")
"""The profile of a pod with unknown labels."""


class PodPhase(StrEnum):
    """``status.phase`` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_terminal(self) -> bool:
        """Terminal pods hold no resources."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})


class Handling(StrEnum):
    """Who may place a pod, and with which writes."""

    RELEASE_AND_BIND = "ReleaseAndBind"
    """Our gate, our scheduler name: PATCH the gate off, POST the binding. Not pinned."""
    RELEASE_PINNED = "ReleasePinned"
    """Our gate, another scheduler's name: the PATCH also pins the pod to its node."""
    BIND = "Bind"
    """No gate, our scheduler name: the binding alone."""
    FOREIGN_GATE = "ForeignGate"
    """Ours, but it has scheduling gates of others."""
    RESERVE = "Reserve"
    """No pod but a reservation: its node is written to its status."""
    STAND_IN = "StandIn"
    """No pod yet: it stands for one of a job that is suspended. What starts the job is written."""
    NOT_OURS = "NotOurs"
    """Neither our gate nor our scheduler name: charged to its node, never modified."""


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """The plan annotation of a released pod."""

    node: str
    """Empty if its own scheduler chooses it."""
    plan_id: str
    group: str
    member_count: int
    strength: int = 0
    """How many of its minimum members the gang had with this release; 0: unknown."""
    gap: str = ""
    """How much better a placement may exist; empty if this is the best."""
    youngest: float = 0.0
    """Creation time of the youngest pod that was released together; 0: unknown."""
    start_id: str = ""
    """Identifies the pods that were released together; empty: unknown."""
    quota: str = ""
    """The quota that the pod was charged to; empty: none."""
    is_non_preemptible: bool | None = None
    """Whether it was charged against what its quota is guaranteed; None: an earlier release did not
    record it."""
    records: tuple[tuple[str, str], ...] = ()
    """Annotations that were written with it: key and digest of the value."""


@dataclass(frozen=True, slots=True)
class Nominated:
    """The node that a waiting pod goes to once other pods have gone, as its annotation records it.

    ``unit`` is the unit that was nominated with ``pods`` pods, at ``since`` seconds of the epoch.
    """

    node: str
    plan_id: str
    unit: str
    pods: int
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class PreemptedBy:
    """Why a pod is evicted: the plan, and its unit and first pod, as users call them."""

    plan_id: str
    preemptor: str
    pod: str


@dataclass(frozen=True, slots=True)
class AnnotationWrite:
    """An annotation that records an allocation: on which object, by uid, under which key.

    If it ``is_record``, the allocation is read back from it, so its value is part of the plan. If
    it ``is_time``, the value is the time of the write, in unix nanoseconds. With ``is_label`` it is
    a label. ``of`` is the key of the pod if that is another one than what is placed.
    """

    uid: str
    key: str
    value: str = ""
    is_record: bool = False
    is_time: bool = False
    is_label: bool = False
    of: str = ""


class Allocation(Protocol):
    """What a domain allocated to one pod besides node resources; compared by value."""

    def writes(self) -> Iterable[AnnotationWrite]:
        """Yield the annotations that record it."""


@runtime_checkable
class Shareable(Protocol):
    """An allocation with which room can be held: other pods use parts of it."""

    def shared_with(self, used: Iterable[Allocation]) -> Allocation:
        """Return it with the allocations of the pods that use it now; the rest is held."""


@runtime_checkable
class HoldUse(Protocol):
    """An allocation which says that a pod uses held room."""

    @property
    def hold_owner(self) -> str:
        """The uid of the pod to which the room is charged."""


def hold_owner_of(allocations: Iterable[Allocation]) -> str:
    """Return whose held room a pod uses; empty for none."""
    return next(
        (allocation.hold_owner for allocation in allocations if isinstance(allocation, HoldUse)), ""
    )


@dataclass(frozen=True, slots=True)
class MoveHints:
    """What a manifest says of moving its pod: only what planning does not ask."""

    has_local_storage: bool = False
    """It has a volume that is on its node alone: an emptyDir on disk, or a hostPath."""
    has_memory_storage: bool = False
    """It has an emptyDir that is memory, such as its /dev/shm."""
    is_static: bool = False
    """The kubelet made it of a file of its node."""
    evicts_protected: bool = False
    """Its annotation ``evict`` skips the rules that would protect it."""
    eviction_cost: int = 0


NO_MOVE_HINTS: Final = MoveHints()


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``created`` is seconds since the epoch; ``node`` is empty until bound.

    ``recorded`` is set from the moment the pod was released by us. ``pinned`` says that its
    required node affinity admits only the recorded node, which can no longer be changed.
    ``profile`` are the labels and namespace that selectors see. ``wait_reason`` is the reason of
    our condition on the pod, if any. Fields that do not affect planning are not compared.
    """

    uid: str
    namespace: str
    name: str
    shape: PodShape
    profile: PodLabels = NO_LABELS
    claims: tuple[ClaimUse, ...] = ()
    handling: Handling = Handling.NOT_OURS
    gang: GangMembership | None = None
    priority: int = 0
    created: float = 0.0
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    is_terminating: bool = False
    """Being deleted, ``is_eviction_pending``, or ``preempted_by`` another unit."""
    is_eviction_pending: bool = False
    """Marked for eviction by us and not deleted yet."""
    is_reclaimed: bool = False
    """Evicted, or about to be, because its quota uses too much; kept until the pod has gone."""
    protected: float = 0.0
    """Since when disruption budgets keep others from its room to which they are entitled, in
    seconds since the epoch; 0: they do not."""
    gone_by: float = 0.0
    """When its grace period ends, in seconds since the epoch; 0: it is not being deleted."""
    deleted: float = 0.0
    """When its deletion was requested, in seconds since the epoch; 0: it was not."""
    grace: int = 0
    """Seconds between a request to delete it and its end, as its owner wants them."""
    finalizers: tuple[str, ...] = ()
    """What keeps it after its end, other than what Kubernetes takes off by itself; sorted."""
    preempted_by: PreemptedBy | None = None
    """Marked for preemption by us; it is kept until the pod has gone."""
    nominated: Nominated | None = None
    """Where the waiting pod goes once its victims have gone."""
    owners: tuple[OwnerReference, ...] = ()
    foreign_gates: tuple[str, ...] = ()
    kueue_node: str | None = None
    """The node that Kueue chose for it; empty: it chooses domains above nodes; None: nothing."""
    recorded: RecordedPlan | None = None
    pinned: bool = False
    is_gated: bool = False
    is_unschedulable: bool = False
    """Released to kube-scheduler, which reports it as unschedulable."""
    scheduler_message: str = ""
    """What kube-scheduler says of it then."""
    quota: str = ""
    """The quota that the pod names by label."""
    is_non_preemptible: bool = False
    """Must never be evicted (label ``preemptible: "false"``)."""
    never_preempts: bool = False
    """Nobody is preempted for it."""
    is_protected: bool = False
    """Must never be preempted (label ``disable-preemptible: "true"``)."""
    index: int = -1
    """Rank among the members of its gang; negative: none."""
    sub_group: str = ""
    """The sub-group of its gang, from its label."""
    exceeded_limit: ExceededLimit | None = None
    """Why it is not planned: too much in its spec. Its rules are left out of its shape."""
    attraction: str = ""
    """Pods with equal non-empty values are placed close to each other."""
    reserved_node: str = ""
    """Node that a waiting DaemonSet pod was created for: room is kept for it there, for a while."""
    extensions: tuple[tuple[str, Hashable], ...] = ()
    """What annotations of the pod say to plugins, by their names."""
    allocations: tuple[Allocation, ...] = ()
    """What plugins gave the pod on its node."""
    counted: tuple[tuple[str, int], ...] = ()
    """What quotas count if that is more than its requests: devices that it was or may be given."""
    move_hints: MoveHints = NO_MOVE_HINTS
    bound: float = field(default=0.0, compare=False)
    """When it was bound to its node, as the API server says, in seconds since the epoch; 0: it was
    not, or nobody says so."""
    started: float = field(default=0.0, compare=False)
    """When the kubelet accepted it, in seconds since the epoch; 0 before that. Updated with the
    next change that is compared, at the latest when the pod runs."""
    finished: float = field(default=0.0, compare=False)
    """When it had succeeded or failed, as its kubelet says, in seconds since the epoch; 0: nobody
    knows, or it has not."""
    checkpointed: float = field(default=0.0, compare=False)
    """When it last saved its work, in seconds since the epoch; 0: never."""
    soft_eviction: float = field(default=0.0, compare=False)
    """How many seconds it wants for ending by itself before it is preempted or evicted."""
    marked: float = field(default=0.0, compare=False)
    """When it was marked for preemption or eviction, in seconds since the epoch; 0: it is not."""
    ends_until: float = field(default=0.0, compare=False)
    """Until when it may end by itself, as it was told with the mark; 0: it was told nothing."""
    disruption: str = field(default="", compare=False)
    """Why it is ended by something other than itself: the reason of its condition
    ``DisruptionTarget``; empty if it is not."""
    rejection: str = field(default="", compare=False)
    """The message with which the kubelet rejected it; empty if it did not."""
    wait_reason: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_accepted(self) -> bool:
        """Whether its kubelet has accepted it: anybody may name a node that has no room for it."""
        return self.started > 0 or self.phase is not PodPhase.PENDING

    @property
    def title(self) -> str:
        """What users call it: ``namespace/name``, or the reservation that it stands for."""
        return self.name.replace(":", "/", 1) if self.handling is Handling.RESERVE else self.key

    @property
    def planned_node(self) -> str:
        """The node, or the recorded one of a released pod; empty for none."""
        return self.node or (self.recorded.node if self.recorded is not None else "")

    @property
    def is_alive(self) -> bool:
        """Neither terminal nor terminating: counts for the quorum of its gang."""
        return not self.is_terminating and not self.phase.is_terminal

    @property
    def is_marked(self) -> bool:
        """Marked by us for preemption, or because its quota uses too much."""
        return self.preempted_by is not None or self.is_reclaimed

    @property
    def is_being_evicted(self) -> bool:
        """It has been marked by us, and still uses its node."""
        return self.is_marked and bool(self.node) and not self.phase.is_terminal

    @property
    def is_waiting(self) -> bool:
        """Alive and without a node."""
        return not self.node and self.is_alive

    @property
    def may_need_kube_scheduler(self) -> bool:
        """Whether kube-scheduler may have to bind it, for its spec or for unbound claims."""
        return bool(self.shape.needs_kube_scheduler or self.claims)

    @property
    def is_plannable(self) -> bool:
        """Waiting, and ours to place now."""
        return self.is_waiting and self.handling in _PLANNABLE


_PLANNABLE = frozenset(
    {
        Handling.RELEASE_AND_BIND,
        Handling.RELEASE_PINNED,
        Handling.BIND,
        Handling.RESERVE,
        Handling.STAND_IN,
    }
)
