"""How many examples a law gets: few in every run, as many as asked for on demand.

Every run tries the number that a law names, which is about a second's work. ``make laws`` tries
random examples, as many of each law: ``make laws EXAMPLES=10000 ARGS=tests/queue``. Tests that go
through seeds or crash points of their own ask here as those do that hypothesis draws for.
"""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

ON_DEMAND = "laws"
"""The profile in which each law gets as many examples as asked for: see ``conftest.py``."""
T = TypeVar("T")


def is_on_demand() -> bool:
    """Whether more is wanted than what every run tries."""
    return settings.get_current_profile_name() == ON_DEMAND


def examples(in_every_run: int) -> int:
    """Return how many examples to try: as many as said, or as were asked for."""
    return settings.default.max_examples if is_on_demand() else in_every_run


def sample(values: Sequence[T], in_every_run: int) -> Sequence[T]:
    """Return so many of the values, from the first to the last; or all of them, on demand."""
    if is_on_demand() or len(values) <= in_every_run:
        return values
    last = max(in_every_run - 1, 1)
    return [values[at * (len(values) - 1) // last] for at in range(in_every_run)]
