"""Pods as the planner sees them: what they need, who places them, where they are.

A ``PodShape`` is the equivalence class of everything that decides *where* a pod fits; pods of one
shape are planned together and each question about a shape is answered once. Shapes are interned by
whoever makes them, so that identity is equality on the hot path.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from koord.core.constraints import (
    ClaimUse,
    PodConstraints,
    PodLabels,
)
from koord.core.gang.model import GangClaim
from koord.core.selectors import SelectorTerm


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


@dataclass(frozen=True, slots=True)
class PodShape:
    """Everything that decides on which nodes a pod fits.

    ``requests`` is sorted by resource name and already effective (sidecars, init peaks, overhead,
    pod-level resources); the one pod slot that every pod takes is in it under ``pods``.
    ``terms`` are the ORed required node affinity terms: None when there is no required affinity.
    ``preferences`` are the preferred ones, each with its weight. ``constraints`` is what the pod
    asks of other pods. ``needs_kube_scheduler`` names the spec fields that only kube-scheduler can
    serve.

    ``asks`` holds what each domain of the planner has to know of the pod beyond its spec, by the
    name of the domain; only a cycle can tell. ``spec`` is the shape without them.
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
        """The shape as the spec of the pod alone makes it."""
        return self if self._spec is None else self._spec

    def asked(self, domain: str) -> Hashable | None:
        """Return what a domain has to know of such pods; None for nothing."""
        for name, ask in self.asks:
            if name == domain:
                return ask
        return None

    def asking(self, asks: tuple[tuple[str, Hashable], ...]) -> "PodShape":
        """Return the shape with what domains ask, by their names."""
        return replace(self, asks=asks, _spec=self.spec) if asks else self


NO_LABELS: Final = PodLabels("")
"""The profile of a pod whose labels are not known."""


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
    """Ours, but other gates stand beside our own (or alone on a pod of our scheduler name)."""
    NOT_OURS = "NotOurs"
    """Neither our gate nor our scheduler name: counted, never written."""


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """What the commit point wrote on a released pod (the plan annotation)."""

    node: str
    plan_id: str
    group: str
    member_count: int
    strength: int = 0
    """How much of its minimum the gang of the pod had with this release; 0: not known."""
    gap: str = ""
    """By how much a better placement may have been missed; empty if it was the best."""
    youngest: float = 0.0
    """When the youngest of those that were to start together was created; 0: not known."""
    start_id: str = ""
    """Identifies the pods that were to start together; empty: not known."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. ``created`` is seconds since the epoch; ``node`` is empty until bound.

    ``recorded`` is set from the moment the pod was released by us. ``pinned`` says that its
    required node affinity admits only the recorded node, which can no longer be changed.
    ``profile`` is what selectors see of it. ``wait_reason`` is the reason of our condition on it,
    if any. It, ``resource_version`` and ``started`` do not take part in equality: they change
    nothing for planning.
    """

    uid: str
    namespace: str
    name: str
    shape: PodShape
    profile: PodLabels = NO_LABELS
    claims: tuple[ClaimUse, ...] = ()
    handling: Handling = Handling.NOT_OURS
    gang: GangClaim | None = None
    priority: int = 0
    created: float = 0.0
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    is_terminating: bool = False
    """On its way out: is being deleted, or ``is_eviction_pending``."""
    is_eviction_pending: bool = False
    """Carries our mark that it is to be evicted, and is yet to be deleted."""
    owners: tuple[str, ...] = ()
    foreign_gates: tuple[str, ...] = ()
    recorded: RecordedPlan | None = None
    pinned: bool = False
    is_gated: bool = False
    is_unschedulable: bool = False
    """Was left to kube-scheduler to bind, which has found no way to."""
    quota: str = ""
    """The quota that the pod names by label."""
    is_non_preemptible: bool = False
    """Must never be evicted (label ``preemptible: "false"``)."""
    index: int = -1
    """Rank among the members of its gang; below 0: none."""
    sub_group: str = ""
    """The sub-group of its gang that the pod says it belongs to."""
    attraction: str = ""
    """Pods with the same text here are to be near each other."""
    reserved_node: str = ""
    """Node on which room is kept for a waiting pod: a DaemonSet has made it for that node."""
    started: float = field(default=0.0, compare=False)
    """When its node has taken it up, in seconds since the epoch; 0 before that. Known from the next
    change that counts: that the pod runs, at the latest."""
    rejection: str = field(default="", compare=False)
    """Why the kubelet of its node has refused to run it, in its words; empty: it has not."""
    wait_reason: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def planned_node(self) -> str:
        """The node, or the recorded one of a released pod; empty for none."""
        return self.node or (self.recorded.node if self.recorded is not None else "")

    @property
    def is_alive(self) -> bool:
        """Neither terminal nor on its way out: counts for the quorum of its gang."""
        return not self.is_terminating and not self.phase.is_terminal

    @property
    def is_waiting(self) -> bool:
        """Alive and without a node."""
        return not self.node and self.is_alive

    @property
    def may_need_kube_scheduler(self) -> bool:
        """Whether kube-scheduler may have to bind it; claims may yet be bound with the pod."""
        return bool(self.shape.needs_kube_scheduler or self.claims)

    @property
    def is_plannable(self) -> bool:
        """Waiting, and ours to place now."""
        return self.is_waiting and self.handling in _PLANNABLE


_PLANNABLE = frozenset({Handling.RELEASE_AND_BIND, Handling.RELEASE_PINNED, Handling.BIND})
