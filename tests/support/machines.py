"""Long runs of state machines, for the night."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LONG = settings(
    max_examples=1000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def check_100_000_steps(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=LONG)
