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
    is_covered: bool = True
    most_steps: float = float("inf")
    """After so many steps of planning no further unit is looked at."""
    most: int | None = None
    """Of how many units of each quota tree it is of interest; None: of all."""

    @property
    def queues(self) -> Queues:
        return self.state.plugin(Queues)

    def queue_of(self, unit: Unit) -> str:
        return self.queues.queue_of(unit.pods[0])

    def first(self, most: int) -> list[Unit]:
        """Return the first units of each quota tree, in order."""
        registry = self.state.quotas.catalog.registry

        def tree_of(unit: Unit) -> str:
            spec = registry.get(self.queue_of(unit))
            return "" if spec is None else spec.tree_id

        return choose_first(self.units, tree_of, most)


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
    seen = look.units if look.most is None else look.first(look.most)
    cycle = look.state.open_cycle(lambda: seen)
    turns = look.queues.turns(cycle)
    cycle.close()
    waiting = Counter(look.queue_of(unit) for unit in look.units if not _is_held(unit))
    lookout = Lookout(look.state.now, forecasts, look.refusals, look.is_covered)
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
