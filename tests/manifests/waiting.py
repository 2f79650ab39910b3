"""Waits for what comes about by and by."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 30.0


def wait_for(is_true: Callable[[], bool], what: str) -> None:
    """Return once something holds; fail, and name it, if it never does."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        if time.monotonic() > end:
            raise AssertionError(f"not seen: {what}")
        time.sleep(0.05)
