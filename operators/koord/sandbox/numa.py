"""A stand-in for koordlet: reports the NUMA nodes and CPUs of fake nodes as NodeResourceTopologies.

CPU n and CPU n plus the number of cores are the two threads of a core, as on most machines.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from koord.sandbox.client import AdminClient, wait_until_served
from koord.sandbox.errors import SandboxApiError
from koord.sandbox.nodes import PARALLEL, SHAPE_LABEL, load_shape

TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
DEFINITION: Final = Path(__file__).with_name("noderesourcetopologies.yaml")
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_THREADS: Final = 2
_CONFLICT: Final = 409


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
