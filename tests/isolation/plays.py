"""Plays in which one object makes a loop fail.

Each has an object ``bad`` on which a function raises, between others. It returns those that were
served, which must be all others; and the failure must be counted for its loop.
"""

from collections.abc import Callable
from typing import Any

import pytest

NAMES = ("a", "bad", "z")
Patch = pytest.MonkeyPatch
Play = Callable[[Patch], list[str]]
PLAYS: dict[str, Play] = {}


def play(loop: str) -> Callable[[Play], Play]:
    def add(made: Play) -> Play:
        PLAYS[f"{loop}/{made.__name__}"] = made
        return made

    return add


def fail_on_bad(patch: Patch, owner: Any, name: str) -> None:
    """Have a function raise when an argument is about ``bad``."""
    function = getattr(owner, name)

    def call(*args: Any, **more: Any) -> Any:
        if any(is_bad(one) for one in args):
            raise ZeroDivisionError
        return function(*args, **more)

    patch.setattr(owner, name, call)


def is_bad(value: Any) -> bool:
    named = (getattr(value, name, "") for name in ("key", "uid", "name", "gang"))
    return any("bad" in str(one) for one in (*named, value if isinstance(value, str) else ""))
