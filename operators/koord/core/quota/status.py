"""The status of a quota: its numbers under the names of Koordinator, and its conditions.

The same summary makes the annotations, the status, the metrics and ``koord quota``. A condition
lists the resources that it is about, with the amount of each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from koord.core.model.units import Amounts, format_amount
from koord.core.quota.fair_share import effective_min
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import NO_USAGE, NOTHING, QuotaName, TreeId
from koord.core.quota.reclaim import Overuse, write_overuse
from koord.core.quota.spec_errors import InvalidQuota


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of one quota. ``share`` is what Koordinator calls runtime.

    ``submitted`` is the request of all live pods of the quota itself, ``demand`` the part that
    counts for the fair share.
    """

    name: QuotaName
    parent: QuotaName = ""
    tree: TreeId = ""
    is_parent: bool = False
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    weight: Amounts = field(default_factory=dict)
    share: Amounts = field(default_factory=dict)
    scaled_min: Amounts = field(default_factory=dict)
    request: Amounts = field(default_factory=dict)
    child_request: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    non_preemptible_request: Amounts = field(default_factory=dict)
    non_preemptible_used: Amounts = field(default_factory=dict)
    allocated: Amounts = field(default_factory=dict)
    guaranteed: Amounts = field(default_factory=dict)
    submitted: Amounts = field(default_factory=dict)
    demand: Amounts = field(default_factory=dict)
    unmanaged: Amounts = field(default_factory=dict)
    """Usage of the quota's own pods that another scheduler placed."""
    unschedulable: Amounts = field(default_factory=dict)
    """On the root of a tree: the part of its capacity on nodes that take no pods."""

    def guarantee(self) -> dict[str, int]:
        """Return min, scaled where there is less to divide than the sum of guarantees."""
        return {
            key: effective_min(low, self.scaled_min[key], self.request.get(key, 0), self.share[key])
            if key in self.share and key in self.scaled_min
            else low
            for key, low in self.min.items()
        }


RECORDED: Final[Mapping[str, str]] = {
    "runtime": "share",
    "request": "request",
    "child-request": "child_request",
    "guaranteed": "guaranteed",
    "allocated": "allocated",
    "non-preemptible-request": "non_preemptible_request",
    "non-preemptible-used": "non_preemptible_used",
}
"""Name of the annotation (and metric field) -> field of the summary."""

MEASURED: Final[Mapping[str, str]] = {
    **RECORDED,
    "used": "used",
    "min": "min",
    "max": "max",
    "sharedWeight": "weight",
    "unschedulable-resource": "unschedulable",
}
"""Name of the metric field -> field of the summary."""


def summarise(ledger: Ledger, name: QuotaName) -> Summary:
    account, solution = ledger.account(name), ledger.solution(name)
    spec = account.spec
    usage = solution.inputs.usage.get(name, NO_USAGE)
    non_preemptible = solution.non_preemptible_demand_with_children.get(name, NOTHING)
    return Summary(
        name=name,
        parent=spec.parent,
        tree=spec.tree_id,
        is_parent=spec.is_parent,
        min=spec.min,
        max=spec.max,
        weight=spec.share_weight(),
        share=account.share,
        scaled_min=solution.minimum(name),
        request=solution.request(name),
        child_request=solution.child_request(name),
        used=account.used,
        non_preemptible_request=non_preemptible,
        non_preemptible_used=account.non_preemptible_used,
        allocated=solution.allocated(name),
        guaranteed=solution.guaranteed(name),
        submitted=usage.submitted,
        demand=usage.demand,
        unmanaged=usage.foreign_used,
        unschedulable=spec.unschedulable if spec.is_tree_root else NOTHING,
    )


def recorded(summary: Summary) -> dict[str, Amounts]:
    return {name: getattr(summary, attribute) for name, attribute in RECORDED.items()}


def is_current(summary: Summary, annotations: Mapping[str, Amounts], used: Amounts) -> bool:
    """Whether an object already carries these numbers; a missing one is zero."""
    return is_same(summary.used, used) and are_same(recorded(summary), annotations)


def are_same(first: Mapping[str, Amounts], second: Mapping[str, Amounts]) -> bool:
    """Whether annotations hold the same amounts; a missing one is zero."""
    return all(
        is_same(first.get(name, NOTHING), second.get(name, NOTHING)) for name in {**first, **second}
    )


def measure(summary: Summary) -> dict[tuple[str, str], int]:
    """Return the metric of a quota: (field, resource) -> amount in canonical units."""
    return {
        (name, key): amount
        for name, attribute in MEASURED.items()
        for key, amount in getattr(summary, attribute).items()
    }


def is_same(first: Amounts, second: Amounts) -> bool:
    return all(first.get(key, 0) == second.get(key, 0) for key in {**first, **second})


HOOK_FAILED: Final = "HookFailed"
"""Type of a condition that every quota has where operators call hooks."""


class QuotaCondition(StrEnum):
    """Type of a condition; every type is always present, true or false."""

    READY = "Ready"
    """Some settings of the quota are in force."""
    CONFIG_INVALID = "ConfigInvalid"
    """The current settings are not in force; the last valid ones are, if there are any."""
    BORROWING = "Borrowing"
    """The quota uses more than its guarantee."""
    LENDING = "Lending"
    """A part of the guarantee is not requested, and free for others."""
    OVER_ENTITLEMENT = "OverEntitlement"
    """The quota uses more than it is entitled to now."""
    MIN_SCALED = "MinScaled"
    """There is less to divide than the sum of guarantees, so the guarantee is below min."""
    UNMANAGED_USAGE = "UnmanagedUsage"
    """Other schedulers have placed pods of the quota: its limits do not hold for those."""
    TERMINATING = "Terminating"
    """The quota is deleted, but kept for its pods or children."""


REASON_IF_FALSE: Final[Mapping[QuotaCondition, str]] = {
    QuotaCondition.READY: "NotInForce",
    QuotaCondition.CONFIG_INVALID: "Valid",
    QuotaCondition.BORROWING: "WithinMin",
    QuotaCondition.LENDING: "NothingLent",
    QuotaCondition.OVER_ENTITLEMENT: "WithinEntitlement",
    QuotaCondition.MIN_SCALED: "MinInFull",
    QuotaCondition.TERMINATING: "NotDeleted",
    QuotaCondition.UNMANAGED_USAGE: "AllManaged",
}
"""The reason of a condition that is false; the reason of a true one is its type."""

_TEXTS: Final[Mapping[QuotaCondition, tuple[str, str]]] = {
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
    QuotaCondition.TERMINATING: ("is being deleted", "is not being deleted"),
    QuotaCondition.UNMANAGED_USAGE: (
        "{amounts} are used by pods that other schedulers placed; gate such pods",
        "all its pods were placed by us",
    ),
}
"""Texts of a condition that holds, and of one that does not."""


@dataclass(frozen=True, slots=True)
class ConditionState:
    """One condition, with the resources and amounts that it is about.

    ``problem`` is the fault of invalid settings, or what delays a deletion, ``over`` the over-use
    of a quota that uses too much.
    """

    kind: QuotaCondition
    holds: bool
    amounts: tuple[tuple[str, int], ...] = ()
    problem: InvalidQuota | None = None
    over: tuple[Overuse, ...] = ()

    @property
    def reason(self) -> str:
        if self.problem is not None:
            return self.problem.rule
        return self.kind if self.holds else REASON_IF_FALSE[self.kind]

    def text(self, reclaim: str = "", *, compat: bool = False) -> str:
        """Return the message; ``reclaim`` says what follows from over-use (``write_revoke``)."""
        if self.problem is not None:
            return self.problem.describe()
        if self.over:
            return "; ".join(filter(None, (write_overuse(self.over, compat=compat), reclaim)))
        amounts = ", ".join(f"{format_amount(key, n)} {key}" for key, n in self.amounts)
        holds, absent = _TEXTS[self.kind]
        return holds.format(amounts=amounts) if self.holds else absent


def find_conditions(
    summary: Summary | None, over: Iterable[Overuse], problem: InvalidQuota | None, *, lends: bool
) -> tuple[ConditionState, ...]:
    """Return every condition of a quota; ``summary`` is None if it is not in force."""
    overuses = (
        tuple(overuse for overuse in over if overuse.quota == summary.name) if summary else ()
    )
    invalid = ConditionState(QuotaCondition.CONFIG_INVALID, problem is not None, problem=problem)
    if summary is None:
        return (ConditionState(QuotaCondition.READY, holds=False, problem=problem), invalid)
    least = summary.guarantee()
    lent = {key: low - summary.share.get(key, 0) for key, low in least.items()} if lends else {}
    return (
        ConditionState(QuotaCondition.READY, holds=True),
        invalid,
        _find(
            QuotaCondition.BORROWING,
            {key: used - least.get(key, 0) for key, used in summary.used.items()},
        ),
        _find(QuotaCondition.LENDING, lent),
        replace(
            _find(
                QuotaCondition.OVER_ENTITLEMENT,
                {overuse.resource: overuse.over for overuse in overuses},
            ),
            over=overuses,
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


def name_state(
    summary: Summary | None, over: Sequence[Overuse], problem: InvalidQuota | None
) -> str:
    """Return what matters most of a quota, in one word that is never empty."""
    if problem is not None:
        return "Invalid"
    if summary is None:
        return "NotActive"
    if over:
        return str(QuotaCondition.OVER_ENTITLEMENT)
    least, used = summary.guarantee(), summary.used
    keys = [key for key, most in summary.max.items() if most]
    if any(used.get(key, 0) > least.get(key, 0) for key in keys):
        return str(QuotaCondition.BORROWING)
    lends = any(summary.share.get(key, 0) < least.get(key, 0) for key in keys)
    return str(QuotaCondition.LENDING) if lends else REASON_IF_FALSE[QuotaCondition.BORROWING]


def _find(kind: QuotaCondition, amounts: Amounts) -> ConditionState:
    positive = tuple(sorted((key, amount) for key, amount in amounts.items() if amount > 0))
    return ConditionState(kind, bool(positive), positive)
