"""Why pods do not fit on the one node that Kueue chose for them, with the numbers of that node.

Counting all other nodes, as reasons do otherwise, says nothing: they were never asked. The cycle is
as before the unit was tried. Decides nothing.
"""

from collections.abc import Iterable

import numpy as np

from koord.core.engine.cause import RESOURCE
from koord.core.engine.cycle import Cycle
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.kueue_reasons import KueueAssignmentBlocked
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason
from koord.core.model.units import PODS, format_amount

_HOSTNAME = "kubernetes.io/hostname"


def explain_assigned(cycle: Cycle, unit: Unit, reason: Reason) -> Reason:
    """Return why a unit was refused: as before, unless a node that Kueue chose is why."""
    if not isinstance(reason, InsufficientNodes):
        return reason
    pod = next((pod for pod in unit.pods if pod.key == reason.first), None)
    if pod is None or not pod.kueue_node:
        return reason
    node, shape = pod.kueue_node, cycle.shape_of(pod)
    alike = [
        mate for mate in unit.pods if mate.kueue_node == node and cycle.shape_of(mate) == shape
    ]
    row = _find_row(cycle, node)
    fit = 0 if row is None else max(int(cycle.room(shape)[row]), 0)
    if fit >= len(alike):
        return reason
    lacks = () if row is None else tuple(_find_lacks(cycle, pod, row, fit))
    return KueueAssignmentBlocked(alike[0].key, node, len(alike), fit, lacks, row is not None)


def _find_lacks(cycle: Cycle, pod: Pod, row: int, fit: int) -> Iterable[str]:
    """Yield what a node lacks for one more pod than fit: amounts with what is left, or causes."""
    shape, table = cycle.shape_of(pod), cycle.table
    for name, request in shape.requests:
        column = table.columns.get(name)
        free = 0 if column is None else int(table.allocatable[column, row])
        used = 0 if column is None else int(cycle.used[column, row])
        left = max(free - used - fit * request, 0)
        if left < request:
            yield f"{name}: {format_amount(name, left)} of {format_amount(name, request)} free"
    for cause, resource, passed in cycle.checks(shape):
        if not passed[row] and (cause is not RESOURCE or resource == PODS):
            yield cause.describe(resource, cycle.detail(cause, shape, row))


def _find_row(cycle: Cycle, node: str) -> int | None:
    """Return the row of the node with a host name: anybody may name any, in thousands of pods."""
    rows = np.flatnonzero(cycle.table.labels.selected_rows(((_HOSTNAME, node),), None))
    return int(rows[0]) if rows.size else None
