"""Preemption: who may preempt, and who may be preempted."""

from typing import Final

PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
"""Pod label: "Never" keeps the pod from preempting others, as spec.preemptionPolicy does."""
DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
"""Pod label: "true" protects the pod from preemption, in namespaces that allow it."""
ALLOW_DISABLE_PREEMPTIBLE: Final = "operators.koordinator.sh/allow-disable-preemptible"
"""Namespace label: "true" lets its pods protect themselves with `disable-preemptible`."""
CHECKPOINTED_AT: Final = "operators.koordinator.sh/checkpointed-at"
"""Pod annotation, RFC 3339: when the pod last saved its work, so that less is lost with it."""
SOFT_EVICTION_TIME: Final = "operators.koordinator.sh/soft-eviction-time"
"""Pod annotation, duration: how long the pod may take to end by itself before it is preempted."""
SOFT_EVICTION: Final = "scheduling.koordinator.sh/soft-eviction"
"""Pod annotation (result), JSON: asks the pod to save its work and end by itself."""
