"""What users write about preemption: the policy of a pod, and its protection."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from koord.api.keys import preemption as keys


class PreemptionPolicy(StrEnum):
    """Whether pods may be preempted for a pod."""

    NEVER = "Never"
    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"


_POLICIES: Final = {policy.value: policy for policy in PreemptionPolicy}


def read_policy(labels: Mapping[str, str]) -> PreemptionPolicy | None:
    """Return the policy that a label names; None if it names none."""
    return _POLICIES.get(labels.get(keys.PREEMPTION_POLICY, ""))


def is_protected(labels: Mapping[str, str]) -> bool:
    """Whether a pod must not be preempted."""
    return labels.get(keys.DISABLE_PREEMPTIBLE) == "true"
