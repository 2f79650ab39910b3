"""What the trees of quotas have to share out: summed node by node, over the pods that are counted.

A node that takes pods is worth what it offers, and no node is worth less than what counted pods use
of it. So what runs beyond a node's offer (its device failed, it was cordoned, it is in the pool of
another tree, it was deleted) is in the sum of supply as it is in the sum of use, and is missing
nowhere else. Both sums are of the same pods: those of the ``UsageTracker``. Nothing depends on what
was there before, so a restart changes nothing.

Where Koordinator's rules are in force, the capacity is that of ``tree_totals`` instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from koord.core.model.nodes import Node
from koord.core.model.selectors import LabelSelector, is_selected
from koord.core.model.units import Amounts
from koord.core.quota.model import (
    DEFAULT_TREE,
    NOTHING,
    QuotaName,
    QuotaSpec,
    TreeId,
    add_up,
    is_apart,
    is_closed,
    subtract,
)
from koord.core.quota.usage import UsageTracker


class _Sum(StrEnum):
    """What is added up over nodes, for each tree."""

    WORTH = "worth"
    """Of the default tree: what its open nodes offer to it."""
    OFFER = "offer"
    """Of a pool: what its open nodes offer."""
    OTHERS = "others"
    """Of a pool: what pods outside all quotas use there."""
    GUESTS = "guests"
    """Of a pool: what pods of the default tree use there."""
    BEYOND = "beyond"
    """Of a tree: what its pods use beyond what its nodes offer, and elsewhere."""
    NAMED = "named"
    """How many nodes name a resource."""


_OUTSIDE: Final = "\0"
"""Stands for the tree of pods in no quota in force; no tree is called that."""

NO_TREES: Final[Mapping[TreeId, Amounts]] = MappingProxyType({})

_Key: TypeAlias = tuple[_Sum, TreeId]
_Sums: TypeAlias = dict[_Key, dict[str, int]]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which tree a quota is in, and which nodes are whose; pods of no quota here are outside."""

    counted: Mapping[QuotaName, tuple[TreeId, frozenset[str]]] = field(default_factory=dict)
    """Quota -> its tree, and the resources of which its use counts."""
    selectors: Mapping[TreeId, tuple[LabelSelector, ...]] = field(default_factory=dict)
    """Tree -> the nodes that its pods may go to, of trees that have any."""
    apart: tuple[TreeId, ...] = ()
    """Those whose nodes are not the default tree's, sorted."""

    def has_same_nodes(self, other: "_Layout") -> bool:
        """Whether each node is for the same trees as there."""
        return (self.selectors, self.apart) == (other.selectors, other.apart)

    def find_moved(self, before: "_Layout") -> set[QuotaName]:
        """Return the quotas whose use counts otherwise than before."""
        names = () if self is before else self.counted.keys() | before.counted.keys()
        return {name for name in names if self.counted.get(name) != before.counted.get(name)}

    def is_in(self, node: Node, tree: TreeId) -> bool:
        return any(is_selected(node.labels, selector) for selector in self.selectors[tree])

    def pool_of(self, node: Node) -> TreeId:
        """Return the tree that a node is taken for; empty for the default tree."""
        return next((tree for tree in self.apart if self.is_in(node, tree)), DEFAULT_TREE)


def _lay_out(specs: Mapping[QuotaName, QuotaSpec]) -> _Layout:
    selectors: dict[TreeId, tuple[LabelSelector, ...]] = {}
    for spec in specs.values():
        if spec.tree_id != DEFAULT_TREE and spec.is_tree_root and spec.selector:
            selectors[spec.tree_id] = (*selectors.get(spec.tree_id, ()), spec.selector)
    return _Layout(
        {name: (spec.tree_id, frozenset(spec.max)) for name, spec in specs.items()},
        selectors,
        tuple(sorted({spec.tree_id for spec in specs.values() if is_apart(spec)})),
    )


class Supply:
    """The supply of every tree; only nodes whose offer or use has changed are looked at again."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._specs: Mapping[QuotaName, QuotaSpec] = {}
        """Those that the layout was made of."""
        self._layout = _Layout()
        self._parts: dict[str, _Sums] = {}
        """Node -> what it adds to each sum."""
        self._sums: _Sums = {}
        self._stale: set[str] = set()
        self._use: UsageTracker | None = None

    def upsert_node(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._stale.add(node.name)

    def remove_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._stale.add(name)

    def totals(
        self,
        use: UsageTracker,
        specs: Mapping[QuotaName, QuotaSpec],
        uncharged: Mapping[TreeId, Amounts] = NO_TREES,
    ) -> dict[TreeId, dict[str, int]]:
        """Return what each tree has to share out.

        What its pods use and its root is not charged with (``uncharged``) adds nothing to it.
        """
        self._update(use, specs)
        roots = [
            spec for spec in specs.values() if spec.tree_id != DEFAULT_TREE and spec.is_tree_root
        ]
        default = self._default_total(roots, uncharged.get(DEFAULT_TREE, NOTHING))
        totals: dict[TreeId, dict[str, int]] = {DEFAULT_TREE: default}
        for spec in roots:
            totals[spec.tree_id] = add_up((totals.get(spec.tree_id, {}), spec.total))
        for tree in totals.keys() - {DEFAULT_TREE}:
            beyond = self._beyond(tree, uncharged.get(tree, NOTHING))
            totals[tree] = {
                key: amount + beyond.get(key, 0) for key, amount in totals[tree].items()
            }
        return totals

    def _default_total(self, roots: Iterable[QuotaSpec], uncharged: Amounts) -> dict[str, int]:
        taken: dict[TreeId, dict[str, int]] = {}
        for spec in roots:
            if not spec.ignores_default_tree:
                part = subtract(spec.total, spec.unschedulable)
                taken[spec.tree_id] = add_up((taken.get(spec.tree_id, {}), part))
        offered = [key for key, count in self._sum(_Sum.NAMED, DEFAULT_TREE).items() if count]
        total = add_up((dict.fromkeys(offered, 0), self._sum(_Sum.WORTH, DEFAULT_TREE)))
        guests = []
        for tree, part in sorted(taken.items()):
            if tree in self._layout.apart:
                left = self._left_of(tree, part)
                guests.append(_most(subtract(self._sum(_Sum.GUESTS, tree), left)))
                total = add_up((total, left))
            else:
                total = subtract(total, part)
        total = add_up((total, self._beyond(DEFAULT_TREE, uncharged, *guests)))
        # A resource that no node offers is not divided, whatever is used of it.
        return {key: total[key] for key in offered}

    def _left_of(self, pool: TreeId, taken: Amounts) -> dict[str, int]:
        """Return what a pool leaves to the default tree, whose pods may use more of it."""
        return _most(subtract(self._sum(_Sum.OFFER, pool), taken, self._sum(_Sum.OTHERS, pool)))

    def _beyond(self, tree: TreeId, uncharged: Amounts, *more: Amounts) -> dict[str, int]:
        """Return what a tree has only because its pods use it."""
        return _most(subtract(add_up((self._sum(_Sum.BEYOND, tree), *more)), uncharged))

    def _sum(self, what: _Sum, tree: TreeId) -> Amounts:
        return self._sums.get((what, tree), NOTHING)

    def _update(self, use: UsageTracker, specs: Mapping[QuotaName, QuotaSpec]) -> None:
        before = self._layout
        if specs != self._specs:
            self._specs, self._layout = dict(specs), _lay_out(specs)
        if use is not self._use or not self._layout.has_same_nodes(before):
            self._parts, self._sums = {}, {}
            self._stale = {*self._nodes, *use.nodes()}
        elif moved := self._layout.find_moved(before):
            self._stale |= use.nodes_of(moved)
        # Should anything fail below, all is added up again next time.
        self._use = None
        stale, self._stale = self._stale | use.take_touched(), set()
        for name in stale:
            self._add(self._parts.pop(name, {}), -1)
            part = self._part_of(name, use)
            if any(part.values()):  # of a node that is gone, and that no pod uses, nothing is kept
                self._parts[name] = part
                self._add(part, 1)
        self._use = use

    def _add(self, part: _Sums, sign: int) -> None:
        for which, amounts in part.items():
            total = self._sums.setdefault(which, {})
            for key, amount in amounts.items():
                total[key] = total.get(key, 0) + sign * amount

    def _part_of(self, name: str, use: UsageTracker) -> _Sums:
        """Return what a node, or what pods still use of one that is gone, adds to each sum."""
        node, layout = self._nodes.get(name), self._layout
        use_by_tree = self._use_by_tree(use.on_node(name))
        outside = use_by_tree.pop(_OUTSIDE, {})
        own = add_up(
            use_by_tree[tree] for tree in sorted(use_by_tree) if tree not in layout.selectors
        )
        away = {tree: used for tree, used in use_by_tree.items() if tree in layout.selectors}
        part: _Sums = {}
        if node is not None:
            part[_Sum.NAMED, DEFAULT_TREE] = dict.fromkeys(node.allocatable, 1)
        if node is None or node.is_terminating:
            node = Node(name, is_unschedulable=True)
        pool, offer = layout.pool_of(node), NOTHING if is_closed(node) else node.allocatable
        if pool == DEFAULT_TREE:
            strangers = [used for tree, used in sorted(away.items()) if tree in layout.apart]
            worth = _most(subtract(offer, outside, *strangers))
            part[_Sum.WORTH, DEFAULT_TREE] = worth
            part[_Sum.BEYOND, DEFAULT_TREE] = _most(subtract(own, worth))
        else:
            part[_Sum.OFFER, pool] = dict(offer)
            part[_Sum.OTHERS, pool] = {key: min(n, offer.get(key, 0)) for key, n in outside.items()}
            part[_Sum.GUESTS, pool] = own
        for tree, used in away.items():
            offered = node.allocatable if layout.is_in(node, tree) else NOTHING
            part[_Sum.BEYOND, tree] = _most(subtract(used, offered))
        return part

    def _use_by_tree(self, used: Mapping[QuotaName, Amounts]) -> dict[str, dict[str, int]]:
        """Return what pods use on a node, by their tree, of resources of which use counts."""
        amounts_by_tree: dict[str, list[Amounts]] = {}
        for quota, amounts in used.items():
            tree, named = self._layout.counted.get(quota, (_OUTSIDE, amounts.keys()))
            counted = {key: amount for key, amount in amounts.items() if key in named}
            amounts_by_tree.setdefault(tree, []).append(counted)
        return {tree: add_up(several) for tree, several in amounts_by_tree.items()}


def _most(*amounts: Amounts) -> dict[str, int]:
    """Return the largest amount of each resource, and at least nothing."""
    keys = {key for amount in amounts for key in amount}
    return {key: max(0, *(amount.get(key, 0) for amount in amounts)) for key in sorted(keys)}
