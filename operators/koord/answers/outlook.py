"""Where all that waits stands in its queues, and when it is expected to start: one look.

Puts together what queues, the planner and run times tell; it decides nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koord.answers.standing import Lookout, QueueStanding, make_standings
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.model.plan import Unit
from koord.core.model.reasons import InternalError, Reason, TooExpensive
from koord.core.queue.endings import find_endings
from koord.core.queue.eta import MOST_UNITS, Forecast, Outlook, choose_first
from koord.core.queue.plugin import Queues
from koord.core.queue.sessions import QueueTurnSession
from koord.core.queue.settings import Policy


@dataclass(frozen=True, slots=True)
class Look:
    """What a look starts from: the waiting units in order, and why each was refused, if it was.

    ``is_over`` tells when the time that it may take is used up.
    """

    state: ClusterState
    units: Sequence[Unit]
    refusals: Mapping[str, Reason] = field(default_factory=dict)
    scoring: Scoring = field(default_factory=Scoring)
    is_over: Callable[[], bool] = lambda: False
    is_covered: Callable[[Unit], bool] = lambda _: True
    """Whether enough of the last starts of its user came within what was expected of them."""
    most_steps: float = float("inf")
    """After so many steps of planning no further unit is looked at."""
    most: int | None = None
    """Of how many units of each quota tree it is of interest, beside those of :meth:`seen` that
    nobody crowds out; None: of all."""

    @property
    def queues(self) -> Queues:
        return self.state.plugin(Queues)

    def queue_of(self, unit: Unit) -> str:
        return self.queues.queue_of(unit.pods[0])

    def first(self, most: int) -> list[Unit]:
        """Return the first units of each quota tree, in order."""
        return choose_first(self.units, self.tree_of, most)

    def tree_of(self, unit: Unit) -> str:
        spec = self.state.quotas.catalog.registry.get(self.queue_of(unit))
        return "" if spec is None else spec.tree_id

    def seen(self) -> list[Unit]:
        """Return the units whose standing is of interest, in order.

        However many units of others come before: the first of each queue is, and whoever has room
        reserved. Otherwise a queue with thousands of units would hide those of all others.
        """
        if self.most is None:
            return list(self.units)
        seen = {unit.key for unit in self.first(self.most)} | self.queues.reserved_units()
        firsts: dict[str, Unit] = {}
        for unit in self.units:
            if not _is_held(unit):
                firsts.setdefault(self.queue_of(unit), unit)
        seen |= {unit.key for unit in choose_first(firsts.values(), self.tree_of, self.most)}
        return [unit for unit in self.units if unit.key in seen]


def limit_time(seconds: float, clock: Callable[[], float]) -> Callable[[], bool]:
    """Return what tells when so much time has passed since it was asked first."""
    until: list[float] = []

    def is_over() -> bool:
        now = clock()
        if not until:
            until.append(now + seconds)
        return now >= until[0]

    return is_over


def decide_turns(look: Look) -> None:
    """Have room reserved for those whose turn it is, as the operators do: on a state of our own."""
    cycle = look.state.open_cycle(lambda: look.units, is_deciding=True)
    turns = cycle.find_session(QueueTurnSession)
    if turns is not None:
        look.queues.note_plan(turns, plan(cycle, look.units, look.scoring))
    cycle.close()


def view_standings(look: Look, *, foresees: bool = True) -> dict[str, QueueStanding]:
    """Return where each unit stands, by unit; without foresight only turns."""
    forecasts = foresee(look) if foresees and look.units else {}
    seen = look.seen()
    cycle = look.state.open_cycle(lambda: look.units)
    turns = look.queues.turns(cycle, {unit.key for unit in seen})
    cycle.close()
    waiting = Counter(look.queue_of(unit) for unit in look.units if not _is_held(unit))
    uncovered = {unit.key for unit in seen if not look.is_covered(unit)}
    lookout = Lookout(look.state.now, forecasts, look.refusals, uncovered)
    return make_standings(turns, lookout, waiting)


def foresee(look: Look) -> Mapping[str, Forecast]:
    """Return when units are expected to start: of the first of each quota tree."""
    state, queues = look.state, look.queues

    chosen = [unit for unit in look.first(MOST_UNITS) if _is_foreseeable(unit, look)]
    endings = tuple(find_endings(state.pods.values(), queues.limits.run_time_of_running, state.now))
    cycle = state.open_cycle(lambda: look.units)
    cycle.steps.most = look.most_steps
    outlook = Outlook(
        cycle, look.scoring, queues.limits.run_time_of, look.is_over, refusals=look.refusals
    )
    turns = cycle.find_session(QueueTurnSession)
    if turns is not None:
        outlook.go_on = turns.go_on
        outlook.strict_queue_of = lambda unit: _find_strict(look, unit)
    try:
        return outlook.look(chosen, endings)
    finally:
        cycle.close()


def _is_foreseeable(unit: Unit, look: Look) -> bool:
    """Whether a unit is looked at: not if it is held, costs more than a look may take, or fails."""
    is_left_out = isinstance(look.refusals.get(unit.key), TooExpensive | InternalError)
    return not _is_held(unit) and not is_left_out


def _find_strict(look: Look, unit: Unit) -> str:
    queue = look.queue_of(unit)
    is_strict = look.queues.settings_of(queue).policy is Policy.STRICT
    return queue if is_strict and not look.queues.has_started(unit) else ""


def _is_held(unit: Unit) -> bool:
    return any(demand.is_held for demand in unit.demands)
