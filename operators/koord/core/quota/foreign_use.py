"""How much of what other schedulers placed is charged to the quotas above.

Nobody can refuse such pods: their owner names a node, or another scheduler. A quota is charged with
all of them, and its parent only up to the quota's ``max``. So a quota takes no more from its
siblings than its ``max`` allows, whatever its users create.
"""

from collections.abc import Mapping

import numpy as np

from koord.core.model.units import Amounts
from koord.core.quota.fair_share import MAX_WEIGHT, Flags, Ints
from koord.core.quota.model import NOTHING, QuotaName, QuotaRules, Usage
from koord.core.quota.tree import QuotaTree, collect


def pass_on(used: int, foreign: int, most: int | None) -> tuple[int, int]:
    """Return what a quota charges to its parent, and the part of it of other schedulers' pods."""
    cut = 0 if most is None else min(foreign, max(0, used - most))
    return used - cut, foreign - cut


def find_excess(total: Ints, foreign: Ints, maximum: Ints, named: Flags) -> Ints:
    """Return what quotas do not charge to their parents; see ``pass_on``."""
    if maximum.dtype.hasobject and not total.dtype.hasobject:
        maximum = np.minimum(maximum, int(MAX_WEIGHT)).astype(total.dtype)
    excess: Ints = np.where(named, np.minimum(foreign, np.maximum(total - maximum, 0)), 0)
    return excess


def collect_foreign(
    tree: QuotaTree, usage: Mapping[QuotaName, Usage], rules: QuotaRules
) -> Ints | None:
    """Return what other schedulers' pods use of every quota; None if nothing."""
    if not rules.restricts_use or not any(own.foreign_used for own in usage.values()):
        return None
    foreign = collect(tree, usage, lambda own: own.foreign_used)
    return foreign if foreign.any() else None


def sum_charges(tree: QuotaTree, used: Ints, foreign: Ints | None) -> tuple[Ints, Ints | None]:
    """Return what every quota is charged with, and other schedulers' part of that, by row."""
    if foreign is None:
        return tree.layout.sum_up(used), None
    if foreign.dtype.hasobject != used.dtype.hasobject:
        used, foreign = used.astype(object), foreign.astype(object)
    total, part = used.copy(), foreign.copy()
    for depth in reversed(tree.layout.depths):
        rows = slice(depth.first, depth.end)
        excess = find_excess(
            total[:, rows], part[:, rows], tree.maximum[:, rows], tree.named[:, rows]
        )
        total[:, depth.parents] += np.add.reduceat(total[:, rows] - excess, depth.starts, axis=1)
        part[:, depth.parents] += np.add.reduceat(part[:, rows] - excess, depth.starts, axis=1)
    return total, part


def find_uncharged(tree: QuotaTree, usage: Mapping[QuotaName, Usage], rules: QuotaRules) -> Amounts:
    """Return what pods of a tree use that its root is not charged with."""
    foreign = collect_foreign(tree, usage, rules)
    if foreign is None:
        return NOTHING
    used = collect(tree, usage, lambda own: own.used)
    charged, _ = sum_charges(tree, used, foreign)
    uncharged = used.sum(axis=1) - charged[:, 0]
    return {
        key: amount for key, amount in zip(tree.keys, uncharged.tolist(), strict=True) if amount
    }
