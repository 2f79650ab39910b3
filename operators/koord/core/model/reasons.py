"""Reasons: why something waits, was refused, or is done, as values that bring their texts.

A reason is a frozen dataclass: a code and the numbers behind it. It travels unchanged from the rule
that made it to the condition, the event, the metric and ``koord explain``; only those call
``text()`` and ``advice()``. Concrete reasons stand with the rules of their domain; here are the
base class and the reasons that belong to no domain.

A text says first what is wrong, with numbers and names, then what would help. Where Koordinator or
kube-scheduler have words for the same situation, they follow in brackets with ``compat``, so that
runbooks written for them keep working. Advice is whole sentences, the most promising first; it
promises nothing, and what clears up by itself has none.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import ClassVar, Final

from koord.core.model.text import MAX_QUOTED, MAX_TEXT, cut, listed, named, plural

MAX_SENTENCES: Final = 3
ASK: Final = "ask the administrators to"
"""Texts and advice are for those whose pods wait: neither quotas nor nodes are theirs to change."""
_SERVER_ERROR: Final = 500
_FORBIDDEN: Final = 403


class WakesOn(Enum):
    """Which changes make a refused unit worth another attempt."""

    ROOM = auto()
    """Changes that the queueing hints find relevant to one of its pods."""
    RELABELLED_NODES = auto()
    """The same, and every change of node labels."""
    ANY_CHANGE = auto()
    DOMAIN = auto()
    """What the plugin named by ``Reason.domain`` says; nothing else helps."""


class ReasonContext(ABC):
    """What else is behind a reason, known to another domain than the one that refused."""

    __slots__ = ()

    @abstractmethod
    def text(self) -> str:
        """Return whole sentences, to be read before those of the reason."""

    @abstractmethod
    def advice(self) -> tuple[str, ...]:
        """Return what would help; it takes the place of the reason's own advice."""

    @property
    def about(self) -> str:
        """With another value its reason is reported as soon as another reason would be."""
        return ""


class Reason(ABC):
    """Base of all reasons. A subclass with a ``code`` is registered; codes are unique.

    Codes are part of the API: they stand in conditions, events, metrics and JSON.
    """

    __slots__ = ()

    code: ClassVar[str]

    is_placed: ClassVar[bool] = False
    """The unit has its nodes; every other reason is a warning."""
    is_capacity: ClassVar[bool] = False
    """Waits for room on nodes or in a quota."""
    is_unschedulable: ClassVar[bool] = False
    """Autoscalers may act on it: a pod without gate gets ``PodScheduled=False``."""
    is_incomplete: ClassVar[bool] = False
    """The gang is not complete or not valid; the podgroup operator reports it."""
    also_false: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Conditions of a PodGroup, besides ``Placed``, that are False for it, with their reasons."""
    also_true: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Conditions of a PodGroup that are True for it, with their reasons."""
    rests_on: ClassVar[frozenset[str]] = frozenset()
    """Plural names of the resources that must have been read completely for it to be true."""

    @property
    def context(self) -> ReasonContext | None:
        return None

    @property
    def wakes_on(self) -> WakesOn:
        return WakesOn.ROOM

    @property
    def domain(self) -> str:
        """The plugin that knows when it is worth another try, for ``WakesOn.DOMAIN``."""
        return ""

    @property
    def about(self) -> str:
        """What it is about, if reasons with its code may be about several things.

        About another one it is reported as soon as another reason would be.
        """
        return ""

    @property
    def culprit(self) -> str:
        """The one pod (``namespace/name``) that holds up the others; empty if there is none."""
        return ""

    def text(self, *, compat: bool = False) -> str:
        """Return the text for the object that the reason is about, at most ``MAX_TEXT`` long."""
        return cut(self._whole_text(compat=compat), MAX_TEXT)

    def _whole_text(self, *, compat: bool) -> str:
        text = self._text() if self.context is None else f"{self.context.text()} {self._text()}"
        upstream = self.upstream() if compat else ""
        return f"{text} ({upstream})" if upstream else text

    def text_for(self, pod: str, *, compat: bool = False) -> str:
        """Return the text for one member (``namespace/name``), naming the one it is about."""
        if self.culprit in {"", pod}:
            return self.text(compat=compat)
        waits = f" This pod only starts together with {cut(self.culprit, MAX_QUOTED - 48)}."
        return f"{cut(self._whole_text(compat=compat), MAX_TEXT - MAX_QUOTED)}{waits}"

    def advice(self) -> tuple[str, ...]:
        """Return what would help, at most ``MAX_SENTENCES`` sentences."""
        if self.context is not None:
            return self.context.advice()[:MAX_SENTENCES]
        return tuple(self._advice())[:MAX_SENTENCES]

    @abstractmethod
    def _text(self) -> str: ...

    def upstream(self) -> str:
        """Return what Koordinator or kube-scheduler say of the situation."""
        return ""

    def _advice(self) -> Iterable[str]:
        return ()

    def __init_subclass__(cls) -> None:
        code = cls.__dict__.get("code")
        if code is None:
            return
        # Dataclasses with slots are created twice, the second time in place of the first.
        other = _REASONS.get(code, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{cls.__qualname__} and {other.__qualname__} share the code {code}")
        _REASONS[code] = cls


_REASONS: Final[dict[str, type[Reason]]] = {}
REASONS: Final[Mapping[str, type[Reason]]] = MappingProxyType(_REASONS)
"""Code -> reason, of all modules that were imported."""


@dataclass(frozen=True, slots=True)
class PodReason(Reason):
    """A reason that one pod of a unit causes for the whole unit."""

    pod: str

    @property
    def culprit(self) -> str:
        return self.pod


@dataclass(frozen=True, slots=True)
class LateClaim:
    """A volume claim (``namespace/name``) that is bound with its first pod, and its class."""

    claim: str
    storage_class: str

    def __str__(self) -> str:
        return f"{self.claim} of StorageClass {self.storage_class}"


@dataclass(frozen=True, slots=True)
class KubeSchedulerOnly(PodReason):
    """A pod uses something that only kube-scheduler can serve, in the named fields of its spec.

    ``claims`` are those among them that are bound late. ``members`` have to start together, if it
    does not start alone.
    """

    fields: tuple[str, ...]
    claims: tuple[LateClaim, ...] = ()
    members: int = 1

    @property
    def _late(self) -> str:
        """The claims that are bound late; empty if there are none."""
        return f": {listed(map(str, self.claims))}, bound with its first pod" if self.claims else ""

    @property
    def _way_out(self) -> str:
        """What lets members start together although one of them uses such a thing."""
        if not self.claims:
            return f"remove {named(self.fields)} from {self.pod}, or from all that starts with it"
        claims = named([late_claim.claim for late_claim in self.claims])
        return (
            f"let a pod of its own use {claims} once, which binds the volume, or use a "
            "StorageClass with volumeBindingMode Immediate"
        )

    def _advise_gang(self) -> Iterable[str]:
        yield f"{self._way_out[0].upper()}{self._way_out[1:]}."
        yield "Or set the minimum of the gang to 1, if its members may start one by one."


@dataclass(frozen=True, slots=True)
class NeedsKubeScheduler(KubeSchedulerOnly):
    """Such a pod has our scheduler name."""

    code: ClassVar = "NeedsKubeScheduler"
    is_unschedulable: ClassVar = True

    def _text(self) -> str:
        text = f"{self.pod} uses {listed(self.fields)}, which only kube-scheduler supports"
        if self.members > 1:
            return (
                f"{text}{self._late}; {plural(self.members, 'member')} have to start together: "
                f"{self._way_out}"
            )
        return (
            f"{text}; set spec.schedulerName to default-scheduler and keep our gate: a pod that "
            "starts alone is then released to kube-scheduler when there is room for it"
        )

    def _advice(self) -> Iterable[str]:
        if self.members > 1:
            yield from self._advise_gang()
            return
        yield f"Remove {named(self.fields)} from the pod."
        yield (
            "Or set spec.schedulerName to default-scheduler and keep the gate: the operators then "
            "plan the pod, and kube-scheduler binds it."
        )


@dataclass(frozen=True, slots=True)
class PlacementUnknown(KubeSchedulerOnly):
    """kube-scheduler binds such a pod, and pods that start with it may not be able to follow."""

    code: ClassVar = "PlacementUnknown"

    def _text(self) -> str:
        return (
            f"only kube-scheduler knows which nodes can serve {listed(self.fields)} of {self.pod}"
            f"{self._late}; {plural(self.members, 'member')} have to start together, and a pod "
            f"that is released cannot be held again, so none is released; {self._way_out}"
        )

    def _advice(self) -> Iterable[str]:
        return self._advise_gang()


@dataclass(frozen=True, slots=True)
class TooLarge(Reason):
    """A pod or gang has more of something than is planned; ``subject`` is its ``namespace/name``.

    ``kind`` is ``pod`` or ``gang``.
    """

    code: ClassVar = "TooLarge"
    kind: str
    subject: str
    what: str
    count: int
    most: int

    @property
    def culprit(self) -> str:
        return self.subject if self.kind == "pod" else ""

    @property
    def wakes_on(self) -> WakesOn:
        return WakesOn.DOMAIN  # and none is named: only a change of its own helps

    def _text(self) -> str:
        return (
            f"{self.kind} {self.subject} has {self.count} {self.what}, more than the {self.most} "
            "that the operators plan."
        )

    def _advice(self) -> Iterable[str]:
        yield f"Reduce the {self.what} of {self.subject} to {self.most} or fewer."


@dataclass(frozen=True, slots=True)
class TooExpensive(Reason):
    """Planning a unit takes more steps than its budget. ``pod`` is its first of ``pods``.

    ``terms`` are the rules about other pods that a pod of it has at most. The budget was reduced by
    what such units of its namespace have ``wasted`` lately.
    """

    code: ClassVar = "TooExpensive"
    pod: str
    pods: int
    terms: int
    steps: int
    most: int
    wasted: int = 0

    @property
    def wakes_on(self) -> WakesOn:
        return WakesOn.DOMAIN  # and none is named: it is tried again from time to time

    def _text(self) -> str:
        less = f" (less {self.wasted:,} that its namespace has wasted)" if self.wasted else ""
        return (
            f"planning {plural(self.pods, 'pod')} with up to {plural(self.terms, 'rule')} about "
            f"other pods took {self.steps:,} steps, more than the {self.most:,} allowed{less}; "
            "other pods go first, and it is tried again after a growing pause"
        )

    def _advice(self) -> Iterable[str]:
        if self.terms:
            yield f"Use fewer terms of affinity and topology spread on pods like {self.pod}."
        if self.pods > 1:
            yield "Or make the gang smaller, or its pods more alike."


@dataclass(frozen=True, slots=True)
class WaitingForForeignGate(PodReason):
    """``pods`` members of the unit have scheduling gates of others; ``pod`` is the first."""

    code: ClassVar = "WaitingForForeignGate"
    gates: tuple[str, ...]
    pods: int = 1

    def _text(self) -> str:
        gates = listed(self.gates)
        if self.pods == 1:
            return f"{self.pod} has scheduling gates of other controllers: {gates}"
        return (
            f"{self.pods} pods have scheduling gates of other controllers: {gates}; "
            f"the first is {self.pod}"
        )

    def _advice(self) -> Iterable[str]:
        yield (
            f"The controller that set {named(self.gates)} has to remove it; ours is removed last."
        )
        yield "Remove a gate that no controller handles from spec.schedulingGates by hand."


@dataclass(frozen=True, slots=True)
class PinnedNodeUnfit(PodReason):
    """A released pod is pinned to a node that can no longer take it."""

    code: ClassVar = "PinnedNodeUnfit"
    is_unschedulable: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    node: str

    def _text(self) -> str:
        return (
            f"{self.pod} is pinned to node {self.node}, which can no longer take it; delete the "
            "pod so that its owner creates a new one"
        )

    def _advice(self) -> Iterable[str]:
        yield f"Delete {self.pod}; its replacement may run on another node."
        yield (
            f"Or {ASK} restore on node {self.node} the room it had when the pod was released to it."
        )


@dataclass(frozen=True, slots=True)
class RefusedByScheduler(PodReason):
    """A pod was released to ``node`` for its own scheduler to bind, which does not."""

    code: ClassVar = "RefusedByScheduler"
    node: str
    message: str

    def _text(self) -> str:
        says = f": {self.message}" if self.message else ""
        pinned = f" and pinned to node {self.node}" if self.node else ""
        return f"{self.pod} was released{pinned}, and its scheduler does not bind it{says}"

    def _advice(self) -> Iterable[str]:
        there = f" on node {self.node}" if self.node else ""
        yield f"Mend{there} what the message names: the scheduler tries again."
        if self.node:
            yield (
                f"Or delete {self.pod}: the node of a released pod cannot be changed, and its "
                "replacement may get another one."
            )


@dataclass(frozen=True, slots=True)
class BindFailed(PodReason):
    """The API server refused a write for a member, or fails to carry it out; it is tried again.

    ``status`` 0: there is no answer, or none that makes sense.
    """

    code: ClassVar = "BindFailed"
    also_false: ClassVar = MappingProxyType({"Bound": "BindFailed"})
    status: int
    message: str

    def _text(self) -> str:
        message = cut(self.message)
        if not self.status:
            return f"a write for {self.pod} got no usable answer, retrying: {message}"
        did = "failed to complete" if self.status >= _SERVER_ERROR else "refused"
        return f"the API server {did} a write for {self.pod} ({self.status}), retrying: {message}"

    def _advice(self) -> Iterable[str]:
        if self.status == _FORBIDDEN:
            yield "Grant the operators the rights of their ClusterRoles; the message names them."


@dataclass(frozen=True, slots=True)
class Planned(Reason):
    """Every pod of the unit has a node; other schedulers chose ``by_others`` of them."""

    code: ClassVar = "Planned"
    is_placed: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    pods: int
    nodes: int
    plan_id: str = ""
    by_others: int = 0

    def _text(self) -> str:
        plan = f" (plan {self.plan_id})" if self.plan_id else ""
        nodes = plural(self.nodes, "node")
        elsewhere = f"; {self.by_others} of them by other schedulers" if self.by_others else ""
        return f"{plural(self.pods, 'pod')} placed on {nodes}{plan}{elsewhere}"


@dataclass(frozen=True, slots=True)
class InternalError(Reason):
    """Planning failed by a defect of the operators; ``error`` is its type, the log has the rest.

    ``quota`` is the one whose shares cannot be computed, if that is what failed.
    """

    code: ClassVar = "InternalError"
    error: str
    quota: str = ""

    @property
    def wakes_on(self) -> WakesOn:
        return WakesOn.DOMAIN if self.quota else WakesOn.ROOM

    @property
    def domain(self) -> str:
        return "quota" if self.quota else ""

    def _text(self) -> str:
        if self.quota:
            return (
                f"an internal error ({self.error}) prevents the shares of quota {self.quota} from "
                "being computed; other quota trees are not affected. Please report it with the "
                "operators' log"
            )
        return (
            f"an internal error ({self.error}) prevents this from being planned; everything else "
            "is not affected. Please report it with the operators' log"
        )
