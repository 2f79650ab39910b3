"""Reports long steps: a spinner on a terminal, a line per step elsewhere.

On stderr by default, because stdout of `koord sandbox env` is for eval.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Reporter(Protocol):
    """Receives long steps."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """Return a context that lasts as long as the step."""


class ConsoleReporter:
    """Reports to the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show the step while it lasts, and how long it took."""
        started = time.monotonic()
        with self._spin(title) if self._console.is_terminal else self._announce(title):
            yield
        self._print(f"{title}: {time.monotonic() - started:.1f} s")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def _announce(self, title: str) -> Iterator[None]:
        self._print(f"{title} …")
        yield

    @contextmanager
    def _spin(self, title: str) -> Iterator[None]:
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Progress(*columns, console=self._console, transient=True) as progress:
            progress.add_task(title, total=None)
            yield
