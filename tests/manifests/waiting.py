"""Waits for conditions."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 30.0


def wait_for(is_true: Callable[[], bool], what: str) -> None:
    """Return once a condition is true; fail with its name after a timeout."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        if time.monotonic() > end:
            raise AssertionError(f"not seen: {what}")
        time.sleep(0.05)
