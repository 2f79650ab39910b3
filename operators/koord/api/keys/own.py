"""What upstream has no name for: all of it below ``operators.koordinator.sh/``."""

from typing import Final

PREFIX: Final = "operators.koordinator.sh/"

SCHEDULER_NAME: Final = "koord-scheduler"
"""spec.schedulerName of pods that the operators bind; Koordinator's scheduler has the same name."""
PLACEMENT_GATE: Final = f"{PREFIX}placement"
"""Scheduling gate that holds a pod until its whole unit has a place."""
PLAN: Final = f"{PREFIX}plan"
"""Pod annotation (result), JSON: node, plan id, group and member count of the placement."""
PLACED: Final = f"{PREFIX}Placed"
"""Pod condition type: whether the pod has a place, and why not."""
TAKEN_OVER_BY: Final = f"{PREFIX}taken-over-by"
"""Pod annotation (result): the process that began to lead while this pod waited."""
TOPOLOGY: Final = f"{PREFIX}network-topology"
"""Pod or PodGroup annotation: name of the ClusterNetworkTopology that a gang asks for."""
RENEWED_AT: Final = f"{PREFIX}renewed-at"
"""Lease annotation: when its holder sent this renewal, in seconds of a clock of its own."""
NODE_SELECTOR: Final = f"{PREFIX}node-selector"
"""Annotation of a tree's root quota, JSON label selector: where pods of the tree may go."""
DELETION_POLICY: Final = f"{PREFIX}deletion-policy"
"""Profile annotation: "Delete" has the quota deleted with the profile; "Retain" keeps it."""
