"""Gangs and network topology.

Pods with `POD_GROUP` get their settings from that PodGroup; other pods may have them as
annotations. Gangs of other projects are Kubernetes' own PodGroups and Kueue's groups of plain pods:
they are treated as gangs if we place their pods, and are never written.
"""

from typing import Final

POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
"""Pod label: name of the PodGroup in the namespace of the pod."""
LEGACY_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
"""Pod label, deprecated: name of a gang without a PodGroup."""
LEGACY_MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Pod label, deprecated: how many members of such a gang start together."""

PREFIX: Final = "gang.scheduling.koordinator.sh/"

NAME: Final = f"{PREFIX}name"
"""Pod annotation: name of a gang without a PodGroup."""
MIN_AVAILABLE: Final = f"{PREFIX}min-available"
"""Pod annotation, integer: the minimum number of members that start together."""
TOTAL_NUMBER: Final = f"{PREFIX}total-number"
"""Pod or PodGroup annotation, integer: how many members are expected; informational."""
WAITING_TIME: Final = f"{PREFIX}waiting-time"
"""Pod annotation, duration such as 5m: how long the complete gang may be pending."""
MODE: Final = f"{PREFIX}mode"
"""Pod or PodGroup annotation: Strict or NonStrict."""
MATCH_POLICY: Final = f"{PREFIX}match-policy"
"""Pod or PodGroup annotation: once-satisfied, only-waiting or waiting-and-running."""
MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
"""Pod or PodGroup annotation: older name of the match policy; the newer one wins."""
GROUPS: Final = f"{PREFIX}groups"
"""Pod or PodGroup annotation, JSON list of "namespace/name": gangs that start together."""
TIMEOUT: Final = f"{PREFIX}timeout"
"""Pod or PodGroup annotation: defined by Koordinator, and not used."""
NETWORK_TOPOLOGY_SPEC: Final = f"{PREFIX}network-topology-spec"
"""Pod or PodGroup annotation, JSON: topology constraints of the gang."""
NETWORK_TOPOLOGY_INDEX: Final = f"{PREFIX}network-topology-index"
"""Pod annotation, integer from 0: rank of the pod; adjacent ranks are placed close together."""
NETWORK_TOPOLOGY_SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"
"""Annotation of a pod: pods of its namespace with the same value are placed close together."""
TOPOLOGY_KEY_TO_EXPLAIN: Final = "scheduling.koordinator.sh/topology-key-to-explain"
"""Pod label: the layer of which a ScheduleExplanation tells each domain."""

BIND_GROUP_ID: Final = "internal.scheduling.koordinator.sh/bind-gang-group-id"
"""Pod annotation (result): the gang group that the pod was bound with."""
BIND_MEMBER_COUNT: Final = "internal.scheduling.koordinator.sh/bind-gang-member-count"
"""Pod annotation (result): how many pods were bound together."""
BIND_GROUP_ID_DEPRECATED: Final = "scheduling.koordinator.sh/bind-gang-group-id"
"""Pod annotation (result): older name of the same, for older readers."""
BIND_MEMBER_COUNT_DEPRECATED: Final = "scheduling.koordinator.sh/bind-gang-member-count"
"""Pod annotation (result): older name of the same, for older readers."""
SCHEDULING_HINT: Final = "internal.scheduling.koordinator.sh/scheduling-hint"
"""Pod annotation, JSON: nodes that an external component requires or prefers."""
SCHEDULING_HINT_DEPRECATED: Final = "scheduling.koordinator.sh/scheduling-hint"
"""Pod annotation, JSON: older name of the same; read if that is absent."""


NATIVE_GROUP: Final = "scheduling.k8s.io"
"""API group: that of Kubernetes' own PodGroup, which pods name in `spec.schedulingGroup`."""

PLUGINS_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""Pod label: its PodGroup of scheduler-plugins, read where `owners.kinds` has that kind."""
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
"""Pod annotation: its PodGroup of Volcano, read where `owners.kinds` has that kind."""

LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
"""Pod annotation, integer: how many pods are in its group of a LeaderWorkerSet."""

KUEUE: Final = "kueue.x-k8s.io"
KUEUE_NAME: Final = f"{KUEUE}/pod-group-name"
"""Pod label: name of a group of plain pods that Kueue admits together."""
KUEUE_FAST: Final = f"{KUEUE}/pod-group-fast-admission"
"""Pod annotation: ``"true"`` admits the group when its first pod comes; the others may be made
one after the other."""
KUEUE_TOTAL: Final = f"{KUEUE}/pod-group-total-count"
"""Pod annotation, integer: how many pods the group has."""
