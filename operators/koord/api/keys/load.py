"""Load-aware placement: what pods and nodes say about it."""

from typing import Final

from koord.api.keys.device import PREFIX

USAGE_THRESHOLDS: Final = f"{PREFIX}usage-thresholds"
"""Node annotation, JSON: thresholds of the node in place of those of the configuration."""
RAW_ALLOCATABLE: Final = "node.koordinator.sh/raw-allocatable"
"""Node annotation, JSON: what the node has without over-commitment."""
SCALING_FACTORS: Final = f"{PREFIX}load-estimated-scaling-factors"
"""Pod annotation, JSON: percent of its requests that the pod will use, by resource."""
AFTER_SCHEDULED: Final = f"{PREFIX}load-estimated-seconds-after-pod-scheduled"
"""Pod annotation: how long its estimate counts although it is measured; 0: not at all."""
AFTER_INITIALIZED: Final = f"{PREFIX}load-estimated-seconds-after-initialized"
"""Pod annotation: the same, from the end of its init containers on."""
