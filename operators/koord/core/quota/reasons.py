"""Why quotas keep a unit waiting, with the numbers behind it.

The texts quote Koordinator's wording in brackets, with its way of writing amounts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import ASK, Reason, ReasonContext, WakesOn
from koord.core.model.text import MAX_QUOTED, listed
from koord.core.model.units import format_amount, tell_amount
from koord.core.quota.spec_errors import InvalidQuota


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """One resource that a quota is short of: ``used`` and ``requested`` together exceed ``limit``.

    ``offered`` is the capacity that quotas share, if even that is too little. ``kept`` is the part
    of ``used`` that is room kept for gangs. ``max`` is that of the quota, if it is larger and
    exceeded too: then it is named, because a larger share alone would not help.
    """

    resource: str
    limit: int
    used: int
    requested: int
    offered: int | None = None
    kept: int = 0
    max: int | None = None

    @property
    def named_limit(self) -> int:
        return self.limit if self.max is None else self.max

    def text(self) -> str:
        """Return ``8 nvidia.com/gpu, uses 6 and needs 4 more``."""
        limit, used, requested, kept = (
            tell_amount(self.resource, amount)
            for amount in (self.named_limit, self.used, self.requested, self.kept)
        )
        used = f"{used} (kept for gangs: {kept})" if self.kept else used
        return f"{limit} {self.resource}, uses {used} and needs {requested} more"


@dataclass(frozen=True, slots=True)
class QuotaReason(Reason):
    """Base of the reasons of quotas: only a change of quotas or of their use helps."""

    rests_on: ClassVar = frozenset({"nodes", "elasticquotas"})
    wakes_on: ClassVar = WakesOn.DOMAIN
    domain: ClassVar = "quota"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    can_use_leftovers: ClassVar[bool] = False
    """The unit may start on leftover shares."""


@dataclass(frozen=True, slots=True)
class QuotaExceeded(QuotaReason):
    """A quota has not enough left for a unit; the subclass says which of its limits.

    ``topo`` leads from the quota that refuses down to that of the pods. ``shortages`` are the
    exceeded resources; ``limit``, ``used`` and ``request`` hold all resources.
    """

    is_capacity: ClassVar = True
    reason_class: ClassVar = ReasonClass.QUOTA
    also_false: ClassVar = MappingProxyType({"QuotaReserved": "QuotaExceeded"})
    quotes: ClassVar = "Insufficient quotas, quotaName: {quota}, {_details}"
    too_small: ClassVar = "the nodes that quotas share have only {_scarce}"
    grow: ClassVar = "{too_small:part}: {ask} add nodes"
    add_nodes: ClassVar = "Ask for less, or {ask} add nodes: {too_small:part}."
    _words: ClassVar = ("runtime", "used", "pod's request")
    topo: tuple[str, ...]
    shortages: tuple[QuotaShortage, ...]
    limit: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...]
    request: tuple[tuple[str, int], ...]
    context: ReasonContext | None = None

    @property
    def about(self) -> str:
        return "" if self.context is None else self.context.about

    @property
    def quota(self) -> str:
        """The quota that refuses."""
        return self.topo[0]

    @property
    def _short(self) -> str:
        return _shortages(self.shortages)

    @property
    def _scarce(self) -> str:
        """The capacity, if it is too small for the unit; empty if it is not."""
        return ", ".join(
            f"{tell_amount(shortage.resource, max(shortage.offered, 0))} {shortage.resource}"
            for shortage in self.shortages
            if shortage.offered is not None
        )

    def _simulate(self, setting: str) -> str:
        """Return whom to ask for the ``min`` or ``max`` that is needed, and how to try it."""
        edits = " ".join(
            f"--{setting} {shortage.resource}="
            f"{format_amount(shortage.resource, shortage.used + shortage.requested)}"
            for shortage in self.shortages
        )
        command = f"koord quota what-if {self.quota} {edits}"
        return f"{ASK} raise the {setting} of {self.quota}: {command} shows what that would do."

    @property
    def _raise_min(self) -> str:
        return self._simulate("min")

    @property
    def _details(self) -> str:
        amounts = zip(self._words, (self.limit, self.used, self.request), strict=True)
        texts = (f"{word}: {write_amounts(these)}" for word, these in amounts)
        keys = " ".join(shortage.resource for shortage in self.shortages)
        return f"{', '.join(texts)}, exceedDimensions: [{keys}]"


@dataclass(frozen=True, slots=True)
class InsufficientEntitlement(QuotaExceeded):
    """The share of the quota is used up, or there is no capacity.

    It grows when others request less or capacity is added.
    """

    code: ClassVar = "InsufficientEntitlement"
    can_use_leftovers: ClassVar = True
    way_out: ClassVar = (
        "wait until others request less; ask the administrators for a larger `min` or weight, or "
        "more nodes"
    )
    says: ClassVar = (
        "quota {quota} is entitled to {_short}; {_scarce:?{grow:part}"
        "|its share grows when other quotas request less or nodes are added}"
    )
    advises: ClassVar = (
        (
            "{_scarce:?{add_nodes:part}"
            "|Wait until other quotas request less, ask for less, or {_raise_min}}"
        ),
    )


@dataclass(frozen=True, slots=True)
class InsufficientMax(QuotaExceeded):
    """The quota would exceed its ``max``.

    It would even if there is idle capacity.
    """

    code: ClassVar = "InsufficientMax"
    way_out: ClassVar = "wait for its own pods to finish, or ask the administrators to raise `max`"
    says: ClassVar = (
        "quota {quota} may use at most {_short}; "
        "{_exceeds_limit_alone:?|wait for its own pods to finish, or }{ask} raise its max"
        "{_scarce:?, which is not enough by itself: {grow:part}}"
    )
    advises: ClassVar = (
        (
            "{_exceeds_limit_alone:?Ask|Wait until pods of {quota} end, ask} for less, or "
            "{_raise_max}"
        ),
        "{_scarce:?{add_nodes:part}}",
    )

    @property
    def _raise_max(self) -> str:
        return self._simulate("max")

    @property
    def _exceeds_limit_alone(self) -> bool:
        """Whether the unit would not fit even if nothing of the quota was used."""
        return any(
            shortage.requested > shortage.named_limit
            or (shortage.offered is not None and shortage.requested > shortage.offered)
            for shortage in self.shortages
        )


@dataclass(frozen=True, slots=True)
class RequestAboveMax(InsufficientMax):
    """A unit asks for more than the ``max`` of its quota, or of one above it.

    It would wait even if nothing else ran: neither time nor other pods of the quota matter.
    """

    code: ClassVar = "RequestAboveMax"
    reason_class: ClassVar = ReasonClass.MISCONFIGURED
    way_out: ClassVar = "ask for less, or ask the administrators to raise `max`"


@dataclass(frozen=True, slots=True)
class AncestorInsufficient(QuotaExceeded):
    """A quota above has not enough; the message names it."""

    code: ClassVar = "AncestorInsufficient"
    can_use_leftovers: ClassVar = True
    way_out: ClassVar = "as there"
    says: ClassVar = (
        "quota {quota}, above {_own}, may use at most {_short}; {_scarce:?{grow:part}"
        "|wait for pods below it to finish, or {ask} raise its min or max}"
    )
    quotes: ClassVar = "Insufficient quotas, quotaNameTopo: [{_path}], {_details}"
    advises: ClassVar = (
        (
            "{_scarce:?{add_nodes:part}"
            "|Wait until pods in quotas below {quota} end, ask for less, or {ask} raise the min "
            "or max of {quota}: koord quota explain {quota} shows its numbers.}"
        ),
    )

    @property
    def _own(self) -> str:
        return self.topo[-1]

    @property
    def _path(self) -> str:
        return " ".join(self.topo)


@dataclass(frozen=True, slots=True)
class NonPreemptibleOverMin(QuotaExceeded):
    """Non-preemptible pods would exceed ``min``."""

    code: ClassVar = "NonPreemptibleOverMin"
    way_out: ClassVar = "remove the label `preemptible`, or ask the administrators to raise `min`"
    says: ClassVar = (
        "for non-preemptible pods quota {quota} may use at most its min: {_short}; label the pods "
        "preemptible: true, or {ask} raise its min"
    )
    quotes: ClassVar = "Insufficient non-preemptible quotas, quotaName: {quota}, {_details}"
    advises: ClassVar = (
        (
            "Wait until non-preemptible pods of {quota} end, label these pods preemptible: true, "
            "or {_raise_min}"
        ),
    )
    _words: ClassVar = ("min", "nonPreemptibleUsed", "pod's request")


@dataclass(frozen=True, slots=True)
class SubmissionExceeded(QuotaReason):
    """The waiting and running pods would exceed ``admission``.

    That is the admission limit of a quota (``namespace/name``).
    """

    code: ClassVar = "SubmissionExceeded"
    reason_class: ClassVar = ReasonClass.QUOTA
    also_false: ClassVar = MappingProxyType({"QuotaReserved": "QuotaExceeded"})
    way_out: ClassVar = "wait, or ask the administrators to raise it"
    says: ClassVar = (
        "quota {quota} admits at most {_short}; wait for its own pods to finish, or "
        "{ask} raise its admission limit"
    )
    quotes: ClassVar = "exceeded quota: {quota}, {_details}"
    quota: str
    shortages: tuple[QuotaShortage, ...]

    @property
    def _short(self) -> str:
        return _shortages(self.shortages)

    @property
    def _details(self) -> str:
        short = self.shortages
        requested = _amounts((shortage.resource, shortage.requested) for shortage in short)
        used = _amounts((shortage.resource, shortage.used) for shortage in short if shortage.used)
        limited = _amounts((shortage.resource, shortage.limit) for shortage in short)
        return f"requested: {requested}, used: {used}, limited: {limited}"


@dataclass(frozen=True, slots=True)
class QuotaCheckFailed(QuotaReason):
    """A [hook](quota.md#hooks) refuses the pods."""

    code: ClassVar = "QuotaCheckFailed"
    reason_class: ClassVar = ReasonClass.QUOTA
    way_out: ClassVar = "read the message"
    says: ClassVar = "CheckPod failed for hook plugin {check}, err: {error}"
    check: str
    error: str


@dataclass(frozen=True, slots=True)
class QuotaIsParent(QuotaReason):
    """The pods name a quota that has children.

    Or it may have some; it takes no pods of its own.
    """

    code: ClassVar = "QuotaIsParent"
    way_out: ClassVar = "label them with one of those"
    says: ClassVar = (
        "quota {quota} is a parent and takes no pods; label the pods with one of the quotas below "
        "it (pod can not be linked to a parentQuotaGroup,quota:{quota})"
    )
    quota: str


@dataclass(frozen=True, slots=True)
class QuotaNotInForce(QuotaReason):
    """The settings of the quota were never valid; the message says why."""

    code: ClassVar = "QuotaNotInForce"
    way_out: ClassVar = "correct them"
    says: ClassVar = "quota {problem.quota} is not active: {problem.describe()}"
    problem: InvalidQuota


_WRONG_QUOTA: Final = (
    "the label names a quota that the pods may not use, or none that exists; see "
    "[above](quota.md#who-may-use-a-quota)"
)
_CORRECT_LABEL: Final = "correct or remove the label, or share the quota"


@dataclass(frozen=True, slots=True)
class QuotaNotAllowed(QuotaReason):
    """Pods name a quota that their namespace may not use.

    ``home`` is the namespace of the quota, empty for a built-in one; ``allowed`` are the namespaces
    that may use it, ``shared_with`` those that its owner has shared it with.
    """

    code: ClassVar = "QuotaNotAllowed"
    meaning: ClassVar = _WRONG_QUOTA
    way_out: ClassVar = _CORRECT_LABEL
    says: ClassVar = (
        "pods of namespace {namespace} may not use quota {home:?{home}/}{quota}, only those of "
        "{_users} may; name another quota in the label "
        "quota.scheduling.koordinator.sh/name, or remove the label, or {home:?ask its owner to "
        '{_is_long:?add "{namespace}" to its annotation {annotation}'
        "|share it: kubectl annotate elasticquota -n {home} {quota} "
        "--overwrite {annotation}='[{_namespaces}]'}"
        "|{ask} add {namespace} to their setting elasticQuota.builtInNamespaces}"
    )
    annotation: ClassVar = "operators.koordinator.sh/shared-with"
    quota: str
    home: str
    namespace: str
    allowed: tuple[str, ...]
    shared_with: tuple[str, ...] = ()

    @property
    def _users(self) -> str:
        return listed(self.allowed) or "no namespace"

    @property
    def _namespaces(self) -> str:
        return ",".join(f'"{name}"' for name in (*self.shared_with, self.namespace))

    @property
    def _is_long(self) -> bool:
        return len(self._namespaces) > MAX_QUOTED


@dataclass(frozen=True, slots=True)
class QuotaUnknown(QuotaReason):
    """Pods name a quota that does not exist, and quotas limit their namespace."""

    code: ClassVar = "QuotaUnknown"
    meaning: ClassVar = _WRONG_QUOTA
    way_out: ClassVar = _CORRECT_LABEL
    says: ClassVar = (
        "there is no quota {quota}, which the label quota.scheduling.koordinator.sh/name names; "
        "{usable:?pods of namespace {namespace} may name {usable:list}|remove the label}, or "
        "{ask} create it (elastic quota {quota} not found)"
    )
    quota: str
    namespace: str
    usable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaAmbiguous(QuotaReason):
    """Quotas of several node pools list the namespace, and the pods do not say which they mean."""

    code: ClassVar = "QuotaAmbiguous"
    meaning: ClassVar = (
        "quotas of [several node pools](node-pools.md#several-quotas-for-one-namespace) list the "
        "namespace, and the pods do not say which they mean"
    )
    way_out: ClassVar = (
        "add a `nodeSelector` with the labels of the pool, or name the quota in the label"
    )
    says: ClassVar = (
        "namespace {namespace} has several quotas, and these pods could be of {quotas:list}; add "
        "a nodeSelector with the labels of the node pool to the pods, or name the quota in the "
        "label quota.scheduling.koordinator.sh/name"
    )
    namespace: str
    quotas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PriorityNotAllowed(QuotaReason):
    """Pods have a higher priority than their quota, or one above it, allows."""

    code: ClassVar = "PriorityNotAllowed"
    meaning: ClassVar = (
        "the priority of the pods is above the [`max-priority`](quota.md#settings) of their quota, "
        "or of one above it"
    )
    way_out: ClassVar = (
        "choose a PriorityClass with a lower value, or ask the administrators to raise "
        "`max-priority`"
    )
    says: ClassVar = (
        "quota {quota} allows pods a priority of at most {limit}, and these have {priority}; "
        "choose a PriorityClass with a lower value, or {ask} raise the annotation "
        "operators.koordinator.sh/max-priority of the quota"
    )
    quota: str
    priority: int
    limit: int


_DELETED: Final = (
    "the quota, or the definition of all quotas, was [deleted](quota.md#deleting-quotas) by force"
)
_CREATE: Final = "create it again"


@dataclass(frozen=True, slots=True)
class QuotaGone(QuotaReason):
    """The quota of pods was deleted by force while they waited or ran in it."""

    code: ClassVar = "QuotaGone"
    meaning: ClassVar = _DELETED
    way_out: ClassVar = _CREATE
    says: ClassVar = (
        "quota {quota} has been deleted while it had pods, without which they do not start; label "
        "the pods with another quota, or {ask} create it again"
    )
    quota: str


@dataclass(frozen=True, slots=True)
class QuotasNotServed(QuotaReason):
    """The API server no longer serves ElasticQuotas, and the pods are in one of them."""

    code: ClassVar = "QuotasNotServed"
    meaning: ClassVar = _DELETED
    way_out: ClassVar = _CREATE
    says: ClassVar = (
        "nothing starts in quota {quota} while the API server does not serve ElasticQuotas; if "
        "their definition was deleted by mistake, install it again (kubectl apply --server-side "
        "-f crds/) and then the quotas. After 10 minutes without it, there are no quotas any more"
    )
    quota: str


def write_amounts(amounts: tuple[tuple[str, int], ...]) -> str:
    """Write amounts as Koordinator does: ``cpu:1500m,nvidia.com/gpu:8``."""
    texts = ",".join(f"{key}:{format_amount(key, amount)}" for key, amount in amounts)
    return texts or "<empty>"


def _shortages(shortages: tuple[QuotaShortage, ...]) -> str:
    return "; ".join(shortage.text() for shortage in shortages)


def _amounts(amounts: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{key}={format_amount(key, amount)}" for key, amount in amounts)
