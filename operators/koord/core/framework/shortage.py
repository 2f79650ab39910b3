"""Counts the nodes that refuse a pod, per cause.

Counts as kube-scheduler does: a node is counted under the first check that it fails, and under each
resource that it lacks.
"""

from collections import Counter

import numpy as np

from koord.core.framework.arrays import Mask
from koord.core.framework.cause import RESOURCE, Cause
from koord.core.framework.cycle import Cycle
from koord.core.framework.reasons import InsufficientNodes, RefusedNodes
from koord.core.pods import Pod, PodShape


def explain_shortage(cycle: Cycle, want: int, fit: int, first: Pod) -> InsufficientNodes:
    """Return why ``first`` does not fit in the current cycle."""
    shape = cycle.shape_of(first)
    refused = count_refusals(cycle, shape)
    resource, request = _scarcest(shape, refused)
    return InsufficientNodes(
        want=want,
        fit=fit,
        nodes=len(cycle.table),
        refused=refused,
        first=first.key,
        resource=resource,
        request=request,
        more_nodes=_more_nodes(cycle, shape, want - fit),
    )


def _more_nodes(cycle: Cycle, shape: PodShape, missing: int) -> int | None:
    """Return how many more nodes would be enough; None if that depends on other pods."""
    empty = cycle.room_when_empty(shape)
    if empty is None:
        return None
    largest = int(empty.max(initial=0))
    return -(-missing // largest) if largest else 0


def count_refusals(cycle: Cycle, shape: PodShape) -> tuple[RefusedNodes, ...]:
    """Count nodes by cause, most frequent first."""
    left = cycle.table.is_live.copy()
    lacks = np.zeros_like(left)
    refused: list[RefusedNodes] = []
    for cause, resource, passed in cycle.checks(shape):
        if cause is RESOURCE:
            failing = left & ~passed
            lacks |= failing
            if failing.any():
                refused.append(RefusedNodes(cause, int(failing.sum()), resource))
            continue
        left &= ~lacks
        refused += _by_detail(cycle, shape, cause, left & ~passed)
        left &= passed
    return tuple(
        sorted(refused, key=lambda entry: (-entry.nodes, entry.refusal, entry.resource)),
    )


def _by_detail(cycle: Cycle, shape: PodShape, cause: Cause, failing: Mask) -> list[RefusedNodes]:
    count = int(failing.sum())
    if not count:
        return []
    if not cause.by_detail:
        return [RefusedNodes(cause, count)]
    details = Counter(cycle.detail(cause, shape, int(row)) for row in np.flatnonzero(failing))
    return [RefusedNodes(cause, nodes, detail=one) for one, nodes in sorted(details.items())]


def _scarcest(shape: PodShape, refused: tuple[RefusedNodes, ...]) -> tuple[str, int]:
    requests = dict(shape.requests)
    for entry in refused:
        if entry.refusal is RESOURCE:
            return entry.resource, requests.get(entry.resource, 0)
    return "", 0
