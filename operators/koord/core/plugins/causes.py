"""The causes of kube-scheduler's own rules, in the order in which it checks them."""

from typing import Final

from koord.core.engine.cause import RESOURCE, Cause
from koord.core.model.reasons import ASK


class NodeCause:
    """Why one node does not take a pod of one shape."""

    UNSCHEDULABLE: Final = Cause(
        "NodeUnschedulable",
        10,
        "node(s) were unschedulable",
        f"{ASK.capitalize()} uncordon {{nodes}}.",
    )
    TAINT: Final = Cause(
        "UntoleratedTaint",
        11,
        "node(s) had untolerated taint {{{detail}}}",
        f"Tolerate the taint {{detail}} in the pods, or {ASK} remove it from the nodes: "
        "it excludes {nodes}.",
        by_detail=True,
    )
    SELECTOR: Final = Cause(
        "NodeAffinity",
        12,
        "node(s) didn't match Pod's node affinity/selector",
        f"Relax node selector and affinity of the pods, or {ASK} label nodes to match: "
        "this excludes {nodes}.",
        is_lasting=True,
    )
    REJECTED: Final = Cause(
        "RejectedByKubelet",
        13,
        "node(s) rejected such pods {detail}",
        "See the messages of the failed pods for what {nodes} lack; a change of a node ends its "
        "back-off.",
        by_detail=True,
    )
    HOST_PORT: Final = Cause(
        "NodePorts",
        20,
        "node(s) didn't have free ports for the requested pod ports",
        "Remove the host port, or delete the pods that use it on {nodes}.",
    )
    RESOURCE: Final = RESOURCE
    NOMINATED: Final = Cause(
        "NominatedRoom",
        41,
        "node(s) had room for nominated pods of higher or equal priority only",
        "Wait: the room of {nodes} goes to pods that preempted others for it.",
    )
    DAEMON: Final = Cause(
        "DaemonRoom",
        42,
        "node(s) had room for pods of DaemonSets only, which kube-scheduler is about to bind",
        "Wait half a minute: the room of {nodes} is kept no longer than that.",
    )
    VOLUME_IN_USE: Final = Cause(
        "VolumeRestrictions",
        50,
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
        "Delete the pod that uses the claim, or give each pod its own: this excludes {nodes}.",
    )
    VOLUME_AFFINITY: Final = Cause(
        "VolumeBinding",
        51,
        "node(s) didn't match PersistentVolume's node affinity",
        "Use volumes that are not bound to other nodes: this excludes {nodes}.",
    )
    VOLUME_ZONE: Final = Cause(
        "VolumeZone",
        52,
        "node(s) had no available volume zone",
        "Use volumes of the same zone, or add nodes in theirs: this excludes {nodes}.",
    )
    SPREAD_LABEL: Final = Cause(
        "PodTopologySpreadLabel",
        60,
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "Give the nodes the topology key label of the spread constraint: this excludes {nodes}.",
        is_lasting=True,
    )
    SPREAD: Final = Cause(
        "PodTopologySpread",
        61,
        "node(s) didn't match pod topology spread constraints",
        "Free room in the domains with the fewest such pods, or raise maxSkew: "
        "this excludes {nodes}.",
        is_transient=True,
    )
    POD_AFFINITY: Final = Cause(
        "PodAffinity",
        70,
        "node(s) didn't match pod affinity rules",
        "Relax the pod affinity, or start the pods that it requires: this excludes {nodes}.",
        is_transient=True,
    )
    POD_ANTI_AFFINITY: Final = Cause(
        "PodAntiAffinity",
        71,
        "node(s) didn't match pod anti-affinity rules",
        "Relax the anti-affinity of the pods, or delete those that it matches: "
        "this excludes {nodes}.",
    )
    EXISTING_ANTI_AFFINITY: Final = Cause(
        "ExistingPodAntiAffinity",
        72,
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "Delete the pods whose anti-affinity matches these, if they are yours. Otherwise ask the "
        "administrators whose they are, and to set a ResourceQuota of scope "
        "CrossNamespacePodAffinity there: this excludes {nodes}.",
        keeps_out=True,
    )
