"""Random trees of quotas over what the nodes of a world have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.builders import GPU, make_quota, select_labels

from koord.core.quota.model import ROOT, QuotaSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from koord.core.model.nodes import Node
    from koord.core.model.units import Amounts

KEYS = ("cpu", GPU)


@dataclass
class Quotas:
    """Quotas, and what they are good for."""

    specs: list[QuotaSpec] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    features: dict[str, set[str]] = field(default_factory=dict)
    """Leaf -> what is worth counting about it."""

    def add(self, spec: QuotaSpec, *features: str, is_leaf: bool = True) -> None:
        """Add a quota below those that are there."""
        self.specs.append(spec)
        if is_leaf:
            self.leaves.append(spec.name)
        self.features[spec.name] = {one for one in features if one}


class TreeMaker:
    """Makes one tree of quotas."""

    def __init__(self, made: Quotas, dice: Random, tree: str, feature: str) -> None:
        self.made = made
        self.dice = dice
        self.tree = tree
        self.feature = feature

    def add_level(self, parent: str, budget: Amounts, most: Amounts, depth: int) -> None:
        """Add the children of a quota, which together guarantee no more than ``budget``."""
        dice, count = self.dice, self.dice.randint(1, 3)
        prefix = "team" if parent == ROOT else parent
        for at in range(count):
            part = dice.choice((0, 0, 40, 80, 100)) if count > 1 else dice.choice((0, 50, 100))
            guaranteed = {key: budget[key] * part // (100 * count) for key in KEYS}
            size = dice.choice((100, 100, 100, 60, 30))
            limit = {key: max(guaranteed[key], most[key] * size // 100) for key in KEYS}
            spec = make_quota(f"{prefix}-{at}", "q", parent=parent, min=guaranteed, max=limit)
            if depth == 1:
                self._add(self._finish_leaf(spec))
                continue
            self._add(self._finish(replace(spec, is_parent=True)))
            self.add_level(spec.name, guaranteed, dice.choice((limit, most)), depth - 1)

    def _finish(self, spec: QuotaSpec) -> QuotaSpec:
        """Say how a quota shares what there is."""
        dice = self.dice
        weight = {key: dice.randint(1, 5) for key in KEYS} if dice.random() < 0.35 else None
        lends = dice.random() < 0.75
        return replace(spec, weight=weight, lends=lends, tree_id=self.tree)

    def _finish_leaf(self, spec: QuotaSpec) -> QuotaSpec:
        """Say what goes for quotas with pods only."""
        dice = self.dice
        is_limited = dice.random() < 0.12
        keys = dice.choice((KEYS, KEYS, KEYS, (GPU,)))
        leaf = replace(
            spec,
            min={key: spec.min[key] for key in keys},
            max={key: spec.max[key] for key in keys},
            admission={key: spec.max[key] // 3 for key in KEYS} if is_limited else None,
            namespaces=("lab",) if spec.name == "team-0" else (),
        )
        return self._finish(leaf)

    def _add(self, spec: QuotaSpec) -> None:
        lends = "" if spec.lends else "quota that does not lend"
        weight = "quota with weight" if spec.weight else ""
        submits = "limited submission" if spec.admission else ""
        self.made.add(spec, self.feature, lends, weight, submits, is_leaf=not spec.is_parent)


def make_quotas(dice: Random, nodes: list[Node]) -> Quotas:
    """Make no quotas, one tree of one to three levels, or trees with nodes of their own."""
    made, kind = Quotas(), dice.random()
    if kind < 0.42:
        return made
    whole = capacity_of(nodes)
    if kind > 0.88:
        for tree in "ab":
            add_pool(made, dice, tree, nodes)
        return made
    depth = dice.choice((1, 1, 2, 2, 3))
    maker = TreeMaker(made, dice, "", f"quotas of {depth} level{'s' * (depth > 1)}")
    maker.add_level(ROOT, whole, whole, depth)
    if dice.random() < 0.25:
        made.add(make_quota("broken", "q", parent="gone", max=whole), "quota not in force")
    return made


def add_pool(made: Quotas, dice: Random, tree: str, nodes: list[Node]) -> None:
    """Add a tree whose pods go to the nodes of one pool."""
    whole = capacity_of(nodes)
    pool = capacity_of(one for one in nodes if one.labels.get("pool") == tree)
    root = make_quota(
        f"root-{tree}",
        "q",
        is_parent=True,
        tree_id=tree,
        is_tree_root=True,
        min=pool,
        max=whole,
        total=pool,
        selector=select_labels(pool=tree),
    )
    made.add(root, is_leaf=False)
    maker = TreeMaker(made, dice, tree, "quota tree with nodes")
    maker.add_level(root.name, pool, whole, dice.choice((1, 2)))


def capacity_of(nodes: Iterable[Node]) -> dict[str, int]:
    """Return what nodes have together."""
    sizes = [node.allocatable for node in nodes]
    return {key: sum(size.get(key, 0) for size in sizes) for key in KEYS}
