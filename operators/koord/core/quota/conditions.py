"""What is the matter with a quota, as conditions: in force, borrowing, lending, over and so on.

A condition lists the resources that it is about, with how much of each. Texts are made elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from koord.core.quota.overuse import Overuse
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota.status import Summary
from koord.core.units import Amounts


class QuotaCondition(StrEnum):
    """Type of a condition; each is always there, true or false."""

    READY = "Ready"
    """Some version of the quota is in force."""
    CONFIG_INVALID = "ConfigInvalid"
    """What is written is not in force: what was valid last is, if anything."""
    BORROWING = "Borrowing"
    """More is used than is guaranteed."""
    LENDING = "Lending"
    """A part of what is guaranteed is not asked for, and free for others."""
    OVER_ENTITLEMENT = "OverEntitlement"
    """More is used than the quota is entitled to now."""
    MIN_SCALED = "MinScaled"
    """There is less to share out than is guaranteed in all: less is guaranteed than written."""
    UNMANAGED_USAGE = "UnmanagedUsage"
    """Pods of the quota run that somebody else placed: its limits do not hold for those."""


ABSENT: Final[Mapping[QuotaCondition, str]] = {
    QuotaCondition.READY: "NotInForce",
    QuotaCondition.CONFIG_INVALID: "Valid",
    QuotaCondition.BORROWING: "WithinMin",
    QuotaCondition.LENDING: "NothingLent",
    QuotaCondition.OVER_ENTITLEMENT: "WithinEntitlement",
    QuotaCondition.MIN_SCALED: "MinInFull",
    QuotaCondition.UNMANAGED_USAGE: "AllManaged",
}
"""The reason of a condition that does not hold; one that holds has its type for a reason."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition. ``amounts`` are resources with how much; ``problem`` says what is wrong.

    ``over`` is what of that is compared with what, of a quota that uses too much.
    """

    kind: QuotaCondition
    holds: bool
    amounts: tuple[tuple[str, int], ...] = ()
    problem: InvalidQuota | None = None
    over: tuple[Overuse, ...] = ()

    @property
    def reason(self) -> str:
        """One word for programs."""
        if self.problem is not None:
            return self.problem.fault
        return self.kind if self.holds else ABSENT[self.kind]


def find_conditions(
    summary: Summary | None, over: Iterable[Overuse], problem: InvalidQuota | None, *, lends: bool
) -> tuple[Finding, ...]:
    """Return every condition of a quota; ``summary`` is None if it is not in force.

    ``over`` is what the quota uses too much of.
    """
    excess = tuple(one for one in over if one.quota == summary.name) if summary else ()
    invalid = Finding(QuotaCondition.CONFIG_INVALID, problem is not None, problem=problem)
    if summary is None:
        return (Finding(QuotaCondition.READY, holds=False, problem=problem), invalid)
    least = summary.guarantee()
    lent = {key: low - summary.share.get(key, 0) for key, low in least.items()} if lends else {}
    return (
        Finding(QuotaCondition.READY, holds=True),
        invalid,
        _find(
            QuotaCondition.BORROWING,
            {key: used - least.get(key, 0) for key, used in summary.used.items()},
        ),
        _find(QuotaCondition.LENDING, lent),
        replace(
            _find(QuotaCondition.OVER_ENTITLEMENT, {one.resource: one.over for one in excess}),
            over=excess,
        ),
        _find(
            QuotaCondition.MIN_SCALED,
            {key: low - least.get(key, 0) for key, low in summary.min.items()},
        ),
        _find(
            QuotaCondition.UNMANAGED_USAGE,
            {key: summary.unmanaged.get(key, 0) for key in summary.max},
        ),
    )


def _find(kind: QuotaCondition, amounts: Amounts) -> Finding:
    found = tuple(sorted((key, amount) for key, amount in amounts.items() if amount > 0))
    return Finding(kind, bool(found), found)
