"""The undo log of a planning cycle: every change pushes its inverse, a rollback calls them.

One log for everything that changes during a cycle, whoever changes it, so that a rollback can
forget nothing. Knows nothing of what is undone.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

Mark: TypeAlias = int
"""A point to roll back to: how many changes have been logged."""
START: Final[Mark] = 0


class UndoLog:
    """Inverses of changes, the newest last."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def push(self, undo: Callable[..., object], *arguments: object) -> None:
        """Log the inverse of a change; it must not log anything itself."""
        self._entries.append((undo, arguments))

    def checkpoint(self) -> Mark:
        return len(self._entries)

    def rollback(self, mark: Mark) -> None:
        """Undo every change since ``mark``, the newest first."""
        entries = self._entries
        while len(entries) > mark:
            undo, arguments = entries.pop()
            undo(*arguments)
