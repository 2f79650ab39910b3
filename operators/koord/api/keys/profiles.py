"""Keys of ClusterColocationProfiles."""

from typing import Final

SKIP_RESOURCES: Final = "config.koordinator.sh/skip-update-resources"
"""ClusterColocationProfile annotation: with any value, CPU and memory of the pods that it selects
stay as they are."""
