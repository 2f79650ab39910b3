"""The objects and writes, as JSON: pods and PodGroups, and the writes that place a pod.

The writes of the ceiling are those of the operators, byte for byte but for the values; a test
compares them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from koord.api.gang import encode_bind_record

GATE: Final = "operators.koordinator.sh/placement"
PLAN: Final = "operators.koordinator.sh/plan"
PLAN_SIGNATURE: Final = f"{PLAN}-signature"
PLAN_ID: Final = "0123456789"
DIGEST: Final = "0" * 32
SIGNATURE: Final = f"{'0' * 8}.{DIGEST}"
DEVICE_PREFIX: Final = "scheduling.koordinator.sh/"
MOMENT: Final = "1767225600000000000"
ALLOCATED: Final = f"{DEVICE_PREFIX}device-allocated"
SCHEDULER: Final = "koord-scheduler"
GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
NAMESPACE: Final = "bench"
RESIDENTS: Final = "residents"
"""The namespace of the resident pods."""

_GROUPS: Final = "scheduling.sigs.k8s.io/v1alpha1"
QUOTAS_PATH: Final = f"/apis/{_GROUPS}/namespaces/{NAMESPACE}/elasticquotas"
QUEUE: Final = "operators.koordinator.sh/queue"
BACKFILL: Final = '{"policy": "Backfill"}'
ROOT_QUOTA: Final = "org"
QUOTA_LABEL: Final = "quota.scheduling.koordinator.sh/name"
DIVISIONS: Final = 4
TEAMS: Final = 4
"""Quotas of each division."""
GROUPS_PATH: Final = f"/apis/{_GROUPS}/podgroups"
WISH: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
TOPOLOGIES_PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def groups_path(namespace: str) -> str:
    return f"/apis/{_GROUPS}/namespaces/{namespace}/podgroups"


def make_namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def make_group(name: str, members: int, must_gather: str = "") -> dict[str, Any]:
    """Make a PodGroup that needs all members, within one domain of ``layer`` if it is given."""
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
    if must_gather:
        wish = {"gatherStrategy": [{"layer": must_gather, "strategy": "MustGather"}]}
        metadata["annotations"] = {WISH: json.dumps(wish)}
    return {
        "apiVersion": _GROUPS,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": members},
    }


def make_topology() -> dict[str, Any]:
    """Make the topology of the labels of the nodes."""
    names = ("DatacenterLayer", "SpineLayer", "BlockLayer")
    layers = [
        {"topologyLayer": name, "labelKey": [f"network.topology.nvidia.com/{label}"]}
        for name, label in zip(names, ("datacenter", "spine", "block"), strict=True)
    ]
    layers.append({"topologyLayer": "NodeTopologyLayer"})
    for above, below in pairwise(layers):
        below["parentTopologyLayer"] = above["topologyLayer"]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": "default"},
        "spec": {"networkTopologySpec": layers},
    }


def make_quotas() -> Iterator[dict[str, Any]]:
    """Make a tree of three levels, parents first, in which every max exceeds the capacity."""
    yield make_quota(ROOT_QUOTA, "", teams=DIVISIONS * TEAMS)
    for division in range(DIVISIONS):
        yield make_quota(f"division-{division}", ROOT_QUOTA, teams=TEAMS)
    for name in list_teams():
        yield make_quota(name, f"division-{name.split('-')[1]}")


def list_teams() -> list[str]:
    """Return the names of the quotas that take pods."""
    return [f"team-{one}-{two}" for two in range(TEAMS) for one in range(DIVISIONS)]


def make_quota(name: str, parent: str, teams: int = 0) -> dict[str, Any]:
    labels = {"parent": parent} if parent else {}
    labels |= {"is-parent": "true"} if teams else {}
    least = 16 * max(1, teams)
    prefix = QUOTA_LABEL.removesuffix("name")
    return {
        "apiVersion": _GROUPS,
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {f"{prefix}{key}": value for key, value in labels.items()},
        },
        "spec": {
            "min": {"cpu": str(least), "memory": f"{least}Gi"},
            "max": {"cpu": "100000", "memory": "1000Ti"},
        },
    }


@dataclass(frozen=True, slots=True)
class Pod:
    """The variable parts of a pod with one container; with ``node`` it is bound from the start."""

    namespace: str
    name: str
    requests: Mapping[str, str]
    scheduler: str
    group: str = ""
    quota: str = ""
    gated: bool = False
    node: str = ""


def make_pod(pod: Pod) -> dict[str, Any]:
    resources = {"requests": pod.requests, "limits": pod.requests}
    spec: dict[str, Any] = {
        "schedulerName": pod.scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "worker", "image": "busybox:1.37", "resources": resources}],
    }
    if pod.gated:
        spec["schedulingGates"] = [{"name": GATE}]
    if pod.node:
        spec["nodeName"] = pod.node
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace}
    labels = {GROUP_LABEL: pod.group, QUOTA_LABEL: pod.quota}
    if pod.group or pod.quota:
        metadata["labels"] = {key: value for key, value in labels.items() if value}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def make_release(uid: str, annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Make the patch that removes our gate from a pod and records the plan."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ]


def make_binding(
    namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Make the binding of a pod to its node, again with the plan."""
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**metadata, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def make_annotations(
    node: str, group: str, members: int, start_id: str = "0" * 16, *, has_devices: bool = False
) -> dict[str, str]:
    """Make the annotations of a placed pod; ids, digests and signatures are of their size only."""
    id_ = f"{NAMESPACE}/{group}" if group else ""
    of_gang = f',"group":"{id_}","members":{members},"strength":{members}' if group else ""
    of_gang += f',"start":"{start_id}"' if members > 1 else ""
    of_gang += ',"fixed":false'
    given = make_device_annotations(node) if has_devices else {}
    of_gang += f',"records":{{"{ALLOCATED}":"{DIGEST}"}}' if given else ""
    plan = f'{{"node":"{node}","plan":"{PLAN_ID}"{of_gang}}}'
    record = encode_bind_record(id_, members) if members > 1 else {}
    return {PLAN: plan, PLAN_SIGNATURE: SIGNATURE, **record, **given}


def make_device_annotations(node: str) -> dict[str, str]:
    """Make the annotations of a pod with one GPU."""
    gpu = {
        "minor": 0,
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "81251Mi",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
        "id": f"GPU-{node}-0",
    }
    return {
        ALLOCATED: json.dumps({"gpu": [gpu]}, separators=(",", ":")),
        f"{DEVICE_PREFIX}gpu-minors": "0",
        f"{DEVICE_PREFIX}gpu-uuids": f"GPU-{node}-0",
        f"{DEVICE_PREFIX}bind-timestamp": MOMENT,
    }
