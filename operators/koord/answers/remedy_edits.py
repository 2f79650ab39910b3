"""Remedies that are edits: of nodes, quotas, PodGroups and pods, each with the least amount.

Each function looks whether its edit is worth a trial, has it tried, and says what was seen.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from koord.answers.edits import (
    AddNodes,
    Cordon,
    Edit,
    SetMinMember,
    SetQuota,
    Submit,
    Trial,
)
from koord.answers.reading import Target, TargetKind
from koord.answers.remedies import Remedy, RemedyActor, RemedyKind, Verified
from koord.answers.remedy_trial import ClosedNodes, RemedySearch
from koord.core.autoscaler.nodes import find_lasting_taints
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.state import ClusterState
from koord.core.gang.reasons import MissingMembers, MissingPodGroup
from koord.core.model.gangs import GangKey
from koord.core.model.pods import Pod, Toleration
from koord.core.model.reasons import Reason
from koord.core.model.text import named, plural
from koord.core.model.units import format_amount
from koord.core.plugins.causes import NodeCause
from koord.core.quota.model import EVERYONE, QuotaSpec
from koord.core.quota.reasons import (
    InsufficientEntitlement,
    InsufficientMax,
    QuotaExceeded,
    RequestAboveMax,
)
from koord.similar_names import find_similar

MOST_NODES: Final = 64
_MOST_MEMBERS: Final = 256
_KINDS_OF_NODES: Final = 3
_MOST_QUOTAS: Final = 4
"""Other quotas that are tried, those with most room first."""


# --- nodes ---------------------------------------------------------------------------------------


def add_nodes(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try more nodes like one that exists, unless no node could take such a pod."""
    if not isinstance(reason, InsufficientNodes) or reason.more_nodes == 0:
        return
    best: tuple[int, str] | None = None
    seen, likes = Verified.NO, _kinds_of_nodes(search.state, reason)
    for like in likes:
        count, seen = search.find_smallest(MOST_NODES, _adding(like), reason.more_nodes or 1)
        if count is not None and (best is None or count < best[0]):
            best = count, like
    if best is not None:
        count, like = best
        sentence = f"Add {plural(count, 'node')} like {like}"
        change, edits = {"nodes": count, "like": like}, _adding(like)(count)
        yield Remedy(RemedyKind.ADD_NODES, RemedyActor.CLUSTER_ADMIN, sentence, change, edits=edits)
    elif likes:
        most = MOST_NODES if seen is Verified.NO else None
        what = plural(MOST_NODES, "node") if most else "nodes"
        yield Remedy(
            RemedyKind.ADD_NODES,
            RemedyActor.CLUSTER_ADMIN,
            f"Add {what} like {likes[0]}",
            {"nodes": most, "like": likes[0]},
            verified=seen,
        )


def _adding(like: str, *before: Edit) -> Callable[[int], tuple[Edit, ...]]:
    return lambda count: (*before, AddNodes(like, count))


def _kinds_of_nodes(state: ClusterState, reason: InsufficientNodes) -> list[str]:
    """Return a node of each kind, the one with most of what is scarce first.

    Of nodes that offer the same it is one with as few taints as there is, which new ones have, too.
    """
    kinds: dict[tuple[tuple[str, int], ...], tuple[int, str]] = {}
    for name, row in state.table.live_rows():
        node = state.table.node_at(row)
        kind = tuple(sorted(node.allocatable.items()))
        like = len(find_lasting_taints(node)), name
        kinds[kind] = min(like, kinds.get(kind, like))
    by_size = sorted(kinds, key=lambda kind: (-dict(kind).get(reason.resource, 0), kinds[kind]))
    return [kinds[kind][1] for kind in by_size[:_KINDS_OF_NODES]]


def uncordon(search: RemedySearch, _: Reason, closed: ClosedNodes) -> Iterator[Remedy]:
    """Try as few of the nodes that have room and are cordoned as are enough."""
    nodes = next((each.nodes for each in closed if each.cause is NodeCause.UNSCHEDULABLE), ())
    if not nodes:
        return
    count, seen = search.find_smallest(
        len(nodes), lambda count: (Cordon(nodes[:count], is_on=False),)
    )
    chosen = nodes if count is None else nodes[:count]
    yield Remedy(
        RemedyKind.UNCORDON,
        RemedyActor.CLUSTER_ADMIN,
        f"Uncordon {named(chosen)}",
        {"nodes": list(chosen)},
        verified=seen,
        edits=(Cordon(chosen, is_on=False),),
    )


@dataclass(frozen=True, slots=True)
class _Tolerate:
    """Pods tolerate a taint."""

    pods: tuple[Pod, ...]
    key: str
    value: str

    def apply(self, trial: Trial) -> None:
        more = Toleration(self.key, "Equal", self.value)
        for pod in self.pods:
            shape = replace(pod.shape, tolerations=(*pod.shape.tolerations, more))
            trial.put_pod(replace(pod, shape=shape))


def tolerate(search: RemedySearch, reason: Reason, closed: ClosedNodes) -> Iterator[Remedy]:
    """Try each taint that keeps pods off nodes, with more nodes where that is not enough."""
    for each in closed:
        if each.cause is not NodeCause.TAINT:
            continue
        key, _, value = each.detail.strip("{}").partition(": ")
        if "}" in key + value or key.startswith("node.kubernetes.io/"):
            continue  # several taints; or one that stands for a condition of the node
        edit = _Tolerate(search.pods(), key, value)
        seen = search.judge(edit)
        alone = Remedy(
            RemedyKind.TOLERATE,
            RemedyActor.OWNER,
            f"Tolerate the taint {key}={value} in the pods",
            {"taint": {"key": key, "value": value}},
            verified=seen,
            edits=(edit,),
        )
        with_nodes = None
        if seen is Verified.NO and isinstance(reason, InsufficientNodes):
            with_nodes = _add_nodes_too(search, reason, edit, alone)
        yield with_nodes or alone


def _add_nodes_too(
    search: RemedySearch, reason: InsufficientNodes, edit: _Tolerate, alone: Remedy
) -> Remedy | None:
    """Return a toleration with fewer nodes than would be enough without it."""
    like = next(iter(_kinds_of_nodes(search.state, reason)), "")
    count, _ = search.find_smallest((reason.more_nodes or 1) - 1, _adding(like, edit))
    if count is None:
        return None
    return replace(
        alone,
        sentence=f"{alone.sentence}, and add {plural(count, 'node')} like {like}",
        change={**alone.change, "and": {"nodes": count, "like": like}},
        verified=Verified.YES,
        edits=_adding(like, edit)(count),
    )


# --- the gang and its pods -----------------------------------------------------------------------


def lower_min_member(search: RemedySearch, _: Reason, _closed: ClosedNodes) -> Iterator[Remedy]:
    """Try a minimum that is as high as possible."""
    group = search.state.gangs.pod_group(search.gang) if search.gang else None
    if group is None or group.spec.min_member < 2 or group.spec.sub_groups is not None:
        return
    least = group.spec.min_member
    fewer, seen = search.find_smallest(
        least - 1, lambda fewer: (SetMinMember(group.key, least - fewer),)
    )
    enough = 1 if fewer is None else least - fewer
    yield Remedy(
        RemedyKind.LOWER_MIN_MEMBER,
        RemedyActor.OWNER,
        f"Lower minMember of PodGroup {group.key} from {least} to {enough}",
        {"path": "/spec/minMember", "from": least, "to": enough},
        verified=seen,
        edits=(SetMinMember(group.key, enough),),
    )


@dataclass(frozen=True, slots=True)
class _AskLess:
    """Pods ask for no more than ``most`` of a resource."""

    pods: tuple[Pod, ...]
    resource: str
    most: int

    def apply(self, trial: Trial) -> None:
        for pod in self.pods:
            requests = dict(pod.shape.requests)
            if requests.get(self.resource, 0) > self.most:
                requests[self.resource] = self.most
                shape = replace(pod.shape, requests=tuple(sorted(requests.items())))
                trial.put_pod(replace(pod, shape=shape))


def ask_less(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try smaller requests, only where no node could take such a pod even if it was empty."""
    is_too_large = isinstance(reason, InsufficientNodes) and reason.more_nodes == 0
    if not isinstance(reason, InsufficientNodes) or not (is_too_large and reason.amount):
        return
    key, pods, request = reason.resource, search.pods(), reason.request

    def make(less: int) -> tuple[Edit, ...]:
        return (_AskLess(pods, key, request - less),)

    less, seen = search.find_smallest(request - 1, make)
    if less is None and seen is Verified.NO:
        return  # it would be asked for nothing at all
    request_text = format_amount(key, request)
    enough = "less" if less is None else format_amount(key, request - less)
    yield Remedy(
        RemedyKind.ASK_LESS,
        RemedyActor.OWNER,
        f"Ask for {enough} {key} per pod instead of {request_text}",
        {"resource": key, "from": request_text, "to": None if less is None else enough},
        verified=seen,
        edits=() if less is None else make(less),
    )


def add_members(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try as many members as are missing, like one that is there."""
    if not isinstance(reason, MissingMembers) or not search.gang:
        return
    members = search.state.gangs.members(search.gang).values()
    pattern = min((pod for pod in members if pod.is_waiting), key=lambda pod: pod.key, default=None)
    if pattern is None:
        return
    like = pattern

    def make(count: int) -> tuple[Edit, ...]:
        return (Submit(tuple(_like(like, at) for at in range(count))),)

    own = next((count for count in reason.gangs if count.gang == search.gang), None)
    guess = 1 if own is None else max(own.min_member - own.present, 1)
    count, seen = None, Verified.NOT_TRIED
    if guess <= _MOST_MEMBERS:
        count, seen = search.find_smallest(_MOST_MEMBERS, make, guess)
    members_to_create = guess if count is None else count
    yield Remedy(
        RemedyKind.ADD_MEMBERS,
        RemedyActor.OWNER,
        f"Create {plural(members_to_create, 'more member')} like {pattern.name}",
        {"members": members_to_create, "like": pattern.name},
        verified=seen,
        edits=() if count is None else make(count),
    )


def _like(pod: Pod, at: int) -> Pod:
    return replace(pod, uid=f"{pod.uid}:more-{at}", name=f"{pod.name}-more-{at}", index=-1)


@dataclass(frozen=True, slots=True)
class _Rename:
    """Pods name another PodGroup."""

    pods: tuple[Pod, ...]
    gang: GangKey

    def apply(self, trial: Trial) -> None:
        for pod in self.pods:
            if pod.gang is not None:
                trial.put_pod(replace(pod, gang=replace(pod.gang, key=self.gang)))


def fix_name(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try the name of a PodGroup that exists, and is similar to the one that does not."""
    if not isinstance(reason, MissingPodGroup):
        return
    gangs = search.state.gangs
    namespace, name = reason.gang.split("/", 1)
    keys = [key for key in gangs.keys() if gangs.pod_group(key) is not None]  # noqa: SIM118 - no dict
    here = [key.partition("/")[2] for key in keys if key.startswith(f"{namespace}/")]
    pods = tuple(pod for pod in gangs.members(reason.gang).values() if pod.is_waiting)
    for similar in find_similar(name, here) if pods else ():
        renamed = Target(TargetKind.POD_GROUP, namespace, similar)
        there = RemedySearch(search.reading, renamed, search.is_over)
        yield Remedy(
            RemedyKind.FIX_NAME,
            RemedyActor.OWNER,
            f"Name PodGroup {similar} instead of {name} in the pods",
            {"from": name, "to": similar},
            verified=there.judge(_Rename(pods, renamed.key)),
        )


def remove_hold(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try the release of what its owner holds."""
    group = search.state.gangs.pod_group(search.gang) if search.gang else None
    if reason.code != "Held" or group is None or not group.spec.is_held:
        return
    let_go = replace(group, spec=replace(group.spec, is_held=False))
    yield Remedy(
        RemedyKind.REMOVE_HOLD,
        RemedyActor.OWNER,
        f"Release it (koord queue release {group.key})",
        verified=search.judge(Submit((), (let_go,))),
        edits=(Submit((), (let_go,)),),
    )


# --- quotas --------------------------------------------------------------------------------------


def raise_quota(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try a higher max, or min, of the quota that refuses."""
    if not isinstance(reason, QuotaExceeded):
        return
    limits: dict[type[QuotaExceeded], tuple[RemedyKind, str]] = {
        InsufficientMax: (RemedyKind.RAISE_MAX, "max"),
        RequestAboveMax: (RemedyKind.RAISE_MAX, "max"),
        InsufficientEntitlement: (RemedyKind.RAISE_MIN, "min"),
    }
    kind, field_name = limits.get(type(reason), (None, ""))
    spec = search.state.quotas.catalog.written_as(reason.quota)
    if kind is None or spec is None or len(reason.shortages) != 1:
        return
    (shortage,) = reason.shortages
    before = dict(getattr(spec, field_name))
    key, least = shortage.resource, before.get(shortage.resource, 0)

    def make(more: int) -> tuple[Edit, ...]:
        amounts = {**before, key: least + more}
        is_max = kind is RemedyKind.RAISE_MAX
        raised = replace(spec, max=amounts) if is_max else replace(spec, min=amounts)
        return (SetQuota(raised),)

    guess = max(shortage.used + shortage.requested - least, 1)
    more, seen = search.find_smallest(4 * guess, make, guess)
    was, then = (
        format_amount(key, amount) for amount in (least, least + (guess if more is None else more))
    )
    yield Remedy(
        kind,
        RemedyActor.QUOTA_ADMIN,
        f"Raise {field_name} of quota {spec.name} from {was} to {then} {key}",
        {"path": f"/spec/{field_name}/{key}", "quota": spec.name, "from": was, "to": then},
        verified=seen,
        edits=() if more is None else make(more),
    )


@dataclass(frozen=True, slots=True)
class _UseQuota:
    """Pods name another quota."""

    pods: tuple[Pod, ...]
    quota: str

    def apply(self, trial: Trial) -> None:
        for pod in self.pods:
            trial.put_pod(replace(pod, quota=self.quota))


def use_other_quota(search: RemedySearch, reason: Reason, _: ClosedNodes) -> Iterator[Remedy]:
    """Try other quotas that pods of the namespace may name, if the asker may list all."""
    if not isinstance(reason, QuotaExceeded) or not search.reading.sight.quotas:
        return
    pods = search.pods()
    for spec in _find_other_quotas(search.state, pods, reason) if pods else ():
        yield Remedy(
            RemedyKind.USE_OTHER_QUOTA,
            RemedyActor.OWNER,
            f"Name quota {spec.name} in the pods instead of {reason.quota}",
            {"from": reason.quota, "to": spec.name},
            verified=search.judge(_UseQuota(pods, spec.name)),
            edits=(_UseQuota(pods, spec.name),),
        )


def _find_other_quotas(
    state: ClusterState, pods: tuple[Pod, ...], reason: QuotaExceeded
) -> list[QuotaSpec]:
    """Return the quotas that pods may name, those with most room for what is short first."""
    registry, ledger = state.quotas.catalog.registry, state.open_ledger()
    namespace, own = pods[0].namespace, {state.quotas.quota_of(pod) for pod in pods}
    names = {*registry.usable_in(namespace), *registry.usable_in(EVERYONE)} - own
    keys = [shortage.resource for shortage in reason.shortages]

    def room(name: str) -> int:
        account = ledger.find(name)
        spec = registry.specs[name]
        used = {} if account is None else account.used
        return min((spec.max.get(key, 0) - used.get(key, 0) for key in keys), default=0)

    best = sorted(names, key=lambda name: (-room(name), name))
    return [registry.specs[name] for name in best[:_MOST_QUOTAS] if room(name) > 0]
