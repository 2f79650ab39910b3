"""Where a placement takes devices and the like that are reserved: counts of a node do not tell it.

Tries out in the cycle what would be left; nothing of that stays. Knows no turns.
"""

from collections.abc import Sequence

from koord.core.engine.cycle import Cycle, Place
from koord.core.model.plan import Placement
from koord.core.queue.ends import EndingPod
from koord.core.queue.reserved_limits import ReservedLimits, ReservedMoment
from koord.core.queue.room import FOREVER
from koord.core.queue.run_time import Knowledge


def find_delaying(cycle: Cycle, placement: Placement, limits: ReservedLimits) -> list[int]:
    """Return rows on which less fits of what is reserved there once a unit is placed so."""
    rows: dict[int, list[EndingPod]] = {}
    for assignment in placement.assignments:
        row = cycle.table.row_of[assignment.node]
        pod = EndingPod(assignment.pod, row, FOREVER, FOREVER, Knowledge.NONE)
        rows.setdefault(row, []).append(pod)
    return [
        row
        for row, pods in rows.items()
        if any(_is_delaying(cycle, (row, pods), moment, limits) for moment in limits.moments)
    ]


def _is_delaying(
    cycle: Cycle,
    placed: tuple[int, Sequence[EndingPod]],
    moment: ReservedMoment,
    limits: ReservedLimits,
) -> bool:
    row, pods = placed
    node = cycle.table.node_at(row).name
    wanted = [
        assignment.pod
        for reserved in moment.active
        for assignment in reserved.by_node().get(node, ())
    ]
    shapes = [cycle.shape_of(pod) for pod in wanted]
    if not any(map(cycle.needs_reserve, shapes)):
        return False
    mark = cycle.checkpoint()
    cycle.remove([running.pod for running in limits.ended(row, moment.at)])

    def count() -> int:
        before = cycle.checkpoint()
        placed = sum(
            isinstance(cycle.reserve(pod, shape, row), Place)
            for pod, shape in zip(wanted, shapes, strict=True)
        )
        cycle.rollback(before)
        return placed

    with_it = count()
    cycle.remove([running.pod for running in pods])
    without = count()
    cycle.rollback(mark)
    return with_it < without
