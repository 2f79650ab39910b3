"""What users read: one text per reason, for conditions, events and ``koord explain`` alike.

A text says first what is the matter, in numbers and with names, then what would help. Where
Koordinator or kube-scheduler have words for the same situation, theirs stand in it, so that
runbooks written for them go on working. Texts are bounded whatever they quote: a condition takes
32 KiB, nobody reads more than a few lines.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, assert_never

from koord.core import gang_texts, quota_texts
from koord.core import reasons as r
from koord.core.gang.model import BadValue, DeprecatedKey, GangClaim
from koord.core.topology.layers import InvalidLayers, LayerFault
from koord.core.topology.status import TopologyStatus
from koord.core.topology_constraint import NODE_LAYER, ROOT_LAYER
from koord.core.units import PODS, format_amount

MAX_TEXT: Final = 1024
"""Length of every text, in characters."""
MAX_LISTED: Final = 8
"""Names or causes that are listed before the rest becomes a count."""
MAX_QUOTED: Final = 256
"""Length of a text of somebody else that is quoted."""


def render(reason: r.Reason) -> str:
    """Write a reason for the object that it is about."""
    return _cut(_TEXTS[type(reason)](reason), MAX_TEXT)


def render_for_pod(reason: r.Reason, pod: str) -> str:
    """Write a reason for one member (``namespace/name``), naming who holds it up."""
    text = render(reason)
    culprit = _culprit(reason)
    if culprit in {"", pod}:
        return text
    return (
        f"{_cut(text, MAX_TEXT - MAX_QUOTED)} This pod waits for {_cut(culprit, MAX_QUOTED - 32)}."
    )


def render_notes(claim: GangClaim) -> str:
    """Write what is odd about a pod's own gang settings without holding it up; empty if nothing."""
    notes = (*map(_bad_value, claim.bad_values), *map(_deprecated, claim.deprecated))
    return f"Note: {_cut(_listed(notes, '; '), MAX_TEXT)}" if notes else ""


_SERVER_ERROR: Final = 500
_STRAY: Final = ' (topology layer "" not found in spec)'
_FAULTS: Final = {
    LayerFault.EMPTY: f"no layers are listed; list {NODE_LAYER} at least",
    LayerFault.DUPLICATE: f"topologyLayer {{names}} is listed twice; one entry per layer{_STRAY}",
    LayerFault.ROOT_LISTED: f"{ROOT_LAYER} is built in; take it off the list",
    LayerFault.NO_NODE_LAYER: "topology layer {names} not found in spec; it has to be listed",
    LayerFault.UNKNOWN_PARENT: "topology layer {names} not found in spec; parents must be listed",
    LayerFault.CYCLE: "the parents of {names} lead in a circle; one layer has to be the top",
    LayerFault.TWO_ROOTS: f"{{names}} have no layer above; only one can be the top{_STRAY}",
    LayerFault.TWO_CHILDREN: f"{{names}} branch off; layers form one chain to the nodes{_STRAY}",
    LayerFault.NO_LABEL: f"{{names}} name no labelKey; only {NODE_LAYER} goes without",
}


def render_layers(invalid: InvalidLayers) -> str:
    """Write why no tree can be made of a list of layers, and the way out."""
    names = _listed(f'"{name}"' for name in invalid.layers)
    return _FAULTS[invalid.fault].format(names=names)


def render_topology(status: TopologyStatus) -> str:
    """Write whether there is a tree, how large it is, and what is odd about it."""
    parts = []
    if status.fault is not None:
        kept = "the last valid layers stay in force" if status.has_tree else "there is no tree"
        parts.append(f"{render_layers(status.fault)}; {kept}")
    if status.has_tree:
        parts.append(
            f"{_plural(status.nodes, 'node')} in {_plural(len(status.layers), 'layer')}: "
            f"{_listed(status.layers)}"
        )
    if status.left_out_count:
        named = _listed(f"{name} ({layer})" for name, layer in status.left_out)
        nodes = _plural(status.left_out_count, "node")
        parts.append(f"{nodes} without a label for a layer are left out: {named}")
    if status.twins:
        named = _listed(f"{layer} {name}" for layer, name in status.twins)
        parts.append(f"of the same name under several parents, and not the same: {named}")
    if status.hidden_domains:
        parts.append(f"{_plural(status.hidden_domains, 'more domain')} not listed")
    return _cut("; ".join(parts), MAX_TEXT)


def render_refusal(refused: r.RefusedNodes) -> str:
    """Write one cause with its count, as kube-scheduler does: ``3 Insufficient cpu``."""
    return f"{refused.nodes} {render_cause(refused.refusal, refused.resource, refused.detail)}"


def render_cause(refusal: r.NodeRefusal, resource: str = "", detail: str = "") -> str:
    """Write why a node does not take a pod, in the words of kube-scheduler."""
    if refusal is r.NodeRefusal.TAINT:
        return f"node(s) had untolerated taint {{{_cut(detail, MAX_QUOTED)}}}"
    if refusal is r.NodeRefusal.RESOURCE:
        return "Too many pods" if resource == PODS else f"Insufficient {resource}"
    return _CAUSES[refusal]


_CAUSES: Final = {
    r.NodeRefusal.UNSCHEDULABLE: "node(s) were unschedulable",
    r.NodeRefusal.SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    r.NodeRefusal.HOST_PORT: "node(s) didn't have free ports for the requested pod ports",
    r.NodeRefusal.VOLUME_IN_USE: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
    r.NodeRefusal.VOLUME_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    r.NodeRefusal.VOLUME_ZONE: "node(s) had no available volume zone",
    r.NodeRefusal.SPREAD_LABEL: (
        "node(s) didn't match pod topology spread constraints (missing required label)"
    ),
    r.NodeRefusal.SPREAD: "node(s) didn't match pod topology spread constraints",
    r.NodeRefusal.POD_AFFINITY: "node(s) didn't match pod affinity rules",
    r.NodeRefusal.POD_ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    r.NodeRefusal.EXISTING_ANTI_AFFINITY: (
        "node(s) didn't satisfy existing pods anti-affinity rules"
    ),
}


def _missing_members(reason: r.MissingMembers) -> str:
    counts = _counts(reason.gangs)
    strangers = sum(count.strangers for count in reason.gangs)
    if strangers:
        verb = "has" if strangers == 1 else "have"
        counts += (
            f"; {_plural(strangers, 'more pod')} {verb} neither our gate nor our scheduler name, "
            "so they count only once others have placed them"
        )
    elif not any(count.present or count.waiting_only for count in reason.gangs):
        counts += "; no live pod names it" if len(reason.gangs) == 1 else "; no live pod names them"
    return f"{counts} (child pod not collect enough)"


def _missing_pod_group(reason: r.MissingPodGroup) -> str:
    return (
        f"PodGroup {reason.gang} does not exist; create it, or correct the name on the pods "
        f"(gang has not init, gangName: {reason.gang})"
    )


def _missing_gang(reason: r.MissingGang) -> str:
    them = "them" if len(reason.missing) > 1 else "it"
    return (
        f"{reason.gang} starts together with {_listed(reason.missing)}, of which nothing exists; "
        f"create {them}, or take {them} out of its groups "
        f"(memberGangs [{_listed(reason.missing, ' ')}] doesn't exists)"
    )


def _reached(reason: r.Reached) -> str:
    return _counts(reason.gangs)


def _invalid_annotation(reason: r.InvalidAnnotation) -> str:
    return _listed(map(_bad_value, reason.values), "; ")


def _bad_value(bad: BadValue) -> str:
    written = f' "{bad.value}"' if bad.value else ""
    return f"{bad.key}{written} {bad.problem} (in force: {bad.in_force})"


def _inconsistent_group(reason: r.InconsistentGroup) -> str:
    silent = _listed(reason.silent)
    verb = "do" if len(reason.silent) > 1 else "does"
    return (
        f"{reason.gang} lists {silent} in its groups, but {silent} {verb} not list {reason.gang}; "
        "gangs start together only if each lists the other"
    )


def _spec_valid(reason: r.SpecValid) -> str:
    return _listed(("every setting can be used", *map(_deprecated, reason.deprecated)), "; ")


def _deprecated(used: DeprecatedKey) -> str:
    return f"{used.key} is deprecated, use {used.instead}"


def _insufficient_nodes(reason: r.InsufficientNodes) -> str:
    return f"{_fit_error(reason)} {_shortfall(reason)}"


def _fit_error(reason: r.InsufficientNodes) -> str:
    """Write what kube-scheduler writes for the first pod that does not fit."""
    if not reason.nodes:
        return "no nodes available to schedule pods."
    causes = sorted(reason.refused, key=lambda refused: -refused.nodes)
    texts = sorted(render_refusal(refused) for refused in causes[:MAX_LISTED])
    if len(causes) > MAX_LISTED:
        texts.append(f"{len(causes) - MAX_LISTED} more causes")
    head = f"0/{reason.nodes} nodes are available"
    return f"{head}: {', '.join(texts)}." if texts else f"{head}."


def _shortfall(reason: r.InsufficientNodes) -> str:
    """Write how much of the unit fits, who is the first that does not, and what would help."""
    parts = [] if reason.want == 1 else [f"{reason.fit} of {reason.want} pods fit"]
    if reason.resource and reason.resource != PODS:
        amount = format_amount(reason.resource, reason.request)
        first = f"the next, {reason.first}," if reason.fit else reason.first
        parts.append(f"{first} asks for {amount} {reason.resource}")
    else:
        parts.append(f"{reason.first} is the first without a place")
    if reason.more_nodes:
        nodes = _plural(reason.more_nodes, "more node")
        parts.append(f"{nodes} like the largest here, empty, would do")
    elif reason.nodes and reason.more_nodes is not None:
        parts.append("no node here could take it even when empty")
    return f"{'; '.join(parts)}."


def _no_domain_fits(reason: r.NoDomainFits | r.MultipleNotMet) -> str:
    """Write Koordinator's text, then what would help."""
    text = f"{_no_candidate(reason)} {_domain_advice(reason)}"
    if not reason.untried:
        return text
    return f"{text} Its sub-groups were not tried in {_plural(reason.untried, 'more domain')}."


def _no_candidate(reason: r.NoDomainFits | r.MultipleNotMet) -> str:
    names = [offer.path[-1] if offer.path else "" for offer in reason.offers]
    texts = sorted(
        f"topology topologyNode {reason.layer}/"
        f"{_cut(name if names.count(name) == 1 else '/'.join(offer.path), MAX_QUOTED)}: "
        f"{offer.offer}"
        for name, offer in zip(names, reason.offers, strict=True)
    )
    nodes = reason.shortage.nodes
    fit = f"0/{nodes} nodes are available: {nodes} not in the topology."
    text = (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: "
        f"{reason.want}, {';'.join(texts)}, {_fit_error(reason.shortage) if texts else fit}"
    )
    if not reason.multiples:
        return text
    return f"{text}; podCountMultiple constraints: {_multiples(reason)}"


def _multiples(reason: r.NoDomainFits | r.MultipleNotMet) -> str:
    return _listed(f"{layer}={multiple}" for layer, multiple in reason.multiples)


def _domain_advice(reason: r.NoDomainFits | r.MultipleNotMet) -> str:
    if isinstance(reason, r.MultipleNotMet):
        return (
            f"{_plural(reason.want, 'member')} would fit if the number of members in each domain "
            "did not have to be a whole multiple; change the number of members or podCountMultiple."
        )
    if not reason.domains:
        return f'no node is in the topology "{reason.topology}"; see its status for the labels.'
    best = max((offer.offer for offer in reason.offers), default=0)
    where = "the topology" if reason.layer == ROOT_LAYER else f"one domain of {reason.layer}"
    more = reason.domains - len(reason.offers)
    hidden = f" ({more} more domains offer no more)" if more > 0 else ""
    text = f"at most {best} of {_plural(reason.want, 'member')} fit in {where}{hidden}"
    shortage = reason.shortage
    if shortage.resource and shortage.resource != PODS:
        amount = format_amount(shortage.resource, shortage.request)
        text += f"; the next, {shortage.first}, asks for {amount} {shortage.resource}"
    return f"{text}."


def _members_apart(reason: r.MembersApart) -> str:
    return (
        f"members run on {_listed(reason.nodes)}, which share no domain of {reason.layer} in "
        f"topology {reason.topology}, and the gang must be in one; mend the labels of the nodes, "
        "or restart the whole gang"
    )


def _missing_topology(reason: r.MissingTopology) -> str:
    if reason.exists:
        what = "has layers of which no tree can be made; see its conditions"
    else:
        what = "does not exist; create it, or take the annotation off"
    return f"no cluster network topology: ClusterNetworkTopology {reason.topology} {what}"


def _unknown_layer(reason: r.UnknownLayer) -> str:
    names = _listed(f'"{layer}"' for layer in reason.layers)
    return (
        f"the gang names {names}, which ClusterNetworkTopology {reason.topology} does not have; "
        f"it has {_listed(reason.known)}: correct the annotation (names are case-sensitive)"
    )


def _needs_kube_scheduler(reason: r.NeedsKubeScheduler) -> str:
    return (
        f"{reason.pod} uses {_listed(reason.fields)}, which only kube-scheduler can serve; leave "
        "spec.schedulerName at default-scheduler and keep our gate: the pod is then released to "
        "kube-scheduler, pinned to the node planned for it"
    )


def _volume_not_ready(reason: r.VolumeNotReady) -> str:
    claim = f'persistentvolumeclaim "{reason.claim.partition("/")[2]}"'
    match reason.problem:
        case r.VolumeProblem.NOT_FOUND:
            return f"{claim} not found: {reason.pod} waits until it is there"
        case r.VolumeProblem.LOST:
            return f'{claim} bound to non-existent persistentvolume "{reason.volume}"'
        case r.VolumeProblem.TERMINATING:
            return f"{claim} is being deleted, and {reason.pod} uses it"
        case r.VolumeProblem.NOT_FOR_POD:
            return f"{claim} was not created for {reason.pod}, but has the name of its volume"
        case r.VolumeProblem.NO_VOLUME:
            return f'{claim} is bound to persistentvolume "{reason.volume}", which does not exist'
        case r.VolumeProblem.UNBOUND:
            return (
                f"pod has unbound immediate PersistentVolumeClaims: {reason.pod} waits until "
                f"{claim} is bound"
            )
        case _:
            assert_never(reason.problem)


def _waiting_for_foreign_gate(reason: r.WaitingForForeignGate) -> str:
    gates = _listed(reason.gates)
    if reason.pods == 1:
        return f"{reason.pod} waits behind scheduling gates of others: {gates}"
    return (
        f"{reason.pods} pods wait behind scheduling gates of others: {gates}; "
        f"the first is {reason.pod}"
    )


def _pinned_node_unfit(reason: r.PinnedNodeUnfit) -> str:
    return (
        f"{reason.pod} was released to node {reason.node}, which can no longer take it, and may "
        "not go elsewhere; delete the pod, so that its owner makes a new one"
    )


def _kept_for_replacements(reason: r.KeptForReplacements) -> str:
    return (
        f"room for {_plural(reason.pods, 'pod')} is kept for lost members of "
        f"{_listed(reason.gangs)}, for {reason.seconds} s more at most"
    )


def _planned(reason: r.Planned) -> str:
    plan = f" (plan {reason.plan_id})" if reason.plan_id else ""
    verb = "has" if reason.pods == 1 else "have"
    nodes = _plural(reason.nodes, "node")
    others = f"; others placed {reason.by_others} of them" if reason.by_others else ""
    return f"{_plural(reason.pods, 'pod')} {verb} a place on {nodes}{plan}{others}"


def _all_bound(reason: r.AllBound) -> str:
    return f"{reason.bound} of {_plural(reason.present, 'member')} bound; none waits for a node"


def _partially_bound(reason: r.PartiallyBound) -> str:
    return f"{reason.bound} of {_plural(reason.present, 'member')} bound"


def _bind_failed(reason: r.BindFailed) -> str:
    message = _cut(reason.message, MAX_QUOTED)
    if not reason.status:
        return f"a write for {reason.pod} got no usable answer, trying again: {message}"
    did = "failed to carry out" if reason.status >= _SERVER_ERROR else "refused"
    status = f"({reason.status})"
    return f"the API server {did} a write for {reason.pod} {status}, trying again: {message}"


def _at_strength(reason: r.AtStrength) -> str:
    return "the gang has its minimum or more" if reason.has_minimum else "the gang does not run"


def _internal_error(reason: r.InternalError) -> str:
    if reason.quota:
        return (
            f"a defect of the operators ({reason.error}) keeps the shares of quota {reason.quota} "
            "from being computed; pods of other trees of quotas go on. Please report it with the "
            "operators' log"
        )
    return (
        f"a defect of the operators ({reason.error}) keeps this from being planned; all others go "
        "on. Please report it with the operators' log"
    )


def _schedule_timeout(reason: r.ScheduleTimeout) -> str:
    return (
        f"all members present and no place found for {reason.waited_seconds} s, "
        f"longer than the {reason.limit_seconds} s allowed; still trying"
    )


def _within_time(reason: r.WithinTime) -> str:
    return f"the gang has not waited for a place longer than the {reason.limit_seconds} s allowed"


_TEXTS: Final[dict[type[r.Reason], Callable[[Any], str]]] = {
    r.MissingMembers: _missing_members,
    r.MissingPodGroup: _missing_pod_group,
    r.MissingGang: _missing_gang,
    r.Reached: _reached,
    r.InvalidAnnotation: _invalid_annotation,
    r.InconsistentGroup: _inconsistent_group,
    r.SpecValid: _spec_valid,
    r.InsufficientNodes: _insufficient_nodes,
    r.NoDomainFits: _no_domain_fits,
    r.MultipleNotMet: _no_domain_fits,
    r.MembersApart: _members_apart,
    r.MissingTopology: _missing_topology,
    r.UnknownLayer: _unknown_layer,
    r.NeedsKubeScheduler: _needs_kube_scheduler,
    r.VolumeNotReady: _volume_not_ready,
    r.WaitingForForeignGate: _waiting_for_foreign_gate,
    r.PinnedNodeUnfit: _pinned_node_unfit,
    r.KeptForReplacements: _kept_for_replacements,
    r.Planned: _planned,
    r.AllBound: _all_bound,
    r.PartiallyBound: _partially_bound,
    r.BindFailed: _bind_failed,
    r.AtStrength: _at_strength,
    r.ScheduleTimeout: _schedule_timeout,
    r.InternalError: _internal_error,
    r.WithinTime: _within_time,
    **gang_texts.TEXTS,
    **quota_texts.TEXTS,
}


_BLAMING: Final = (
    r.NeedsKubeScheduler,
    r.VolumeNotReady,
    r.WaitingForForeignGate,
    r.PinnedNodeUnfit,
    r.BindFailed,
)


def _culprit(reason: r.Reason) -> str:
    """Name the one pod that holds up the others, if the reason knows one."""
    if isinstance(reason, r.InsufficientNodes):
        return reason.first
    if isinstance(reason, r.NoDomainFits):
        return reason.shortage.first
    if isinstance(reason, _BLAMING):
        return reason.pod
    return ""


def _counts(gangs: Sequence[r.GangCount]) -> str:
    """Write ``3 of 4 members of default/a present; default/b: 1 of 2``."""
    texts = (_count(gang, is_first=not i) for i, gang in enumerate(gangs[:MAX_LISTED]))
    return _join(texts, len(gangs), "; ")


def _count(count: r.GangCount, *, is_first: bool) -> str:
    numbers = f"{count.present} of {count.min_member}"
    text = f"{count.gang}: {numbers}"
    if is_first:
        members = "member" if count.min_member == 1 else "members"
        state = "waiting" if count.waiting_only else "present"
        text = f"{numbers} {members} of {count.gang} {state}"
    if count.waiting_only:
        text += " (only-waiting: bound members do not count)"
    return text


def _listed(texts: Iterable[str], separator: str = ", ") -> str:
    listed = list(texts)
    return _join(listed[:MAX_LISTED], len(listed), separator)


def _join(texts: Iterable[str], total: int, separator: str) -> str:
    """Write the first texts of ``total``, and how many more there are."""
    listed = [_cut(text, MAX_QUOTED) for text in texts]
    if total > len(listed):
        listed.append(f"{total - len(listed)} more")
    return separator.join(listed)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
