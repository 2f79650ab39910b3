"""``koord watch``: the whole cluster on one screen, again and again. Not imported for ``--help``.

:func:`draw` draws one reading, for any width and height; the loop reads and shows it.
Nothing is decided here: queue, quotas and nodes are those of ``koord queue`` and ``koord top``.
"""

import asyncio
import gc
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from koord.answers.gaps import list_warnings
from koord.answers.gpus import count_gpus
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import QuotaView, view_quotas
from koord.answers.reading import Target, TargetKind
from koord.answers.usage_view import NodeUsage, RunningGang, find_running, view_nodes
from koord.answers.waiting import find_waiting
from koord.cli.cluster import read_cluster, refuse_unknown_namespace, refuse_without_pods
from koord.cli.common import ExitCode, fail
from koord.cli.connection import open_client
from koord.cli.output import count_of, make_console, make_table
from koord.cli.top_view import draw_quotas
from koord.core.engine.state import ClusterState
from koord.core.model.device_names import CARDS
from koord.core.model.text import format_age
from koord.kube.errors import KubeError

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_black")
_LETTERS: Final = "abcdefghijklmnopqrstuvwyz"  # and _CLOSED
_FREE: Final = "·"
_CLOSED: Final = "x"
"""Free, on a node that is cordoned, leaving or not ready."""
_FRAME: Final = 20
"""Lines of titles, headings and the legend."""
_MOST_TENANTS: Final = 8
"""In the legend."""
_REST: Final = 4
"""Share of time that reading may take: a reading is followed by a pause of this many times its
own length, if that is longer than the interval."""


class ScreenContent(NamedTuple):
    """What is shown."""

    at: float
    waiting: Sequence[QueueEntry]
    gangs: Sequence[RunningGang]
    quotas: Sequence[QuotaView]
    nodes: Sequence[NodeUsage]
    warnings: Sequence[str] = ()

    def within(self, namespace: str) -> "ScreenContent":
        """Return it without what is in other namespaces; empty for all. Nodes stay."""
        if not namespace:
            return self
        return self._replace(
            waiting=[
                waiting_unit
                for waiting_unit in self.waiting
                if namespace in waiting_unit.namespaces
            ],
            gangs=[gang for gang in self.gangs if gang.name.startswith(f"{namespace}/")],
            quotas=[quota for quota in self.quotas if quota.namespace == namespace],
        )


def show(namespace: str, kubeconfig: str, context: str, interval: float) -> None:
    """Draw until Ctrl-C; once where the output is no terminal."""
    console = make_console()
    gc.enable()  # unlike in commands that end soon
    try:
        asyncio.run(_show(namespace, kubeconfig, context, interval, console))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    except KeyboardInterrupt:
        sys.exit(0)


async def _show(
    namespace: str, kubeconfig: str, context: str, interval: float, console: Console
) -> None:
    async with open_client(kubeconfig, context) as (client, access):
        target = Target(TargetKind.POD, namespace or access.namespace, "")

        async def take() -> ScreenContent:
            reading = await read_cluster(client, target)
            refuse_without_pods(reading, target)
            refuse_unknown_namespace(reading, namespace)
            content = make_screen_content(reading.state, find_waiting(reading, target), time.time())
            warnings = list_warnings(reading, target)
            return content._replace(warnings=warnings).within(namespace)

        content = await take()
        if not console.is_terminal:
            console.width = 100
            console.print(draw(content, console.width, sys.maxsize))
            return
        problem = ""
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(draw(content, console.width, console.height, problem), refresh=True)
                began = time.monotonic()
                try:
                    content, problem = await take(), ""
                except KubeError as error:
                    problem = str(error)
                await asyncio.sleep(max(interval, _REST * (time.monotonic() - began)))


def make_screen_content(
    state: ClusterState, waiting: Sequence[QueueEntry], at: float
) -> ScreenContent:
    quotas = view_quotas(state).quotas if state.quotas.is_in_use else ()
    return ScreenContent(at, waiting, list(find_running(state)), quotas, view_nodes(state))


def draw(content: ScreenContent, width: int, height: int, problem: str = "") -> RenderableType:
    """Draw the content; what does not fit is counted."""
    tenants = _colour(content.nodes)
    room = max(height - _FRAME - len(content.warnings), 8)
    rows_each = max(room // 5, 2)
    parts: list[RenderableType] = [_draw_head(content, problem)]
    if content.waiting:
        parts += _titled("WAITS", _draw_queue(content, room // 3))
    if content.gangs:
        parts += _titled("RUNS", _draw_gangs(content.gangs, rows_each))
    if content.quotas:
        parts += _titled("QUOTAS", Group(*draw_quotas(content.quotas[:rows_each])))
    taken = min(len(content.waiting), room // 3)
    taken += sum(min(len(rows), rows_each) for rows in (content.gangs, content.quotas))
    if content.nodes:
        parts += _titled("NODES", _draw_nodes(content.nodes, tenants, width, room - taken))
        parts.append(_draw_legend(tenants, content.nodes))
    return Group(*parts)


def _draw_legend(
    tenants: Mapping[str, tuple[str, str]], nodes: Sequence[NodeUsage]
) -> RenderableType:
    legend = [Text.assemble(drawn, f" {name}") for name, drawn in tenants.items()]
    free = [Text(f"{_FREE} free")]
    if any(node.state != "Ready" for node in nodes):
        free.append(Text(f"{_CLOSED} on a node that takes no pods"))
    return Columns([*legend[:_MOST_TENANTS], *free], padding=(0, 2))


def _titled(title: str, part: RenderableType) -> list[RenderableType]:
    return [Text(f"\n{title}", "bold"), part]


def _draw_head(content: ScreenContent, problem: str) -> Text:
    most = sum(_cards(node_usage.node.allocatable) for node_usage in content.nodes)
    used = sum(_cards(node.used) for node in content.nodes)
    nodes = f"{count_of(len(content.nodes), 'node')}, {used} of {most} GPUs used, "
    head = Text.assemble(
        ("koord watch ", "bold"),
        time.strftime("%H:%M:%S  ", time.localtime(content.at)),
        nodes if content.nodes else "",
        f"{count_of(len(content.gangs), 'gang')} running, {len(content.waiting)} waiting",
    )
    if problem:
        head.append(f"\nnot read again: {problem}", "red")
    for warning in content.warnings:
        head.append(f"\n{warning}", "yellow")
    return head


def _draw_queue(content: ScreenContent, most: int) -> RenderableType:
    right = ("#", "GPUS", "AGE")
    table = make_table("#", "UNIT", "GPUS", "AGE", "REASON", right=right, padding=2)
    for waiting_unit in content.waiting[:most]:
        name = f"{waiting_unit.names[0]}{' …' if len(waiting_unit.names) > 1 else ''}"
        reason = "Placeable" if waiting_unit.reason.is_placed else waiting_unit.reason.code
        age = format_age(content.at - waiting_unit.since)
        table.add_row(str(waiting_unit.position or ""), name, str(waiting_unit.gpus), age, reason)
    return _with_rest(table, len(content.waiting) - most)


def _draw_gangs(gangs: Sequence[RunningGang], most: int) -> RenderableType:
    table = make_table("GANG", "BOUND", "MIN", "GPUS", right=("BOUND", "MIN", "GPUS"), padding=2)
    for gang in gangs[:most]:
        style = "yellow" if gang.bound < gang.minimum else ""
        table.add_row(gang.name, Text(str(gang.bound), style), str(gang.minimum), str(gang.gpus))
    return _with_rest(table, len(gangs) - most)


def _draw_nodes(
    nodes: Sequence[NodeUsage], tenants: Mapping[str, tuple[str, str]], width: int, most: int
) -> RenderableType:
    """Draw a cell per GPU: the letter of who has it. Several nodes stand in one line."""
    longest = max(
        (len(node_usage.node.name) + _cards(node_usage.node.allocatable) for node_usage in nodes),
        default=0,
    )
    shown = most * max(width // (longest + 3), 1)
    cells = [_draw_node(node, tenants) for node in nodes[:shown]]
    return _with_rest(Columns(cells, padding=(0, 2), equal=True), len(nodes) - shown)


def _draw_node(node_usage: NodeUsage, tenants: Mapping[str, tuple[str, str]]) -> Text:
    text = Text.assemble(
        (node_usage.node.name, "" if node_usage.state == "Ready" else "yellow"), " "
    )
    count = _cards(node_usage.node.allocatable)
    owners = [
        tenants[pod.namespace]
        for pod in node_usage.pods
        if pod.namespace in tenants
        for _ in range(count_gpus(dict(pod.shape.requests)))
    ][:count]
    for letter, colour in owners:
        text.append(letter, colour)
    free = _FREE if node_usage.state == "Ready" else _CLOSED
    return text.append(free * (count - len(owners)), "" if free == _FREE else "dim")


def _with_rest(part: RenderableType, hidden: int) -> RenderableType:
    return part if hidden <= 0 else Group(part, Text(f"… and {hidden} more", "dim"))


def _colour(nodes: Sequence[NodeUsage]) -> dict[str, tuple[str, str]]:
    """Return letter and colour of each namespace that has GPUs, those with most first."""
    gpus: Counter[str] = Counter()
    for node in nodes:
        for pod in node.pods:
            gpus[pod.namespace] += count_gpus(dict(pod.shape.requests))
    order = sorted((-count, name) for name, count in gpus.items() if count)
    return {
        name: (_LETTERS[at] if at < len(_LETTERS) else "+", _COLOURS[at % len(_COLOURS)])
        for at, (_, name) in enumerate(order)
    }


def _cards(amounts: Mapping[str, int]) -> int:
    return sum(amounts.get(key, 0) for key in CARDS)
