"""Kueue: the keys of its topology, which are read and never written.

Its groups of plain pods are gangs, see ``gang``; its gates are foreign ones like any others.
"""

from typing import Final

PREFIX: Final = "kueue.x-k8s.io/"

REQUIRED_TOPOLOGY: Final = f"{PREFIX}podset-required-topology"
"""Pod annotation: Kueue chooses one domain of this node label for all pods of the pod set."""
PREFERRED_TOPOLOGY: Final = f"{PREFIX}podset-preferred-topology"
"""Pod annotation: the same, of as few domains as may be."""
UNCONSTRAINED_TOPOLOGY: Final = f"{PREFIX}podset-unconstrained-topology"
"""Pod annotation: Kueue chooses any domains that have room."""
SLICE_TOPOLOGY: Final = f"{PREFIX}podset-slice-required-topology"
"""Pod annotation: the same for each slice of a pod set."""

ADMISSION_GATE: Final = f"{PREFIX}admission"
"""Pod scheduling gate: Kueue has not admitted the job that the pod belongs to."""
TOPOLOGY_GATE: Final = f"{PREFIX}topology"
"""Pod scheduling gate: Kueue has not chosen the place of the pod."""
ELASTIC_GATE: Final = f"{PREFIX}elastic-job"
"""Pod scheduling gate: Kueue has not admitted the new size of the job."""
