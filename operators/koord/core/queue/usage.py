"""What users of a queue have used lately, with a half-life: forward decay in integers.

Later use weighs more, and nothing is ever decayed. So a ledger depends neither on when it is read,
nor in which steps it was added, nor on restarts; only ratios of ledgers mean something. Nothing
here knows units, pods or a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Final, TypeAlias

Ledger: TypeAlias = Mapping[str, int]
"""Resource -> amount * seconds * weight."""

TICK_SECONDS: Final = 300
HALF_LIFE_SECONDS: Final = 7 * 24 * 3600
LEAST_SECONDS: Final = 900
"""A unit that runs counts as if it had run this long: or someone without any use would start a
hundred units at once."""
REBASE_BITS: Final = 64
_FIRST_WEIGHT: Final = 2**16


@dataclass(frozen=True, slots=True)
class Decay:
    """How fast use is forgotten."""

    tick: int = TICK_SECONDS
    half_life: int = HALF_LIFE_SECONDS

    def weight(self, tick: int) -> int:
        """Return the weight of a second in a tick: it doubles with each half-life."""
        table = make_table(self.half_life // self.tick)
        return table[tick % len(table)] << (tick // len(table))

    def charge(self, amount: int, start: int, end: int) -> int:
        """Return what using ``amount`` of a resource from ``start`` to ``end`` adds."""
        ticks = range(start // self.tick, -(-end // self.tick))
        return amount * sum(
            self.weight(tick) * (min(end, (tick + 1) * self.tick) - max(start, tick * self.tick))
            for tick in ticks
        )

    def weigh_until(self, second: int) -> int:
        """Return what using one of a resource from 0 on until ``second`` adds."""
        tick, within = divmod(second, self.tick)
        table = make_table(self.half_life // self.tick)
        sums = _add_up(table)
        doublings, at = divmod(tick, len(table))
        ticks = sums[-1] * ((1 << doublings) - 1) + (sums[at] << doublings)
        return ticks * self.tick + self.weight(tick) * within

    @property
    def epoch(self) -> int:
        """For how long weights grow until all ledgers are rebased, in seconds."""
        return REBASE_BITS * self.half_life

    def charge_running(self, amount: int, start: int, now: int) -> int:
        """Return what a unit that runs adds: until it has run for a while, as if it had."""
        if now - start >= LEAST_SECONDS:
            return self.charge(amount, start, now)
        return amount * LEAST_SECONDS * self.weight(start // self.tick)


@cache
def make_table(ticks: int) -> tuple[int, ...]:
    """Return the weights of the ticks of the first half-life, rounded.

    No value is so near to a half that the last bit of a float could matter: a test compares them
    with exact ones.
    """
    return tuple(round(_FIRST_WEIGHT * 2.0 ** (tick / ticks)) for tick in range(ticks))


@cache
def _add_up(table: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *accumulate(table))


def add(ledger: Ledger, charges: Ledger) -> dict[str, int]:
    """Return the sum; resources without use are left out."""
    total = {key: ledger.get(key, 0) + charges.get(key, 0) for key in (*ledger, *charges)}
    return {key: amount for key, amount in total.items() if amount}


def rebase(ledgers: Mapping[str, Ledger]) -> dict[str, dict[str, int]]:
    """Return all ledgers of a tree with the weight of 64 half-lives taken off; empty ones go."""
    shifted = {
        user: {
            key: amount >> REBASE_BITS for key, amount in ledger.items() if amount >> REBASE_BITS
        }
        for user, ledger in ledgers.items()
    }
    return {user: ledger for user, ledger in shifted.items() if ledger}


def share(ledger: Ledger, capacity: Ledger, weight: int) -> Fraction:
    """Return the dominant share of a user: the largest over resources, by capacity and weight."""
    return max(
        (
            Fraction(amount, capacity[key] * weight)
            for key, amount in ledger.items()
            if capacity.get(key, 0) > 0
        ),
        default=Fraction(0),
    )
