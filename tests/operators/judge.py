"""Invariants of a cluster, checked from API objects, their history and the audit log alone."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tests.operators.conftest import GROUP_LABEL, SERVICE_ACCOUNT, Cluster

from koord.kube.translate.amounts import parse_amount


def find_faults(cluster: Cluster) -> list[str]:
    """Return what must never have happened: nodes over capacity, pods on more than one node."""
    events = list(_replay(cluster))
    return [*_find_full(cluster, events), *_find_moved(events)]


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


def _replay(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Yield what happened to the pods, from a watch; if that is too long ago, how they are now."""
    path = f"{cluster.pods_path}?watch=1&timeoutSeconds=1&resourceVersion={cluster.began_at}"
    _, payload = cluster.box.client._exchange("GET", path, None, "application/json")
    events = [json.loads(line) for line in payload.splitlines()]
    if any(event["type"] == "ERROR" for event in events):
        events = [{"type": "ADDED", "object": pod} for pod in cluster.pods().values()]
    yield from events


def _find_moved(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return the pods that were seen on more than one node."""
    nodes: dict[str, set[str]] = {}
    for pod in (event["object"] for event in events):
        if node := pod["spec"].get("nodeName"):
            nodes.setdefault(f"{pod['metadata']['name']} {pod['metadata']['uid']}", set()).add(node)
    return [f"{pod} was on {sorted(seen)}" for pod, seen in nodes.items() if len(seen) > 1]


def _find_full(cluster: Cluster, events: Iterable[dict[str, Any]]) -> list[str]:
    """Return the nodes that held too much of any resource at any time."""
    items = cluster.box.client.get(f"/api/v1/nodes?labelSelector=test={cluster.namespace}")["items"]
    room = {one["metadata"]["name"]: _read_amounts(one["status"]["allocatable"]) for one in items}
    pods: dict[str, dict[str, Any]] = {}
    most: dict[tuple[str, str], int] = {}
    for event in events:
        pod = event["object"]
        pods[pod["metadata"]["uid"]] = pod
        is_over = pod["status"].get("phase") in {"Succeeded", "Failed"}
        if event["type"] == "DELETED" or is_over or "nodeName" not in pod["spec"]:
            del pods[pod["metadata"]["uid"]]
            continue
        node = pod["spec"]["nodeName"]
        used = sum(
            (_requests_of(one) for one in pods.values() if one["spec"]["nodeName"] == node),
            Counter(),
        )
        for resource, amount in used.items():
            most[node, resource] = max(amount, most.get((node, resource), 0))
    return [
        f"{node} held {amount} of {room[node].get(resource, 0)} {resource}"
        for (node, resource), amount in most.items()
        if node in room and amount > room[node].get(resource, 0)
    ]


def _requests_of(pod: dict[str, Any]) -> Counter[str]:
    """Return the requests of a pod; the API server has set those that only limits name."""
    every = [
        _read_amounts(one["resources"].get("requests", {})) for one in pod["spec"]["containers"]
    ]
    return sum(every, Counter({"pods": 1}))


def _read_amounts(amounts: dict[str, str]) -> Counter[str]:
    return Counter({name: parse_amount(name, amount) for name, amount in amounts.items()})
