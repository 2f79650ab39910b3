"""The next cycle in which the leader plans a unit: all that it planned with, and what came of it.

Somebody orders one, and it is taken once. That copies references to values that never change, in
the loop that plans; whoever fetches it has it encoded in another thread. One is kept, for ten
minutes. Where the configuration wants it, a cycle in which a unit was too expensive, or made the
planner fail, is taken without an order and kept for an hour. Knows no files and no HTTP.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from koord.controllers.placement import PlacementController
from koord.core.engine.gang_rooms import GangRoom
from koord.core.engine.scoring import Scoring
from koord.core.model.plan import Plan, Unit
from koord.core.model.pods import Allocation
from koord.core.model.reasons import InternalError, TooExpensive
from koord.core.quota.entitlement import ReclaimSetting
from koord.runtime.snapshot import ClusterSnapshot

PAUSE_SECONDS: Final = 60.0
"""Between two orders."""
KEPT_SECONDS: Final = 600.0
"""How long an order waits for its cycle, and the cycle for whoever ordered it."""
ERROR_SECONDS: Final = 3600.0
"""How long a cycle with an error is kept; no other is taken meanwhile."""
_ERRORS: Final = (InternalError, TooExpensive)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedCycle:
    """What one cycle planned with, and its ``plan`` of ``units``; ``unit`` is what was asked for.

    ``wasted`` and ``late`` are what namespaces have wasted, and those that yield to others.
    """

    unit: str
    cluster: ClusterSnapshot
    assumed: tuple[tuple[str, str, tuple[Allocation, ...]], ...]
    """Pods (uid) that were planned before, their nodes, and what they were given there."""
    units: tuple[Unit, ...]
    holds: tuple[tuple[GangRoom, ...], tuple[GangRoom, ...]]
    """For lost members, and of NonStrict units."""
    wasted: Mapping[str, int]
    late: frozenset[str]
    scoring: Scoring
    reclaim: ReclaimSetting
    plan: Plan
    options: tuple[object, ...] = ()
    compat: bool = False
    hooks: tuple[str, ...] = ()
    records: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """Returns what was recorded of the unit."""


EncodeCycle: TypeAlias = Callable[[PlannedCycle], bytes]


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What does not change as long as the process lives."""

    options: tuple[object, ...] = ()
    compat: bool = False
    hooks: tuple[str, ...] = ()
    on_error: bool = False
    """Whether cycles with errors are taken without an order."""


class CycleSnapshots:
    """Takes snapshots of cycles of ``placement``. ``clock`` returns seconds, of any origin.

    ``records_of`` returns what was recorded of a unit; it is called in another thread.
    """

    def __init__(
        self,
        placement: PlacementController,
        take_snapshot: Callable[[], ClusterSnapshot],
        settings: PlannerSettings = PlannerSettings(),
        records_of: Callable[[str], Sequence[Mapping[str, Any]]] = lambda _: (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement = placement
        self._take_snapshot = take_snapshot
        self._settings = settings
        self._records_of = records_of
        self._clock = clock
        self._ordered_at = self._kept_until = self._failed_at = float("-inf")
        self._wanted: str | None = None
        """The unit to be planned, empty for any; None: nobody waits for one."""
        self._holds: tuple[tuple[GangRoom, ...], tuple[GangRoom, ...]] = ((), ())
        self._taken: PlannedCycle | None = None
        placement.witness = self

    def order(self, unit: str) -> bool:
        """Take the next cycle that plans a unit (``namespace/name``), empty for any.

        Return whether it was not too soon after the last order.
        """
        now = self._clock()
        if now < self._ordered_at + PAUSE_SECONDS:
            return False
        self._ordered_at, self._wanted, self._taken = now, unit, None
        self._kept_until = now + KEPT_SECONDS
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether an order waits for its cycle."""
        return self._wanted is not None and self._is_young

    @property
    def taken(self) -> PlannedCycle | None:
        """The cycle that was taken, as long as it is kept."""
        if not self._is_young:
            self._taken = None
        return self._taken

    @property
    def _is_young(self) -> bool:
        return self._clock() < self._kept_until

    # --- called by the loop that plans -----------------------------------------------------------

    def begin(self) -> None:
        """Note what planning itself will change."""
        if self._wanted is not None or self._settings.on_error:
            self._holds = self._placement.holds.record()

    def end(self, units: Collection[Unit], plan: Plan) -> None:
        """Take the cycle if somebody waits for it: nothing of the plan is applied yet."""
        wanted = self._wanted if self._is_young else None
        if wanted is None:
            self._note_error(units, plan)
        elif not wanted or any(wanted in _names_of(unit) for unit in units):
            self._wanted = None
            self._take(wanted, units, plan)

    def _note_error(self, units: Collection[Unit], plan: Plan) -> None:
        """Take a cycle in which a unit could not be decided, at most once an hour."""
        now = self._clock()
        if not self._settings.on_error or now < self._failed_at + ERROR_SECONDS:
            return
        failed = {each.unit for each in plan.refusals if isinstance(each.reason, _ERRORS)}
        for unit in units:
            if unit.key in failed:
                self._failed_at, self._kept_until = now, now + ERROR_SECONDS
                name = min(_names_of(unit))
                self._take(name, units, plan)
                log.warning("A cycle with an error is kept for an hour", extra={"unit": name})
                return

    def _take(self, wanted: str, units: Collection[Unit], plan: Plan) -> None:
        placement, settings = self._placement, self._settings
        state, queue = placement.state, placement.queue
        self._taken = PlannedCycle(
            unit=wanted,
            cluster=self._take_snapshot(),
            assumed=tuple(
                (uid, node, state.allocated.get(uid, ())) for uid, node in state.assumed.items()
            ),
            units=tuple(units),
            holds=self._holds,
            wasted=queue.wasted(state.now),
            late=queue.yielding,
            scoring=placement.scoring,
            reclaim=placement.reclaim,
            plan=plan,
            options=settings.options,
            compat=settings.compat,
            hooks=settings.hooks,
            records=lambda: self._records_of(wanted),
        )


def _names_of(unit: Unit) -> set[str]:
    gangs = {demand.gang for demand in unit.demands if demand.gang}
    return gangs or {unit.pods[0].key}
