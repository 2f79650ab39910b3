"""What users read about the conditions of quotas, over-use, and hooks that fail."""

from collections.abc import Mapping, Sequence
from typing import Final

from koord.core.quota.hooks import Hooks
from koord.core.quota.reasons import write_amounts
from koord.core.quota.reclaim import Overuse
from koord.core.quota.status import Finding, QuotaCondition
from koord.core.units import format_amount


def write_finding(finding: Finding, revoke: str = "") -> str:
    """Write a condition of a quota; ``revoke`` is what becomes of over-use (``write_revoke``)."""
    if finding.problem is not None:
        return finding.problem.describe()
    if finding.over:
        return "; ".join(filter(None, (write_overuse(finding.over), revoke)))
    amounts = ", ".join(f"{format_amount(key, n)} {key}" for key, n in finding.amounts)
    holds, absent = _FINDINGS[finding.kind]
    return holds.format(amounts=amounts) if finding.holds else absent


def write_failed_hooks(hooks: Hooks) -> str:
    """Write which hooks failed since the start, and how at last."""
    failed = "; ".join(
        f"hook {name} failed in {operation} ({failure.last})"
        for (name, operation), failure in sorted(hooks.failures.items())
    )
    return f"{failed}: what it checks is let through" if failed else "no hook has failed"


def write_overuse(over: Sequence[Overuse]) -> str:
    """Write what a quota uses too much of."""
    uses = "; ".join(
        f"{format_amount(one.resource, one.used)} {one.resource} and is entitled to "
        f"{format_amount(one.resource, one.entitled)}"
        for one in over
    )
    used = write_amounts(tuple((one.resource, one.used) for one in over))
    runtime = write_amounts(tuple((one.resource, one.entitled) for one in over))
    return f"quota {over[0].quota} uses {uses} (runtime: {runtime}, used: {used})"


def write_revoke(delay: float | None) -> str:
    """Write what becomes of over-use that lasts for ``delay`` seconds; None if nothing does."""
    if delay is None:
        return (
            "no further pods start until it uses less; over-use is not reclaimed: that needs "
            "elasticQuota.monitorAllQuotas and enableRuntimeQuota"
        )
    return (
        f"no further pods start until it uses less; after {delay:g}s its pods are evicted if a "
        "pending unit is entitled to what they use and could then start, or if its max is "
        "exceeded; pods labelled preemptible=false stay"
    )


_FINDINGS: Final[Mapping[QuotaCondition, tuple[str, str]]] = {
    QuotaCondition.READY: ("the quota is active", "the quota is not active"),
    QuotaCondition.CONFIG_INVALID: ("", "the current spec is active"),
    QuotaCondition.BORROWING: (
        "uses {amounts} more than its guaranteed amount",
        "uses at most its guaranteed amount",
    ),
    QuotaCondition.LENDING: (
        "does not request {amounts} of its guaranteed amount; other quotas may use it meanwhile",
        "lends nothing",
    ),
    QuotaCondition.OVER_ENTITLEMENT: (
        "",
        "uses at most its fair share",
    ),
    QuotaCondition.MIN_SCALED: (
        "is guaranteed {amounts} less than its min, since all min together exceed the capacity",
        "is guaranteed its min",
    ),
    QuotaCondition.UNMANAGED_USAGE: (
        "{amounts} are used by pods that other schedulers placed; gate such pods",
        "all its pods were placed by us",
    ),
}
"""What is said of a condition that holds, and of one that does not."""
