"""A simulation that notes what units were told of their starts, and why that moved.

What it may not know: policies, tables, and where a trace is from.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from koord.core.queue.promises import Competitor, MoveCause, PromiseBasis, explain_move
from koord.core.queue.simulation import Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from benchmarks.queue_estimates import Estimator
    from koord.core.queue.order import OrderTerms, QueueQuota, Waiting
    from koord.core.queue.protection import TurnsOutcome
    from koord.core.queue.queue_turns import Offers
    from koord.core.queue.simulation import MakeOffers

LOOK_SECONDS: Final = 6 * 3600
"""Starts are foreseen so often: it takes as long as the simulation of all that waits."""
_LEAST_WAIT: Final = 60


@dataclass
class _NotedOffers:
    """Turns as others order them; notes who had one, and whether it is guaranteed to his quota."""

    offers: Offers
    guarantees: Mapping[str, int]
    used: Callable[[str], int]
    tier_of: Callable[[Waiting], int]
    had_turns: dict[str, Competitor]

    def offer(self) -> Waiting | None:
        unit = self.offers.offer()
        if unit is not None and unit.key not in self.had_turns:
            use = unit.used_at_start.get(unit.queue) or {"": self.used(unit.queue)}
            is_guaranteed = (
                sum(use.values()) + sum(unit.ask.values()) <= self.guarantees[unit.queue]
            )
            self.had_turns[unit.key] = Competitor(
                unit.key,
                unit.queue,
                unit.priority,
                is_guaranteed=is_guaranteed,
                tier=self.tier_of(unit),
            )
        return unit

    def take(self, *, starts: bool) -> Waiting:
        return self.offers.take(starts=starts)


@dataclass(frozen=True)
class Foreseen:
    """A start as it was expected at first, of a unit that came at a time.

    ``bound`` is when it starts if all that runs and waits takes as long as it may.
    """

    arrival: int
    start: int
    bound: int


@dataclass
class Watched(Simulation):
    """Notes what was promised to whom, what was expected, and what moved a promise."""

    estimator: Estimator | None = None
    """What is known of run times; None: no starts are foreseen."""
    promises: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Unit -> when which latest start was reserved for it, as far as that changed."""
    moves: dict[str, MoveCause] = field(default_factory=dict)
    """Unit -> what moved its promise later first."""
    foreseen: dict[str, Foreseen] = field(default_factory=dict)
    """Unit -> its start, as it was expected when that was looked at first."""
    rounds: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._orders: MakeOffers = self.make_offers
        self.make_offers = self._note_offers
        self._had_turns: dict[str, Competitor] = {}
        self._ahead: dict[str, dict[str, Competitor]] = {}
        """Unit with a promise -> those before it that have started or have a promise, too."""
        self._look_at = 0
        self._turns_at = -1
        """When turns were decided last: again at that time, those that have started stay ahead."""

    def _note_offers(
        self, quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
    ) -> Offers:
        guarantees = {name: quota.min for name, quota in self.limits.items()}
        is_again = self._turns_at == self.room.now
        self._turns_at = self.room.now
        self._had_turns = {
            key: competitor
            for key, competitor in self._had_turns.items()
            if is_again and key in self.running
        }
        return _NotedOffers(
            self._orders(quotas, units, terms),
            guarantees,
            lambda queue: self.room.used(queue, self.room.now),
            lambda unit: terms.aging(unit.queue).tier_of(unit, terms.now),
            self._had_turns,
        )

    def _let_all_have_their_turns(self) -> TurnsOutcome:
        """Note what moved in each round: by the next one at the same time turns may be others."""
        outcome = super()._let_all_have_their_turns()
        self._note_promises(outcome.started)
        return outcome

    def decide(self) -> Mapping[str, int]:
        idle = super().decide()
        self.rounds += 1
        if self.estimator is not None and self.room.now >= self._look_at:
            self._look_at = self.room.now + LOOK_SECONDS
            self._note_foreseen(self.estimator)
        return idle

    def _note_foreseen(self, estimator: Estimator) -> None:
        if self.waiting.keys() <= self.foreseen.keys():
            return
        now, starts_of = self.room.now, self.starts
        starts = self.foresee(
            lambda unit: estimator.of(unit, now - starts_of.get(unit.job.key, now)).expected
        )
        bounds = self.foresee(lambda unit: estimator.of(unit).bound)
        for key, start in starts.items():
            bound = max(start, bounds.get(key, start))
            self.foreseen.setdefault(key, Foreseen(self.waiting[key].arrival, start, bound))

    def _end(self, key: str) -> None:
        unit = self.running.get(key)
        super()._end(key)
        if unit is not None and self.estimator is not None:
            self.estimator.note_end(unit, self.room.now)

    def _note_promises(self, started: Collection[str]) -> None:
        ahead: dict[str, Competitor] = {}
        before, self._ahead = self._ahead, {}
        for key, competitor in self._had_turns.items():
            reserved = self.turns.reserved(key)
            if reserved is not None and not reserved.is_open:
                self._note_promise(key, reserved.start, before.get(key, {}), ahead)
                self._ahead[key] = dict(ahead)
            if reserved is not None or key in started or key in self.running:
                ahead[key] = competitor

    def _note_promise(
        self,
        key: str,
        start: int,
        before: Mapping[str, Competitor],
        ahead: Mapping[str, Competitor],
    ) -> None:
        made = self.promises[key]
        if made and made[-1][1] == start:
            return
        if made:
            unit = self.waiting[key]
            basis = PromiseBasis(
                made[-1][1],
                unit.job.quota,
                unit.priority,
                ahead=before,
                tier=self._had_turns[key].tier,
            )
            after = replace(basis, start=start, ahead=ahead)
            move = explain_move(basis, after, ())
            if move is not None:
                self.moves.setdefault(key, move.cause)
        made.append((self.room.now, start))

    def foresee(self, expected_of: Callable[[TraceUnit], int]) -> Mapping[str, int]:
        """Return when units that wait would start if nothing more came."""
        now = self.room.now
        future = Simulation(
            list(self.room.nodes.values()),
            list(self.limits.values()),
            self.settings,
            make_offers=self._orders,
            depth=self.depth,
        )
        future.room.now = now
        future.turns = self.turns.copy_for(future.room)
        future.heads = deepcopy(self.heads)
        for key, run in self.room.runs.items():
            length = max(1, expected_of(self.running[key]))
            while run.start + length <= now:
                length *= 2
            future.add_run(run, min(run.start + length, max(run.bound, now + 1)))
        for unit in self.waiting.values():
            future.submit(replace(unit, duration=max(1, expected_of(unit))))
        future.play((), {})
        return future.starts

    def promise_figures(self) -> dict[str, float]:
        """Return how many first promises were kept, and what moved the others."""
        promised = {key: made for key, made in self.promises.items() if made}
        if not promised:
            return {}
        broken = [key for key, made in promised.items() if self.starts[key] > made[0][1]]
        causes = Counter(self.moves.get(key, MoveCause.OTHER) for key in broken)
        return {
            "promises": len(promised),
            "kept": 100 * (1 - len(broken) / len(promised)),
            "kept but for causes": 100 * (1 - causes[MoveCause.OTHER] / len(promised)),
            **{f"moved by {cause}": causes[cause] for cause in MoveCause},
        }

    def eta_figures(self) -> dict[str, float]:
        """Return how far starts were from what was expected, in percent of the wait."""
        if not self.foreseen:
            return {}
        errors = sorted(
            100
            * abs(eta.start - self.starts[key])
            / max(_LEAST_WAIT, self.starts[key] - eta.arrival)
            for key, eta in self.foreseen.items()
        )
        covered = sum(self.starts[key] <= eta.bound for key, eta in self.foreseen.items())
        in_time = sum(self.starts[key] <= eta.start for key, eta in self.foreseen.items())
        return {
            "foreseen": len(errors),
            "eta error": errors[len(errors) // 2],
            "eta coverage": 100 * covered / len(errors),
            "eta in time": 100 * in_time / len(errors),
        }
