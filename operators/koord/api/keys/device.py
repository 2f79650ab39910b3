"""Devices, NUMA and CPUs: what a node has, what a pod asks for, what it was given."""

from typing import Final

PREFIX: Final = "scheduling.koordinator.sh/"

ALLOCATED: Final = f"{PREFIX}device-allocated"
"""Pod annotation (result), JSON: the devices of the pod by type."""
ALLOCATE_HINT: Final = f"{PREFIX}device-allocate-hint"
"""Pod annotation, JSON: selectors, scopes and strategies by device type."""
JOINT_ALLOCATE: Final = f"{PREFIX}device-joint-allocate"
"""Pod annotation, JSON: device types that must be close to each other."""
GPU_PARTITION_SPEC: Final = f"{PREFIX}gpu-partition-spec"
"""Pod annotation, JSON: how strictly GPU partitions are kept, and the bandwidth needed."""
GPU_PARTITIONS: Final = f"{PREFIX}gpu-partitions"
"""Device annotation, JSON: sets of GPUs that the fabric lets work together, by size."""

NUMA_TOPOLOGY_SPEC: Final = f"{PREFIX}numa-topology-spec"
"""Pod annotation, JSON: NUMA policy of the pod."""
RESOURCE_SPEC: Final = f"{PREFIX}resource-spec"
"""Pod annotation, JSON: how CPUs are bound."""
RESOURCE_STATUS: Final = f"{PREFIX}resource-status"
"""Pod annotation (result), JSON: CPUs and NUMA nodes of the pod."""

BIND_TIMESTAMP: Final = f"{PREFIX}bind-timestamp"
"""Pod annotation (result), unix nanoseconds: for device plugins."""
GPU_MINORS: Final = f"{PREFIX}gpu-minors"
"""Pod annotation (result), such as 0,1: for device plugins and the downward API."""
METAX_ALLOCATED: Final = "metax-tech.com/gpu-devices-allocated"
"""Pod annotation (result), JSON: for MetaX's plugin."""
