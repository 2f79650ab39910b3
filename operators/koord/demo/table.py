"""Draws what has been seen: gangs with what they wait for, nodes with their GPUs. Pure."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from koord.demo.claims import Timing
from koord.demo.observed import Cluster, SeenGang, SeenNode

_COLOURS: Final = ("cyan", "magenta", "blue", "yellow")
_PHASES: Final = {"Running": "green", "Scheduled": "green", "Finished": "dim", "Failed": "red"}
_WAITING: Final = "yellow"
_USED, _FREE = "█", "·"
_WIDE: Final = 76
"""From this width on, there is room for the phase, and for nodes in two columns."""


def draw(cluster: Cluster, width: int) -> RenderableType:
    """Draw the whole cluster for a terminal of that width."""
    colours = {gang.name: _COLOURS[i % len(_COLOURS)] for i, gang in enumerate(cluster.gangs)}
    is_narrow = width < _WIDE
    nodes = _draw_nodes(cluster, colours, columns=1 if is_narrow else 2)
    if not cluster.gangs:
        return nodes
    return Group(_draw_gangs(cluster, colours, is_narrow=is_narrow), Text(), nodes)


def draw_summary(timings: list[Timing], began: float) -> RenderableType:
    """Draw how long each gang took, ``began`` being the moment when the demo was started."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("Gang", "Pods", "Nodes", "Since complete", "Since room", "Since start"):
        table.add_column(title, justify="left" if title == "Gang" else "right", header_style="bold")
    for one in timings:
        seconds = (one.since_complete, one.since_room, one.last_bound_at - began)
        figures = (f"{one.pods}", f"{one.nodes}", *(f"{each:.2f} s" for each in seconds))
        table.add_row(one.gang, *figures)
    return table


def _draw_gangs(cluster: Cluster, colours: dict[str, str], *, is_narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("Gang", header_style="bold", no_wrap=True)
    if not is_narrow:
        table.add_column("Phase", header_style="bold", no_wrap=True)
    for title in ("Present", "Bound", "Running"):
        table.add_column(title, header_style="bold", justify="right", no_wrap=True)
    table.add_column("Waits because", header_style="bold", no_wrap=True, ratio=1)
    for gang in cluster.gangs:
        phase = Text(gang.phase, _PHASES.get(gang.phase, _WAITING))
        table.add_row(
            Text(gang.name, colours[gang.name]),
            *([] if is_narrow else [phase]),
            *_draw_progress(cluster, gang),
        )
    return table


def _draw_progress(cluster: Cluster, gang: SeenGang) -> tuple[Text, ...]:
    members = cluster.members(gang.name)
    present = sum(pod.is_present for pod in members)
    bound = sum(pod.is_bound for pod in members)
    running = sum(pod.is_running for pod in members)
    # Who has all its nodes, or none of its pods, does not wait, whatever is not written yet.
    obstacle = gang.obstacle() if bound < gang.min_member and present else None
    why = "" if obstacle is None else f"{obstacle.reason}: {obstacle.message}"
    return (
        *(Text(f"{count}/{gang.min_member}") for count in (present, bound, running)),
        Text(why, _WAITING, no_wrap=True, overflow="ellipsis"),
    )


def _draw_nodes(cluster: Cluster, colours: dict[str, str], *, columns: int) -> Table:
    rows = -(-len(cluster.nodes) // columns)
    grid = Table.grid(padding=(0, 3, 0, 0))
    cells = [_draw_node(cluster, node, colours) for node in cluster.nodes]
    for row in range(rows):
        grid.add_row(*cells[row::rows])
    return grid


def _draw_node(cluster: Cluster, node: SeenNode, colours: dict[str, str]) -> Text:
    cell = Text(f"{node.name} ", no_wrap=True)
    pods = cluster.on_node(node.name)
    for pod in pods:
        cell.append(_USED * pod.gpus, colours.get(pod.gang))
    used = sum(pod.gpus for pod in pods)
    cell.append(_FREE * (node.gpus - used), "dim")
    gangs = sorted({pod.gang for pod in pods if pod.gang})
    cell.append(f" {used}/{node.gpus} {' '.join(gangs)}")
    return cell
