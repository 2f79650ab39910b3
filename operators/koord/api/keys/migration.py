"""Migration: what moves pods to other nodes, which pods may be moved, and how.

Whoever wants a pod moved creates a PodMigrationJob. Jobs that move a whole gang are a set: they
have the same `GROUP`, and each has the `GROUP_SIZE`, so that a set of which some are not there yet
waits.
"""

from typing import Final

GROUP: Final = "operators.koordinator.sh/migration-group"
"""PodMigrationJob label: the jobs with the same value move their pods together, or none does."""
GROUP_SIZE: Final = "operators.koordinator.sh/migration-group-size"
"""PodMigrationJob annotation, integer: how many jobs its migration group has."""
TARGET_NODE: Final = "operators.koordinator.sh/target-node"
"""PodMigrationJob annotation: the node that the replacement of the pod must go to."""
EVICT_REASON: Final = "koordinator.sh/evict-reason"
"""PodMigrationJob annotation: why the pod is to be moved, as a text for people."""
EVICT_TRIGGER: Final = "koordinator.sh/evict-trigger"
"""PodMigrationJob annotation: what has decided that, such as LowNodeLoad."""
CREATED_BY: Final = "koordinator.sh/job-created-by"
"""PodMigrationJob annotation or Reservation label: what has created it."""
PASSED_ARBITRATION: Final = "scheduling.koordinator.sh/passed-arbitration"
"""PodMigrationJob annotation: "true" once the limits of migrations admitted the job."""
EVICT_POLICY: Final = "koordinator.sh/evict-policy"
"""Pod or PodMigrationJob label: Eviction, Delete or SoftEviction; how the pod ends."""
EVICTION_COST: Final = "scheduling.koordinator.sh/eviction-cost"
"""Pod annotation, integer: pods with less are moved first; 2147483647 means never."""
EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
"""Pod annotation: whatever its value, the pod may be moved although rules would protect it."""
ORIGIN: Final = "operators.koordinator.sh/migration-origin"
"""PodMigrationJob annotation, JSON: node, workload and gang of the pod when the job started."""
JOB_UID: Final = "operators.koordinator.sh/migration-job"
"""Reservation label: the uid of the PodMigrationJob that it was created for, and ends with."""
