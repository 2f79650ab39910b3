"""Gangs of other projects: Kubernetes' own PodGroups, and Kueue's groups of plain pods.

They are treated as gangs if we place their pods, and are never written.
"""

from typing import Final

NATIVE_GROUP: Final = "scheduling.k8s.io"
"""API group of Kubernetes' own PodGroup, which pods name in `spec.schedulingGroup`."""
NATIVE_VERSION: Final = f"{NATIVE_GROUP}/v1alpha2"

KUEUE: Final = "kueue.x-k8s.io"
KUEUE_NAME: Final = f"{KUEUE}/pod-group-name"
"""Pod label: name of a group of plain pods that Kueue admits together."""
KUEUE_TOTAL: Final = f"{KUEUE}/pod-group-total-count"
"""Pod annotation, integer: how many pods the group has."""
