"""Reads the cluster and prints the devices of nodes: what ``koord devices`` does.

Not imported for ``--help``.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from koord.answers.devices import NodeDevices, view_devices
from koord.answers.encoding import encode
from koord.answers.gaps import head_of
from koord.cli.cluster import read_without_target, refuse_gaps
from koord.cli.common import ExitCode, Output, fail
from koord.cli.output import count_of, make_table, print_in
from koord.core.device.model import DeviceLocation, DeviceReport, NodeDevice
from koord.core.device.plugin import Devices
from koord.core.device.status import DeviceState, NodeDeviceStatus
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koord.core.model.text import suggest
from koord.core.model.units import format_amount
from koord.domains.device import DEVICES
from koord.domains.placement import NODES

_SHORT: Final = {GPU_CORE: "core", GPU_MEMORY_RATIO: "memory", GPU_MEMORY: ""}
"""How the free amounts of a GPU are called; its bytes are left out."""


def show(node: str, kubeconfig: str, context: str, *, output: Output) -> None:
    reading, _ = read_without_target(kubeconfig, context)
    refuse_gaps(reading, DEVICES, NODES)
    plugin = reading.state.plugin(Devices)
    if node and node not in plugin.reports:
        fail(f"there is no Device {node}{suggest(node, plugin.reports)}", ExitCode.USAGE)
    nodes = view_devices(reading.state, [node] if node else sorted(plugin.reports))
    print_in(
        output,
        head_of("Devices", reading),
        document=lambda: {"devices": encode(nodes)},
        names=lambda: (f"device/{report.node}" for report, _ in nodes),
        text=lambda: draw_node(*nodes[0]) if node else list_nodes(nodes),
    )


def list_nodes(nodes: Sequence[NodeDevices]) -> Iterator[RenderableType]:
    if not nodes:
        yield "No node reports devices: there is no Device object."
        return
    table = make_table(
        "NODE", "TYPE", "HEALTHY", "FREE", "SHARED", "LARGEST", "PODS", "STATE",
        right=("HEALTHY", "FREE", "SHARED", "LARGEST", "PODS"),
    )  # fmt: skip
    for report, status in nodes:
        for kind, count in status.counts.items():
            pods = {holder.uid for holder in status.pods if holder.kind == kind}
            largest = str(status.largest) if kind == GPU else ""
            table.add_row(
                report.node,
                kind,
                f"{count.healthy}/{count.total}",
                str(count.free),
                str(count.shared),
                largest,
                str(len(pods)),
                str(status.readiness),
            )
    yield table


def draw_node(report: DeviceReport, status: NodeDeviceStatus) -> Iterator[RenderableType]:
    """Draw the devices of a node by NUMA node and PCIe switch."""
    states = {(device.kind, device.minor): device for device in status.devices}
    root = Tree(Text(f"{report.node}: {status.describe()}", "bold"))
    branches: dict[tuple[int, str], Tree] = {}
    placed = sorted(
        (
            (device.place or DeviceLocation(), kind, device)
            for kind, pool in report.devices
            for device in pool
        ),
        key=lambda located: (located[0].numa, located[0].pcie, located[1], located[2].minor),
    )
    for place, kind, device in placed:
        at = (place.numa, place.pcie)
        if at not in branches:
            branches[at] = root.add(Text(_name_place(place)))
        branches[at].add(_describe(kind, device, states.get((kind, device.minor))))
    yield root
    if status.foreign:
        yield Text(status.describe_foreign(), "yellow")
    if status.strayed:
        yield Text(status.describe_records(), "yellow")
    yield f"Largest number of GPUs that one pod can get: {status.largest}"


def _name_place(place: DeviceLocation) -> str:
    if place.numa < 0 and not place.pcie:
        return "place unknown"
    return f"NUMA node {place.numa}, PCIe {place.pcie or 'unknown'}"


def _describe(kind: str, device: NodeDevice, state: DeviceState | None) -> Text:
    name = Text(f"{kind} {device.minor}  ", "bold")
    if not device.total:
        return Text.assemble(name, ("unhealthy", "red"), _name_pods(state))
    if state is None:
        return Text.assemble(name, "not in use")
    free = [
        f"{_SHORT.get(key, key)} {format_amount(key, amount)}"
        for key, amount in state.free
        if _SHORT.get(key, key)
    ]
    if not state.pods:
        return Text.assemble(name, ("free", "green"))
    if not any(amount for _, amount in state.free):
        return Text.assemble(name, ("in use", "yellow"), _name_pods(state))
    return Text.assemble(name, (f"free: {', '.join(free)}", "cyan"), _name_pods(state))


def _name_pods(state: DeviceState | None) -> str:
    pods = state.pods if state is not None else ()
    if not pods:
        return ""
    hidden = f" and {count_of(len(pods) - 8, 'more pod')}" if len(pods) > 8 else ""
    return f"  {', '.join(pods[:8])}{hidden}"
