"""Reports devices and NUMA nodes of fake nodes, in place of the agents of nodes and of koordlet.

What a shape has is data in its file. Devices can be made to fail and to recover. The custom
resources must be installed first.

NUMA nodes and CPUs are reported as NodeResourceTopologies. CPU n and CPU n plus the number of cores
are the two threads of a core, as on most machines.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from koord_sandbox.client import AdminClient, wait_until_served
from koord_sandbox.errors import SandboxApiError, SandboxError
from koord_sandbox.nodes import PARALLEL, SHAPE_LABEL, DevicePool, NodeShape, load_shape

DEVICES: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
_LABELS: Final = ("node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model")
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class NoSuchDeviceError(SandboxError):
    """A device that is to fail or recover does not exist."""


def report_devices(client: AdminClient) -> list[str]:
    """Create the Device objects of all nodes whose shape has devices; return their names.

    Those that exist are left as they are.
    """
    nodes = client.get(f"/api/v1/nodes?labelSelector={quote(SHAPE_LABEL)}")["items"]
    made = []
    for node in nodes:
        shape = load_shape(node["metadata"]["labels"][SHAPE_LABEL])
        if shape.devices:
            made.append(make_device(shape, node["metadata"]["name"], node["metadata"]["uid"]))
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda body: _create_device(client, body), made))
    return [body["metadata"]["name"] for body in made]


def _create_device(client: AdminClient, body: Mapping[str, Any]) -> None:
    try:
        _create(client, DEVICES, body)
    except SandboxApiError as error:
        if error.status == _NOT_FOUND:
            raise SandboxError(
                "the cluster has no Devices; install the CRDs first: "
                "kubectl apply --server-side -f crds/"
            ) from error
        raise


def set_health(client: AdminClient, device: str, *, is_healthy: bool) -> None:
    """Let a device, as ``NODE/TYPE/MINOR``, fail or recover. Raises NoSuchDeviceError."""
    node, _, type_and_minor = device.partition("/")
    kind, _, minor = type_and_minor.partition("/")
    try:
        report = client.get(f"{DEVICES}/{node}")
    except SandboxApiError as error:
        raise NoSuchDeviceError(f"there is no Device {node!r}: {error}") from error
    devices = report["spec"].get("devices") or []
    mine = [device for device in devices if (device["type"], str(device["minor"])) == (kind, minor)]
    if not mine:
        names = ", ".join(f"{node}/{device['type']}/{device['minor']}" for device in devices)
        raise NoSuchDeviceError(f"there is no device {device!r}; there are: {names}")
    mine[0]["health"] = is_healthy
    client.patch(f"{DEVICES}/{node}", {"spec": {"devices": devices}})


def make_device(shape: NodeShape, node: str, uid: str) -> dict[str, Any]:
    """Return the Device object of a node, which goes with the node."""
    labels: dict[str, str] = {key: shape.labels[key] for key in _LABELS if key in shape.labels}
    metadata: dict[str, Any] = {
        "name": node,
        "labels": labels,
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
        ],
    }
    if shape.partitions:
        table = {
            str(len(sets[0])): [{"minors": list(minors)} for minors in sets]
            for sets in shape.partitions
        }
        text = msgspec.json.encode(table).decode()
        metadata["annotations"] = {"scheduling.koordinator.sh/gpu-partitions": text}
        if shape.honors_partitions:
            labels["node.koordinator.sh/gpu-partition-policy"] = "Honor"
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": metadata,
        "spec": {
            "devices": [
                device
                for bus, pool in enumerate(shape.devices)
                for device in _make_pool(pool, node, bus)
            ]
        },
    }


def _make_pool(pool: DevicePool, node: str, domain: int) -> Iterator[dict[str, Any]]:
    """Yield the devices of a pool, each pool in a PCI domain of its own."""
    for minor in range(pool.count):
        numa = minor * pool.numa_nodes // pool.count
        switch = minor * pool.switches // pool.count
        bus = f"{domain:04x}:{16 * switch + minor % 16 + 1:02x}:00"
        made: dict[str, Any] = {
            "type": pool.type,
            "minor": minor,
            "health": True,
            "id": f"{bus}.0" if pool.functions else f"{pool.type.upper()}-{node}-{minor}",
            "resources": pool.resources,
            "topology": {
                "socketID": numa,
                "nodeID": numa,
                "pcieID": f"pcie{switch}",
                "busID": f"{bus}.0",
            },
        }
        if pool.functions:
            functions = [{"minor": -1, "busID": f"{bus}.{n + 1}"} for n in range(pool.functions)]
            made["vfGroups"] = [{"labels": {"type": "general"}, "vfs": functions}]
        yield made


TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
DEFINITION: Final = Path(__file__).with_name("noderesourcetopologies.yaml")
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_THREADS: Final = 2


def report_numa(client: AdminClient) -> list[str]:
    """Report all nodes whose shape has NUMA nodes; return their names.

    Those that exist are left as they are. The definition is installed if it is missing.
    """
    nodes = client.get(f"/api/v1/nodes?labelSelector={quote(SHAPE_LABEL)}")["items"]
    shapes = [(load_shape(node["metadata"]["labels"][SHAPE_LABEL]), node) for node in nodes]
    made = [
        make_report(node["metadata"]["name"], shape.capacity, shape.numa_nodes)
        for shape, node in shapes
        if shape.numa_nodes
    ]
    if made:
        install_definition(client)
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda body: _create(client, TOPOLOGIES, body), made))
    return [body["metadata"]["name"] for body in made]


def install_definition(client: AdminClient) -> None:
    body = msgspec.yaml.decode(DEFINITION.read_bytes())
    _create(client, _DEFINITIONS, body)
    wait_until_served(client, body["metadata"]["name"])


def _create(client: AdminClient, path: str, body: Mapping[str, Any]) -> None:
    try:
        client.create(path, body)
    except SandboxApiError as error:
        if error.status != _CONFLICT:
            raise


def make_report(node: str, capacity: Mapping[str, str], numa_nodes: int) -> dict[str, Any]:
    """Return the NodeResourceTopology of a node: its CPUs and memory divided evenly.

    Every NUMA node is a socket.
    """
    cores = int(capacity["cpu"]) // _THREADS
    places = [
        {
            "id": cpu,
            "core": cpu % cores,
            "socket": cpu % cores * numa_nodes // cores,
            "node": cpu % cores * numa_nodes // cores,
        }
        for cpu in range(cores * _THREADS)
    ]
    amounts = {name: _divide(capacity[name], numa_nodes) for name in ("cpu", "memory")}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "annotations": {
                "node.koordinator.sh/cpu-topology": msgspec.json.encode({"detail": places}).decode()
            },
        },
        "topologyPolicies": ["None"],
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": n, "allocatable": n, "available": n}
                    for name, n in amounts.items()
                ],
            }
            for number in range(numa_nodes)
        ],
    }


def _divide(quantity: str, parts: int) -> str:
    digits = quantity.rstrip("KMGTi")
    unit = quantity[len(digits) :]
    if unit == "Ti":
        digits, unit = str(int(digits) * 1024), "Gi"
    return f"{int(digits) // parts}{unit}"
