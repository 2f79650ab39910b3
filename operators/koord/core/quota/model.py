"""Quotas: the settings of an ElasticQuota, the usage of its pods, and the rules in use.

Source of the rules: Koordinator's ElasticQuota; ``docs/quota.md`` lists every key and default.
Amounts are exact integers in the units of ``core.units``.

The capacity that each tree divides is here as Koordinator sums it; our sums: ``supply``. The
default tree has what the nodes offer, less the capacity of the other trees, and less the usage of
pods outside all quotas. Any other tree has what its root declares.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from koord.core.model.nodes import Node
from koord.core.model.selectors import LabelSelector
from koord.core.model.units import Amounts
from koord.parents import walk_up

QuotaName: TypeAlias = str
"""Name of an ElasticQuota: its identity in the whole cluster, whatever its namespace."""
TreeId: TypeAlias = str
"""Empty for the default tree."""

ROOT: Final[QuotaName] = "koordinator-root-quota"
"""The virtual root of every tree; it divides the capacity of the tree."""
SYSTEM: Final[QuotaName] = "koordinator-system-quota"
"""Pods that name it by label; what they use is not divided among quotas."""
DEFAULT: Final[QuotaName] = "koordinator-default-quota"
"""Pods that no quota claims; what they use is not divided among quotas."""
BUILT_IN: Final = frozenset({ROOT, SYSTEM, DEFAULT})
BUILT_IN_NAMESPACES: Final = ("kube-system",)
"""Namespaces whose pods may name built-in quotas, unless others are configured."""

DEFAULT_TREE: Final[TreeId] = ""

EVERYONE: Final = "*"
"""Stands for all namespaces where a quota is shared."""

NOTHING: Final[Amounts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """The settings of one ElasticQuota.

    ``weight`` None means that no usable weight is given: it then equals ``max``. On the root of a
    tree, ``total`` is the capacity of the tree, ``unschedulable`` the part of it on nodes that take
    no pods, and ``selector`` says on which nodes the pods of the tree may run (None: on any).
    ``profile`` names the profile that generated the quota, if any. ``unreadable`` names the
    annotations that cannot be parsed, with their text.
    """

    name: QuotaName
    namespace: str = ""
    uid: str = ""
    created: float = 0.0
    parent: QuotaName = ROOT
    is_parent: bool = False
    lends: bool = True
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    weight: Amounts | None = None
    tree_id: TreeId = DEFAULT_TREE
    is_tree_root: bool = False
    ignores_default_tree: bool = False
    is_forced: bool = False
    total: Amounts = field(default_factory=dict)
    unschedulable: Amounts = field(default_factory=dict)
    selector: LabelSelector = None
    namespaces: tuple[str, ...] = ()
    """Pods of these namespaces belong to it."""
    shared_with: tuple[str, ...] = ()
    """Pods of these namespaces may name it, too; ``EVERYONE`` stands for all namespaces."""
    strict_keys: tuple[str, ...] = ()
    max_priority: int | None = None
    """Its pods, and those of quotas below, that have a higher priority wait."""
    admission: Amounts | None = None
    queue: Mapping[str, Any] = field(default_factory=dict)
    """What it says about its queue, by setting; queues know what it means."""
    queue_record: object = field(default=None, compare=False)
    """What its status has kept of its queue, for queues."""
    budget_record: object = field(default=None, compare=False)
    """What its status has kept of its GPU hours of this month, for budgets."""
    unreadable: tuple[tuple[str, str], ...] = ()
    is_terminating: bool = field(default=False, compare=False)
    """Deleted, but kept for its pods or children."""
    profile: str = field(default="", compare=False)
    generation: int = field(default=0, compare=False)
    last_valid: "QuotaSpec | None" = field(default=None, compare=False)
    """The last valid settings, from the object's status, if the current ones are invalid."""

    def share_weight(self) -> Amounts:
        """Return the weights in force: ``max`` where none is written or all are zero."""
        if self.weight is None or not any(self.weight.values()):
            return self.max
        return self.weight


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests and usage of the pods bound directly to one quota.

    ``submitted`` counts every live pod. ``demand`` leaves out those that cannot start yet, such as
    members of an incomplete gang: the fair share follows from it. ``used`` counts pods that have a
    node or are about to get one. ``non_preemptible_…`` is the part that must not be evicted (label
    ``preemptible: "false"``), ``foreign_used`` that of pods placed by another scheduler.
    """

    submitted: Amounts = field(default_factory=dict)
    demand: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    non_preemptible_demand: Amounts = field(default_factory=dict)
    non_preemptible_used: Amounts = field(default_factory=dict)
    foreign_used: Amounts = field(default_factory=dict)


NO_USAGE: Final = Usage()


class TerminatingUse(StrEnum):
    """How long a pod that is being deleted counts."""

    UNTIL_GONE = "until-gone"
    FOR_GRACE_PERIOD = "for-grace-period"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """Rules on which we and Koordinator differ: the defaults are ours, see ``KOORDINATOR``.

    ``docs/compatibility.md`` lists the differences with their reasons.
    """

    restricts_use: bool = True
    """A quota decides which namespaces may use it, and a pod stays charged to the quota that it
    started in; otherwise the labels of pods decide, at any time."""
    built_in_namespaces: tuple[str, ...] = BUILT_IN_NAMESPACES
    """Namespaces whose pods may name built-in quotas, if use is restricted."""
    scales_min: bool = True
    """Guarantees shrink in proportion when there is less to divide than their sum."""
    guarantees_usage: bool = False
    """What a quota uses is guaranteed to it, and no idle guarantee is lent."""
    limits_by_share: bool = True
    """A quota is limited by its fair share; otherwise by ``max`` alone."""
    checks_ancestors: bool = True
    """The request of a pod has to fit into every quota above its own, too."""
    checks_unasked: bool = False
    """A quota that is over in a resource refuses pods that do not request it."""
    shares_named_only: bool = False
    """A resource that a parent does not name is not divided below it; otherwise the parent passes
    on what it gets."""
    serves_own_pods_first: bool = True
    """The demand of a parent's own pods is not divided among its children."""
    counts_whole_units_only: bool = True
    """Members of incomplete gangs are no demand."""
    grants_leftovers: bool = True
    """Leftover shares, too small for any next unit, are pooled for one that they can start."""
    requires_same_keys: bool = False
    """A quota names exactly the resources of its parent; otherwise any subset of them."""
    skips_unchanged: bool = False
    """An update that changes neither tree, namespaces nor spec is not checked."""
    has_default_quota: bool = True
    """Pods that no quota claims are in the default quota; otherwise in none."""
    parents_take_pods: bool = False
    """Pods may be bound to a quota that has children."""
    spares_default_quota: bool = True
    """Pods of the default quota are never preempted."""
    counts_overhead: bool = True
    """The overhead of a pod's runtime class is part of its request."""
    terminating_use: TerminatingUse = TerminatingUse.UNTIL_GONE
    """How long a pod that is being deleted counts."""
    counts_device_shares: bool = True
    """A device counts under each of its names: cards as shares, shares as cards."""
    counts_open_nodes_only: bool = True
    """Nodes that take no pods are no capacity."""
    supplies_use: bool = True
    """No node is less capacity than the pods use that are counted on it."""

    def lends(self, spec: QuotaSpec) -> bool:
        """Whether others may use what a quota is guaranteed and does not use."""
        return spec.lends and not self.guarantees_usage


KOORDINATOR: Final = QuotaRules(
    restricts_use=False,
    checks_ancestors=False,
    checks_unasked=True,
    shares_named_only=True,
    serves_own_pods_first=False,
    counts_whole_units_only=False,
    grants_leftovers=False,
    requires_same_keys=True,
    skips_unchanged=True,
    counts_device_shares=False,
    counts_open_nodes_only=False,
    supplies_use=False,
)


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """The rules that administrators choose, whichever they are; named as in ``QuotaRules``."""

    limits_by_share: bool = True
    guarantees_usage: bool = False
    has_default_quota: bool = True
    parents_take_pods: bool = False
    counts_overhead: bool = True
    terminating_use: TerminatingUse = TerminatingUse.UNTIL_GONE
    built_in_namespaces: tuple[str, ...] = BUILT_IN_NAMESPACES

    def choose_rules(self, *, compat: bool) -> QuotaRules:
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(KOORDINATOR if compat else QuotaRules(), **chosen)


QUOTA_DEFAULTS: Final = QuotaOptions()


@dataclass(frozen=True, slots=True)
class QuotaCharge:
    """The request of one unit to one quota, and the part of it for non-preemptible pods."""

    quota: QuotaName
    request: Amounts
    non_preemptible: Amounts = field(default_factory=dict)


def with_parents(
    spec: QuotaSpec | None, specs: Mapping[QuotaName, QuotaSpec]
) -> Iterator[QuotaSpec]:
    """Yield a quota and those above it, nearest first; those in no set are left out."""
    return walk_up(spec, lambda quota: quota.name, lambda quota: specs.get(quota.parent))


_OURS = QuotaRules()
_NOT_READY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def is_counted(node: Node, rules: QuotaRules) -> bool:
    """Whether a node is capacity: not if it is being deleted, nor if it takes no pods.

    Koordinator counts nodes that are cordoned or not ready, too.
    """
    if node.is_terminating:
        return False
    return not (rules.counts_open_nodes_only and is_closed(node))


def is_closed(node: Node) -> bool:
    return node.is_unschedulable or any(taint.key in _NOT_READY for taint in node.taints)


def is_apart(spec: QuotaSpec) -> bool:
    """Whether a quota is the root of a tree that takes selected nodes from the default tree."""
    is_root = spec.tree_id != DEFAULT_TREE and spec.is_tree_root
    return is_root and not spec.ignores_default_tree and bool(spec.selector)


def add_up(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for key, amount in part.items():
            total[key] = total.get(key, 0) + amount
    return total


def subtract(total: Amounts, *parts: Amounts) -> dict[str, int]:
    left = dict(total)
    for part in parts:
        for key, amount in part.items():
            left[key] = left.get(key, 0) - amount
    return left


def tree_totals(
    nodes: Amounts, specs: Iterable[QuotaSpec], rules: QuotaRules = _OURS
) -> dict[TreeId, dict[str, int]]:
    """Return the capacity of every tree, given the sum of all counted nodes.

    Where nodes that take no pods are not counted, neither is that part of a tree's capacity.
    """
    roots = [spec for spec in specs if spec.tree_id != DEFAULT_TREE and spec.is_tree_root]
    taken = [
        subtract(spec.total, spec.unschedulable) if rules.counts_open_nodes_only else spec.total
        for spec in roots
        if not spec.ignores_default_tree
    ]
    totals = {DEFAULT_TREE: subtract(nodes, *taken)}
    for spec in roots:
        totals[spec.tree_id] = add_up((totals.get(spec.tree_id, {}), spec.total))
    return totals


def shared_out(total: Amounts, outside: Mapping[str, int]) -> dict[str, int]:
    """Return what the root of the default tree divides: the total less the usage outside trees.

    A resource that no node offers stays out, whatever is used of it.
    """
    return {key: amount - outside.get(key, 0) for key, amount in total.items()}
