"""ElasticQuota: the tree, the weights, and which pods belong to a quota.

The annotations with results are named in ``koord.core.quota.status``.
"""

from typing import Final

ROOT_QUOTA: Final = "koordinator-root-quota"
"""Name of the built-in root of every tree."""
SYSTEM_QUOTA: Final = "koordinator-system-quota"
"""Name of the built-in quota of pods that request it; has no share."""
DEFAULT_QUOTA: Final = "koordinator-default-quota"
"""Name of the built-in quota of pods without a quota; has no share."""

PREFIX: Final = "quota.scheduling.koordinator.sh/"

NAME: Final = f"{PREFIX}name"
"""Pod label: the quota of the pod."""
PREEMPTIBLE: Final = f"{PREFIX}preemptible"
"""Pod label: "false" limits the pod to the guaranteed part and protects it from eviction."""

IS_PARENT: Final = f"{PREFIX}is-parent"
"""Quota label: "true" if it may have child quotas."""
PARENT: Final = f"{PREFIX}parent"
"""Quota label: the parent quota; empty or missing means the root."""
ALLOW_LENT_RESOURCE: Final = f"{PREFIX}allow-lent-resource"
"""Quota label: "false" prevents lending of an idle guarantee."""
TREE_ID: Final = f"{PREFIX}tree-id"
"""Quota label: the tree of the quota; immutable."""
IS_ROOT: Final = f"{PREFIX}is-root"
"""Quota label: "true" on the root of a separate tree, which has `TOTAL_RESOURCE`."""
IGNORE_DEFAULT_TREE: Final = f"{PREFIX}ignore-default-tree"
"""Label of such a root: "true" keeps its total in the capacity of the default tree."""
PROFILE: Final = f"{PREFIX}profile"
"""Quota label: the profile that generates the quota."""
ALLOW_FORCE_UPDATE: Final = f"{PREFIX}allow-force-update"
"""Quota label: "true" skips the checks of sums and guarantees."""

SHARED_WEIGHT: Final = f"{PREFIX}shared-weight"
"""Quota annotation, JSON resource list: weight in the sharing; max if absent."""
NAMESPACES: Final = f"{PREFIX}namespaces"
"""Quota annotation, JSON list: pods of these namespaces belong to the quota."""
TOTAL_RESOURCE: Final = f"{PREFIX}total-resource"
"""Quota annotation, JSON resource list: capacity of a separate tree, on its root."""
UNSCHEDULABLE_RESOURCE: Final = f"{PREFIX}unschedulable-resource"
"""Quota annotation, JSON resource list: the part of that total on unschedulable nodes."""
RESOURCE_KEYS: Final = f"{PREFIX}resource-keys"
"""Profile annotation, JSON list: resource names of the generated quota."""
ADMISSION: Final = f"{PREFIX}admission"
"""Quota annotation, JSON resource list: limit of submitted pods; max if absent."""
MAX_STRICT_CHECK_RESOURCE_KEYS: Final = f"{PREFIX}max-strict-check-resource-keys"
"""Quota annotation, JSON list: resources whose max must not be set below their usage."""
