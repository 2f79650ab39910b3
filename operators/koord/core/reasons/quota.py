"""Why quotas keep something from starting, with the numbers behind it."""

from dataclasses import dataclass
from typing import ClassVar, Final

from koord.core.quota.spec_errors import InvalidQuota
from koord.core.reasons.codes import ReasonCode


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


@dataclass(frozen=True, slots=True)
class QuotaExceeded:
    """A quota has not enough left for a unit; what it is short of says which of its limits.

    ``topo`` leads from the quota that refuses down to that of the pods. Besides the ``shortages``
    the whole of the limit, of what is used and of what is asked are kept.
    """

    topo: tuple[str, ...]
    shortages: tuple[QuotaShortage, ...]
    limit: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...]
    request: tuple[tuple[str, int], ...]

    @property
    def quota(self) -> str:
        """The quota that refuses."""
        return self.topo[0]


@dataclass(frozen=True, slots=True)
class InsufficientEntitlement(QuotaExceeded):
    """The quota's fair share is used up: more comes when others want less, or there is more."""

    code: ClassVar = ReasonCode.INSUFFICIENT_ENTITLEMENT


@dataclass(frozen=True, slots=True)
class InsufficientMax(QuotaExceeded):
    """The quota would exceed its max, which no idle capacity changes."""

    code: ClassVar = ReasonCode.INSUFFICIENT_MAX


@dataclass(frozen=True, slots=True)
class AncestorInsufficient(QuotaExceeded):
    """The quota itself has enough, one above it has not."""

    code: ClassVar = ReasonCode.ANCESTOR_INSUFFICIENT


@dataclass(frozen=True, slots=True)
class NonPreemptibleOverMin(QuotaExceeded):
    """Pods that must not be evicted would together exceed the quota's min."""

    code: ClassVar = ReasonCode.NON_PREEMPTIBLE_OVER_MIN


@dataclass(frozen=True, slots=True)
class QuotaCheckFailed:
    """A check that somebody registered beside ours refuses pods of a quota."""

    code: ClassVar = ReasonCode.QUOTA_CHECK_FAILED
    check: str
    error: str


@dataclass(frozen=True, slots=True)
class QuotaIsParent:
    """Pods name a quota that has, or may have, children and takes no pods of its own."""

    code: ClassVar = ReasonCode.QUOTA_IS_PARENT
    quota: str


@dataclass(frozen=True, slots=True)
class QuotaNotInForce:
    """Pods belong to a quota whose object was never valid."""

    code: ClassVar = ReasonCode.QUOTA_NOT_IN_FORCE
    problem: InvalidQuota


@dataclass(frozen=True, slots=True)
class SubmissionExceeded:
    """More would wait and run in a quota (``namespace/name``) than may be submitted to it."""

    code: ClassVar = ReasonCode.SUBMISSION_EXCEEDED
    quota: str
    shortages: tuple[QuotaShortage, ...]


QUOTA_REASONS: Final = (
    QuotaExceeded,
    QuotaCheckFailed,
    QuotaIsParent,
    QuotaNotInForce,
    SubmissionExceeded,
)
"""Why quotas keep a unit from starting: only a change of quotas or of their use can help it."""
