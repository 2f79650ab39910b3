"""What a quota means where it says nothing: parent, tree and weights.

Koordinator writes these into the object when it is created; here they are read into it, so that the
object stays as its owner wrote it.
"""

from dataclasses import replace

from koord.core.quota.model import DEFAULT_TREE, ROOT, QuotaSpec
from koord.core.quota.registry import ActiveQuotas
from koord.core.units import Amounts


def fill_in(spec: QuotaSpec, registry: ActiveQuotas) -> QuotaSpec:
    """Return a quota with the tree of its parent and a weight for each resource of its max."""
    tree = spec.tree_id
    if tree == DEFAULT_TREE and spec.parent != ROOT:
        parent = registry.get(spec.parent)
        tree = parent.tree_id if parent else tree
    return replace(spec, tree_id=tree, weight=fill_in_weight(spec.weight, spec.max))


def fill_in_weight(weight: Amounts | None, largest: Amounts) -> Amounts:
    """Return the weight of every resource that max names: as written, or else its max."""
    return {key: (weight or {}).get(key, amount) for key, amount in largest.items()}
