"""What is short: the numbers behind a refusal, per cause, and per node when someone asks.

Counts as kube-scheduler counts: a node is reported under the first check that it fails, except that
every resource it lacks is named.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from koord.core.framework.arrays import HOSTNAME, Mask
from koord.core.framework.cycle import Cycle
from koord.core.framework.labels import is_tolerated
from koord.core.framework.reasons import InsufficientNodes, NodeRefusal, RefusedNodes
from koord.core.nodes import Node
from koord.core.plugins.node_diagnosis import NodeDiagnosis
from koord.core.pods import Pod, PodShape


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """One node's answer for one shape: pods that fit, or what stands against it.

    ``short`` holds (resource, asked, free) for every resource of which one pod asks too much.
    """

    node: str
    pods: int
    refusal: NodeRefusal | None
    detail: str
    short: tuple[tuple[str, int, int], ...]


def explain_shortage(snapshot: Cycle, want: int, fit: int, first: Pod) -> InsufficientNodes:
    """Say why ``first`` has no place on the snapshot as it is, and what would help."""
    shape = snapshot.shape_of(first)
    refused = count_refusals(snapshot, shape)
    resource, request = _scarcest(shape, refused)
    return InsufficientNodes(
        want=want,
        fit=fit,
        nodes=len(snapshot.table),
        refused=refused,
        first=first.key,
        resource=resource,
        request=request,
        more_nodes=_more_nodes(snapshot, shape, want - fit),
    )


def _more_nodes(snapshot: Cycle, shape: PodShape, missing: int) -> int | None:
    """Return how many more nodes would do; None if that depends on other pods or on volumes."""
    if not (shape.is_alone or _keeps_others_off_its_node_only(shape)):
        return None
    empty = snapshot.room_when_empty(shape)
    largest = int(empty.max(initial=0))
    if not shape.is_alone:
        largest = min(largest, 1)
    return -(-missing // largest) if largest else 0


def _keeps_others_off_its_node_only(shape: PodShape) -> bool:
    """Whether all that such pods ask is that there be one of them per node."""
    constraints = shape.constraints
    if constraints is None or constraints.affinity or constraints.spread or shape.volumes:
        return False
    return any(
        term.topology_key == HOSTNAME and term.pods in shape.sought_by
        for term in constraints.anti_affinity
    ) and all(term.topology_key == HOSTNAME for term in constraints.anti_affinity)


def count_refusals(snapshot: Cycle, shape: PodShape) -> tuple[RefusedNodes, ...]:
    """Count nodes by cause, most frequent first."""
    left = snapshot.table.is_live.copy()
    lacks = np.zeros_like(left)
    refused: list[RefusedNodes] = []
    for refusal, resource, passed in snapshot.checks(shape):
        if refusal is NodeRefusal.RESOURCE:
            failing = left & ~passed
            lacks |= failing
            if failing.any():
                refused.append(RefusedNodes(refusal, int(failing.sum()), resource))
            continue
        left &= ~lacks
        refused += _by_detail(snapshot, shape, refusal, left & ~passed)
        left &= passed
    return tuple(
        sorted(refused, key=lambda entry: (-entry.nodes, entry.refusal, entry.resource)),
    )


def offers(obstacles: NodeDiagnosis) -> list[NodeOffer]:
    """Return every node's answer for a pod, nodes in the order of names."""
    snapshot, shape = obstacles.snapshot, obstacles.shape
    room = snapshot.room(shape)
    checks = list(snapshot.checks(shape))
    answers = []
    for name, row in snapshot.table.live_rows():
        refusal = next((cause for cause, _, passed in checks if not passed[row]), None)
        detail = obstacles.describe(refusal, row)
        short = _short_at(snapshot, shape, row)
        answers.append(NodeOffer(name, int(room[row]), refusal, detail, short))
    return answers


def _by_detail(
    snapshot: Cycle,
    shape: PodShape,
    refusal: NodeRefusal,
    failing: Mask,
) -> list[RefusedNodes]:
    count = int(failing.sum())
    if not count:
        return []
    if refusal is not NodeRefusal.TAINT:
        return [RefusedNodes(refusal, count)]
    taints = Counter(
        _untolerated(snapshot.table.node_at(int(row)), shape) for row in np.flatnonzero(failing)
    )
    return [RefusedNodes(refusal, n, detail=taint) for taint, n in sorted(taints.items())]


def _untolerated(node: Node, shape: PodShape) -> str:
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, shape.tolerations):
            return f"{taint.key}: {taint.value}"
    return ""


def _short_at(snapshot: Cycle, shape: PodShape, row: int) -> tuple[tuple[str, int, int], ...]:
    vector = snapshot.vector(shape)
    free = snapshot.table.allocatable[:, row] - snapshot.used[:, row]
    return tuple(
        (name, amount, int(free[column]))
        for name, column, amount in zip(
            vector.resources,
            vector.columns,
            vector.amounts,
            strict=True,
        )
        if free[column] < amount
    )


def _scarcest(shape: PodShape, refused: tuple[RefusedNodes, ...]) -> tuple[str, int]:
    requests = dict(shape.requests)
    for entry in refused:
        if entry.refusal is NodeRefusal.RESOURCE:
            return entry.resource, requests.get(entry.resource, 0)
    return "", 0
