# ruff: noqa: E501 - a table: one key to a line
"""What becomes of every key of other schedulers. The documentation prints this table, as Markdown.

A row is about a label or an annotation, about a field of a kind that is replaced, or about a field
of pods and jobs. A field without a row is reported as not translated.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple


class Peer(StrEnum):
    """Whose key it is."""

    KOORDINATOR = "Koordinator"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    VOLCANO = "Volcano"
    KUEUE = "Kueue"
    KAI = "KAI"
    KUBEFLOW = "Kubeflow and Ray"
    OURS = "koord-operators"
    """For the way back to Koordinator."""


class Action(StrEnum):
    """What the rewriting does with the value."""

    GANG = "gang"
    MINIMUM = "minimum"
    QUOTA = "quota"
    PRIORITY = "priority"
    TIMEOUT = "timeout"
    SUB_GROUP = "sub-group"
    SUB_GROUPS = "sub-groups"
    MIN_SUB_GROUPS = "minimum of sub-groups"
    MIN_RESOURCES = "minimum of resources"
    TASK_MINIMUMS = "task minimums"
    REQUIRED = "required layer"
    PREFERRED = "preferred layer"
    TOPOLOGY = "topology constraint"
    SLICE_LAYER = "layer of slices"
    SLICE_SIZE = "size of slices"
    SLICES = "layers and sizes of slices"
    INDEX = "index"
    PREEMPTIBLE = "preemptible"
    PREEMPTIBILITY = "preemptibility"
    GPU_FRACTION = "GPU fraction"
    GPU_COUNT = "GPU count"
    KEEP = "keep"
    WEIGHT = "weight"
    MAX = "max"
    MIN = "min"
    GUARANTEE = "guarantee"
    PARENT = "parent"
    FLAVORS = "flavors"
    AMOUNTS = "amounts"
    NAMESPACES = "namespaces"
    CLUSTER_QUEUE = "cluster queue"
    STRATEGY = "strategy"
    STOP = "stop"
    WAIT = "wait"
    DROP = "drop"
    """It has no meaning here; nothing is lost."""
    REPORT = "report"
    """It has no equivalent, which is reported."""


class KeyTranslation(NamedTuple):
    """One key: a label, an annotation, or ``Kind.field`` of an object."""

    peer: Peer
    key: str
    becomes: str
    action: Action
    note: str = ""


NONE: Final = "—"
_GANG: Final = "label `pod-group.scheduling.sigs.k8s.io`"
_QUOTA: Final = "label `quota.scheduling.koordinator.sh/name` of the pods"
_TOPOLOGY: Final = "`network-topology-spec`"
_SUB_GROUPS: Final = "annotation `operators.koordinator.sh/sub-groups`"
_SUB_GROUP: Final = "annotation `operators.koordinator.sh/sub-group`"
NOT_NEEDED: Final = "internal to it"
_MIN: Final = "`minMember` of the PodGroup"
_QUEUE: Final = "annotation `operators.koordinator.sh/queue` of the quota"

_PLUGINS: Final = Peer.SCHEDULER_PLUGINS
_VOLCANO: Final = Peer.VOLCANO
_KUEUE: Final = Peer.KUEUE
_KAI: Final = Peer.KAI

# fmt: off
_KOORDINATOR_ROWS: Final = (
    KeyTranslation(Peer.KOORDINATOR, "all kinds, labels and annotations", "the same", Action.KEEP, "differences: [compatibility](compatibility.md)"),
    KeyTranslation(Peer.KOORDINATOR, "annotations `gang.scheduling.koordinator.sh/…`", "the same", Action.KEEP, "[gangs](gangs.md#settings)"),
    KeyTranslation(Peer.KOORDINATOR, "labels and annotations `quota.scheduling.koordinator.sh/…`", "the same", Action.KEEP, "[quotas](quota.md)"),
    KeyTranslation(Peer.KOORDINATOR, "labels `koordinator.sh/qosClass`, `koordinator.sh/priority-class`", "the same", Action.KEEP, "read for [CPU pinning](numa.md); what else they do is done by koordlet and koord-manager, which may stay"),
    KeyTranslation(Peer.KOORDINATOR, "priority classes `koord-prod`, `koord-mid`, `koord-batch`, `koord-free`", "the same", Action.KEEP, "PriorityClasses of Koordinator's chart: keep them when you remove it"),
    KeyTranslation(Peer.KOORDINATOR, "schedulerName `koord-scheduler`", "the same", Action.KEEP, "pods of gangs get the gate `operators.koordinator.sh/placement`"),
    KeyTranslation(Peer.KOORDINATOR, "scheduling.x-k8s.io/suspend", "the same", Action.KEEP, "koord-queue may stay: it resumes jobs, whose gangs are then placed here"),
    KeyTranslation(Peer.KOORDINATOR, "koord-queue/queue-policy", f"`policy` in the {_QUEUE}", Action.KEEP, "label of a quota; `Priority` is BestEffort, `Block` is Strict; `Intelligent` by hand. What differs: [policies](queues.md#policies)"),
    KeyTranslation(Peer.KOORDINATOR, "arguments `max-depth`, `threshold` of koord-queue", NONE, Action.REPORT, "all units of a queue have their turn"),
    KeyTranslation(Peer.KOORDINATOR, "kinds Queue, QueueUnit of koord-queue", "the same", Action.KEEP, "reported, because nothing here reads them: what a Queue says of its policy belongs to the quota"),
)

_PLUGINS_ROWS: Final = (
    KeyTranslation(_PLUGINS, "scheduling.x-k8s.io/pod-group", _GANG, Action.GANG),
    KeyTranslation(_PLUGINS, "PodGroup.scheduling.x-k8s.io minMember", _MIN, Action.MINIMUM),
    KeyTranslation(_PLUGINS, "PodGroup.scheduling.x-k8s.io minResources", "the same", Action.MIN_RESOURCES, "informational here"),
    KeyTranslation(_PLUGINS, "PodGroup.scheduling.x-k8s.io scheduleTimeoutSeconds", "the same", Action.TIMEOUT, "default 600 s, not 60 s"),
    KeyTranslation(_PLUGINS, "ElasticQuota.scheduling.x-k8s.io min", "the same", Action.MIN),
    KeyTranslation(_PLUGINS, "ElasticQuota.scheduling.x-k8s.io max", "the same", Action.MAX, "it gets the annotation `namespaces` with its own namespace, whose pods it limits"),
    KeyTranslation(_PLUGINS, "argument `permitWaitingTimeSeconds`", "`scheduleTimeoutSeconds` of each PodGroup", Action.REPORT, "600 s where it is absent"),
    KeyTranslation(_PLUGINS, "arguments `podGroupBackoffSeconds`, `podGroupRejectPercentage`", NONE, Action.DROP, "gangs are placed as a whole, so none is rejected half-placed"),
)

_VOLCANO_ROWS: Final = (
    KeyTranslation(_VOLCANO, "scheduling.k8s.io/group-name", _GANG, Action.GANG),
    KeyTranslation(_VOLCANO, "scheduling.volcano.sh/group-name", _GANG, Action.GANG),
    KeyTranslation(_VOLCANO, "scheduling.volcano.sh/group-min-member", _MIN, Action.MINIMUM, "a PodGroup is added"),
    KeyTranslation(_VOLCANO, "scheduling.volcano.sh/queue-name", _QUOTA, Action.QUOTA),
    KeyTranslation(_VOLCANO, "volcano.sh/queue-name", _QUOTA, Action.QUOTA),
    KeyTranslation(_VOLCANO, "volcano.sh/preemptable", "label `quota.scheduling.koordinator.sh/preemptible`", Action.PREEMPTIBLE, "`false` also limits the pod to its quota's min"),
    KeyTranslation(_VOLCANO, "volcano.sh/task-spec", _SUB_GROUP, Action.SUB_GROUP),
    KeyTranslation(_VOLCANO, "scheduling.volcano.sh/group-min-resources", NONE, Action.DROP, "fit is computed from the pods"),
    KeyTranslation(_VOLCANO, "volcano.sh/job-name", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "volcano.sh/job-version", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "volcano.sh/task-index", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "volcano.sh/template-uid", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "volcano.sh/job-namespace", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "volcano.sh/job-retry-count", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "volcano.sh/topology-decision", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_VOLCANO, "scheduling.volcano.sh/queue-allocation-gate", NONE, Action.DROP, "the gate of this name is taken off"),
    KeyTranslation(_VOLCANO, "volcano.sh/network-topology-mode", _TOPOLOGY, Action.REPORT, "tiers have no names: write MustGather (hard) or PreferGather (soft) with the layer that you mean"),
    KeyTranslation(_VOLCANO, "volcano.sh/network-topology-highest-tier", _TOPOLOGY, Action.REPORT, "a number has no meaning here; name the layer"),
    KeyTranslation(_VOLCANO, "volcano.sh/network-topology-highest-tier-allowed", _TOPOLOGY, Action.REPORT, "likewise"),
    KeyTranslation(_VOLCANO, "volcano.sh/qos-level", "label `koordinator.sh/qosClass`", Action.REPORT, "a number is no class: LSE, LSR, LS or BE"),
    KeyTranslation(_VOLCANO, "volcano.sh/partition-id", _SUB_GROUP, Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/nodegroup-resource-limits", "a tree of a node pool", Action.REPORT, "see docs/quota.md#trees-of-node-pools"),
    KeyTranslation(_VOLCANO, "volcano.sh/jdb-min-available", "a PodDisruptionBudget", Action.REPORT, "write one"),
    KeyTranslation(_VOLCANO, "volcano.sh/jdb-max-unavailable", "a PodDisruptionBudget", Action.REPORT, "write one"),
    KeyTranslation(_VOLCANO, "volcano.sh/numa-topology-policy", "`scheduling.koordinator.sh/numa-topology-spec`", Action.REPORT, "see docs/numa.md"),
    KeyTranslation(_VOLCANO, "volcano.sh/cooldown-time", NONE, Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/revocable-zone", NONE, Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/enable-quota-burst", NONE, Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/quota-burst-time", NONE, Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/sla-waiting-time", f"`protectAfter` in the {_QUEUE}", Action.WAIT, "the shortest of its jobs, if the files have the queue: from then on room is reserved for the first of them"),
    KeyTranslation(_VOLCANO, "sla-waiting-time", f"`protectAfter` in the {_QUEUE}", Action.WAIT, "likewise"),
    KeyTranslation(_VOLCANO, "volcano.sh/task-priority", "`priorityClassName` of the pods", Action.REPORT, "a number is no class"),
    KeyTranslation(_VOLCANO, "volcano.sh/task-topology-affinity", "pod affinity", Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/task-topology-anti-affinity", "pod anti-affinity", Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/task-topology-task-order", "`network-topology-index`", Action.REPORT, "an index for each pod"),
    KeyTranslation(_VOLCANO, "volcano.sh/hierarchy", "label `quota.scheduling.koordinator.sh/parent`", Action.REPORT, "write the tree as ElasticQuotas"),
    KeyTranslation(_VOLCANO, "volcano.sh/hierarchy-weights", "`shared-weight`", Action.REPORT),
    KeyTranslation(_VOLCANO, "volcano.sh/vgpu-number", "`koordinator.sh/gpu.shared`", Action.GPU_COUNT, "with `vgpu-cores` and `vgpu-memory` (MiB); a resource"),
    KeyTranslation(_VOLCANO, "resources `volcano.sh/gpu-memory`, `volcano.sh/gpu-number`", "`koordinator.sh/gpu-memory`, `koordinator.sh/gpu.shared`", Action.REPORT, "a share of the cores (`koordinator.sh/gpu-core`) has to be said as well"),
    KeyTranslation(_VOLCANO, "resources `volcano.sh/vgpu-cores`, `vgpu-memory`, `vgpu-memory-percentage`", "`koordinator.sh/gpu-core`, `gpu-memory`, `gpu-memory-ratio`", Action.KEEP, "both a share of cores and of memory are needed"),
    KeyTranslation(_VOLCANO, "keys of its node agent: `oversubscription…`, `evicting-…-watermark`, `network-bandwidth-rate`, `resource-group`", "koordlet and koord-manager", Action.REPORT),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh minMember", _MIN, Action.MINIMUM),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh minResources", "the same", Action.MIN_RESOURCES, "informational here"),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh queue", _QUOTA, Action.QUOTA, "`default` and `root` name none"),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh priorityClassName", "`priorityClassName` of the pods", Action.PRIORITY),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh minTaskMember", _SUB_GROUPS, Action.TASK_MINIMUMS),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh subGroupPolicy", _SUB_GROUPS, Action.REPORT, "write them with their pods"),
    KeyTranslation(_VOLCANO, "PodGroup.scheduling.volcano.sh networkTopology", _TOPOLOGY, Action.REPORT, "tiers have no names: name the layer"),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh weight", "`shared-weight`", Action.WEIGHT, "here per resource"),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh capability", "`max`", Action.MAX),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh deserved", "`min`", Action.MIN),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh guarantee", '`min`, `allow-lent-resource: "false"`', Action.GUARANTEE, "lending is on or off per quota"),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh parent", "label `parent`", Action.PARENT),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh reclaimable", "label `preemptible` of the pods", Action.REPORT, "one quota has both kinds of pods"),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh priority", NONE, Action.REPORT),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh affinity", "a tree of a node pool", Action.REPORT, "see docs/quota.md#trees-of-node-pools"),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh type", NONE, Action.DROP),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh dequeueStrategy", f"`policy` in the {_QUEUE}", Action.STRATEGY, "`fifo` is Strict, `traverse` is BestEffort"),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh extendClusters", NONE, Action.REPORT),
    KeyTranslation(_VOLCANO, "Queue.scheduling.volcano.sh dra", NONE, Action.REPORT, "quotas do not count ResourceClaims"),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh minAvailable", _MIN, Action.MINIMUM),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh queue", _QUOTA, Action.QUOTA),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh priorityClassName", "`priorityClassName` of the pods", Action.PRIORITY),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh tasks", "an Indexed Job for each task", Action.KEEP, "`minAvailable` of a task becomes that of a sub-group"),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh ttlSecondsAfterFinished", "the same", Action.KEEP),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh maxRetry", "`backoffLimit`", Action.KEEP),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh schedulerName", "`koord-scheduler`", Action.DROP),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh plugins", "a headless Service and JOB_COMPLETION_INDEX, or a PyTorchJob or MPIJob", Action.REPORT, "it sets VC_ variables, hosts and keys"),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh policies", "`podFailurePolicy` of a Job, `failurePolicy` of a JobSet", Action.REPORT),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh minSuccess", "`successPolicy` of a Job", Action.REPORT),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh networkTopology", _TOPOLOGY, Action.REPORT, "tiers have no names: name the layer"),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh volumes", "volumes of the pods", Action.REPORT),
    KeyTranslation(_VOLCANO, "Job.batch.volcano.sh runningEstimate", NONE, Action.REPORT, "nothing is planned by time"),
    KeyTranslation(_VOLCANO, "tasks maxRetry", "`backoffLimit` of its Job", Action.KEEP),
    KeyTranslation(_VOLCANO, "tasks policies", "`podFailurePolicy` of a Job, `failurePolicy` of a JobSet", Action.REPORT),
    KeyTranslation(_VOLCANO, "tasks dependsOn", "`dependsOn` of a JobSet", Action.REPORT, "all Jobs are created at once, and wait for each other"),
    KeyTranslation(_VOLCANO, "tasks partitionPolicy", _SUB_GROUPS, Action.REPORT, "one sub-group for each partition"),
    KeyTranslation(_VOLCANO, "tasks topologyPolicy", "`scheduling.koordinator.sh/numa-topology-spec`", Action.REPORT, "see docs/numa.md"),
)

_KUEUE_ROWS: Final = (
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/queue-name", _QUOTA, Action.QUOTA, "the ClusterQueue of that LocalQueue, if the files have it; `suspend` is taken off; a PodGroup for the whole job is added"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-group-name", _GANG, Action.GANG, "a PodGroup is added"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-group-total-count", _MIN, Action.MINIMUM),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/job-min-parallelism", _MIN, Action.MINIMUM),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-required-topology", _TOPOLOGY + ": MustGather", Action.REQUIRED, "the layer is named after the node label"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-preferred-topology", _TOPOLOGY + ": PreferGather", Action.PREFERRED, "likewise"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-unconstrained-topology", NONE, Action.DROP, "no constraint"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-slice-required-topology", _TOPOLOGY, Action.SLICE_LAYER, "layer of `podCountMultiple`"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-slice-size", "`podCountMultiple`", Action.SLICE_SIZE),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-slice-required-topology-constraints", _TOPOLOGY, Action.SLICES, "a layer and its `podCountMultiple` for each entry"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/job-completions-equal-parallelism", NONE, Action.REPORT, "`parallelism` is never changed here"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/prebuilt-workload-name", NONE, Action.REPORT, "there are no Workloads here"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-group-pod-index-label", "`network-topology-index`", Action.REPORT, "it is read from the pod alone"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/node-avoidance-label", "taints, or `nodeAffinity` of the pods", Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/priority-class", "`priorityClassName` of the pods", Action.REPORT, "a WorkloadPriorityClass is no PriorityClass"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/max-exec-time-seconds", "`activeDeadlineSeconds`", Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-group-pod-index", "`network-topology-index`", Action.INDEX),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset-group-name", "annotation `groups`", Action.REPORT, "a gang has one constraint already"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/elastic-job", "a minimum below the size", Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-group-fast-admission", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-group-serving", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/retriable-in-group", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/managed", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/podset", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/workload", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/role-hash", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/tas", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/job-uid", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-suspending-parent", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/is-group-workload", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "other keys `kueue.x-k8s.io/…`, `provreq.kueue.x-k8s.io/…`", NONE, Action.REPORT, "with their values"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/workload-slice-name", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/safe-to-forcefully-delete", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/stopping", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/pod-index-offset", "`network-topology-index`", Action.REPORT, "it is read from the pod alone"),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/admission-gated-by", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/concurrent-admission", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/priority-boost", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/workload-allowed-resource-flavors", "`nodeAffinity`, or a tree of a node pool", Action.REPORT),
    KeyTranslation(_KUEUE, "kueue.x-k8s.io/original-pod-sets-info", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KUEUE, "LocalQueue.kueue.x-k8s.io clusterQueue", "its namespace in `shared-with` of the quota", Action.CLUSTER_QUEUE),
    KeyTranslation(_KUEUE, "LocalQueue.kueue.x-k8s.io stopPolicy", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "LocalQueue.kueue.x-k8s.io fairSharing", "a quota of its own, with `shared-weight`", Action.REPORT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io resourceGroups", "`min` (nominalQuota), `max` (with borrowingLimit)", Action.FLAVORS, 'added up over flavors; without a limit for each of them there is none; a lendingLimit of 0 becomes `allow-lent-resource: "false"`'),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io cohort", "label `parent`", Action.PARENT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io cohortName", "label `parent`", Action.PARENT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io namespaceSelector", "`shared-with`", Action.NAMESPACES, "`{}` is all; otherwise the namespaces of its LocalQueues"),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io fairSharing", "`shared-weight`", Action.WEIGHT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io preemption", "reclaim, see docs/quota-shares.md", Action.REPORT, "one rule for the whole cluster"),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io queueingStrategy", f"`policy` in the {_QUEUE}", Action.STRATEGY, "StrictFIFO is Strict, BestEffortFIFO is BestEffort; without it, Backfill: as BestEffort, but large jobs do not starve"),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io flavorFungibility", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io admissionChecks", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io admissionChecksStrategy", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io admissionScope", NONE, Action.REPORT, "shares are of what is used now, not of the past"),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io concurrentAdmissionPolicy", NONE, Action.REPORT),
    KeyTranslation(_KUEUE, "ClusterQueue.kueue.x-k8s.io stopPolicy", f"`stop` in the {_QUEUE}", Action.STOP),
    KeyTranslation(_KUEUE, "Cohort.kueue.x-k8s.io parent", "label `parent`", Action.PARENT),
    KeyTranslation(_KUEUE, "Cohort.kueue.x-k8s.io parentName", "label `parent`", Action.PARENT),
    KeyTranslation(_KUEUE, "Cohort.kueue.x-k8s.io resourceGroups", "`min`", Action.FLAVORS),
    KeyTranslation(_KUEUE, "Cohort.kueue.x-k8s.io fairSharing", "`shared-weight`", Action.WEIGHT),
    KeyTranslation(_KUEUE, "Topology.kueue.x-k8s.io levels", "a ClusterNetworkTopology", Action.TOPOLOGY, "layers are named after the node labels"),
)

_KAI_ROWS: Final = (
    KeyTranslation(_KAI, "kai.scheduler/queue", _QUOTA, Action.QUOTA, "a PodGroup is added for kinds that its grouper treats as gangs"),
    KeyTranslation(_KAI, "runai/queue", _QUOTA, Action.QUOTA, "the key of earlier releases"),
    KeyTranslation(_KAI, "priorityClassName", "`priorityClassName` of the pods", Action.PRIORITY, 'label; its own classes have to be created again. From 100 on (`build`, `inference`) pods are not preemptible there; here the label `preemptible: "false"` says so'),
    KeyTranslation(_KAI, "mps", "MPS, set up for the nodes", Action.REPORT, "annotation"),
    KeyTranslation(_KAI, "pod-group-name", _GANG, Action.GANG, "annotation"),
    KeyTranslation(_KAI, "kai.scheduler/batch-min-member", _MIN, Action.MINIMUM, "a PodGroup is added; by hand for a JobSet, of which it counts replicated Jobs"),
    KeyTranslation(_KAI, "kai.scheduler/subgroup-name", _SUB_GROUP, Action.SUB_GROUP),
    KeyTranslation(_KAI, "kai.scheduler/preemptibility", "label `quota.scheduling.koordinator.sh/preemptible`", Action.PREEMPTIBILITY, "`semi-preemptible` by hand: two templates"),
    KeyTranslation(_KAI, "kai.scheduler/preemption-delay", NONE, Action.REPORT),
    KeyTranslation(_KAI, "kai.scheduler/staleness-grace-period", "`operators.koordinator.sh/on-member-failure`", Action.REPORT),
    KeyTranslation(_KAI, "kai.scheduler/top-owner-metadata", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KAI, "kai.scheduler/ignore-workload-api", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KAI, "kai.scheduler/stale-podgroup-timestamp", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KAI, "kai.scheduler/last-start-timestamp", NONE, Action.DROP, NOT_NEEDED),
    KeyTranslation(_KAI, "kai.scheduler/topology", NONE, Action.DROP, "the topology named `default` is used"),
    KeyTranslation(_KAI, "kai.scheduler/topology-required-placement", _TOPOLOGY + ": MustGather", Action.REQUIRED, "the layer is named after the node label"),
    KeyTranslation(_KAI, "kai.scheduler/topology-preferred-placement", _TOPOLOGY + ": PreferGather", Action.PREFERRED, "likewise"),
    KeyTranslation(_KAI, "kai.scheduler/segment-topology-required-placement", _TOPOLOGY, Action.SLICE_LAYER, "layer of `podCountMultiple`"),
    KeyTranslation(_KAI, "kai.scheduler/segment-size", "`podCountMultiple`", Action.SLICE_SIZE),
    KeyTranslation(_KAI, "kai.scheduler/segment-topology-preferred-placement", NONE, Action.REPORT),
    KeyTranslation(_KAI, "gpu-fraction", "`koordinator.sh/gpu-core` and `gpu-memory-ratio`", Action.GPU_FRACTION, "annotation"),
    KeyTranslation(_KAI, "gpu-fraction-num-devices", "`koordinator.sh/gpu.shared`", Action.GPU_COUNT, "annotation"),
    KeyTranslation(_KAI, "gpu-memory", "`koordinator.sh/gpu-memory`", Action.REPORT, "annotation; a share of the cores (`koordinator.sh/gpu-core`) has to be said as well"),
    KeyTranslation(_KAI, "gpu-fraction-container-name", NONE, Action.REPORT, "the first container gets the share"),
    KeyTranslation(_KAI, "kai.scheduler/node-pool", "a tree of a node pool", Action.REPORT, "see docs/quota.md#trees-of-node-pools"),
    KeyTranslation(_KAI, "kai.scheduler/task-priority", NONE, Action.REPORT),
    KeyTranslation(_KAI, "kai.scheduler/skip-podgrouper", NONE, Action.DROP),
    KeyTranslation(_KAI, "labels `user`, `project`", "the same", Action.KEEP, "nothing here reads them"),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai minMember", _MIN, Action.MINIMUM),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai queue", _QUOTA, Action.QUOTA),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai priorityClassName", "`priorityClassName` of the pods", Action.PRIORITY),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai subGroups", _SUB_GROUPS, Action.SUB_GROUPS, "with `minMember`, `minSubGroup`, `parent` and the required layer"),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai topologyConstraint", _TOPOLOGY, Action.TOPOLOGY),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai preemptibility", "label `quota.scheduling.koordinator.sh/preemptible` of the pods", Action.PREEMPTIBILITY),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai minSubGroup", "`minSubGroups` in the annotation", Action.MIN_SUB_GROUPS),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai stalenessGracePeriod", "`operators.koordinator.sh/on-member-failure`", Action.REPORT),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai markUnschedulable", NONE, Action.DROP),
    KeyTranslation(_KAI, "PodGroup.scheduling.run.ai schedulingBackoff", NONE, Action.DROP),
    KeyTranslation(_KAI, "Queue.scheduling.run.ai parentQueue", "label `parent`", Action.PARENT),
    KeyTranslation(_KAI, "Queue.scheduling.run.ai resources", "`min` (quota), `max` (limit), `shared-weight`", Action.AMOUNTS, 'CPU in thousandths, memory in MB; -1 is no limit and left out; without a limit, or with 0, it is the quota; a `lendingLimit` of 0 becomes `allow-lent-resource: "false"`'),
    KeyTranslation(_KAI, "Queue.scheduling.run.ai displayName", NONE, Action.DROP),
    KeyTranslation(_KAI, "Queue.scheduling.run.ai priority", NONE, Action.REPORT),
    KeyTranslation(_KAI, "Queue.scheduling.run.ai preemptMinRuntime", NONE, Action.REPORT),
    KeyTranslation(_KAI, "Queue.scheduling.run.ai reclaimMinRuntime", NONE, Action.REPORT),
    KeyTranslation(_KAI, "Topology.kai.scheduler levels", "a ClusterNetworkTopology", Action.TOPOLOGY, "layers are named after the node labels"),
)

_KUBEFLOW: Final = Peer.KUBEFLOW
_KUBEFLOW_ROWS: Final = (
    KeyTranslation(_KUBEFLOW, "schedulingPolicy minAvailable", _MIN, Action.MINIMUM, "of `runPolicy`; all replicas if absent"),
    KeyTranslation(_KUBEFLOW, "schedulingPolicy queue", _QUOTA, Action.QUOTA),
    KeyTranslation(_KUBEFLOW, "schedulingPolicy priorityClass", "`priorityClassName` of the pods", Action.PRIORITY),
    KeyTranslation(_KUBEFLOW, "schedulingPolicy scheduleTimeoutSeconds", "the same, of the PodGroup", Action.TIMEOUT),
    KeyTranslation(_KUBEFLOW, "schedulingPolicy minResources", NONE, Action.DROP, "fit is computed from the pods"),
    KeyTranslation(_KUBEFLOW, "TrainingRuntime podGroupPolicy", "a PodGroup", Action.REPORT, "it has to be empty, because it makes PodGroups of other kinds"),
    KeyTranslation(_KUBEFLOW, "SparkApplication batchScheduler", "a PodGroup", Action.REPORT, "it has to be empty, as `batchSchedulerOptions`: its queue and priority belong into the templates of the executors"),
    KeyTranslation(_KUBEFLOW, "options `--gang-scheduler-name`, `--gang-scheduling`, `--batch-scheduler`, gang provider of LeaderWorkerSet", NONE, Action.REPORT, "leave them empty; of KubeDL `kube-coscheduler` may stay"),
    KeyTranslation(_KUBEFLOW, "ray.io/gang-scheduling-enabled", "a PodGroup", Action.DROP),
    KeyTranslation(_KUBEFLOW, "ray.io/scheduler-name", "a PodGroup", Action.DROP),
    KeyTranslation(_KUBEFLOW, "ray.io/priority-class-name", "`priorityClassName` of the pods", Action.PRIORITY),
)

_OURS: Final = Peer.OURS
_RESULT: Final = "written by the operators"
_IN_OUR_WAY: Final = (
    KeyTranslation(_OURS, "gate `operators.koordinator.sh/placement`", NONE, Action.DROP, "Koordinator's scheduler holds gangs by itself; `schedulerName` becomes `koord-scheduler`"),
    KeyTranslation(_OURS, "finalizer `operators.koordinator.sh/in-use`", NONE, Action.DROP, "nobody there would take it off"),
    KeyTranslation(_OURS, "operators.koordinator.sh/inject", "`schedulerName: koord-scheduler`", Action.REPORT, "of a namespace: pods of gangs get it here; add it to others"),
    KeyTranslation(_OURS, "operators.koordinator.sh/sub-groups", NONE, Action.REPORT, "one PodGroup for each, all in `groups`"),
    KeyTranslation(_OURS, "operators.koordinator.sh/sub-group", NONE, Action.REPORT, "one PodGroup for each, all in `groups`"),
    KeyTranslation(_OURS, "operators.koordinator.sh/network-topology", NONE, Action.REPORT, "it knows one topology, `default`"),
    KeyTranslation(_OURS, "operators.koordinator.sh/on-member-failure", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/on-bind-failure", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/kept-room", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/checkpointed-at", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/soft-eviction-time", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/protection", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/device-resources", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/shared-with", NONE, Action.REPORT, 'there every pod may name every quota; nothing is lost of `["*"]`'),
    KeyTranslation(_OURS, "operators.koordinator.sh/max-priority", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/queue", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/queue-hold", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/queue-priority", NONE, Action.REPORT, "give the pods another PriorityClass"),
    KeyTranslation(_OURS, "operators.koordinator.sh/queue-retry", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/owner-grouping", NONE, Action.REPORT, "it finds no gangs from owners"),
    KeyTranslation(_OURS, "operators.koordinator.sh/max-run-time", NONE, Action.REPORT, "set `activeDeadlineSeconds` of the pods"),
    KeyTranslation(_OURS, "operators.koordinator.sh/expected-run-time", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/run-class", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/user", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/backfill", NONE, Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/admission", NONE, Action.REPORT, "koord-queue resumes Jobs"),
    KeyTranslation(_OURS, "operators.koordinator.sh/plan", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/plan-signature", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/nomination", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/nomination-signature", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/preempted-by", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/taken-over-by", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/reservation-uid", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/held-room", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/held-room-signature", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/later-room", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/admission-failures", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/scale-up", NONE, Action.DROP, _RESULT),
    KeyTranslation(_OURS, "operators.koordinator.sh/demo-stop-seconds", NONE, Action.DROP, "read by the sandbox only"),
    KeyTranslation(_OURS, "operators.koordinator.sh/node-selector", "an ElasticQuotaProfile", Action.REPORT),
    KeyTranslation(_OURS, "operators.koordinator.sh/deletion-policy", NONE, Action.REPORT),
)

# fmt: on

TABLE: Final = (
    *_KOORDINATOR_ROWS,
    *_PLUGINS_ROWS,
    *_VOLCANO_ROWS,
    *_KUEUE_ROWS,
    *_KAI_ROWS,
    *_KUBEFLOW_ROWS,
    *_IN_OUR_WAY,
)

PREFIXES: Final = {
    "volcano.sh/": _VOLCANO,
    "scheduling.volcano.sh/": _VOLCANO,
    "kueue.x-k8s.io/": _KUEUE,
    "kai.scheduler/": _KAI,
    "provreq.kueue.x-k8s.io/": _KUEUE,
    "runai/": _KAI,
    "scheduling.x-k8s.io/": _PLUGINS,
}
"""Keys of others that have no row are reported."""
SCHEDULERS: Final = {
    "volcano": _VOLCANO,
    "kai-scheduler": _KAI,
    "scheduler-plugins-scheduler": _PLUGINS,
}
"""Names of other schedulers in `spec.schedulerName`."""
FOREIGN_GATES: Final = (
    "kueue.x-k8s.io/admission",
    "kueue.x-k8s.io/elastic-job",
    "kueue.x-k8s.io/topology",
    "scheduling.volcano.sh/queue-allocation-gate",
)
GROUPS: Final = (
    "volcano.sh",
    "kueue.x-k8s.io",
    "scheduling.run.ai",
    "kai.scheduler",
    "kai.nvidia.com",
    "scheduling.x-k8s.io",
)
"""API groups of others, and of all groups below them."""
COMMON_KEYS: Final = ("priorityClassName", "mps")
"""Keys of KAI that mean nothing on objects that nothing else marks as KAI's."""
KAI_CLASSES: Final = frozenset({"train", "build-preemptible", "build", "inference"})
"""Priority classes that KAI's chart installs."""


def rows_of_keys(*, of_ours: bool = False, are_common: bool = False) -> dict[str, KeyTranslation]:
    """Return the rows of labels and annotations: of others or ours, of common words or not."""
    rows = (row for row in TABLE if (row.peer is Peer.OURS) == of_ours and " " not in row.key)
    return {row.key: row for row in rows if (row.key in COMMON_KEYS) == are_common}


def rows_of(owner: str) -> dict[str, KeyTranslation]:
    """Return the rows about fields of ``Kind.group``, by field."""
    named = ((row.key.split(" "), row) for row in TABLE)
    return {key[1]: row for key, row in named if len(key) == 2 and key[0] == owner}


_PAGE: Final = re.compile(r"\bdocs/(([\w-]+)\.md\S*)")
"""How a message names a page; on a page it is a link."""


def render_tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each peer and its table."""
    for peer in Peer:
        lines = ["| Key | Becomes | Note |", "|---|---|---|"]
        cells: dict[tuple[str, ...], list[str]] = {}
        for row in (row for row in TABLE if row.peer is peer):
            key = row.key if "`" in row.key else f"`{row.key}`"
            columns = (row.becomes, _describe(row.action, row.note))
            # Keys without an equivalent of which the same is to be said are one line.
            cells.setdefault(columns if row.becomes == NONE else (*columns, key), []).append(key)
        lines += (
            f"| {', '.join(keys)} | {columns[0]} | {columns[1]} |"
            for columns, keys in cells.items()
        )
        yield peer.value, "\n".join(lines)


def _describe(action: Action, note: str) -> str:
    note = _PAGE.sub(r"[\2](\1)", note)
    if action is Action.REPORT:
        return f"**by hand**{': ' if note else ''}{note}"
    return note
