"""Fake nodes: their shapes, and their creation.

A node is created with its status, Ready, in one request, as a kubelet does when it registers. kwok
stands in for its kubelet.

A ``NodeShape`` is what all fake nodes of it have in common, as read from its file.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from koord_sandbox.client import AdminClient
from koord_sandbox.errors import UnknownShapeError


class NodeLayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A layer of the network: nodes of one domain share the value of its label."""

    label: str
    prefix: str
    nodes: int
    """Number of consecutive nodes that share one value."""


class DevicePool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Equal devices of a node, spread evenly over its PCIe switches and NUMA nodes."""

    type: str
    count: int
    resources: dict[str, str]
    """Of each device."""
    switches: int = 1
    numa_nodes: int = 1
    functions: int = 0
    """SR-IOV virtual functions of each device."""


class NodeShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What all nodes of a shape have in common."""

    name: str
    description: str
    labels: dict[str, str]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    topology: tuple[NodeLayer, ...] = ()
    numa_nodes: int = 0
    """CPUs and memory are spread evenly over them; 0: nothing is reported about NUMA."""
    devices: tuple[DevicePool, ...] = ()
    partitions: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Sets of GPUs that the fabric lets work together, by size."""
    honors_partitions: bool = False


SHAPE_LABEL = "operators.koordinator.sh/sandbox-shape"
_SHAPES = Path(__file__).parent / "shapes"
_NODES = "/api/v1/nodes"
_NOT_READY = "node.kubernetes.io/not-ready"
PARALLEL = 8  # enough to keep an API server busy on two cores


def list_shapes() -> list[str]:
    return sorted(path.stem for path in _SHAPES.glob("*.yaml"))


def load_shape(name: str) -> NodeShape:
    if name not in list_shapes():
        raise UnknownShapeError(
            f"there is no node shape {name!r}; shapes are: {', '.join(list_shapes())}"
        )
    return msgspec.yaml.decode((_SHAPES / f"{name}.yaml").read_bytes(), type=NodeShape)


def make_node(shape: NodeShape, number: int) -> dict[str, Any]:
    name = f"{shape.name}-{number:04d}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _make_labels(shape, number, name)},
        "status": _make_status(shape, name),
    }


def add_nodes(client: AdminClient, count: int, shape: NodeShape) -> list[str]:
    """Create nodes, numbered after the existing ones; return their names."""
    first = _find_next_number(client, shape)
    nodes = [make_node(shape, number) for number in range(first, first + count)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(partial(_create_node, client), nodes))


def count_nodes(client: AdminClient) -> int:
    page = client.get(f"{_NODES}?limit=1")
    remaining: int = page["metadata"].get("remainingItemCount", 0)
    return len(page["items"]) + remaining


def _find_next_number(client: AdminClient, shape: NodeShape) -> int:
    selector = quote(f"{SHAPE_LABEL}={shape.name}")
    names = (
        item["metadata"]["name"]
        for item in client.get(f"{_NODES}?labelSelector={selector}")["items"]
    )
    return max((_parse_number(name) + 1 for name in names), default=0)


def _parse_number(name: str) -> int:
    suffix = name.rpartition("-")[2]
    return int(suffix) if suffix.isdecimal() else -1


def _create_node(client: AdminClient, node: Mapping[str, Any]) -> str:
    created = client.create(_NODES, node)
    name: str = created["metadata"]["name"]
    # Admission taints every new node as not ready. The controller manager would remove the taint,
    # one node at a time; a request of our own does not have to wait for it.
    taints = created["spec"].get("taints", [])
    if any(taint["key"] == _NOT_READY for taint in taints):
        kept = [taint for taint in taints if taint["key"] != _NOT_READY]
        client.patch(f"{_NODES}/{name}", {"spec": {"taints": kept}})
    return name


def _make_labels(shape: NodeShape, number: int, name: str) -> dict[str, str]:
    return {
        **shape.labels,
        **{layer.label: f"{layer.prefix}{number // layer.nodes}" for layer in shape.topology},
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        SHAPE_LABEL: shape.name,
    }


def _make_status(shape: NodeShape, name: str) -> dict[str, Any]:
    return {
        "capacity": shape.capacity,
        "allocatable": shape.allocatable,
        "conditions": [_make_ready_condition()],
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": "kwok",
        },
    }


def _make_ready_condition() -> dict[str, str]:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True",
        "reason": "SandboxNodeReady",
        "message": "the sandbox created this node",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }
