"""Counts the nodes that refuse a pod, per cause.

Counts as kube-scheduler does: a node is counted under the first check that it fails, and under each
resource that it lacks. And once each, without the nodes of the pods that fit: for people.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cause import RESOURCE, Cause
from koord.core.engine.cycle import Cycle
from koord.core.engine.node_table import NodeTable
from koord.core.engine.reasons import CauseCount, Elsewhere, InsufficientNodes, NoSuitableNode
from koord.core.model.pods import Pod, PodShape

_MOST_SHORT: Final = 16
"""Nodes that lack the scarcest resource and are named in a reason."""
_Check = tuple[Cause, str, Mask]


def explain_shortage(
    cycle: Cycle, want: int, first: Pod, placed: Sequence[str] = (), *, fit: int | None = None
) -> InsufficientNodes:
    """Return why ``first`` does not fit in the current cycle.

    ``placed`` are the nodes of the pods that fit, if the cycle has them; ``fit`` their number.
    """
    fit = len(placed) if fit is None else fit
    shape = cycle.shape_of(first)
    checks = cycle.checks(shape)
    refused = _count_causes(cycle, shape, checks)
    resource, request = _scarcest(shape, refused)
    suits_none = _suits_no_node(cycle, shape, checks)
    is_kept_out = any(entry.cause.keeps_out for entry in refused)
    more_nodes = 0 if suits_none else None if is_kept_out else _more_nodes(cycle, shape, want - fit)
    new_nodes = cycle.new_nodes(shape) if suits_none else None
    waits_for_nodes = not len(cycle.table) or (new_nodes is not None and new_nodes.may_hold)
    kind = NoSuitableNode if suits_none and not waits_for_nodes else InsufficientNodes
    return kind(
        want=want,
        fit=fit,
        nodes=len(cycle.table),
        refused=refused,
        first=first.key,
        resource=resource,
        request=request,
        more_nodes=more_nodes,
        elsewhere=_look_elsewhere(cycle, shape, checks, resource, placed),
        context=new_nodes,
    )


def _suits_no_node(cycle: Cycle, shape: PodShape, checks: Iterable[_Check]) -> bool:
    """Whether no node would take such a pod, even if it was empty and open to all."""
    table = cycle.table
    suits = table.is_live.copy()
    for cause, _, passed in checks:
        if cause.is_lasting:
            suits &= passed
    for _, column, amount in cycle.vector(shape).items():
        suits &= table.allocatable[column] >= amount
    return not suits.any()


def _more_nodes(cycle: Cycle, shape: PodShape, missing: int) -> int | None:
    """Return how many more nodes would be enough; None if that depends on other pods."""
    empty = cycle.room_when_empty(shape)
    if empty is None:
        return None
    largest = int(empty.max(initial=0))
    return -(-missing // largest) if largest else 0


def count_causes(cycle: Cycle, shape: PodShape) -> tuple[CauseCount, ...]:
    """Count nodes by cause, most frequent first."""
    return _count_causes(cycle, shape, cycle.checks(shape))


def _count_causes(
    cycle: Cycle, shape: PodShape, checks: Iterable[_Check]
) -> tuple[CauseCount, ...]:
    left = cycle.table.is_live.copy()
    lacks = np.zeros_like(left)
    refused: list[CauseCount] = []
    for cause, resource, passed in checks:
        if cause is RESOURCE:
            failing = left & ~passed
            lacks |= failing
            if failing.any():
                refused.append(CauseCount(cause, int(failing.sum()), resource))
            continue
        left &= ~lacks
        refused += _by_detail(cycle, shape, cause, left & ~passed)
        left &= passed
    return tuple(
        sorted(refused, key=lambda entry: (-entry.nodes, entry.cause, entry.resource)),
    )


def _look_elsewhere(
    cycle: Cycle, shape: PodShape, checks: Iterable[_Check], scarcest: str, placed: Iterable[str]
) -> Elsewhere:
    """Count the nodes other than those of the ``placed`` pods, each under one cause."""
    table = cycle.table
    left = table.is_live.copy()
    left[[table.row_of[node] for node in set(placed)]] = False
    nodes, short = int(left.sum()), np.empty(0, dtype=np.int64)
    held = short
    refused: list[CauseCount] = []
    for cause, resource, passed in sorted(
        checks, key=lambda check: (check[0].rank, check[1] != scarcest)
    ):
        failing = left & ~passed
        if cause is not RESOURCE:
            refused += _by_detail(cycle, shape, cause, failing)
            if cause.is_held and not held.size:
                held = np.flatnonzero(failing)
        elif failing.any():
            refused.append(CauseCount(cause, int(failing.sum()), resource))
            if resource == scarcest:
                short = np.flatnonzero(failing)
        left &= passed
    return Elsewhere(nodes, tuple(refused), _name(table, short), held=_name(table, held))


def _name(table: NodeTable, rows: Ints) -> tuple[str, ...]:
    first = rows[np.argsort(table.name_rank[rows])[:_MOST_SHORT]]
    return tuple(table.node_at(int(row)).name for row in first)


def _by_detail(cycle: Cycle, shape: PodShape, cause: Cause, failing: Mask) -> list[CauseCount]:
    count = int(failing.sum())
    if not count:
        return []
    if not cause.by_detail:
        return [CauseCount(cause, count)]
    details = Counter(cycle.detail(cause, shape, int(row)) for row in np.flatnonzero(failing))
    return [CauseCount(cause, nodes, detail=name) for name, nodes in sorted(details.items())]


def _scarcest(shape: PodShape, refused: tuple[CauseCount, ...]) -> tuple[str, int]:
    requests = dict(shape.requests)
    for entry in refused:
        if entry.cause is RESOURCE:
            return entry.resource, requests.get(entry.resource, 0)
    return "", 0
