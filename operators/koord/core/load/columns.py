"""The columns of the node table that say what nodes use, and all that they are made of.

Shared by the plugin, which is told what changes, and the sessions, which ask. Decides nothing about
single pods.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from koord.caches import MIB, BoundedCache, size_of
from koord.core.engine.node_table import NodeTable
from koord.core.load.assigned import AssignedPods
from koord.core.load.causes import make_cause
from koord.core.load.estimate import estimate
from koord.core.load.model import NO_HINTS, LoadHints, PodLoad
from koord.core.load.numbers import Family, NodeNumbers
from koord.core.load.options import NO_OWN_LIMITS, LoadOptions, LoadThresholds, OwnLimits
from koord.core.load.plugin import Loads
from koord.core.load.usage import Counted, Vector, base_of, percent_of
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod, PodShape

_ESTIMATES: Final = 4 * MIB
"""Bytes."""
NEVER: Final = float("inf")


class LoadColumns:
    """What all nodes use, in columns that are made when they are first needed."""

    def __init__(
        self, options: LoadOptions, table: NodeTable, loads: Loads, *, compat: bool = False
    ) -> None:
        self.options = options
        self.table = table
        self.loads = loads
        self.dirty: set[str] = set()
        """Nodes whose columns are to be written."""
        self.moved: set[str] = set()
        """Nodes to which pods came, or which they left."""
        self._numbers: dict[str, NodeNumbers] = {}
        """Those that were written last."""
        self._seen: dict[str, Mapping[str, PodLoad]] = {}
        """The pods that the reports of nodes show, by node and key."""
        self.expired: dict[str, LoadThresholds] = {}
        """Nodes with an outdated report, and the thresholds that hold there."""
        self.fresh_until: dict[str, float] = {}
        """Node -> when its report is outdated, if it is not yet."""
        self.next_end = NEVER
        """None of them is outdated before."""
        self._compat = compat
        self._columns: dict[tuple[Family, int], int] = {}
        """Family and position of the resource -> column."""
        self._families: dict[Family, list[int]] = {}
        """Those in which something is used, by family."""
        self._limits: list[int] = []
        """Those of them that limit something."""
        self._own: dict[str, OwnLimits] = {}
        """What nodes say themselves; those that say nothing are not in it."""
        self._own_prod: set[str] = set()
        self._own_aggregated: set[str] = set()
        self._usual: BoundedCache[PodShape, Vector] = BoundedCache(_ESTIMATES)
        """Of pods that say nothing."""
        self._latest: tuple[PodShape | None, Vector] = None, ()
        """The last of these: equal pods come one after another."""
        self._estimates: BoundedCache[tuple[object, ...], Vector] = BoundedCache(_ESTIMATES)
        self.pods = AssignedPods(Counted(options.resources, has_prod=self._counts_prod))

    # --- which rules are in force ----------------------------------------------------------------

    @property
    def has_prod_limits(self) -> bool:
        """Whether thresholds for prod pods hold on any node."""
        return self.options.thresholds.has_prod or bool(self._own_prod)

    @property
    def is_mixed(self) -> bool:
        """Whether nodes without thresholds for prod pods may stand beside some that have them."""
        return bool(self._own) or not self.options.thresholds.has_prod

    @property
    def splits_score(self) -> bool:
        """Whether nodes are compared by other numbers than those that limit."""
        bases = {self.options.thresholds.general_basis, self.options.score_basis}
        return len(bases) > 1 or bool(self._own_aggregated)

    @property
    def limited(self) -> list[int]:
        """The positions of resources for which there may be thresholds."""
        all_thresholds = (self.options.thresholds, *(own.thresholds for own in self._own.values()))
        named = {key for limits in all_thresholds for key in (*limits.general, *limits.prod)}
        return [at for at, name in enumerate(self.options.resources) if name in named]

    @property
    def _counts_prod(self) -> bool:
        return self.has_prod_limits or self.options.scores_prod

    def note_own(self, name: str, own: OwnLimits) -> None:
        """Apply what a node says itself."""
        before = self._counts_prod
        if own == NO_OWN_LIMITS:
            self._own.pop(name, None)
        else:
            self._own[name] = own
        (self._own_prod.add if own.thresholds.has_prod else self._own_prod.discard)(name)
        is_aggregated = own.thresholds.is_aggregated
        (self._own_aggregated.add if is_aggregated else self._own_aggregated.discard)(name)
        if self._counts_prod != before:
            self.pods.count(Counted(self.options.resources, has_prod=self._counts_prod))
            self.dirty |= self.table.row_of.keys()

    def thresholds_of(self, node: str) -> LoadThresholds:
        own, general = self._own.get(node), self.options.thresholds
        return general if own is None else general.overridden_by(own.thresholds)

    def capacity_of(self, node: Node) -> Vector:
        """Return what a node has, as if its CPUs were not offered several times."""
        own = self._own.get(node.name, NO_OWN_LIMITS)
        amounts = {**node.allocatable, **dict(own.raw_allocatable)}
        return tuple(amounts.get(name, 0) for name in self.options.resources)

    # --- pods ------------------------------------------------------------------------------------

    def estimate_of(self, shape: PodShape, hints: LoadHints) -> Vector:
        """Return what a pod will probably use, for each resource that is looked at."""
        if hints is not NO_HINTS:
            return self._estimate(shape, hints)
        latest, vector = self._latest
        if shape is latest:
            return vector
        usual = self._usual.get(shape.spec)
        if usual is None:
            usual = self._usual.keep(shape.spec, self._estimate(shape, hints), shape.size)
        self._latest = shape, usual
        return usual

    def add_placed(self, nodes: dict[str, str], pods: Sequence[Pod], now: float) -> None:
        """Count pods that say nothing of their load, by uid: each adds its estimate everywhere.

        Nodes whose reports show pods of their names already are written as a whole.
        """
        estimates = [self.estimate_of(pod.shape, NO_HINTS) for pod in pods]
        self.pods.add_placed(nodes, pods, estimates, now)
        self.moved |= {
            node
            for pod, node in zip(pods, nodes.values(), strict=True)
            if (seen := self._seen.get(node)) and pod.key in seen
        }
        row_of = self.table.row_of
        rows = np.array([row_of.get(node, -1) for node in nodes.values()])
        is_known = rows >= 0
        vectors = np.array(estimates, dtype=np.int64)[is_known].T
        for columns in self._families.values():
            for column, amounts in zip(columns, vectors, strict=True):
                np.add.at(self.table.used[column], rows[is_known], amounts)

    def requested_of(self, shape: PodShape, hints: LoadHints) -> Vector:
        """Return the estimate by the requests of a pod alone; () where its limits add nothing."""
        if self._compat or not hints.limits:
            return ()
        return self._estimate(shape, replace(hints, limits=()))

    def _estimate(self, shape: PodShape, hints: LoadHints) -> Vector:
        custom = hints.factors if self.options.is_customizable else ()
        key = (shape.requests, hints.limits, hints.koordinator_class, custom)
        vector = self._estimates.get(key)
        if vector is None:
            counted = LoadHints(hints.koordinator_class, hints.limits, custom)
            amounts = estimate(
                dict(shape.requests), counted, self.options.factors, compat=self._compat
            )
            vector = tuple(amounts.get(name, 0) for name in self.options.resources)
            self._estimates.keep(key, vector, 2 * size_of(key))
        return vector

    def freed_by(self, uid: str, node: str, family: Family) -> Vector:
        """Return by how much less a column shows at once when a pod of a node goes."""
        numbers, pods = self.numbers_of(node), self.pods.on(node)
        share = pods.share(uid)
        if family is Family.PROD_SCORE or (family is Family.PROD and numbers.thresholds.has_prod):
            return (0,) * len(self.options.resources) if share is None else share.prod
        if base_of(numbers.report, numbers.basis_of(family), self.options.resources) is None:
            return pods.pods[uid].estimate
        return (0,) * len(self.options.resources) if share is None else share.node

    # --- columns ---------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether there are columns; without any node there are none."""
        return bool(self._columns)

    def column(self, family: Family, at: int) -> int:
        """Return the column of a resource, by its position."""
        return self._columns[family, at]

    def update(self, now: float) -> None:
        """Add the columns that are needed by now, and write those of all nodes that changed."""
        for family in self._wanted():
            if (family, 0) not in self._columns:
                self._add(family)
        while self.dirty:
            self.write(self.dirty.pop(), now)
        self._write_used(self.moved)
        self.moved.clear()

    def _wanted(self) -> Iterator[Family]:
        yield Family.GENERAL
        if self.has_prod_limits:
            yield Family.PROD
        if self.options.scores or self.options.relieves:
            yield Family.CAPACITY
        if self.options.scores and self.splits_score:
            yield Family.SCORE
        if self.options.scores_prod:
            yield Family.PROD_SCORE

    def _add(self, family: Family) -> None:
        is_aggregated = family is Family.GENERAL and self.options.thresholds.is_aggregated
        for at, resource in enumerate(self.options.resources):
            cause = make_cause(resource, at, is_aggregated=is_aggregated)
            column = self._columns[family, at] = self.table.add_column(cause)
            if family is not Family.CAPACITY:
                self._families.setdefault(family, []).append(column)
            if family in {Family.GENERAL, Family.PROD}:
                self._limits.append(column)
        self.dirty |= self.table.row_of.keys()

    def free_on(self, row: int) -> list[int]:
        """Return how much of each limit is left on a row."""
        allocatable, used = self.table.allocatable[:, row], self.table.used[:, row]
        return [int(allocatable[column] - used[column]) for column in self._limits]

    def numbers_of(self, node: str, now: float = 0.0) -> NodeNumbers:
        report = self.loads.of(node)
        return NodeNumbers(
            self.options,
            self.thresholds_of(node),
            self.capacity_of(self.table.node_at(self.table.row_of[node])),
            report,
            self.pods.on(node),
            report is not None and report.is_outdated(now, self.options.expiration),
        )

    def write(self, node: str, now: float) -> None:
        """Write all columns of a node."""
        row = self.table.row_of.get(node)
        if row is None:
            return
        numbers = self._numbers[node] = self.numbers_of(node, now)
        self._seen[node] = numbers.report.pods if numbers.report is not None else {}
        for (family, at), column in self._columns.items():
            self.table.allocatable[column, row] = numbers.limit(family, at)
        self._write_used((node,))
        self.moved.discard(node)
        self.expired.pop(node, None)
        self.fresh_until.pop(node, None)
        if numbers.is_expired:
            self.expired[node] = numbers.thresholds
        elif numbers.report is not None:
            end = self.fresh_until[node] = numbers.report.updated + self.options.expiration
            self.next_end = min(self.next_end, end)

    def _write_used(self, nodes: Iterable[str]) -> None:
        """Write what is used of nodes, in one go."""
        row_of, pods = self.table.row_of, self.pods
        counted_nodes = [node for node in nodes if node in self._numbers and node in row_of]
        rows = [row_of[node] for node in counted_nodes]
        numbers = [self._numbers[node] for node in counted_nodes]
        for node, of_node in zip(counted_nodes, numbers, strict=True):
            of_node.pods = pods.on(node)
        for family, columns in self._families.items() if rows else ():
            used = [of_node.used(family) for of_node in numbers]
            self.table.used[np.ix_(columns, rows)] = np.array(used, dtype=np.int64).T

    def forget(self, node: str) -> None:
        """Drop what is kept of a node that is gone, but for its pods."""
        self.note_own(node, NO_OWN_LIMITS)
        self.dirty.discard(node)
        self._numbers.pop(node, None)
        self._seen.pop(node, None)
        self.fresh_until.pop(node, None)
        self.expired.pop(node, None)

    # --- texts -----------------------------------------------------------------------------------

    def describe_age(self, node: str, now: float) -> str:
        """Return how old the report about a node is, for people."""
        report = self.loads.of(node)
        if report is None or not report.updated:
            return "no time in the report"
        return f"{report.source} is {int(now - report.updated)} s old"

    def describe(self, node: Node, family: Family, at: int, used: int) -> str:
        """Return what is used of a resource with one more pod, and what may be, for people."""
        numbers = self.numbers_of(node.name)
        is_prod = family is Family.PROD and numbers.thresholds.has_prod
        limits = numbers.thresholds.prod if is_prod else numbers.thresholds.general
        name = self.options.resources[at]
        if numbers.report is None or not numbers.capacity[at]:
            return ""
        percent, basis = percent_of(used, numbers.capacity[at]), numbers.thresholds.general_basis
        if is_prod:
            what = "prod pods"
        elif basis.aggregation is None:
            what = f"{_minutes(numbers.report.window)} average"
        else:
            what = f"{_minutes(basis.seconds) or 'longest'} {basis.aggregation}"
        return f"above {limits.get(name, 0)} % {name}: {percent} % with this pod, {what}"


def _minutes(seconds: float) -> str:
    if not seconds:
        return ""
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
