"""Reports what nodes use, as koordlet would: NodeMetrics from the nodes and pods on standard input.

    kubectl get nodes,pods -A -o json | python examples/colocation/report.py 20 | kubectl apply -f -

Pods use the given percentage of the CPU and memory that they request, and batch pods all that they
request. A simulation for clusters whose nodes are fake: on real ones koordlet or metrics-server
measures.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any

BATCH = {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"}
SIZES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1000, "M": 1000**2, "G": 1000**3}
SYSTEM = {"cpu": 500, "memory": 2**30}
"""What runs beside pods: milli-CPU and bytes."""


def parse(quantity: str) -> float:
    """Return a quantity as a number: CPUs, bytes, or pieces."""
    for suffix, size in SIZES.items():
        if quantity.endswith(suffix):
            return float(quantity.removesuffix(suffix)) * size
    is_milli = quantity.endswith("m")
    return float(quantity.removesuffix("m")) / (1000 if is_milli else 1)


def measure(pod: dict[str, Any], percent: float) -> dict[str, int]:
    """Return the milli-CPU and bytes that a pod uses."""
    use = {"cpu": 0.0, "memory": 0.0}
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests", {})
        for name, batch in BATCH.items():
            milli = 1000 if name == "cpu" else 1
            use[name] += parse(requests.get(name, "0")) * milli * percent / 100
            use[name] += parse(requests.get(batch, "0"))
    return {name: round(amount) for name, amount in use.items()}


def write(use: dict[str, int]) -> dict[str, Any]:
    return {"resources": {"cpu": f"{use['cpu']}m", "memory": str(use["memory"])}}


def report(node: str, pods: list[dict[str, Any]], percent: float, time: str) -> dict[str, Any]:
    """Return the NodeMetric of a node with these pods."""
    uses = {
        (pod["metadata"]["namespace"], pod["metadata"]["name"]): measure(pod, percent)
        for pod in pods
    }
    total = {name: SYSTEM[name] + sum(use[name] for use in uses.values()) for name in SYSTEM}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": node},
        "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 60}},
        "status": {
            "updateTime": time,
            "nodeMetric": {"nodeUsage": write(total), "systemUsage": write(SYSTEM)},
            "podsMetric": [
                {"namespace": namespace, "name": name, "podUsage": write(use)}
                for (namespace, name), use in uses.items()
            ],
        },
    }


def main() -> None:
    items = json.load(sys.stdin)["items"]
    percent = float(sys.argv[1])
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pods = [item for item in items if item["kind"] == "Pod"]
    nodes = [item["metadata"]["name"] for item in items if item["kind"] == "Node"]
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    metrics = [
        report(node, [pod for pod in running if pod["spec"].get("nodeName") == node], percent, time)
        for node in nodes
    ]
    json.dump({"apiVersion": "v1", "kind": "List", "items": metrics}, sys.stdout)


if __name__ == "__main__":
    main()
