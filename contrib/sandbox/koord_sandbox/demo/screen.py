"""What the demo shows: a log of lines and, on a terminal, the cluster below it as it is now.

Without a terminal there are only the lines, unwrapped and without pauses.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from koord_sandbox.demo.observer import DemoCluster, SeenGang

GPUS_PER_NODE: Final = 8
_COLOURS: Final = ("cyan", "magenta", "blue", "yellow")
_STYLES: Final = {"": "dim", "$": "cyan", "✓": "green"}


class Screen:
    """Shows the demo while it runs; ``live`` is the context in which the cluster is drawn."""

    def __init__(self, console: Console, look: Callable[[], DemoCluster], began: float) -> None:
        self.nodes: Sequence[str] = ()
        self._console = console
        self._look = look
        self._began = began
        self._spinner: RenderableType = Text()
        self.live = (
            Live(console=console, get_renderable=self._draw, refresh_per_second=12)
            if console.is_terminal
            else nullcontext()
        )

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show a step while it lasts, and a tick when it has succeeded."""
        self._spinner = Spinner("dots", Text(title))
        try:
            yield
        finally:
            self._spinner = Text()  # an empty line: the picture keeps its height
        self.write(title, "✓")

    def narrate(self, story: str) -> None:
        self._console.print()
        self.write(story, style="bold")

    def write(self, text: str, mark: str = "", style: str = "") -> None:
        """Write a line; the marks are ``$`` for a command and a tick for what was confirmed."""
        elapsed = f"{time.monotonic() - self._began:.1f} s"
        line = Text.assemble(
            (f"{elapsed:>6} ", "dim"), (f"{mark:1} {text}", style or _STYLES[mark])
        )
        self._console.print(line, soft_wrap=not self._console.is_terminal)

    def wait_for_reader(self, seconds: float) -> None:
        """Leave time to read."""
        if self._console.is_terminal:
            time.sleep(seconds)

    def _draw(self) -> RenderableType:
        return Group(Text(), draw(self._look(), self.nodes), Text(), self._spinner)


def draw(cluster: DemoCluster, nodes: Sequence[str]) -> RenderableType:
    """Draw gangs with what they wait for, and nodes with their GPUs."""
    colours = {gang.name: _COLOURS[i % len(_COLOURS)] for i, gang in enumerate(cluster.gangs)}
    cells = [_draw_node(cluster, node, colours) for node in nodes]
    picture = Columns(cells, padding=(0, 3), column_first=True)
    if not cluster.gangs:
        return picture
    table = Table(box=None, pad_edge=False, expand=True)
    for title in ("Gang", "Present", "Bound", "Running"):
        table.add_column(title, justify="left" if title == "Gang" else "right", no_wrap=True)
    table.add_column("Waits because", no_wrap=True, ratio=1)
    for gang in cluster.gangs:
        table.add_row(Text(gang.name, colours[gang.name]), *_draw_progress(cluster, gang))
    return Group(table, Text(), picture)


def _draw_progress(cluster: DemoCluster, gang: SeenGang) -> tuple[Text, ...]:
    members = cluster.present(gang.name)
    bound = sum(pod.is_bound for pod in members)
    running = sum(pod.phase == "Running" for pod in members)
    # A gang with all its nodes, or without pods, does not wait, even if its status is not updated.
    waiting_condition = gang.waiting_condition() if bound < gang.min_member and members else None
    why = (
        ""
        if waiting_condition is None
        else f"{waiting_condition.reason}: {waiting_condition.message}"
    )
    counts = [Text(f"{count}/{gang.min_member}") for count in (len(members), bound, running)]
    return (*counts, Text(why, "yellow", no_wrap=True, overflow="ellipsis"))


def _draw_node(cluster: DemoCluster, node: str, colours: dict[str, str]) -> Text:
    cell = Text(f"{node} ", no_wrap=True)
    pods = [pod for pod in cluster.pods if pod.node == node and pod.is_bound]
    for pod in pods:
        cell.append("█" * pod.gpus, colours.get(pod.gang))
    used = sum(pod.gpus for pod in pods)
    cell.append("·" * (GPUS_PER_NODE - used), "dim")
    gangs = sorted({pod.gang for pod in pods if pod.gang})
    return cell.append(f" {used}/{GPUS_PER_NODE} {' '.join(gangs)}")
