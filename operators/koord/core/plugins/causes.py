"""The causes of kube-scheduler's own rules, in the order in which it checks them."""

from typing import Final

from koord.core.framework.cause import RESOURCE, Cause


class NodeRefusal:
    """Why one node does not take a pod of one shape."""

    UNSCHEDULABLE: Final = Cause(
        "NodeUnschedulable", 10, "node(s) were unschedulable", "Uncordon {nodes}."
    )
    TAINT: Final = Cause(
        "UntoleratedTaint",
        11,
        "node(s) had untolerated taint {{{detail}}}",
        "Tolerate the taint {detail} in the pods, or take it off the nodes: it closes {nodes}.",
        by_detail=True,
    )
    SELECTOR: Final = Cause(
        "NodeAffinity",
        12,
        "node(s) didn't match Pod's node affinity/selector",
        "Relax node selector and affinity of the pods, or label nodes to match: "
        "that leaves out {nodes}.",
    )
    HOST_PORT: Final = Cause(
        "NodePorts",
        20,
        "node(s) didn't have free ports for the requested pod ports",
        "Drop the host port, or end the pods that have it on {nodes}.",
    )
    RESOURCE: Final = RESOURCE
    VOLUME_IN_USE: Final = Cause(
        "VolumeRestrictions",
        50,
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
        "End the pod that uses the claim, or give each pod its own: that leaves out {nodes}.",
    )
    VOLUME_AFFINITY: Final = Cause(
        "VolumeBinding",
        51,
        "node(s) didn't match PersistentVolume's node affinity",
        "Use volumes that are not bound to other nodes: that leaves out {nodes}.",
    )
    VOLUME_ZONE: Final = Cause(
        "VolumeZone",
        52,
        "node(s) had no available volume zone",
        "Use volumes of the same zone, or have nodes in theirs: that leaves out {nodes}.",
    )
    SPREAD_LABEL: Final = Cause(
        "PodTopologySpreadLabel",
        60,
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "Give the nodes the label over which the pods are to be spread: that leaves out {nodes}.",
    )
    SPREAD: Final = Cause(
        "PodTopologySpread",
        61,
        "node(s) didn't match pod topology spread constraints",
        "Make room in the domains with the fewest such pods, or raise maxSkew: "
        "that leaves out {nodes}.",
        is_transient=True,
    )
    POD_AFFINITY: Final = Cause(
        "PodAffinity",
        70,
        "node(s) didn't match pod affinity rules",
        "Relax the pod affinity, or start the pods that it looks for: that leaves out {nodes}.",
        is_transient=True,
    )
    POD_ANTI_AFFINITY: Final = Cause(
        "PodAntiAffinity",
        71,
        "node(s) didn't match pod anti-affinity rules",
        "Relax the anti-affinity of the pods, or end those it means: that leaves out {nodes}.",
    )
    EXISTING_ANTI_AFFINITY: Final = Cause(
        "ExistingPodAntiAffinity",
        72,
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "End the pods whose anti-affinity means these: that leaves out {nodes}.",
    )
