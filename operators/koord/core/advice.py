"""What would help: for a reason, the few things that somebody could do about it.

A reason says what is the matter; this module says what to change, most promising first. It promises
nothing: each sentence names one way out of what is in the way now, and something else may be in the
way after it. What clears up by itself has no advice.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from koord.core import reasons as r
from koord.core.framework.arrays import Mask
from koord.core.framework.cycle import Cycle
from koord.core.framework.labels import is_tolerated
from koord.core.nodes import Node, Taint
from koord.core.pods import PodShape
from koord.core.topology_constraint import ROOT_LAYER
from koord.core.units import PODS, format_amount

MAX_SENTENCES: Final = 3
MAX_NAMES: Final = 4

_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
_NODE_CONDITIONS: Final = "{node.kubernetes.io/"
"""How taints begin that Kubernetes puts on nodes that are not well."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Nodes that have room for a pod, and the one thing that keeps it away from them."""

    refusal: r.NodeRefusal
    detail: str
    nodes: tuple[str, ...]


def find_closed(snapshot: Cycle, shape: PodShape) -> tuple[Closed, ...]:
    """Find nodes that would take a pod of a shape but for one thing, the largest group first."""
    failing = [(refusal, ~passed) for refusal, _, passed in snapshot.checks(shape)]
    _count_cordon_once(failing, snapshot, shape)
    is_near = snapshot.table.is_live & (np.sum([rows for _, rows in failing], axis=0) == 1)
    found: dict[tuple[r.NodeRefusal, str], list[str]] = defaultdict(list)
    for refusal, rows in failing:
        if refusal is r.NodeRefusal.RESOURCE:
            continue
        for row in np.flatnonzero(rows & is_near):
            node = snapshot.table.node_at(int(row))
            taints = _untolerated(node, shape) if refusal is r.NodeRefusal.TAINT else ()
            detail = " ".join(f"{{{taint.key}: {taint.value}}}" for taint in taints)
            found[refusal, detail].append(node.name)
    closed = (Closed(*cause, tuple(sorted(nodes))) for cause, nodes in found.items())
    return tuple(sorted(closed, key=lambda one: (-len(one.nodes), one.refusal, one.detail)))


def _count_cordon_once(
    failing: Sequence[tuple[r.NodeRefusal, Mask]], snapshot: Cycle, shape: PodShape
) -> None:
    """Cordoning also taints: take a taint that goes with uncordoning for no cause of its own."""
    masks = dict(failing)
    cordoned, tainted = masks[r.NodeRefusal.UNSCHEDULABLE], masks[r.NodeRefusal.TAINT]
    for row in np.flatnonzero(cordoned & tainted):
        node = snapshot.table.node_at(int(row)) if snapshot.table.is_live[row] else None
        if node and all(taint.key == _CORDON_TAINT for taint in _untolerated(node, shape)):
            tainted[row] = False


def _untolerated(node: Node, shape: PodShape) -> list[Taint]:
    return [
        taint
        for taint in node.taints
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, shape.tolerations)
    ]


def advise(reason: r.Reason, closed: Sequence[Closed] = ()) -> tuple[str, ...]:
    """Return what would help, as whole sentences, the most promising first.

    ``closed`` is what ``find_closed`` finds for the pod that has no place, if that is the reason.
    """
    if isinstance(reason, r.InsufficientNodes):
        sentences = _insufficient_nodes(reason, closed)
    else:
        make = _ADVICE.get(type(reason))
        sentences = [] if make is None else make(reason)
    return tuple(sentences[:MAX_SENTENCES])


def _missing_members(reason: r.MissingMembers) -> list[str]:
    return [sentence for gang in reason.gangs for sentence in _complete(gang)]


def _complete(gang: r.GangCount) -> list[str]:
    lacking = gang.min_member - gang.present
    ways = [_adopt(gang)] if gang.strangers else []
    if lacking > gang.strangers:
        members = _count(lacking - gang.strangers, "more member")
        lower = f", or lower its minimum to {gang.present}" if gang.present else ""
        ways.append(f"Create {members} of {gang.gang}{lower}.")
    if gang.waiting_only:
        policy = "waiting-and-running"
        ways.append(f"To have members count that run already, use the match policy {policy}.")
    return ways


def _adopt(gang: r.GangCount) -> str:
    pods = _count(gang.strangers, "pod")
    are = "is" if gang.strangers == 1 else "are"
    them = "it" if gang.strangers == 1 else "them"
    add = f"add our gate and scheduler name to the template that the owner makes {them} from"
    return f"{pods} of {gang.gang} {are} left to another scheduler: to have us place {them}, {add}."


def _missing_pod_group(reason: r.MissingPodGroup) -> list[str]:
    return [f"Create the PodGroup {reason.gang}, or correct the name on the pods."]


def _missing_gang(reason: r.MissingGang) -> list[str]:
    return [f"Create {_named(reason.missing)}, or take it out of the groups of {reason.gang}."]


def _invalid_annotation(reason: r.InvalidAnnotation) -> list[str]:
    return [
        f"Correct {value.key}, which {value.problem}."
        if value.value
        else f"Give the pods {value.key}."
        for value in reason.values
    ]


def _inconsistent_group(reason: r.InconsistentGroup) -> list[str]:
    silent = _named(reason.silent)
    return [
        f"Add {reason.gang} to the groups of {silent}.",
        f"Or take {silent} out of the groups of {reason.gang}, which then starts without.",
    ]


def _insufficient_nodes(reason: r.InsufficientNodes, closed: Sequence[Closed]) -> list[str]:
    more = _add_nodes(reason)
    opening = [_open(one) for one in closed[: MAX_SENTENCES - 1]]
    # Nodes that are there and have room are nearer than new ones, if they are enough.
    is_enough = sum(len(one.nodes) for one in closed) >= (reason.more_nodes or 0)
    return [*opening, *more] if is_enough else [*more, *opening]


def _add_nodes(reason: r.InsufficientNodes) -> list[str]:
    if not reason.nodes:
        return ["Add nodes: there are none."]
    if reason.more_nodes:
        nodes = _count(reason.more_nodes, "node")
        return [f"Add {nodes} as large as the largest here, or free as much on those in use."]
    if reason.resource == PODS:
        return ["Add nodes that may run more pods."]
    if reason.resource:
        amount = format_amount(reason.resource, reason.request)
        node = f"No node that {reason.first} may use has {amount} {reason.resource} even when empty"
        return [f"{node}: ask for less, or add a larger node."]
    return []


def _open(closed: Closed) -> str:
    nodes = f"{_count(len(closed.nodes), 'node')} with room ({_named(closed.nodes)})"
    match closed.refusal:
        case r.NodeRefusal.TAINT if closed.detail.startswith(_NODE_CONDITIONS):
            return f"See what is wrong with {nodes}, tainted {closed.detail}."
        case r.NodeRefusal.TAINT:
            taint = f"Tolerate the taint {closed.detail} in the pods, or take it off the nodes"
            return f"{taint}: it closes {nodes}."
        case r.NodeRefusal.UNSCHEDULABLE:
            return f"Uncordon {nodes}."
        case r.NodeRefusal.SELECTOR:
            labels = "Relax node selector and affinity of the pods, or label nodes to match"
            return f"{labels}: that leaves out {nodes}."
        case r.NodeRefusal.HOST_PORT:
            return f"Drop the host port, or end the pods that have it on {nodes}."
        case _:
            return f"{_COMPANY[closed.refusal]}: that leaves out {nodes}."


_COMPANY: Final = {
    r.NodeRefusal.VOLUME_IN_USE: "End the pod that uses the claim, or give each pod its own",
    r.NodeRefusal.VOLUME_AFFINITY: "Use volumes that are not bound to other nodes",
    r.NodeRefusal.VOLUME_ZONE: "Use volumes of the same zone, or have nodes in theirs",
    r.NodeRefusal.SPREAD_LABEL: "Give the nodes the label over which the pods are to be spread",
    r.NodeRefusal.SPREAD: "Make room in the domains with the fewest such pods, or raise maxSkew",
    r.NodeRefusal.POD_AFFINITY: "Relax the pod affinity, or start the pods that it looks for",
    r.NodeRefusal.POD_ANTI_AFFINITY: "Relax the anti-affinity of the pods, or end those it means",
    r.NodeRefusal.EXISTING_ANTI_AFFINITY: "End the pods whose anti-affinity means these",
}


def _no_domain_fits(reason: r.NoDomainFits) -> list[str]:
    best = max(reason.offers, key=lambda one: one.offer, default=None)
    if best is None or reason.layer == ROOT_LAYER:
        return ["Add nodes that have the labels of the topology, or ask for less."]
    missing = _count(reason.want - best.offer, "more member")
    where = f"{reason.layer} {'/'.join(best.path)}"
    return [
        f"Make room for {missing} in {where}, which is nearest to taking all.",
        f"Or ask for a layer above {reason.layer}, or for PreferGather instead of MustGather.",
    ]


def _multiple_not_met(reason: r.MultipleNotMet) -> list[str]:
    wanted = _named([f"{layer} by {multiple}" for layer, multiple in reason.multiples])
    return [f"Choose a number of members, or a podCountMultiple, that can be met ({wanted})."]


def _members_apart(reason: r.MembersApart) -> list[str]:
    return [
        f"Correct the labels of {_named(reason.nodes)}, so that they share one {reason.layer}.",
        "Or delete all members: the gang then starts anew in one domain.",
    ]


def _missing_topology(reason: r.MissingTopology) -> list[str]:
    verb = "Correct the layers of" if reason.exists else "Create"
    return [f"{verb} ClusterNetworkTopology {reason.topology}; koord topology shows those there."]


def _unknown_layer(reason: r.UnknownLayer) -> list[str]:
    return [f"Name one of {_named(reason.known)} instead of {_named(reason.layers)}."]


def _needs_kube_scheduler(reason: r.NeedsKubeScheduler) -> list[str]:
    way_out = "set spec.schedulerName to default-scheduler and keep the gate"
    return [
        f"Drop {_named(reason.fields)} from the pod.",
        f"Or {way_out}: it is then planned by us and bound by kube-scheduler.",
    ]


def _waiting_for_foreign_gate(reason: r.WaitingForForeignGate) -> list[str]:
    gates = _named(reason.gates)
    return [
        f"Whoever put {gates} on the pod has to take it off; ours comes off last.",
        "A gate that nobody looks after any more can be removed from spec.schedulingGates by hand.",
    ]


def _pinned_node_unfit(reason: r.PinnedNodeUnfit) -> list[str]:
    return [
        f"Delete {reason.pod}; the one that its owner makes in its place may go to another node.",
        f"Or give node {reason.node} back what it had when the pod was released to it.",
    ]


def _bind_failed(reason: r.BindFailed) -> list[str]:
    if reason.status == 403:
        return ["Give the operators the rights of their ClusterRoles; see the message for which."]
    return []


def _below_min(reason: r.BelowMin) -> list[str]:
    lacking = _count(reason.min_member - reason.bound, "member")
    return [f"Have the owner of the gang create {lacking} in place of those that were lost."]


_ADVICE: Final[dict[type[r.Reason], Callable[[Any], list[str]]]] = {
    r.MissingMembers: _missing_members,
    r.MissingPodGroup: _missing_pod_group,
    r.MissingGang: _missing_gang,
    r.InvalidAnnotation: _invalid_annotation,
    r.InconsistentGroup: _inconsistent_group,
    r.NoDomainFits: _no_domain_fits,
    r.MultipleNotMet: _multiple_not_met,
    r.MembersApart: _members_apart,
    r.MissingTopology: _missing_topology,
    r.UnknownLayer: _unknown_layer,
    r.NeedsKubeScheduler: _needs_kube_scheduler,
    r.WaitingForForeignGate: _waiting_for_foreign_gate,
    r.PinnedNodeUnfit: _pinned_node_unfit,
    r.BindFailed: _bind_failed,
    r.BelowMin: _below_min,
}


def _named(names: Sequence[str]) -> str:
    """Write ``a, b and 7 more``."""
    listed = ", ".join(names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return f"{listed} and {more} more" if more > 0 else listed


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
