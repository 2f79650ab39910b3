"""Valid objects of every kind that is read, as the API server sends them, to be mutated."""

from typing import Any

from koord.api.keys import device, gang, operators, quota, reservation

Body = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SINCE = "2025-01-01T00:00:00Z"
BY_APP = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "t", "operator": "Exists"}]}
TERM = {"topologyKey": "zone", "labelSelector": BY_APP, "namespaceSelector": {}}
NODE_TERM = {
    "matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "size", "operator": "Gt", "values": ["3"]},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}],
}
RESOURCES = {"requests": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"}}
PLAN = (
    '{"node":"n0","plan":"abc","group":"ns/g,ns/h","members":2,"strength":2,"gap":"rack+1",'
    '"youngest":1735689600,"start":"0123"}'
)
GANG_ANNOTATIONS = {
    gang.NAME: "g",
    gang.MIN_AVAILABLE: "2",
    gang.TOTAL_NUMBER: "3",
    gang.WAITING_TIME: "1m30s",
    gang.MODE: "NonStrict",
    gang.MATCH_POLICY: "once-satisfied",
    gang.GROUPS: '["ns/g","ns/h"]',
    gang.NETWORK_TOPOLOGY_SPEC: '{"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}',
    operators.SUB_GROUPS: (
        '{"minSubGroups":1,"groups":[{"name":"a","minMember":1},'
        '{"name":"b","minMember":1,"parent":"a"}]}'
    ),
    operators.TOPOLOGY: "default",
    operators.ON_MEMBER_FAILURE: "RestartGang",
}
POD_ANNOTATIONS = {
    **GANG_ANNOTATIONS,
    gang.NETWORK_TOPOLOGY_INDEX: "3",
    gang.NETWORK_TOPOLOGY_SELECTOR: "together",
    operators.SUB_GROUP: "a",
    device.ALLOCATE_HINT: '{"rdma":{"selector":{"matchLabels":{"type":"vf"}}}}',
    device.JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
    device.GPU_PARTITION_SPEC: '{"allocatePolicy":"Restricted"}',
    device.RESOURCE_SPEC: '{"requiredCPUBindPolicy":"FullPCPUs"}',
    reservation.AFFINITY: '{"name":"r"}',
}


def _meta(name: str, **more: Any) -> Body:
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": SINCE,
        "labels": {"app": "web", "zone": "a"},
        "annotations": {"note": "text"},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "1", "controller": True}],
        **more,
    }


def _condition(kind: str) -> Body:
    return {"type": kind, "status": "False", "reason": "R", "lastTransitionTime": SINCE}


def _pod() -> Body:
    container = {
        "name": "c",
        "resources": RESOURCES,
        "ports": [{"hostPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"}],
    }
    weighed = [{"weight": 5, "podAffinityTerm": TERM}]
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": BY_APP,
        "matchLabelKeys": ["app"],
        "minDomains": 2,
        "nodeTaintsPolicy": "Honor",
    }
    return {
        "metadata": _meta(
            "p",
            labels={"app": "web", quota.NAME: "q", quota.PREEMPTIBLE: "false"},
            annotations=POD_ANNOTATIONS,
        ),
        "spec": {
            "schedulerName": operators.SCHEDULER_NAME,
            "schedulingGates": [{"name": operators.PLACEMENT_GATE}],
            "priority": 7,
            "nodeSelector": {"zone": "a"},
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [NODE_TERM]},
                    PREFERRED: [{"weight": 3, "preference": NODE_TERM}],
                },
                "podAffinity": {REQUIRED: [TERM], PREFERRED: weighed},
                "podAntiAffinity": {REQUIRED: [TERM], PREFERRED: weighed},
            },
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": ""}],
            "containers": [container],
            "initContainers": [{**container, "name": "i", "restartPolicy": "Always"}],
            "overhead": {"cpu": "10m"},
            "resources": RESOURCES,
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            ],
            "topologySpreadConstraints": [spread, {**spread, "whenUnsatisfiable": "Schedule"}],
        },
        "status": {
            "phase": "Pending",
            "startTime": SINCE,
            "conditions": [_condition(operators.PLACED), _condition("PodScheduled")],
            "containerStatuses": [{"name": "c", "resources": RESOURCES}],
        },
    }


def _bound_pod() -> Body:
    body = _pod()
    body["metadata"] |= {"name": "b", "uid": "uid-b"}
    body["metadata"]["annotations"] = {operators.PLAN: PLAN, **GANG_ANNOTATIONS}
    body["spec"] |= {"nodeName": "n0", "schedulingGates": []}
    body["status"]["phase"] = "Running"
    return body


def _plain_pod() -> Body:
    spec = {"schedulerName": operators.SCHEDULER_NAME, "containers": [{"name": "c"}]}
    return {"metadata": _meta("s"), "spec": spec, "status": {"phase": "Pending"}}


_QUOTA_ANNOTATIONS = {
    quota.SHARED_WEIGHT: '{"cpu":"10"}',
    quota.NAMESPACES: '["ns"]',
    quota.TOTAL_RESOURCE: '{"cpu":"100"}',
    quota.ADMISSION: '{"cpu":"50"}',
    operators.NODE_SELECTOR: '{"matchLabels":{"zone":"a"}}',
}

SAMPLES: dict[str, tuple[Body, ...]] = {
    "pods": (_pod(), _bound_pod(), _plain_pod()),
    "nodes": (
        {
            "metadata": _meta("n0", namespace=""),
            "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        },
    ),
    "podgroups": (
        {
            "metadata": _meta("g", annotations=GANG_ANNOTATIONS),
            "spec": {
                "minMember": 2,
                "scheduleTimeoutSeconds": 60,
                "schedulingPolicy": {"gang": {"minCount": 2}},
            },
            "status": {
                "phase": "Pending",
                "occupiedBy": "ns/j",
                "scheduleStartTime": SINCE,
                "attempts": 3,
                "conditions": [_condition("Placed")],
            },
        },
    ),
    "elasticquotas": (
        {
            "metadata": _meta(
                "q",
                labels={quota.PARENT: "root", quota.IS_PARENT: "true", quota.TREE_ID: "t"},
                annotations=_QUOTA_ANNOTATIONS,
            ),
            "spec": {"min": {"cpu": "10"}, "max": {"cpu": "20", "nvidia.com/gpu": 4}},
            "status": {"used": {"cpu": "1"}, "lastValidSpec": {"spec": {"max": {"cpu": "1"}}}},
        },
    ),
    "elasticquotaprofiles": (
        {
            "metadata": _meta("profile", annotations={quota.RESOURCE_KEYS: '["cpu"]'}),
            "spec": {
                "quotaName": "q",
                "quotaLabels": {"a": "b"},
                "resourceRatio": "0.8",
                "nodeSelector": BY_APP,
            },
            "status": {"lastValidSpec": {"spec": {"quotaName": "q"}}},
        },
    ),
    "clusternetworktopologies": (
        {
            "metadata": _meta("default", namespace=""),
            "spec": {
                "networkTopologySpec": [
                    {"topologyLayer": "zone", "labelKey": ["zone"]},
                    {"topologyLayer": "rack", "parentTopologyLayer": "zone", "labelKey": ["rack"]},
                ]
            },
            "status": {"lastValidSpec": None},
        },
    ),
    "namespaces": ({"metadata": _meta("ns", namespace="")},),
    "persistentvolumeclaims": (
        {
            "metadata": _meta("claim", annotations={"pv.kubernetes.io/bind-completed": "yes"}),
            "spec": {
                "volumeName": "pv",
                "storageClassName": "class",
                "accessModes": ["ReadWriteOncePod"],
            },
            "status": {"phase": "Bound"},
        },
    ),
    "persistentvolumes": (
        {
            "metadata": _meta("pv", labels={"topology.kubernetes.io/zone": "a__b"}),
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [NODE_TERM]}}},
        },
    ),
    "priorityclasses": ({"metadata": _meta("high"), "value": 7, "preemptionPolicy": "Never"},),
    "storageclasses": ({"metadata": _meta("class"), "volumeBindingMode": "WaitForFirstConsumer"},),
    "noderesourcetopologies": (
        {
            "metadata": _meta(
                "n0",
                namespace="",
                annotations={
                    device.CPU_TOPOLOGY: '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}',
                    device.POD_CPU_ALLOCS: '[{"uid":"u","cpuset":"0-1"}]',
                    device.CPU_MANAGER_POLICY: '{"policy":"static","reservedCPUs":"0"}',
                },
            ),
            "topologyPolicies": ["SingleNUMANodePodLevel"],
            "zones": [
                {
                    "name": "node-0",
                    "type": "Node",
                    "resources": [{"name": "cpu", "capacity": "8", "allocatable": "7500m"}],
                }
            ],
        },
    ),
    "nodemetrics": (
        {
            "metadata": _meta("n0", namespace=""),
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            "status": {
                "updateTime": "2026-01-01T00:00:00Z",
                "nodeMetric": {
                    "nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}},
                    "systemUsage": {"resources": {"cpu": "100m"}},
                    "aggregatedNodeUsages": [
                        {"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "2"}}}}
                    ],
                },
                "podsMetric": [
                    {
                        "namespace": "default",
                        "name": "p",
                        "priority": "koord-prod",
                        "podUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                    }
                ],
            },
        },
    ),
    "resourceclaims": (
        {
            "metadata": _meta("claim"),
            "status": {
                "allocation": {
                    "devices": {"results": [{"driver": "gpu.nvidia.com", "adminAccess": False}]},
                    "nodeSelector": {"nodeSelectorTerms": [NODE_TERM]},
                }
            },
        },
    ),
    "devices": (
        {
            "metadata": _meta("n0", namespace=""),
            "spec": {
                "devices": [
                    {
                        "type": "gpu",
                        "minor": 0,
                        "health": True,
                        "id": "GPU-1",
                        "resources": {"koordinator.sh/gpu-core": "100"},
                        "topology": {"socketID": 0, "nodeID": 0, "pcieID": "0"},
                        "vfGroups": [{"labels": {"a": "b"}, "vfs": [{"minor": 1, "busID": "x"}]}],
                    }
                ]
            },
            "status": {},
        },
    ),
}


def samples_of(plural: str) -> tuple[Body, ...]:
    """Return the samples of a kind; a kind without any starts from bare metadata."""
    return SAMPLES.get(plural, ({"metadata": _meta(plural), "spec": {}, "status": {}},))
