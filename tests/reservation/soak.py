"""A hundred thousand random events of reservations, and ten thousand races: ``make soak``.

The events are those of ``test_random``: users, late watches, crashes between any two writes. The
races are those of ``tests.model.reservationraces``. A failure prints the smallest history, or the
seed of the race.
"""

from __future__ import annotations

import argparse
import sys
import time

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.model.reservationraces import make_race, run_race
from tests.reservation.test_random import Histories

STEPS = 100_000
STEPS_PER_HISTORY = 100
RACES = 10_000
REPORTED = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reservation.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--races", type=int, default=RACES)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    run_histories(options.steps, options.seed)
    write(f"reservations: {options.steps} steps in {time.monotonic() - began:.0f} s")
    run_races(options.races)


def run_histories(steps: int, first: int) -> None:
    """Run histories of this many steps together."""
    how = settings(
        max_examples=max(1, steps // STEPS_PER_HISTORY),
        stateful_step_count=STEPS_PER_HISTORY,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(first)(Histories), settings=how)


def run_races(count: int) -> None:
    began = time.monotonic()
    for at in range(count):
        race = make_race(at)
        result = run_race(race)
        if result.violations:
            raise SystemExit(f"{race.story}\n{result.violations}")
        if (at + 1) % REPORTED == 0:
            write(f"reservations: {at + 1} races in {time.monotonic() - began:.0f} s")


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
