"""What is told about a quota: its numbers under the names of Koordinator, and what of it is new.

The same summary makes the annotations, the status, the metrics and ``koord quota``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koord.core.quota.fair_share import effective_min
from koord.core.quota.ledger import Ledger
from koord.core.quota.model import NO_USAGE, NOTHING, QuotaName, TreeId
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class Summary:
    """All numbers of one quota. ``share`` is what Koordinator calls runtime.

    ``submitted`` is what all live pods of the quota itself ask, ``demand`` what of it counts.
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
    fixed_request: Amounts = field(default_factory=dict)
    fixed_used: Amounts = field(default_factory=dict)
    allocated: Amounts = field(default_factory=dict)
    guaranteed: Amounts = field(default_factory=dict)
    submitted: Amounts = field(default_factory=dict)
    demand: Amounts = field(default_factory=dict)
    unmanaged: Amounts = field(default_factory=dict)
    """What pods of the quota itself use that somebody else placed."""
    unschedulable: Amounts = field(default_factory=dict)
    """On the root of a tree: the part of its capacity that is on nodes that take no pods."""

    def guarantee(self) -> dict[str, int]:
        """Return what is left of min where there is less to share out than is guaranteed in all."""
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
    "non-preemptible-request": "fixed_request",
    "non-preemptible-used": "fixed_used",
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
    """Return the numbers of a quota that has an account."""
    account, solution = ledger.account(name), ledger.solution(name)
    spec = account.spec
    usage = solution.snapshot.usage.get(name, NO_USAGE)
    fixed = solution.fixed_demand_with_children.get(name, NOTHING)
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
        fixed_request=fixed,
        fixed_used=account.fixed_used,
        allocated=solution.allocated(name),
        guaranteed=solution.guaranteed(name),
        submitted=usage.submitted,
        demand=usage.demand,
        unmanaged=usage.foreign_used,
        unschedulable=spec.unschedulable if spec.is_tree_root else NOTHING,
    )


def recorded(summary: Summary) -> dict[str, Amounts]:
    """Return what Koordinator writes into annotations, by name of the annotation."""
    return {name: getattr(summary, attribute) for name, attribute in RECORDED.items()}


def is_current(summary: Summary, annotations: Mapping[str, Amounts], used: Amounts) -> bool:
    """Whether an object already carries these numbers; zeros and gaps are the same."""
    return is_same(summary.used, used) and are_same(recorded(summary), annotations)


def are_same(one: Mapping[str, Amounts], other: Mapping[str, Amounts]) -> bool:
    """Whether annotations tell the same amounts; zeros and gaps are the same."""
    return all(
        is_same(one.get(name, NOTHING), other.get(name, NOTHING)) for name in {**one, **other}
    )


def measure(summary: Summary) -> dict[tuple[str, str], int]:
    """Return the metric of a quota: (field, resource) -> amount in canonical units."""
    return {
        (name, key): amount
        for name, attribute in MEASURED.items()
        for key, amount in getattr(summary, attribute).items()
    }


def is_same(one: Amounts, other: Amounts) -> bool:
    """Whether two lists tell the same amounts; zeros and gaps are the same."""
    return all(one.get(key, 0) == other.get(key, 0) for key in {**one, **other})
