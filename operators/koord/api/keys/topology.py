"""Network topology of single pods; gangs say theirs with keys of `gang`."""

from typing import Final

NETWORK_TOPOLOGY_SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"
"""Pod annotation: pods with the same value are placed close to each other."""
