"""Many crash scenarios and millions of random operations: ``make soak``.

Prints progress, rate and remaining time. A failure is printed as a shortened story that ``play``
accepts, and the exit code is 1.
"""

import argparse
import sys
import time
from itertools import count

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.model.adversaries import make_siege, run_siege
from tests.model.crashes import Tally, try_all
from tests.model.machine import Machine, RuleBroken
from tests.model.network import CrashPoint
from tests.model.scenarios import make_scenario
from tests.model.steps import Story, is_same_kind, play, shorten

STEPS = 100
"""Operations of one example, approximately."""
EXAMPLES = 50
"""Examples of one round, which has one seed."""
EXAMPLES_IN_CI = 3

_SETTINGS = settings(
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # ``shorten`` is much faster than hypothesis
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def check_round(number: int, examples: int = EXAMPLES) -> None:
    """Run one round; raises RuleBroken."""
    machine = type(f"Round{number}", (Machine,), {})
    seed(number)(machine)
    run_state_machine_as_test(machine, settings=settings(_SETTINGS, max_examples=examples))


def describe_failure(failure: RuleBroken) -> str:
    """Return the shortest story that breaks the same rule, and the rule, as text."""

    def is_bad(story: Story) -> bool:
        return is_same_kind(failure.violations, play(story))

    story = shorten(failure.story, is_bad)
    rules = "\n".join(play(story) or failure.violations)
    return f"{story}\n{rules}"


def crash_everywhere(first: int, scenarios: int) -> int:
    """Run scenarios with all crash points; return the number of failures."""
    tally, began = Tally(), time.monotonic()
    for number in range(first, first + scenarios):
        try_all(make_scenario(number), tally)
        if tally.scenarios % 20 == 0:
            so_far = f"{tally.points:,} crash points, {len(tally.broken)} broken"
            write(
                f"scenario {number}: {so_far}, {estimate_rest(began, tally.scenarios, scenarios)}"
            )
    write(f"{tally.scenarios} scenarios, {tally.points:,} crash points, {len(tally.broken)} broken")
    write(f"at {dict(tally.writes)}; slowest to converge: {tally.slowest:.1f} s")
    for story, violations in tally.broken:
        write(f"{story}\n{violations}")
    return len(tally.broken)


def run_rounds(first: int, operations: int) -> int:
    """Run the state machine; return 1 if a rule was broken."""
    began = time.monotonic()
    for number in count(first):
        try:
            check_round(number)
        except RuleBroken as failure:
            write(f"seed {number}: {failure}\n{describe_failure(failure)}")
            return 1
        done = Machine.operations
        rate = done / (time.monotonic() - began)
        rest = estimate_rest(began, done, operations)
        write(f"seed {number}: {done:,} operations, {rate:,.0f} a second, {rest}")
        if done >= operations:
            break
    return 0


def besiege(sieges: int) -> int:
    """Run sieges by adversaries, and one in twenty with a crash at every write; return failures."""
    broken = 0
    for number in range(sieges):
        siege = make_siege(number)
        calm = run_siege(siege)
        crashes = (CrashPoint(at, is_before=True) for at in range(1, len(calm.writes) + 1))
        others = [run_siege(siege, crash) for crash in crashes] if number % 20 == 0 else []
        for outcome in (calm, *others):
            if outcome.violations:
                broken += 1
                write(f"{siege.story}\n{outcome.violations}")
    write(f"{sieges} sieges by adversaries, {broken} broken")
    return broken


def estimate_rest(began: float, done: int, wanted: int) -> str:
    """Estimate the remaining time from the rate so far."""
    seconds = (time.monotonic() - began) * max(0, wanted - done) / done
    return f"{seconds / 60:.0f} min to go"


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000, help="of the state machine")
    parser.add_argument("--seed", type=int, default=1000, help="of its first round")
    parser.add_argument("--scenarios", type=int, default=400, help="with a crash at every write")
    parser.add_argument("--first-scenario", type=int, default=0, help="its seed")
    parser.add_argument("--sieges", type=int, default=1000, help="by adversaries")
    options = parser.parse_args()
    broken = crash_everywhere(options.first_scenario, options.scenarios)
    broken += besiege(options.sieges)
    if options.operations:
        broken += run_rounds(options.seed, options.operations)
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main())
