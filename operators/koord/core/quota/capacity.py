"""The capacity that each tree of quotas divides, as Koordinator sums it; our sums: ``supply``.

The default tree has what the nodes offer, less the capacity of the other trees, and less the usage
of pods outside all quotas. Any other tree has what its root declares.
"""

from collections.abc import Iterable, Mapping

from koord.core.model.nodes import Node
from koord.core.model.units import Amounts
from koord.core.quota.model import DEFAULT_TREE, QuotaRules, QuotaSpec, TreeId

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
