"""Work in short steps, so that whoever asks meanwhile waits for one of them at most.

A function that works in steps is a generator: it yields None where others may be served, and
returns its result. What it reads must not change until it has returned.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Return the result of work in steps, at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
