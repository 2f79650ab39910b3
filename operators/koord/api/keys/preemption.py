"""Preemption: who may preempt, and who may be preempted."""

from typing import Final

PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
"""Pod label: "Never" keeps the pod from preempting others, as spec.preemptionPolicy does."""
DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
"""Pod label: "true" protects the pod from preemption."""
CHECKPOINTED_AT: Final = "operators.koordinator.sh/checkpointed-at"
"""Pod annotation, RFC 3339: when the pod last saved its work, so that less is lost with it."""
