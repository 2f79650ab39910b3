"""Reasons: why something waits, was refused, or is done, as values that bring their texts.

A reason is a frozen dataclass: a code and the numbers behind it, declared with the templates of
its texts. It travels unchanged from the rule that made it to the condition, the event, the metric
and ``koord explain``; only those call ``text()`` and ``advice()``, which fill the templates in.
Concrete reasons stand with the rules of their domain; here are the base class and the reasons that
belong to no domain.

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
from typing import ClassVar, Final, TypeAlias

from koord.core.model.foreign_gates import is_of_kueue, tell_turns
from koord.core.model.reason_class import ReasonClass
from koord.core.model.templates import fill, fill_all
from koord.core.model.text import MAX_QUOTED, MAX_TEXT, cut

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


class Reason:
    """Base of all reasons. A subclass with a ``code`` is registered; codes are unique.

    Codes are part of the API: they stand in conditions, events, metrics and JSON. Texts are
    templates (``koord.core.model.templates``), filled in from the fields and properties.
    """

    __slots__ = ()

    code: ClassVar[str]
    reason_class: ClassVar[ReasonClass | None] = None
    """What kind of wait it is; None: nothing waits."""
    ask: ClassVar[str] = ASK
    says: ClassVar[str] = ""
    """The text."""
    quotes: ClassVar[str] = ""
    """What Koordinator or kube-scheduler say of the situation."""
    advises: ClassVar[tuple[str, ...]] = ()
    """Sentences that say what would help; those that come out empty are left out."""
    meaning: ClassVar[str] = ""
    """When it occurs, for the reference; if empty, the first line of the docstring says it."""
    way_out: ClassVar[str] = ""
    """What helps, for the reference, without the numbers of a case."""

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
        text = fill(self.says, self)
        if self.context is not None:
            text = f"{self.context.text()} {text}"
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

    def upstream(self) -> str:
        """Return what Koordinator or kube-scheduler say of the situation."""
        return fill(self.quotes, self)

    def _advice(self) -> Iterable[str]:
        return fill_all(self.advises, self)

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


def class_of(code: str) -> ReasonClass | None:
    """Return the class of the reason with a code; None for codes that stand for no wait."""
    reason = REASONS.get(code)
    return None if reason is None else reason.reason_class


@dataclass(frozen=True, slots=True)
class PodReason(Reason):
    """A reason that one pod of a unit causes for the whole unit."""

    pod: str

    @property
    def culprit(self) -> str:
        return self.pod


@dataclass(frozen=True, slots=True)
class InvalidPodAnnotation(PodReason):
    """Annotations of a pod about some domain cannot be read: (field, what is wrong)."""

    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    says: ClassVar = "{pod}: {problems:list {0} {1}}"
    advises: ClassVar = (
        "Correct the annotation in the template of the pods, and create them again.",
    )
    problems: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TooLarge(Reason):
    """A pod or gang has more of something than is planned; ``subject`` is its ``namespace/name``.

    ``kind`` is ``pod`` or ``gang``.
    """

    code: ClassVar = "TooLarge"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    wakes_on: ClassVar = WakesOn.DOMAIN  # and none is named: only a change of its own helps
    meaning: ClassVar = (
        "a member, the gang or its group has more of something than is "
        "[planned](security.md#input); the message has both numbers"
    )
    way_out: ClassVar = "use less of it"
    says: ClassVar = (
        "{kind} {subject} has {count} {what}, more than the {most} that the operators plan."
    )
    advises: ClassVar = ("Reduce the {what} of {subject} to {most} or fewer.",)
    kind: str
    subject: str
    what: str
    count: int
    most: int

    @property
    def culprit(self) -> str:
        return self.subject if self.kind == "pod" else ""


class UnknownGang(Reason):
    """Why the settings of a gang are not known; the domain that looks for them says it."""

    __slots__ = ()


NoSettings: TypeAlias = UnknownGang | TooLarge
"""Why a gang whose settings are looked for has none."""


@dataclass(frozen=True, slots=True)
class TooExpensive(Reason):
    """Planning a unit takes more steps than its budget. ``pod`` is its first of ``pods``.

    ``terms`` are the rules about other pods that a pod of it has at most. The budget was reduced by
    what such units of its namespace have ``wasted`` lately.
    """

    code: ClassVar = "TooExpensive"
    reason_class: ClassVar = ReasonClass.OPERATORS
    wakes_on: ClassVar = WakesOn.DOMAIN  # and none is named: it is tried again from time to time
    meaning: ClassVar = (
        "planning takes more [steps](performance-planner.md#bounds-of-planning) than a unit of "
        "this size may take; others go first"
    )
    way_out: ClassVar = "use fewer terms of affinity and spread, or a smaller gang"
    says: ClassVar = (
        "planning {pods:# pod} with up to {terms:# rule} about other pods took {steps:,} steps, "
        "more than the {most:,} allowed{wasted:? (less {wasted:,} that its namespace has wasted)}; "
        "other pods go first, and it is tried again after a growing pause"
    )
    advises: ClassVar = (
        "{terms:?Use fewer terms of affinity and topology spread on pods like {pod}.}",
        "{pods:|Or make the gang smaller, or its pods more alike.}",
    )
    pod: str
    pods: int
    terms: int
    steps: int
    most: int
    wasted: int = 0


@dataclass(frozen=True, slots=True)
class WaitingForForeignGate(PodReason):
    """Too many members have scheduling gates of other controllers.

    These are ``pods`` members of the unit, ``pod`` is the first.
    """

    code: ClassVar = "WaitingForForeignGate"
    reason_class: ClassVar = ReasonClass.HELD
    way_out: ClassVar = "see what the controller of the gate waits for"
    says: ClassVar = (
        "{pods:{pod} has|{pods} pods have} scheduling gates of other controllers: "
        "{gates:list}{pods:|; the first is {pod}}{turns:?: {turns:list; }}"
    )
    advises: ClassVar = (
        "{is_of_kueue:?Ask Kueue: kubectl get workloads.kueue.x-k8s.io, where the pod is.}",
        "The controller that set {gates:names} has to remove it; ours is removed last.",
        "Remove a gate that no controller handles from spec.schedulingGates by hand.",
    )
    gates: tuple[str, ...]
    pods: int = 1

    @property
    def turns(self) -> tuple[str, ...]:
        """Whose turn it is, of controllers that are known."""
        return tell_turns(self.gates)

    @property
    def is_of_kueue(self) -> bool:
        return is_of_kueue(self.gates)


@dataclass(frozen=True, slots=True)
class PinnedNodeUnfit(PodReason):
    """A released member is pinned to a node that can no longer take it."""

    code: ClassVar = "PinnedNodeUnfit"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    is_unschedulable: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    way_out: ClassVar = "delete the pod; its owner makes a new one"
    says: ClassVar = (
        "{pod} is pinned to node {node}, which can no longer take it; delete the pod so that its "
        "owner creates a new one"
    )
    advises: ClassVar = (
        "Delete {pod}; its replacement may run on another node.",
        "Or {ask} restore on node {node} the room it had when the pod was released to it.",
    )
    node: str


@dataclass(frozen=True, slots=True)
class RefusedByScheduler(PodReason):
    """A pod was released to ``node`` for its own scheduler to bind, which does not."""

    code: ClassVar = "RefusedByScheduler"
    reason_class: ClassVar = ReasonClass.ELSEWHERE
    meaning: ClassVar = (
        "a pod was released to its planned node, and its own scheduler does not bind it; the "
        "message is that of the scheduler. It is part of the message of `BelowMin`, too"
    )
    way_out: ClassVar = (
        "mend on the node what the message names, or delete the pod: its replacement may get "
        "another node"
    )
    says: ClassVar = (
        "{pod} was released{node:? and pinned to node {node}}, and its scheduler does not bind it"
        "{message:?: {message}}"
    )
    advises: ClassVar = (
        "Mend{node:? on node {node}} what the message names: the scheduler tries again.",
        (
            "{node:?Or delete {pod}: the node of a released pod cannot be changed, and its "
            "replacement may get another one.}"
        ),
    )
    node: str
    message: str


@dataclass(frozen=True, slots=True)
class BindFailed(PodReason):
    """Nodes were found, but a write was refused, or fails again and again; see ``Bound``.

    ``status`` 0: there is no answer, or none that makes sense.
    """

    code: ClassVar = "BindFailed"
    reason_class: ClassVar = ReasonClass.WRITING
    also_false: ClassVar = MappingProxyType({"Bound": "BindFailed"})
    way_out: ClassVar = "as there"
    says: ClassVar = (
        "{status:?the API server {_did} a write for {pod} ({status})"
        "|a write for {pod} got no usable answer}, retrying: {message:cut}"
    )
    advises: ClassVar = (
        (
            "{_is_forbidden:?Grant the operators the rights of their ClusterRoles; the message "
            "names them.}"
        ),
    )
    status: int
    message: str

    @property
    def _did(self) -> str:
        return "failed to complete" if self.status >= _SERVER_ERROR else "refused"

    @property
    def _is_forbidden(self) -> bool:
        return self.status == _FORBIDDEN


@dataclass(frozen=True, slots=True)
class Planned(Reason):
    """Nodes are found, and recorded on the pods or bound.

    Every pod of the unit has one; other schedulers chose ``by_others`` of them. If it ``waits``,
    there is room for them, and nothing is recorded yet.
    """

    code: ClassVar = "Planned"
    reason_class: ClassVar = ReasonClass.ORDER
    is_placed: ClassVar = True
    rests_on: ClassVar = frozenset({"nodes"})
    says: ClassVar = (
        "{waits:?there is room for {pods:# pod} on {nodes:# node} now|{pods:# pod} placed on "
        "{nodes:# node}{plan_id:? (plan {plan_id})}{by_others:?; {by_others} of them by other "
        "schedulers}}"
    )
    pods: int
    nodes: int
    plan_id: str = ""
    by_others: int = 0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class InternalError(Reason):
    """An internal error prevents this gang from being planned; others are not affected.

    It is a defect of the operators; ``error`` is its type, the log has the rest. ``quota`` is the
    one whose shares cannot be computed, if that is what failed.
    """

    code: ClassVar = "InternalError"
    reason_class: ClassVar = ReasonClass.OPERATORS
    way_out: ClassVar = "report it with the operators' log"
    says: ClassVar = (
        "an internal error ({error}) prevents {quota:?the shares of quota {quota} from being "
        "computed; other quota trees are|this from being planned; everything else is} not "
        "affected. Please report it with the operators' log"
    )
    error: str
    quota: str = ""

    @property
    def wakes_on(self) -> WakesOn:
        return WakesOn.DOMAIN if self.quota else WakesOn.ROOM

    @property
    def domain(self) -> str:
        return "quota" if self.quota else ""
