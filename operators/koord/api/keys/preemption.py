"""Preemption: who may evict, who must not be evicted, and what to explain."""

from typing import Final

PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
"""Pod label: Never or PreemptLowerPriority."""
DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
"""Pod label: "true" keeps the pod from ever being a victim."""
QUESTIONED_OBJECT: Final = "scheduling.koordinator.sh/questioned-object-key"
"""Pod label: the job that the pod counts to in explanations and in the cost of victims."""
TOPOLOGY_KEY_TO_EXPLAIN: Final = "scheduling.koordinator.sh/topology-key-to-explain"
"""Pod label: the network layer that explanations are broken down by."""
