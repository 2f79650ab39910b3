"""How much is done for something: calls of functions, which do not depend on the machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def count_calls(do: Callable[[], object]) -> int:
    """Return how many functions are called, with those of the interpreter."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def grows_with(size: int, make: Callable[[int], Callable[[], object]], times: int = 4) -> float:
    """Return by which factor the work grows for each by which the size does; 1: in proportion.

    ``make`` prepares something of a size, and returns what is counted.
    """
    make(size)()  # what is kept for good, such as caches of types
    small, large = count_calls(make(size)), count_calls(make(times * size))
    return large / small / times
