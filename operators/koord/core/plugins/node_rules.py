"""Rules about nodes alone: cordons, taints, node selector and node affinity.

Source: kube-scheduler's plugins NodeUnschedulable, TaintToleration and NodeAffinity. Results are
cached until labels or taints of a node change.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np
from typing_extensions import override

from koord.caches import EXPANSION, MIB, BoundedCache
from koord.core.engine.arrays import NO_LIMIT, Ints, Mask, Rows
from koord.core.engine.cause import Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.labels import LabelColumns, is_tolerated
from koord.core.engine.node_table import NodeTable
from koord.core.engine.plugin import FilterReach, Plugin, Scale, Score, Session
from koord.core.model.nodes import Node
from koord.core.model.pods import PodShape
from koord.core.plugins.causes import NodeCause

TAINT_WEIGHT: Final = 3
NODE_WEIGHT: Final = 2
"""kube-scheduler's default weights; the score of resources weighs 1."""
_Limits: TypeAlias = tuple[tuple[Cause, Ints], ...]


def _make_cache() -> BoundedCache[PodShape, _Limits]:
    return BoundedCache(16 * MIB)


class NodeRules(Plugin):
    """Caches the limits of each pod spec for one epoch of the node table."""

    name = "node-rules"

    def __init__(self) -> None:
        self._epoch = -1
        self._limits = _make_cache()

    @override
    def open(self, cycle: Cycle) -> "NodeRulesSession":
        return NodeRulesSession(self, cycle.table)

    def limits(self, table: NodeTable, shape: PodShape) -> _Limits:
        """Return the limits of each check that some node fails."""
        if self._epoch != table.epoch:
            self._epoch, self._limits = table.epoch, _make_cache()
        spec = shape.spec
        limits = self._limits.get(spec)
        if limits is None:
            limits = tuple(
                (cause, np.where(rows, NO_LIMIT, 0))
                for cause, rows in check_node_rules(table.labels, spec)
                if not rows[table.is_live].all()
            )
            arrays = sum(limit.nbytes for _, limit in limits)
            self._limits.keep(spec, limits, arrays + EXPANSION * spec.size)
        return limits


class NodeRulesSession(Session):
    """The rules in one cycle."""

    name = NodeRules.name
    reach = FilterReach.NOTHING

    def __init__(self, plugin: NodeRules, table: NodeTable) -> None:
        self._plugin = plugin
        self._table = table

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        for cause, limits in self._plugin.limits(self._table, shape):
            yield cause, limits[rows]

    @override
    def most_when_empty(self, shape: PodShape) -> Ints | int:
        limits = self._plugin.limits(self._table, shape)
        return np.minimum.reduce([limit for _, limit in limits]) if limits else NO_LIMIT

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        taints = untolerated_taints(self._table.node_at(row), shape)
        return next(taints, "") if cause is NodeCause.TAINT else ""

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        labels = self._table.labels
        untolerated = labels.discouraging_taints(shape.tolerations)
        if untolerated is not None:
            yield Score(untolerated[rows], TAINT_WEIGHT, Scale.BY_MAX_REVERSED)
        if shape.preferences:
            yield Score(labels.preferred(shape.preferences)[rows], NODE_WEIGHT, Scale.BY_MAX)


def check_node_rules(labels: LabelColumns, shape: PodShape) -> Iterable[tuple[Cause, Mask]]:
    """Yield the checks in order, each with the rows that pass."""
    is_open, is_tolerating, is_selected = labels.check(shape)
    yield NodeCause.UNSCHEDULABLE, is_open
    yield NodeCause.TAINT, is_tolerating
    yield NodeCause.SELECTOR, is_selected


def untolerated_taints(node: Node, shape: PodShape) -> Iterator[str]:
    """Yield the taints that pods of a shape do not tolerate, as ``key: value``."""
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, shape.tolerations):
            yield f"{taint.key}: {taint.value}"
