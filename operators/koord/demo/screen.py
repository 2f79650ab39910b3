"""What the audience sees: a log of lines, and below it, on a terminal, the cluster as it is now.

Elsewhere than on a terminal there are only the lines, unwrapped, and nobody is waited for.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from koord.demo.observed import Cluster
from koord.demo.table import draw

_FRAMES_PER_SECOND: Final = 12
_SECONDS_PER_KEY: Final = 0.008
_TIME_WIDTH: Final = 6


class Screen:
    """Shows the demo while it happens; use it in a ``with`` statement."""

    def __init__(self, console: Console, look: Callable[[], Cluster], began: float) -> None:
        self._console = console
        self._look = look
        self._began = began
        self._typed = ""
        self._spinner: Spinner | None = None
        self._is_over = False
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console,
                get_renderable=self._draw,
                refresh_per_second=_FRAMES_PER_SECOND,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        if self._live is not None:
            self._live.stop()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show that something takes its time; say it when it is done."""
        with self.waiting(title):
            yield
        self.confirm(title)

    @contextmanager
    def waiting(self, title: str) -> Iterator[None]:
        """Show what is waited for."""
        self._spinner = Spinner("dots", Text(title))
        try:
            yield
        finally:
            self._spinner = None

    def tell(self, story: str) -> None:
        """Say what comes next."""
        self._console.print()
        self._print("", story, "bold")

    def type(self, command: str) -> None:
        """Show a command, and how it is typed."""
        if self._live is not None:
            for end in range(len(command)):
                self._typed = command[:end]
                time.sleep(_SECONDS_PER_KEY)
            self._typed = ""
        self.enter(command)

    def enter(self, command: str) -> None:
        """Show a command."""
        self._print("$", command, "cyan")

    def answer(self, line: str) -> None:
        """Show a line that a command printed."""
        self._print("", line, "dim")

    def confirm(self, claim: str) -> None:
        """Say that something has been seen."""
        self._print("✓", claim, "green")

    def deny(self, claim: str) -> None:
        """Say that something has not been seen."""
        self._print("✗", claim, "red")

    def rest(self, seconds: float) -> None:
        """Let people read."""
        if self._live is not None:
            time.sleep(seconds)

    def _print(self, mark: str, text: str, style: str) -> None:
        elapsed = f"{time.monotonic() - self._began:.1f} s"
        if self._live is None:
            line = f"{elapsed:>{_TIME_WIDTH}} {mark:1} {text}"
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)
            return
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_column(width=_TIME_WIDTH, justify="right", style="dim")
        row.add_column(width=1, style=style)
        row.add_column(style=style, overflow="fold")
        row.add_row(Text(elapsed), Text(mark), Text(text))
        self._console.print(row)

    def _draw(self) -> RenderableType:
        cluster = self._look()
        parts: list[RenderableType] = [Text()]
        if cluster.nodes:
            parts.append(draw(cluster, self._console.width))
        if not self._is_over:
            parts += [Text(), self._draw_prompt()]
        return Group(*parts)

    def _draw_prompt(self) -> RenderableType:
        if self._typed:
            return Text(f"$ {self._typed}▌", "cyan")
        # An empty line otherwise, so that the picture does not jump.
        return self._spinner or Text()
