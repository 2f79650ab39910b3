"""Finds nodes that have room for a pod and that one cause keeps away from it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from koord.core.framework.arrays import Mask
from koord.core.framework.cause import Cause
from koord.core.framework.cycle import Cycle
from koord.core.framework.labels import is_tolerated
from koord.core.framework.reasons import Closed
from koord.core.nodes import Node, Taint
from koord.core.plugins.causes import NodeRefusal
from koord.core.pods import PodShape

_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


def find_closed(snapshot: Cycle, shape: PodShape) -> tuple[Closed, ...]:
    """Find nodes that would take a pod of a shape but for one thing, the largest group first."""
    failing = [(refusal, ~passed) for refusal, _, passed in snapshot.checks(shape)]
    _count_cordon_once(failing, snapshot, shape)
    is_near = snapshot.table.is_live & (np.sum([rows for _, rows in failing], axis=0) == 1)
    found: dict[tuple[Cause, str], list[str]] = defaultdict(list)
    for refusal, rows in failing:
        if refusal is NodeRefusal.RESOURCE:
            continue
        for row in np.flatnonzero(rows & is_near):
            node = snapshot.table.node_at(int(row))
            taints = _untolerated(node, shape) if refusal is NodeRefusal.TAINT else ()
            detail = " ".join(f"{{{taint.key}: {taint.value}}}" for taint in taints)
            found[refusal, detail].append(node.name)
    closed = (Closed(*cause, tuple(sorted(nodes))) for cause, nodes in found.items())
    return tuple(sorted(closed, key=lambda one: (-len(one.nodes), one.refusal, one.detail)))


def _count_cordon_once(
    failing: Sequence[tuple[Cause, Mask]], snapshot: Cycle, shape: PodShape
) -> None:
    """Cordoning also taints: take a taint that goes with uncordoning for no cause of its own."""
    masks = dict(failing)
    cordoned = masks.get(NodeRefusal.UNSCHEDULABLE)
    tainted = masks.get(NodeRefusal.TAINT)
    if cordoned is None or tainted is None:
        return
    for row in np.flatnonzero(cordoned & tainted):
        node = snapshot.table.node_at(int(row)) if snapshot.table.is_live[row] else None
        if node and all(taint.key == _CORDON_TAINT for taint in _untolerated(node, shape)):
            tainted[row] = False


def _untolerated(node: Node, shape: PodShape) -> list[Taint]:
    return [
        taint
        for taint in node.taints
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, shape.tolerations)
    ]
