"""What is written to nodes for their devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.device.nodes import report

from koord.controllers.device_status import RETRY_SECONDS, NodeResourcesPolicy
from koord.core.device.model import Inventory, NodeDevice, make_part
from koord.core.device.plugin import Devices
from koord.core.model.device_names import GPU, GPU_MEMORY_RATIO, NPU_CORE, NPU_CPU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.model.nodes import Node

LABELS = {"node.koordinator.sh/gpu-vendor": "nvidia", "other": "stays"}


class Writer:
    """Applies patches as the API server does, and counts them."""

    def __init__(self) -> None:
        self.cluster = make_cluster().nodes(make_node("n0").gpu(8).label("pool", "a"))
        self.patches: list[Mapping[str, Any]] = []
        self.fails = False
        self.policy = NodeResourcesPolicy(self.cluster.state, self)

    @property
    def node(self) -> Node:
        return self.cluster.state.table.node_at(self.cluster.row("n0"))

    async def patch(self, node: Node, body: Mapping[str, Any]) -> bool:
        self.patches.append(body)
        amounts = body.get("status", {}).get("allocatable", {})
        assert amounts == body.get("status", {}).get("capacity", {})
        metadata = body.get("metadata", {})
        listed = metadata.get("annotations", {"x": ",".join(node.published)}).popitem()[1]
        kept = {k: v for k, v in node.allocatable.items() if amounts.get(k, "") is not None}
        new = {k: int(v.removesuffix("Ki")) for k, v in amounts.items() if v is not None}
        labels = {**node.labels, **metadata.get("labels", {})}
        changed = replace(
            node,
            allocatable={**kept, **new},
            labels={key: value for key, value in labels.items() if value is not None},
            published=tuple(listed.split(",")) if listed else (),
        )
        self.cluster.nodes(changed)
        return self.fails

    async def settle(self) -> list[float | None]:
        return [await self.policy.update(name) for name in self.policy.changed()]

    @property
    def devices(self) -> Devices:
        return self.cluster.state.plugin(Devices)


async def test_devices_are_published_once_and_removed_with_their_device_object() -> None:
    writer = Writer()
    assert await writer.settle() == []
    writer.devices.upsert(report("n0", labels=LABELS))
    await writer.settle()
    amounts = writer.node.allocatable
    assert amounts["koordinator.sh/gpu"] == 800
    assert amounts["koordinator.sh/gpu.shared"] == 800
    assert amounts["koordinator.sh/rdma"] == 400
    assert amounts["nvidia.com/gpu"] == 8
    before = {"pool": "a", "kubernetes.io/hostname": "n0"}
    assert writer.node.labels == {**before, "node.koordinator.sh/gpu-vendor": "nvidia"}
    writes = len(writer.patches)
    writer.devices.remove(report("n0"))
    await writer.settle()
    assert len(writer.patches) == writes + 1
    assert not [key for key in writer.node.allocatable if "koordinator" in key]
    assert writer.node.labels == before
    assert writer.node.published == ()
    assert await writer.settle() == []
    assert len(writer.patches) == writes + 1


async def test_what_others_wrote_is_left_without_a_device_object() -> None:
    writer = Writer()
    writer.cluster.nodes(make_node("n0").resource("koordinator.sh/gpu", 800))
    assert await writer.settle() == []


async def test_a_write_that_fails_is_tried_again() -> None:
    writer = Writer()
    writer.fails = True
    writer.devices.upsert(report("n0"))
    assert await writer.settle() == [RETRY_SECONDS]


async def test_what_a_device_plugin_reports_itself_is_left_alone() -> None:
    writer = Writer()
    npu = NodeDevice(0, make_part({NPU_CORE: 20, NPU_CPU: 7, GPU_MEMORY_RATIO: 100}))
    writer.cluster.nodes(replace(writer.node, allocatable={NPU_CORE: 160}))
    writer.devices.upsert(report("n0", Inventory(((GPU, (npu,)),))))
    await writer.settle()
    assert writer.node.allocatable[NPU_CORE] == 160
    assert writer.node.allocatable[NPU_CPU] == 7
    assert NPU_CORE not in writer.node.published
    writer.devices.remove(report("n0"))
    await writer.settle()
    assert writer.node.allocatable == {NPU_CORE: 160}


async def test_old_names_are_published_while_pods_request_them() -> None:
    writer = Writer()
    writer.devices.upsert(report("n0"))
    pod = make_pod("p").resource("kubernetes.io/gpu-core", 50).build()
    writer.cluster.pods(pod)
    await writer.settle()
    assert writer.node.allocatable["kubernetes.io/gpu-core"] == 800
    writer.cluster.state.remove_pod(pod.uid)
    await writer.settle()
    assert "kubernetes.io/gpu-core" not in writer.node.allocatable
