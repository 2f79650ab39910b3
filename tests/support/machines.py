"""State machines that run for a night."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LONG = settings(
    max_examples=1000,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def run_long(machine: type[RuleBasedStateMachine]) -> None:
    """Take a hundred thousand steps."""
    run_state_machine_as_test(machine, settings=LONG)
