"""Why quotas keep something from starting, with the numbers behind it.

Koordinator's words stand in brackets, with its way of writing amounts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from koord.core.quota.spec_errors import InvalidQuota
from koord.core.reasons import Reason, WakesOn
from koord.core.units import format_amount


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """One resource that a quota is short of: ``used`` and ``asked`` together exceed ``limit``.

    ``offered`` is what there is to share out in all, if even that is too little.
    """

    resource: str
    limit: int
    used: int
    asked: int
    offered: int | None = None

    def text(self) -> str:
        """Return ``8 nvidia.com/gpu, uses 6 and is asked for 4 more``."""
        limit, used, asked = (
            format_amount(self.resource, amount) for amount in (self.limit, self.used, self.asked)
        )
        return f"{limit} {self.resource}, uses {used} and is asked for {asked} more"


@dataclass(frozen=True, slots=True)
class QuotaReason(Reason):
    """Base of the reasons of quotas: only a change of quotas or of their use can help it."""

    rests_on: ClassVar = frozenset({"nodes", "elasticquotas"})
    wakes_on: ClassVar = WakesOn.DOMAIN
    domain: ClassVar = "quota"
    can_use_leftovers: ClassVar[bool] = False
    """Leftover shares may let the unit start all the same."""


@dataclass(frozen=True, slots=True)
class QuotaExceeded(QuotaReason):
    """A quota has not enough left for a unit; what it is short of says which of its limits.

    ``topo`` leads from the quota that refuses down to that of the pods. Besides the ``shortages``
    the whole of the limit, of what is used and of what is asked are kept.
    """

    is_capacity: ClassVar = True
    also_false: ClassVar = MappingProxyType({"QuotaReserved": "QuotaExceeded"})
    topo: tuple[str, ...]
    shortages: tuple[QuotaShortage, ...]
    limit: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...]
    request: tuple[tuple[str, int], ...]

    @property
    def quota(self) -> str:
        """The quota that refuses."""
        return self.topo[0]

    @property
    def _short(self) -> str:
        return _shortages(self.shortages)

    @property
    def _offered(self) -> str:
        """Say that the nodes offer too little, whatever quotas say; empty if they offer enough."""
        scarce = ", ".join(
            f"{format_amount(one.resource, max(one.offered, 0))} {one.resource}"
            for one in self.shortages
            if one.offered is not None
        )
        return scarce and f"the nodes that quotas share offer {scarce} in all: add nodes"

    @property
    def _keys(self) -> str:
        return " ".join(one.resource for one in self.shortages)

    @property
    def _details(self) -> str:
        return (
            f"runtime: {write_amounts(self.limit)}, used: {write_amounts(self.used)}, "
            f"pod's request: {write_amounts(self.request)}, exceedDimensions: [{self._keys}]"
        )

    @property
    def _insufficient(self) -> str:
        return f"Insufficient quotas, quotaName: {self.quota}, {self._details}"


@dataclass(frozen=True, slots=True)
class InsufficientEntitlement(QuotaExceeded):
    """The quota's fair share is used up: more comes when others want less, or there is more."""

    code: ClassVar = "InsufficientEntitlement"
    can_use_leftovers: ClassVar = True

    def _text(self) -> str:
        way_out = self._offered or "it gets more when other quotas want less or nodes are added"
        return f"quota {self.quota} is entitled to {self._short}; {way_out} ({self._insufficient})"


@dataclass(frozen=True, slots=True)
class InsufficientMax(QuotaExceeded):
    """The quota would exceed its max, which no idle capacity changes."""

    code: ClassVar = "InsufficientMax"

    def _text(self) -> str:
        way_out = "raise its max"
        if self._offered:
            way_out = f"{way_out}, which does not help alone: {self._offered}"
        if not self._exceeds_limit_alone:
            way_out = f"wait for its own pods to end, or {way_out}"
        return f"quota {self.quota} may use {self._short}; {way_out} ({self._insufficient})"

    @property
    def _exceeds_limit_alone(self) -> bool:
        """Whether the unit would not fit even if nothing of the quota was used."""
        return any(
            one.asked > one.limit or (one.offered is not None and one.asked > one.offered)
            for one in self.shortages
        )


@dataclass(frozen=True, slots=True)
class AncestorInsufficient(QuotaExceeded):
    """The quota itself has enough, one above it has not."""

    code: ClassVar = "AncestorInsufficient"
    can_use_leftovers: ClassVar = True

    def _text(self) -> str:
        topo = " ".join(self.topo)
        way_out = self._offered or "wait for pods below it to end, or raise its min or max"
        return (
            f"quota {self.quota}, above {self.topo[-1]}, may use {self._short}; {way_out} "
            f"(Insufficient quotas, quotaNameTopo: [{topo}], {self._details})"
        )


@dataclass(frozen=True, slots=True)
class NonPreemptibleOverMin(QuotaExceeded):
    """Pods that must not be evicted would together exceed the quota's min."""

    code: ClassVar = "NonPreemptibleOverMin"

    def _text(self) -> str:
        return (
            f"pods of quota {self.quota} that must not be evicted may use {self._short}, its min; "
            "raise its min, or let these be evicted: label them preemptible: true "
            f"(Insufficient non-preemptible quotas, quotaName: {self.quota}, "
            f"min: {write_amounts(self.limit)}, nonPreemptibleUsed: {write_amounts(self.used)}, "
            f"pod's request: {write_amounts(self.request)}, exceedDimensions: [{self._keys}])"
        )


@dataclass(frozen=True, slots=True)
class SubmissionExceeded(QuotaReason):
    """More would wait and run in a quota (``namespace/name``) than may be submitted to it."""

    code: ClassVar = "SubmissionExceeded"
    also_false: ClassVar = MappingProxyType({"QuotaReserved": "QuotaExceeded"})
    quota: str
    shortages: tuple[QuotaShortage, ...]

    def _text(self) -> str:
        requested = _amounts((one.resource, one.asked) for one in self.shortages)
        used = _amounts((one.resource, one.used) for one in self.shortages if one.used)
        limited = _amounts((one.resource, one.limit) for one in self.shortages)
        return (
            f"to quota {self.quota} may be submitted {_shortages(self.shortages)}; wait for its "
            "own pods to end, or raise its admission (exceeded quota: "
            f"{self.quota}, requested: {requested}, used: {used}, limited: {limited})"
        )


@dataclass(frozen=True, slots=True)
class QuotaCheckFailed(QuotaReason):
    """A check that somebody registered beside ours refuses pods of a quota."""

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
        return f"quota {self.problem.quota} is not in force: {self.problem.describe()}"


def write_amounts(amounts: tuple[tuple[str, int], ...]) -> str:
    """Write amounts as Koordinator does: ``cpu:1500m,nvidia.com/gpu:8``."""
    texts = ",".join(f"{key}:{format_amount(key, amount)}" for key, amount in amounts)
    return texts or "<empty>"


def _shortages(shortages: tuple[QuotaShortage, ...]) -> str:
    return "; ".join(one.text() for one in shortages)


def _amounts(amounts: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{key}={format_amount(key, amount)}" for key, amount in amounts)
