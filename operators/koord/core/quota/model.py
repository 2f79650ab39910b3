"""Quotas: what an ElasticQuota declares, what its pods ask and use, and which rules apply.

Source of the rules: Koordinator's ElasticQuota; our page ``docs/quota.md`` carries them with every
key and default. Amounts are exact integers in the units of ``core.units``.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from koord.core.selectors import LabelSelector
from koord.core.units import Amounts

QuotaName: TypeAlias = str
"""Name of an ElasticQuota: its identity in the whole cluster, whatever its namespace."""
TreeId: TypeAlias = str
"""Empty for the default tree."""

ROOT: Final[QuotaName] = "koordinator-root-quota"
"""The virtual root of every tree; what it shares out is the capacity of the tree."""
SYSTEM: Final[QuotaName] = "koordinator-system-quota"
"""Pods that ask for it by label; what they use is not shared out."""
DEFAULT: Final[QuotaName] = "koordinator-default-quota"
"""Pods that no quota claims; what they use is not shared out."""
BUILT_IN: Final = frozenset({ROOT, SYSTEM, DEFAULT})

DEFAULT_TREE: Final[TreeId] = ""

NOTHING: Final[Amounts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """What one ElasticQuota declares.

    ``weight`` None means that nothing usable is written: it then equals ``max``. ``total`` is the
    capacity of a tree of its own, on the root of that tree, ``unschedulable`` the part of it on
    nodes that take no pods; ``selector`` there says on which nodes the pods of the tree may be,
    None on any. ``profile`` is who made the quota, if a profile has. ``unreadable``
    names the annotations that hold no value of their kind, with what stands there.
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
    strict_keys: tuple[str, ...] = ()
    admission: Amounts | None = None
    unreadable: tuple[tuple[str, str], ...] = ()
    profile: str = field(default="", compare=False)
    generation: int = field(default=0, compare=False)
    last_valid: "QuotaSpec | None" = field(default=None, compare=False)
    """What the object's status remembers of settings that were in force, if these are not."""

    def share_weight(self) -> Amounts:
        """Return the weights in force: ``max`` where none is written or all are zero."""
        if self.weight is None or not any(self.weight.values()):
            return self.max
        return self.weight


@dataclass(frozen=True, slots=True)
class Usage:
    """What the pods bound directly to one quota ask and use.

    ``submitted`` counts every live pod. ``demand`` leaves out those that cannot start yet, such as
    members of an incomplete gang: it is what the quota is given a share for. ``used`` counts pods
    that have a node or are about to get one. ``fixed_…`` is the part that must not be evicted
    (label ``preemptible: "false"``), ``foreign_used`` that of pods that somebody else placed.
    """

    submitted: Amounts = field(default_factory=dict)
    demand: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    fixed_demand: Amounts = field(default_factory=dict)
    fixed_used: Amounts = field(default_factory=dict)
    foreign_used: Amounts = field(default_factory=dict)


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """Where rules can be read in two ways: the defaults are ours, ``KOORDINATOR`` is upstream's.

    ``docs/compatibility.md`` lists the differences with their reasons.
    """

    scales_min: bool = True
    """Guarantees shrink in proportion when what is shared out is less than their sum."""
    guarantees_usage: bool = False
    """What a quota uses is guaranteed to it, and no idle guarantee is lent."""
    limits_by_share: bool = True
    """A quota is limited by its fair share; otherwise by ``max`` alone."""
    checks_ancestors: bool = True
    """What a pod asks has to fit into every quota above its own, too."""
    checks_unasked: bool = False
    """A quota that is over in a resource refuses pods that do not ask for it."""
    shares_named_only: bool = False
    """A resource that a parent does not name is not shared out below it; otherwise the parent
    passes on what it gets."""
    serves_own_pods_first: bool = True
    """What a parent's own pods ask is not shared out among its children."""
    counts_whole_units_only: bool = True
    """Members of incomplete gangs are no demand."""
    packs_leftovers: bool = True
    """What nobody's next unit fits into is put together for one that it does."""
    requires_same_keys: bool = False
    """A quota names exactly the resources of its parent; otherwise none that it does not name."""
    skips_unchanged: bool = False
    """An update that changes neither tree, namespaces nor spec is not checked."""
    has_default_quota: bool = True
    """Pods that no quota claims are in the default quota; otherwise in none."""
    parents_take_pods: bool = False
    """Pods may be bound to a quota that has children."""
    spares_default_quota: bool = True
    """Pods of the default quota are never preempted."""
    counts_device_shares: bool = True
    """A device counts under each of its names: cards as shares, shares as cards."""
    counts_open_nodes_only: bool = True
    """Nodes that take no pods are no capacity."""


KOORDINATOR: Final = QuotaRules(
    checks_ancestors=False,
    checks_unasked=True,
    shares_named_only=True,
    serves_own_pods_first=False,
    counts_whole_units_only=False,
    packs_leftovers=False,
    requires_same_keys=True,
    skips_unchanged=True,
    counts_device_shares=False,
    counts_open_nodes_only=False,
)


@dataclass(frozen=True, slots=True)
class QuotaCharge:
    """What one unit asks of one quota; ``fixed`` is the part that must not be evicted later."""

    quota: QuotaName
    request: Amounts
    fixed: Amounts = field(default_factory=dict)
