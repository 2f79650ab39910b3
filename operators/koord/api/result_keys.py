"""Keys of pods that operators and device plugins write, and that the policies refuse of others.

The list is that of the policies; a test compares them.
"""

from typing import Final

RESULTS: Final = frozenset(
    {
        "CAMBRICON_DSMLU_ASSIGHED",
        "CAMBRICON_DSMLU_PROFILE",
        "hami.io/vgpu-node",
        "huawei.com/Ascend310P",
        "huawei.com/npu-core",
        "internal.scheduling.koordinator.sh/bind-gang-group-id",
        "internal.scheduling.koordinator.sh/bind-gang-member-count",
        "metax-tech.com/gpu-devices-allocated",
        "operators.koordinator.sh/later-room",
        "operators.koordinator.sh/nomination",
        "operators.koordinator.sh/nomination-signature",
        "operators.koordinator.sh/plan",
        "operators.koordinator.sh/plan-signature",
        "operators.koordinator.sh/preempted-by",
        "operators.koordinator.sh/taken-over-by",
        "predicate-time",
        "scheduling.koordinator.sh/bind-gang-group-id",
        "scheduling.koordinator.sh/bind-gang-member-count",
        "scheduling.koordinator.sh/bind-timestamp",
        "scheduling.koordinator.sh/device-allocated",
        "scheduling.koordinator.sh/gpu-minors",
        "scheduling.koordinator.sh/gpu-uuids",
        "scheduling.koordinator.sh/reservation-allocated",
        "scheduling.koordinator.sh/reservation-current-owner",
        "scheduling.koordinator.sh/resource-status",
        "scheduling.koordinator.sh/soft-eviction",
    }
)
BEGINNINGS: Final = (
    "scheduling.koordinator.sh/gpu-core-limit-",
    "scheduling.koordinator.sh/gpu-memory-limit-",
)
"""How further ones begin."""


def is_result(key: str) -> bool:
    """Whether a pod is refused that says something of this key when it is created."""
    return key in RESULTS or key.startswith(BEGINNINGS)
