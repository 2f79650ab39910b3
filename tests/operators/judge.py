"""Invariants of a cluster, checked from API objects and the audit log alone."""

from collections import Counter
from typing import Any

from tests.operators.conftest import GROUP_LABEL, SERVICE_ACCOUNT, Cluster

GPU = "nvidia.com/gpu"


def find_faults(cluster: Cluster) -> list[str]:
    """Return violations that must never occur: nodes over capacity, pods bound twice."""
    pods = list(cluster.pods().values())
    return [*_find_full(cluster, pods), *_find_bound_twice(cluster)]


def find_torn_gangs(cluster: Cluster) -> list[str]:
    """Return gangs with bound members, but fewer than their minimum."""
    bound: Counter[str] = Counter()
    for pod in cluster.pods().values():
        is_over = pod["status"].get("phase") in {"Succeeded", "Failed"}
        if "nodeName" in pod["spec"] and not is_over:
            bound[pod["metadata"].get("labels", {}).get(GROUP_LABEL, "")] += 1
    minimum = {
        one["metadata"]["name"]: one["spec"]["minMember"]
        for one in cluster.box.client.get(cluster.groups_path)["items"]
    }
    return [
        f"{name}: {bound[name]} of {least}"
        for name, least in minimum.items()
        if 0 < bound[name] < least
    ]


def count_bindings(cluster: Cluster) -> Counter[str]:
    """Count the successful bindings of each pod by the operators."""
    return Counter(
        write.name
        for write in cluster.box.writes(SERVICE_ACCOUNT)
        if write.namespace == cluster.namespace
        and write.subresource == "binding"
        and write.code < 300
    )


def _find_full(cluster: Cluster, pods: list[dict[str, Any]]) -> list[str]:
    used: Counter[str] = Counter()
    for pod in pods:
        if pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            used[pod["spec"].get("nodeName", "")] += sum(
                int(one["resources"]["limits"][GPU]) for one in pod["spec"]["containers"]
            )
    nodes = cluster.box.client.get(f"/api/v1/nodes?labelSelector=test={cluster.namespace}")
    room = {
        node["metadata"]["name"]: int(node["status"]["allocatable"][GPU]) for node in nodes["items"]
    }
    return [
        f"{name} holds {used[name]} of {most}" for name, most in room.items() if used[name] > most
    ]


def _find_bound_twice(cluster: Cluster) -> list[str]:
    return [
        f"{pod} bound {count} times" for pod, count in count_bindings(cluster).items() if count > 1
    ]
