"""Why quotas keep a unit waiting, with the numbers behind it.

The texts quote Koordinator's wording in brackets, with its way of writing amounts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from koord.core.model.reasons import ASK, Reason, ReasonContext, WakesOn
from koord.core.model.text import MAX_QUOTED, listed
from koord.core.model.units import format_amount
from koord.core.quota.spec_errors import InvalidQuota

_MAX_PRIORITY: Final = "operators.koordinator.sh/max-priority"
_SHARED_WITH: Final = "operators.koordinator.sh/shared-with"


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
            format_amount(self.resource, amount)
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
    can_use_leftovers: ClassVar[bool] = False
    """The unit may start on leftover shares."""


@dataclass(frozen=True, slots=True)
class QuotaExceeded(QuotaReason):
    """A quota has not enough left for a unit; the subclass says which of its limits.

    ``topo`` leads from the quota that refuses down to that of the pods. ``shortages`` are the
    exceeded resources; ``limit``, ``used`` and ``request`` hold all resources.
    """

    is_capacity: ClassVar = True
    also_false: ClassVar = MappingProxyType({"QuotaReserved": "QuotaExceeded"})
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
    def _offered(self) -> str:
        """That the capacity is too small for the unit; empty if it is not."""
        scarce = ", ".join(
            f"{format_amount(shortage.resource, max(shortage.offered, 0))} {shortage.resource}"
            for shortage in self.shortages
            if shortage.offered is not None
        )
        return scarce and f"the nodes that quotas share have only {scarce}: {ASK} add nodes"

    @property
    def _add_nodes(self) -> str:
        """The advice to add nodes; empty if the capacity is large enough."""
        what, _, _ = self._offered.rpartition(": ")
        return what and f"Ask for less, or {ASK} add nodes: {what}."

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
    def _keys(self) -> str:
        return " ".join(shortage.resource for shortage in self.shortages)

    @property
    def _details(self) -> str:
        return (
            f"runtime: {write_amounts(self.limit)}, used: {write_amounts(self.used)}, "
            f"pod's request: {write_amounts(self.request)}, exceedDimensions: [{self._keys}]"
        )

    def upstream(self) -> str:
        return f"Insufficient quotas, quotaName: {self.quota}, {self._details}"


@dataclass(frozen=True, slots=True)
class InsufficientEntitlement(QuotaExceeded):
    """The quota's fair share is used up; it grows when others request less or capacity is added."""

    code: ClassVar = "InsufficientEntitlement"
    can_use_leftovers: ClassVar = True

    def _text(self) -> str:
        way_out = (
            self._offered or "its share grows when other quotas request less or nodes are added"
        )
        return f"quota {self.quota} is entitled to {self._short}; {way_out}"

    def _advice(self) -> Iterable[str]:
        if self._add_nodes:
            yield self._add_nodes
        else:
            way_out = self._simulate("min")
            yield f"Wait until other quotas request less, ask for less, or {way_out}"


@dataclass(frozen=True, slots=True)
class InsufficientMax(QuotaExceeded):
    """The quota would exceed its max, even if there is idle capacity."""

    code: ClassVar = "InsufficientMax"

    def _text(self) -> str:
        way_out = f"{ASK} raise its max"
        if self._offered:
            way_out = f"{way_out}, which is not enough by itself: {self._offered}"
        if not self._exceeds_limit_alone:
            way_out = f"wait for its own pods to finish, or {way_out}"
        return f"quota {self.quota} may use at most {self._short}; {way_out}"

    def _advice(self) -> Iterable[str]:
        wait = "" if self._exceeds_limit_alone else f"Wait until pods of {self.quota} end, "
        yield f"{wait}{'ask' if wait else 'Ask'} for less, or {self._simulate('max')}"
        if self._add_nodes:
            yield self._add_nodes

    @property
    def _exceeds_limit_alone(self) -> bool:
        """Whether the unit would not fit even if nothing of the quota was used."""
        return any(
            shortage.requested > shortage.named_limit
            or (shortage.offered is not None and shortage.requested > shortage.offered)
            for shortage in self.shortages
        )


@dataclass(frozen=True, slots=True)
class AncestorInsufficient(QuotaExceeded):
    """The quota itself has enough, but one above it does not."""

    code: ClassVar = "AncestorInsufficient"
    can_use_leftovers: ClassVar = True

    def _text(self) -> str:
        wait = f"wait for pods below it to finish, or {ASK} raise its min or max"
        way_out = self._offered or wait
        return (
            f"quota {self.quota}, above {self.topo[-1]}, may use at most {self._short}; {way_out}"
        )

    def _advice(self) -> Iterable[str]:
        if self._add_nodes:
            yield self._add_nodes
        else:
            yield (
                f"Wait until pods in quotas below {self.quota} end, ask for less, or {ASK} raise "
                f"the min or max of {self.quota}: koord quota explain {self.quota} shows its "
                "numbers."
            )

    def upstream(self) -> str:
        return f"Insufficient quotas, quotaNameTopo: [{' '.join(self.topo)}], {self._details}"


@dataclass(frozen=True, slots=True)
class NonPreemptibleOverMin(QuotaExceeded):
    """Non-preemptible pods would together exceed the quota's min."""

    code: ClassVar = "NonPreemptibleOverMin"

    def _text(self) -> str:
        return (
            f"for non-preemptible pods quota {self.quota} may use at most its min: "
            f"{self._short}; label the pods preemptible: true, or {ASK} raise its min"
        )

    def _advice(self) -> Iterable[str]:
        yield (
            f"Wait until non-preemptible pods of {self.quota} end, label these pods preemptible: "
            f"true, or {self._simulate('min')}"
        )

    def upstream(self) -> str:
        return (
            f"Insufficient non-preemptible quotas, quotaName: {self.quota}, "
            f"min: {write_amounts(self.limit)}, nonPreemptibleUsed: {write_amounts(self.used)}, "
            f"pod's request: {write_amounts(self.request)}, exceedDimensions: [{self._keys}]"
        )


@dataclass(frozen=True, slots=True)
class SubmissionExceeded(QuotaReason):
    """The unit exceeds the admission limit of a quota (``namespace/name``)."""

    code: ClassVar = "SubmissionExceeded"
    also_false: ClassVar = MappingProxyType({"QuotaReserved": "QuotaExceeded"})
    quota: str
    shortages: tuple[QuotaShortage, ...]

    def _text(self) -> str:
        return (
            f"quota {self.quota} admits at most {_shortages(self.shortages)}; wait for its own "
            f"pods to finish, or {ASK} raise its admission limit"
        )

    def upstream(self) -> str:
        requested = _amounts((shortage.resource, shortage.requested) for shortage in self.shortages)
        used = _amounts(
            (shortage.resource, shortage.used) for shortage in self.shortages if shortage.used
        )
        limited = _amounts((shortage.resource, shortage.limit) for shortage in self.shortages)
        return (
            f"exceeded quota: {self.quota}, requested: {requested}, used: {used}, "
            f"limited: {limited}"
        )


@dataclass(frozen=True, slots=True)
class QuotaCheckFailed(QuotaReason):
    """A hook refuses pods of a quota."""

    code: ClassVar = "QuotaCheckFailed"
    check: str
    error: str

    def _text(self) -> str:
        return f"CheckPod failed for hook plugin {self.check}, err: {self.error}"


@dataclass(frozen=True, slots=True)
class QuotaIsParent(QuotaReason):
    """Pods name a quota that has, or may have, children and takes no pods of its own."""

    code: ClassVar = "QuotaIsParent"
    quota: str

    def _text(self) -> str:
        return (
            f"quota {self.quota} is a parent and takes no pods; label the pods with one of the "
            f"quotas below it (pod can not be linked to a parentQuotaGroup,quota:{self.quota})"
        )


@dataclass(frozen=True, slots=True)
class QuotaNotInForce(QuotaReason):
    """Pods belong to a quota whose object was never valid."""

    code: ClassVar = "QuotaNotInForce"
    problem: InvalidQuota

    def _text(self) -> str:
        return f"quota {self.problem.quota} is not active: {self.problem.describe()}"


@dataclass(frozen=True, slots=True)
class QuotaNotAllowed(QuotaReason):
    """Pods name a quota that their namespace may not use.

    ``home`` is the namespace of the quota, empty for a built-in one; ``allowed`` are the namespaces
    that may use it, ``shared_with`` those that its owner has shared it with.
    """

    code: ClassVar = "QuotaNotAllowed"
    quota: str
    home: str
    namespace: str
    allowed: tuple[str, ...]
    shared_with: tuple[str, ...] = ()

    def _text(self) -> str:
        name = f"{self.home}/{self.quota}" if self.home else self.quota
        return (
            f"pods of namespace {self.namespace} may not use quota {name}, only those of "
            f"{listed(self.allowed) or 'no namespace'} may; name another quota in the label "
            f"quota.scheduling.koordinator.sh/name, or remove the label, or {self._permit}"
        )

    @property
    def _permit(self) -> str:
        """What its owner can do."""
        if not self.home:
            return f"{ASK} add {self.namespace} to their setting elasticQuota.builtInNamespaces"
        namespaces = ",".join(f'"{name}"' for name in (*self.shared_with, self.namespace))
        if len(namespaces) > MAX_QUOTED:
            return f'ask its owner to add "{self.namespace}" to its annotation {_SHARED_WITH}'
        return (
            f"ask its owner to share it: kubectl annotate elasticquota -n {self.home} {self.quota} "
            f"--overwrite {_SHARED_WITH}='[{namespaces}]'"
        )


@dataclass(frozen=True, slots=True)
class QuotaUnknown(QuotaReason):
    """Pods name a quota that does not exist, and quotas limit their namespace."""

    code: ClassVar = "QuotaUnknown"
    quota: str
    namespace: str
    usable: tuple[str, ...] = ()

    def _text(self) -> str:
        those = f"pods of namespace {self.namespace} may name {listed(self.usable)}"
        return (
            f"there is no quota {self.quota}, which the label quota.scheduling.koordinator.sh/name "
            f"names; {those if self.usable else 'remove the label'}, or {ASK} create it "
            f"(elastic quota {self.quota} not found)"
        )


@dataclass(frozen=True, slots=True)
class QuotaAmbiguous(QuotaReason):
    """Quotas of several node pools list the namespace, and the pods do not say which they mean."""

    code: ClassVar = "QuotaAmbiguous"
    namespace: str
    quotas: tuple[str, ...]

    def _text(self) -> str:
        return (
            f"namespace {self.namespace} has several quotas, and these pods could be of "
            f"{listed(self.quotas)}; add a nodeSelector with the labels of the node pool to the "
            "pods, or name the quota in the label quota.scheduling.koordinator.sh/name"
        )


@dataclass(frozen=True, slots=True)
class PriorityNotAllowed(QuotaReason):
    """Pods have a higher priority than their quota, or one above it, allows."""

    code: ClassVar = "PriorityNotAllowed"
    quota: str
    priority: int
    limit: int

    def _text(self) -> str:
        return (
            f"quota {self.quota} allows pods a priority of at most {self.limit}, and these have "
            f"{self.priority}; choose a PriorityClass with a lower value, or {ASK} raise "
            f"the annotation {_MAX_PRIORITY} of the quota"
        )


@dataclass(frozen=True, slots=True)
class QuotaGone(QuotaReason):
    """The quota of pods was deleted by force while they waited or ran in it."""

    code: ClassVar = "QuotaGone"
    quota: str

    def _text(self) -> str:
        return (
            f"quota {self.quota} has been deleted while it had pods, without which they do not "
            f"start; label the pods with another quota, or {ASK} create it again"
        )


@dataclass(frozen=True, slots=True)
class QuotasNotServed(QuotaReason):
    """The API server no longer serves ElasticQuotas, and the pods are in one of them."""

    code: ClassVar = "QuotasNotServed"
    quota: str

    def _text(self) -> str:
        return (
            f"nothing starts in quota {self.quota} while the API server does not serve "
            "ElasticQuotas; if their definition was deleted by mistake, install it again "
            "(kubectl apply --server-side -f crds/) and then the quotas. After 10 minutes without "
            "it, there are no quotas any more"
        )


def write_amounts(amounts: tuple[tuple[str, int], ...]) -> str:
    """Write amounts as Koordinator does: ``cpu:1500m,nvidia.com/gpu:8``."""
    texts = ",".join(f"{key}:{format_amount(key, amount)}" for key, amount in amounts)
    return texts or "<empty>"


def _shortages(shortages: tuple[QuotaShortage, ...]) -> str:
    return "; ".join(shortage.text() for shortage in shortages)


def _amounts(amounts: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{key}={format_amount(key, amount)}" for key, amount in amounts)
