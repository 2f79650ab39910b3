"""Any sequence of steps in a cycle can be rolled back, in every session."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.framework.walk import Walk
from tests.support.laws import examples


@settings(deadline=None, max_examples=examples(15))
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_every_session_is_restored_by_a_rollback(seed: int, steps: int) -> None:
    walk = Walk(random.Random(seed).randrange)
    walk.mark()
    for _ in range(steps):
        walk.step()
    walk.check_caches()
    walk.choose = lambda _: 0
    walk.back()
