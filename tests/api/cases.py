# ruff: noqa: E501 - a table: one case to a line
"""Objects that must be refused, by the API server and by the models alike, and what both say."""

from dataclasses import dataclass
from typing import Any

from koord.api.crdgen import RESOURCE_BY_KIND

SIGS = "scheduling.sigs.k8s.io/v1alpha1"
KOORDINATOR = "scheduling.koordinator.sh/v1alpha1"
NODE_LAYER = {"topologyLayer": "NodeTopologyLayer"}
MINIMAL: dict[str, dict[str, Any]] = {
    "PodGroup": {"minMember": 1},
    "ElasticQuota": {"min": {"cpu": 1}, "max": {"cpu": 1}},
    "Reservation": {"template": {}, "owners": [{"labelSelector": {}}]},
    "Device": {"devices": [{"type": "gpu"}]},
    "ClusterNetworkTopology": {"networkTopologySpec": [NODE_LAYER]},
    "ElasticQuotaProfile": {"quotaName": "root", "nodeSelector": {}},
    "RebalancePolicy": {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 60}},
    "DefragmentationPolicy": {"shapes": ["8"]},
    "ColocationPolicy": {},
    "NodeSLO": {},
    "NodeMaintenance": {
        "nodes": ["n7"],
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-01T02:00:00Z",
    },
    "ClusterColocationProfile": {"qosClass": "BE"},
    "PodMigrationJob": {"podRef": {"namespace": "ml", "name": "web-0"}},
}


def make_object(kind: str, name: str = "sample", **spec: Any) -> dict[str, Any]:
    """Make an object with the smallest valid spec, in which `spec` replaces fields (None removes)."""
    fields = {key: value for key, value in (MINIMAL[kind] | spec).items() if value is not None}
    return {
        "apiVersion": RESOURCE_BY_KIND[kind].names.api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": fields,
    }


@dataclass(frozen=True)
class RefusedSpec:
    """A spec, the field that the models name, and a part of both messages."""

    kind: str
    spec: dict[str, Any]
    field: str
    message: str
    server_field: str = ""
    """Where the server writes the field in another way."""
    server_message: str = ""
    """Where the server has words of its own."""

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.field}-{self.message}"


def layers(*chain: tuple[str, str | None], label: str = "x") -> dict[str, Any]:
    """Make a list of (layer, parent); all but the node layer get a label."""
    made = []
    for layer, parent in chain:
        entry: dict[str, Any] = {"topologyLayer": layer}
        if parent is not None:
            entry["parentTopologyLayer"] = parent
        if layer != "NodeTopologyLayer":
            entry["labelKey"] = [label]
        made.append(entry)
    return {"networkTopologySpec": made}


def devices(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"devices": list(entries)}


NODE = "NodeTopologyLayer"
EXPRESSIONS = "spec.nodeSelector.matchExpressions"


def select(*requirements: dict[str, Any]) -> dict[str, Any]:
    """Make a selector of nodes."""
    return {"nodeSelector": {"matchExpressions": list(requirements)}}


LIST = "spec.networkTopologySpec"
LONG = "x" * 64
DEVICE = {"type": "gpu", "minor": 0}

REFUSALS = [
    # PodGroup
    RefusedSpec("PodGroup", {"minMember": None}, "spec.minMember", "is required", "", "Required value"),
    RefusedSpec("PodGroup", {"minMember": 0}, "spec.minMember", "minMember must be at least 1"),
    RefusedSpec("PodGroup", {"minMember": -3}, "spec.minMember", "minMember must be at least 1"),
    RefusedSpec("PodGroup", {"minMember": 10**9}, "spec.minMember", "minMember must be at most 100000"),
    RefusedSpec("PodGroup", {"minMember": "8"}, "spec.minMember", "whole number", "", "must be of type integer"),
    RefusedSpec("PodGroup", {"minMember": 1.5}, "spec.minMember", "whole number", "", "must be of type integer"),
    RefusedSpec("PodGroup", {"scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds", "scheduleTimeoutSeconds must not be negative"),
    RefusedSpec("PodGroup", {"scheduleTimeoutSeconds": 2**31}, "spec.scheduleTimeoutSeconds", "less than or equal to 2147483647"),
    RefusedSpec("PodGroup", {"minResources": {"cpu": "-1"}}, "spec.minResources.cpu", "must not be negative", "", "should match"),
    RefusedSpec("PodGroup", {"minResources": {"cpu": -1}}, "spec.minResources.cpu", "must not be negative", "", "greater than or equal to 0"),
    RefusedSpec("PodGroup", {"minResources": {"cpu": "1 core"}}, "spec.minResources.cpu", "is not a quantity", "", "should match"),
    RefusedSpec("PodGroup", {"minResources": {"cpu": 0.5}}, "spec.minResources.cpu", "is not a quantity", "", "must be of type"),
    RefusedSpec("PodGroup", {"minResources": {f"r{i}": 1 for i in range(65)}}, "spec.minResources", "at most 64", "", "at most 64"),
    # ElasticQuota
    RefusedSpec("ElasticQuota", {"min": {"cpu": 2}, "max": {"cpu": 1}}, "spec.min.cpu", "min must not exceed max for cpu", "spec.min[cpu]"),
    RefusedSpec("ElasticQuota", {"min": {"cpu": "2"}, "max": {"cpu": "1999m"}}, "spec.min.cpu", "min must not exceed max for cpu", "spec.min[cpu]"),
    RefusedSpec("ElasticQuota", {"min": {"memory": "1Gi"}, "max": {"memory": 10**9}}, "spec.min.memory", "min must not exceed max for memory", "spec.min[memory]"),
    RefusedSpec("ElasticQuota", {"min": {"nvidia.com/gpu": 8}, "max": {"nvidia.com/gpu": "4"}}, "spec.min[nvidia.com/gpu]", "min must not exceed max for nvidia.com/gpu"),
    RefusedSpec("ElasticQuota", {"max": {"cpu": "-1"}}, "spec.max.cpu", "must not be negative", "", "should match"),
    RefusedSpec("ElasticQuota", {"min": {"cpu": "4x"}}, "spec.min.cpu", "is not a quantity", "", "should match"),
    # Reservation
    RefusedSpec("Reservation", {"template": None}, "spec.template", "is required", "", "Required value"),
    RefusedSpec("Reservation", {"owners": None}, "spec.owners", "is required", "", "Required value"),
    RefusedSpec("Reservation", {"owners": []}, "spec.owners", "at least 1 item"),
    RefusedSpec("Reservation", {"owners": [{}]}, "spec.owners[0]", "an owner must name object, controller or labelSelector"),
    RefusedSpec("Reservation", {"owners": [{"controller": {"kind": "Job", "uid": ""}}]}, "spec.owners[0].controller", "a controller must be named by name or uid"),
    RefusedSpec("Reservation", {"ttl": "2d"}, "spec.ttl", "must be a duration such as"),
    RefusedSpec("Reservation", {"ttl": "-1h"}, "spec.ttl", "must be a duration such as"),
    RefusedSpec("Reservation", {"ttl": ""}, "spec.ttl", "must be a duration such as"),
    RefusedSpec("Reservation", {"expires": "tomorrow"}, "spec.expires", "must be a time like", "", "date-time"),
    RefusedSpec("Reservation", {"allocatePolicy": "Loose"}, "spec.allocatePolicy", "'Aligned' or 'Restricted'", "", "Unsupported value"),
    RefusedSpec("Reservation", {"taints": [{"key": "a", "effect": "Never"}]}, "spec.taints[0].effect", "'NoExecute'", "", "Unsupported value"),
    # PodMigrationJob
    RefusedSpec("PodMigrationJob", {"podRef": None}, "spec.podRef", "is required", "", "Required value"),
    RefusedSpec("PodMigrationJob", {"podRef": {"name": "web-0"}}, "spec.podRef", "podRef must have the namespace and the name"),
    RefusedSpec("PodMigrationJob", {"podRef": {"namespace": "ml", "name": ""}}, "spec.podRef", "podRef must have the namespace and the name"),
    RefusedSpec("PodMigrationJob", {"mode": "Later"}, "spec.mode", "'EvictDirectly'", "", "Unsupported value"),
    RefusedSpec("PodMigrationJob", {"ttl": "5 minutes"}, "spec.ttl", "must be a duration such as"),
    RefusedSpec("PodMigrationJob", {"deleteOptions": {"gracePeriodSeconds": -1}}, "spec.deleteOptions.gracePeriodSeconds", "greater than or equal to 0"),
    # RebalancePolicy
    RefusedSpec("RebalancePolicy", {"mode": "Move"}, "spec.mode", "'Advise'", "", "Unsupported value"),
    RefusedSpec("RebalancePolicy", {"interval": "5s"}, "spec.interval", "must be at least 10s"),
    RefusedSpec("RebalancePolicy", {"nodeFit": False}, "spec.nodeFit", "a pod moves only if another node takes it"),
    RefusedSpec("RebalancePolicy", {"highThresholds": {"cpu": 101}}, "spec.highThresholds.cpu", "less than or equal to 100"),
    RefusedSpec("RebalancePolicy", {"highThresholds": None}, "spec", "must name the same resources"),
    RefusedSpec("RebalancePolicy", {"lowThresholds": {"cpu": 30, "memory": 30}}, "spec", "must name the same resources"),
    RefusedSpec("RebalancePolicy", {"highThresholds": {"cpu": 60, "memory": 30}}, "spec", "must name the same resources"),
    RefusedSpec("RebalancePolicy", {"lowThresholds": {"cpu": 61}}, "spec", "none may be lower in highThresholds"),
    RefusedSpec("RebalancePolicy", {"prodLowThresholds": {"cpu": 30}}, "spec", "must name the same resources"),
    RefusedSpec("RebalancePolicy", {"prodLowThresholds": {"cpu": 10}, "prodHighThresholds": {"cpu": 61}}, "spec", "higher in prodHighThresholds than in highThresholds"),
    RefusedSpec("RebalancePolicy", {"detectorCacheTimeout": "2m"}, "spec", "interval must be less than detectorCacheTimeout"),
    RefusedSpec("RebalancePolicy", {"interval": "10m", "detectorCacheTimeout": "5m"}, "spec", "interval must be less than detectorCacheTimeout"),
    RefusedSpec("RebalancePolicy", {"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "spec.evictableNamespaces", "exclude each other"),
    RefusedSpec("RebalancePolicy", {"caps": {"total": -1}}, "spec.caps.total", "greater than or equal to 0"),
    RefusedSpec("RebalancePolicy", {"anomalyCondition": {"consecutiveAbnormalities": 0}}, "spec.anomalyCondition.consecutiveAbnormalities", "greater than or equal to 1"),
    RefusedSpec("RebalancePolicy", {"nodePools": [{"name": "a"}, {"name": "a"}]}, "spec.nodePools[1]", "name must be unique", "", "Duplicate value"),
    RefusedSpec("RebalancePolicy", {"nodePools": [{"name": "a", "lowThresholds": {"cpu": 5}}]}, "spec.nodePools[0]", "must name the same resources"),
    # Device
    RefusedSpec("Device", devices(DEVICE, DEVICE), "spec.devices[1]", "type and minor must be unique", "", "Duplicate value"),
    RefusedSpec("Device", devices({"type": "gpu"}, DEVICE), "spec.devices[1]", "type and minor must be unique", "", "Duplicate value"),
    RefusedSpec("Device", devices({"minor": 0}), "spec.devices[0].type", "is required", "", "Required value"),
    RefusedSpec("Device", devices({"type": "GPU"}), "spec.devices[0].type", "must look like", "", "should match"),
    RefusedSpec("Device", devices({"type": "gpu", "minor": -1}), "spec.devices[0].minor", "greater than or equal to 0"),
    RefusedSpec("Device", devices(DEVICE | {"resources": {"koordinator.sh/gpu-core": "-5"}}), "spec.devices[0].resources[koordinator.sh/gpu-core]", "must not be negative", "spec.devices[0].resources.koordinator.sh/gpu-core", "should match"),
    RefusedSpec("Device", devices(DEVICE | {"health": "yes"}), "spec.devices[0].health", "must be true or false", "", "must be of type boolean"),
    # ElasticQuotaProfile
    RefusedSpec("ElasticQuotaProfile", {"quotaName": None}, "spec.quotaName", "is required", "", "Required value"),
    RefusedSpec("ElasticQuotaProfile", {"nodeSelector": None}, "spec.nodeSelector", "is required", "", "Required value"),
    RefusedSpec("ElasticQuotaProfile", {"quotaName": "Root"}, "spec.quotaName", "must look like", "", "should match"),
    RefusedSpec("ElasticQuotaProfile", {"quotaName": "koordinator-root-quota"}, "spec.quotaName", "must not be that of a built-in quota"),
    *(
        RefusedSpec("ElasticQuotaProfile", {"resourceRatio": text}, "spec.resourceRatio", "must be a decimal above 0 and not above 1")
        for text in ("0", "0.0", "1.1", "-0.5", "90%", "1e-1", "nan", "2", ".")
    ),
    RefusedSpec("ElasticQuotaProfile", {"resourceRatio": 0.5}, "spec.resourceRatio", "must be a string", "", "must be of type string"),
    RefusedSpec("ElasticQuotaProfile", select({"key": "a", "operator": "In"}), f"{EXPRESSIONS}[0]", "values must be given for In"),
    RefusedSpec("ElasticQuotaProfile", select({"key": "a", "operator": "Exists", "values": ["b"]}), f"{EXPRESSIONS}[0]", "values must be given for In"),
    RefusedSpec("ElasticQuotaProfile", select({"key": "a", "operator": "Gt", "values": ["1"]}), f"{EXPRESSIONS}[0].operator", "must be 'In'", "", "Unsupported value"),
    # ClusterNetworkTopology
    RefusedSpec("ClusterNetworkTopology", {"networkTopologySpec": []}, LIST, "at least 1 item"),
    RefusedSpec("ClusterNetworkTopology", layers(("Spine", None)), LIST, "must list NodeTopologyLayer"),
    RefusedSpec("ClusterNetworkTopology", layers((NODE, None), (NODE, None)), f"{LIST}[1]", "topologyLayer must be unique", "", "Duplicate value"),
    RefusedSpec("ClusterNetworkTopology", layers(("", None), (NODE, "")), f"{LIST}[0].topologyLayer", "at least 1 char"),
    RefusedSpec("ClusterNetworkTopology", layers((LONG, None), (NODE, "")), f"{LIST}[0].topologyLayer", "at most 63", "", "63"),
    RefusedSpec("ClusterNetworkTopology", layers((NODE, NODE)), f"{LIST}[0]", "parentTopologyLayer must not name the layer itself"),
    RefusedSpec("ClusterNetworkTopology", layers(("ClusterTopologyLayer", None), (NODE, None)), f"{LIST}[0]", "ClusterTopologyLayer is built in and must not be listed"),
    RefusedSpec("ClusterNetworkTopology", layers((NODE, "Block")), LIST, "every parentTopologyLayer must be listed"),
    RefusedSpec("ClusterNetworkTopology", layers(("Spine", None), (NODE, None)), LIST, "the layers must form one chain"),
    RefusedSpec("ClusterNetworkTopology", layers((NODE, None), ("A", NODE)), LIST, "the layers must form one chain"),
    RefusedSpec("ClusterNetworkTopology", layers((NODE, "A"), ("A", NODE)), LIST, "the layers must form one chain"),
    RefusedSpec("ClusterNetworkTopology", layers(("A", None), ("B", "A"), (NODE, "A")), LIST, "the layers must form one chain"),
    RefusedSpec("ClusterNetworkTopology", {"networkTopologySpec": [{"topologyLayer": "Spine"}, NODE_LAYER | {"parentTopologyLayer": "Spine"}]}, f"{LIST}[0]", "labelKey must name a node label"),
    RefusedSpec("ClusterNetworkTopology", layers(*[(f"L{i}", f"L{i - 1}" if i else None) for i in range(16)], (NODE, "L15")), LIST, "at most 16"),
]  # fmt: skip

ACCEPTED = [
    ("PodGroup", {"minMember": 100_000, "scheduleTimeoutSeconds": 0}),
    ("PodGroup", {"minResources": {"cpu": "1e3", "memory": "1.5Gi", "nvidia.com/gpu": 8, "x": "+1"}}),
    ("ElasticQuota", {"min": None, "max": None}),
    ("ElasticQuota", {"min": {"cpu": 4}, "max": {"memory": "1Gi"}}),
    ("ElasticQuota", {"min": {"cpu": "1000m"}, "max": {"cpu": 1}}),
    ("ElasticQuota", {"max": {"cpu": 1844674407370955161, "memory": 1844674407370955161}}),
    ("Reservation", {"ttl": "0", "allocatePolicy": "Aligned"}),
    ("Reservation", {"ttl": "1h30m0.5s", "expires": "2030-01-01T00:00:00Z"}),
    ("Reservation", {"owners": [{"object": {"name": "a"}}], "preAllocationPolicy": {}}),
    ("Reservation", {"owners": [{"controller": {"name": "a", "namespace": "b"}}]}),
    ("Device", {"devices": None}),
    ("Device", devices({"type": "fpga"}, {"type": "gpu"}, {"type": "gpu", "minor": 1})),
    ("Device", devices(DEVICE | {"topology": {"nodeID": -1}, "resources": {"a.b/c": 1}})),
    *(("ElasticQuotaProfile", {"resourceRatio": text}) for text in ("", "1", "1.0", "0.9", ".5")),
    ("ElasticQuotaProfile", select({"key": "a", "operator": "NotIn", "values": ["b"]})),
    ("ClusterNetworkTopology", layers((NODE, "ClusterTopologyLayer"))),
    ("ClusterNetworkTopology", layers((NODE, "Block"), ("Block", "Spine"), ("Spine", ""))),
]  # fmt: skip
"""Specs that both sides take."""
