"""The clock of the planner, while the clock of the machine is corrected."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koord.runtime.clock import SLOWEST, Clock

START = 1_700_000_000.0


class Machine:
    """A clock that is corrected, and one that is not."""

    def __init__(self) -> None:
        self.steady, self.correction = 50.0, START - 50.0

    def wall(self) -> float:
        return self.steady + self.correction


def test_back_off_outlives_a_correction_backwards_by_its_own_length_at_most() -> None:
    machine = Machine()
    clock = Clock(machine.wall, lambda: machine.steady)
    until = clock() + 5.0
    machine.correction -= 3600.0
    machine.steady += 9.9
    assert clock() < until
    machine.steady += 0.1
    assert clock() >= until
    machine.correction += 3600.0
    assert clock() == START + 10.0, "corrected forwards, it is followed at once"


@given(st.lists(st.tuples(st.integers(0, 3600), st.integers(-7200, 7200)), max_size=20))
def test_it_never_goes_back_and_never_runs_too_slowly(steps: list[tuple[int, int]]) -> None:
    machine = Machine()
    clock = Clock(machine.wall, lambda: machine.steady)
    before = clock()
    for passed, correction in steps:
        machine.steady += passed
        machine.correction += correction
        now = clock()
        assert now >= before + SLOWEST * passed
        assert now >= machine.wall()
        before = now
