"""The undo log of a planning cycle: every change pushes its inverse, a rollback calls them.

All changes of a cycle are on one log, so that a rollback is complete. The log does not know what it
undoes.
"""

from collections.abc import Callable
from typing import TypeAlias

Mark: TypeAlias = int
"""A point to roll back to: the number of logged changes."""


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
            # Off the log before it is called: one that fails must not be called again.
            undo, arguments = entries.pop()
            undo(*arguments)

    def clear(self) -> None:
        """Forget the inverses of all changes, which stay."""
        self._entries.clear()
