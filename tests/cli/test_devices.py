"""What ``koord devices`` prints."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from tests.device.test_plugin import gpu_cluster, part, settle, whole

from koord.cli.device_view import draw_node, list_nodes
from koord.cli.output import print_parts
from koord.core.device.plugin import Devices
from koord.core.device.status import observe_devices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from koord.core.device.model import DeviceReport
    from koord.core.device.status import NodeDeviceStatus


def printed(parts: Iterable[RenderableType]) -> str:
    console = Console(file=StringIO(), width=120, highlight=False)
    print_parts(parts, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def observed() -> list[tuple[DeviceReport, NodeDeviceStatus]]:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a", 2))
    settle(cluster, part("b", 30))
    plugin = cluster.state.plugin(Devices)
    report = plugin.reports["n0"]
    return [(report, observe_devices(plugin, report, cluster.state.pods))]


def test_nodes_are_listed_with_what_is_free() -> None:
    lines = printed(list_nodes(observed())).splitlines()
    assert lines[0].split() == [
        "NODE",
        "TYPE",
        "HEALTHY",
        "FREE",
        "SHARED",
        "LARGEST",
        "PODS",
        "STATE",
    ]
    assert lines[1].split() == ["n0", "gpu", "8/8", "5", "1", "5", "2", "Synced"]
    assert lines[2].split() == ["n0", "rdma", "4/4", "4", "0", "0", "Synced"]


def test_a_node_is_drawn_by_numa_node_and_switch() -> None:
    text = printed(draw_node(*observed()[0]))
    assert "NUMA node 0, PCIe pcie0" in text
    assert "gpu 0  in use  default/a" in text
    assert "gpu 2  free: core 70, memory 70  default/b" in text
    assert "gpu 3  free\n" in text
    assert "Largest number of GPUs that one pod can get: 5" in text


def test_without_devices() -> None:
    assert printed(list_nodes([])) == "No node reports devices: there is no Device object.\n"
