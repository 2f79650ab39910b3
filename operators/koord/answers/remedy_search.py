"""Finds what would help something that waits: each remedy is planned on a copy before it is told.

A remedy is an edit of the cluster with the smallest amount that is enough: with one less it was
planned, too, and did not start. Only what was planned and started is said to start. Nothing is
written.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from koord.answers.edits import (
    AddNodes,
    Cordon,
    Edit,
    EditError,
    SetMinMember,
    SetQuota,
    Submit,
    Trial,
)
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.explain import try_units
from koord.answers.preemption import find_plan, find_unit
from koord.answers.reading import KindName, Reading, Target, TargetKind
from koord.answers.remedies import Remedy, RemedyActor, RemedyKind
from koord.answers.why import Explanation
from koord.core.engine.queue import find_pending, unit_of
from koord.core.engine.reasons import Closed, InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Preemption
from koord.core.eviction.search import PreemptionContext
from koord.core.gang.quorum import Ready, demands
from koord.core.gang.reasons import MissingMembers, MissingPodGroup
from koord.core.model.gangs import GangKey
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod, Toleration
from koord.core.model.reasons import Reason
from koord.core.model.text import find_similar, named, plural
from koord.core.model.units import format_amount
from koord.core.plugins.causes import NodeCause
from koord.core.quota.reasons import InsufficientEntitlement, InsufficientMax, QuotaExceeded

_Closed: TypeAlias = tuple[Closed, ...]
MOST_REMEDIES: Final = 12
MOST_NODES: Final = 64
_MOST_MEMBERS: Final = 256
_KINDS_OF_NODES: Final = 3


def find_remedies(
    reading: Reading,
    target: Target,
    refusal: tuple[Reason | None, _Closed],
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[Remedy, ...]:
    """Return what would help a target that is refused; the reading is as before then."""
    reason, closed = refusal
    if reason is None or reason.is_placed:
        return ()
    search = RemedySearch(reading, target, is_over)
    remedies: list[Remedy] = []
    try:
        for finder in _FINDERS:
            if not is_over():
                remedies += finder(search, reason, closed)
    finally:
        search.trial.undo()
        reading.state.refresh()
    return tuple(remedies[:MOST_REMEDIES])


def verify(
    reading: Reading, answer: Explanation, is_over: Callable[[], bool]
) -> tuple[Explanation, tuple[AnswerGap, ...]]:
    """Return the answer with remedies that were tried, and a gap if not all could be."""
    if any(reading.extent_of(kind) is not None for kind in (KindName.PODS, KindName.NODES)):
        unread = AnswerGap("remedies", GapCause.NO_RIGHT, "what would help, by trial")
        return replace(answer, remedies=()), (unread,)
    reason = next(iter(answer.reasons), None)
    remedies = find_remedies(reading, answer.target, (reason, answer.closed), is_over)
    late = AnswerGap("remedies", GapCause.TOO_EXPENSIVE, "whether more would help")
    return replace(answer, remedies=remedies), (late,) if is_over() else ()


class RemedySearch:
    """Tries edits, and looks whether the target starts."""

    def __init__(self, reading: Reading, target: Target, is_over: Callable[[], bool]) -> None:
        self.reading = reading
        self.state: ClusterState = reading.state
        self.trial = Trial(reading.state)
        self.target = target
        self.is_over = is_over
        self.gang = _gang_of(reading.state, target)

    def pods(self) -> tuple[Pod, ...]:
        """Return the pods that wait."""
        if self.gang:
            return tuple(self.state.gangs.tally(self.gang).plannable.values())
        pod = self.state.pod_by_key(self.target.key)
        return () if pod is None else (pod,)

    def starts_with(self, *edits: Edit) -> bool:
        """Whether the target starts, alone, after these edits; they are taken back."""
        checkpoint = self.trial.checkpoint()
        try:
            for edit in edits:
                edit.apply(self.trial)
            return self._starts()
        except EditError:
            return False
        finally:
            self.trial.undo(checkpoint)

    def find_smallest(
        self, most: int, make: Callable[[int], tuple[Edit, ...]], guess: int = 1
    ) -> int | None:
        """Return an amount with which it starts, and with one less it does not; None for none."""
        if most < 1:
            return None
        low, high = 0, min(max(guess, 1), most)
        while high < most and not self.starts_with(*make(high)):
            if self.is_over():
                return None
            low, high = high, min(2 * high, most)
        if high == most and not self.starts_with(*make(high)):
            return None
        while high - low > 1:
            if self.is_over():
                return None
            middle = (low + high) // 2
            # The guess is most often exact: then one trial below it is enough.
            middle = high - 1 if low == 0 and high == guess else middle
            if self.starts_with(*make(middle)):
                high, guess = middle, 0
            else:
                low = middle
        return high

    def _starts(self) -> bool:
        self.state.refresh()
        units = self._units()
        if not units:
            return False
        cycle = self.state.open_cycle(lambda: find_pending(self.state))
        outcome = try_units(cycle, units, Scoring())
        placed = {unit.key: 0 for unit in units}
        for placement in outcome.placements:
            placed[placement.unit] += len(placement.assignments)
        return all(placed[unit.key] >= max(unit.required, 1) for unit in units)

    def _units(self) -> tuple[Unit, ...]:
        gang = _gang_of(self.state, self.target)
        if gang:
            made = demands(self.state.gangs, gang)
            return made.units if isinstance(made, Ready) else ()
        return tuple(unit_of(pod) for pod in self.pods() if pod.is_plannable)


def _gang_of(state: ClusterState, target: Target) -> GangKey:
    if not target.is_planned_alone:
        return target.key
    pod = state.pod_by_key(target.key)
    return pod.gang.key if pod is not None and pod.gang is not None else ""


_Finder: TypeAlias = Callable[[RemedySearch, Reason, _Closed], Iterator[Remedy]]


def _add_nodes(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
    if not isinstance(reason, InsufficientNodes):
        return
    best: tuple[int, str] | None = None
    for like in _kinds_of_nodes(search.state, reason):
        count = search.find_smallest(MOST_NODES, _adding(like), reason.more_nodes or 1)
        if count is not None and (best is None or count < best[0]):
            best = count, like
    if best is not None:
        yield Remedy(
            RemedyKind.ADD_NODES,
            RemedyActor.CLUSTER_ADMIN,
            f"Add {plural(best[0], 'node')} like {best[1]}",
            {"nodes": best[0], "like": best[1]},
        )


def _adding(like: str, *before: Edit) -> Callable[[int], tuple[Edit, ...]]:
    return lambda count: (*before, AddNodes(like, count))


def _kinds_of_nodes(state: ClusterState, reason: InsufficientNodes) -> list[str]:
    """Return a node of each kind, the one with most of what is scarce first."""
    kinds: dict[tuple[tuple[str, int], ...], str] = {}
    for name, row in sorted(state.table.live_rows()):
        kinds.setdefault(tuple(sorted(state.table.node_at(row).allocatable.items())), name)
    by_size = sorted(kinds, key=lambda kind: -dict(kind).get(reason.resource, 0))
    return [kinds[kind] for kind in by_size[:_KINDS_OF_NODES]]


def _uncordon(search: RemedySearch, _: Reason, closed: _Closed) -> Iterator[Remedy]:
    nodes = next((each.nodes for each in closed if each.cause is NodeCause.UNSCHEDULABLE), ())
    count = search.find_smallest(len(nodes), lambda count: (Cordon(nodes[:count], is_on=False),))
    if count is not None:
        yield Remedy(
            RemedyKind.UNCORDON,
            RemedyActor.CLUSTER_ADMIN,
            f"Uncordon {named(nodes[:count])}",
            {"nodes": list(nodes[:count])},
        )


def _lower_min_member(search: RemedySearch, _: Reason, _closed: _Closed) -> Iterator[Remedy]:
    group = search.state.gangs.pod_group(search.gang) if search.gang else None
    if group is None or group.spec.min_member < 2 or group.spec.sub_groups is not None:
        return
    least = group.spec.min_member
    fewer = search.find_smallest(least - 1, lambda fewer: (SetMinMember(group.key, least - fewer),))
    if fewer is not None:
        yield Remedy(
            RemedyKind.LOWER_MIN_MEMBER,
            RemedyActor.OWNER,
            f"Lower minMember of PodGroup {group.key} from {least} to {least - fewer}",
            {"path": "/spec/minMember", "from": least, "to": least - fewer},
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


def _tolerate(search: RemedySearch, reason: Reason, closed: _Closed) -> Iterator[Remedy]:
    for each in closed:
        if each.cause is not NodeCause.TAINT:
            continue
        key, _, value = each.detail.strip("{}").partition(": ")
        if "}" in key + value or key.startswith("node.kubernetes.io/"):
            continue  # several taints; or one that stands for a condition of the node
        tolerate = _Tolerate(search.pods(), key, value)
        taint = {"key": key, "value": value}
        sentence = f"Tolerate the taint {key}={value} in the pods"
        if search.starts_with(tolerate):
            yield Remedy(RemedyKind.TOLERATE, RemedyActor.OWNER, sentence, {"taint": taint})
        elif isinstance(reason, InsufficientNodes) and (reason.more_nodes or 0) > 1:
            yield from _tolerate_and_add(search, (tolerate, taint, sentence), reason)


def _tolerate_and_add(
    search: RemedySearch,
    toleration: tuple[_Tolerate, dict[str, str], str],
    reason: InsufficientNodes,
) -> Iterator[Remedy]:
    tolerate, taint, sentence = toleration
    like = next(iter(_kinds_of_nodes(search.state, reason)), "")
    count = search.find_smallest((reason.more_nodes or 1) - 1, _adding(like, tolerate))
    if count is not None:
        yield Remedy(
            RemedyKind.TOLERATE,
            RemedyActor.OWNER,
            f"{sentence}, and add {plural(count, 'node')} like {like}",
            {"taint": taint, "and": {"nodes": count, "like": like}},
        )


@dataclass(frozen=True, slots=True)
class _AskLess:
    """Pods ask for less of a resource."""

    pods: tuple[Pod, ...]
    resource: str
    less: int

    def apply(self, trial: Trial) -> None:
        for pod in self.pods:
            requests = dict(pod.shape.requests)
            if requests.get(self.resource, 0) <= self.less:
                raise EditError(f"{pod.key} asks for no more than that")
            requests[self.resource] -= self.less
            shape = replace(pod.shape, requests=tuple(sorted(requests.items())))
            trial.put_pod(replace(pod, shape=shape))


def _ask_less(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
    """Only where no node could take such a pod even if it was empty."""
    is_too_large = isinstance(reason, InsufficientNodes) and reason.more_nodes == 0
    if not isinstance(reason, InsufficientNodes) or not (is_too_large and reason.amount):
        return
    key, pods, request = reason.resource, search.pods(), reason.request
    less = search.find_smallest(request - 1, lambda less: (_AskLess(pods, key, less),))
    if less is not None:
        enough = format_amount(key, request - less)
        yield Remedy(
            RemedyKind.ASK_LESS,
            RemedyActor.OWNER,
            f"Ask for {enough} {key} per pod instead of {format_amount(key, request)}",
            {"resource": key, "from": format_amount(key, request), "to": enough},
        )


def _raise_quota(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
    if not isinstance(reason, QuotaExceeded):
        return
    limits: dict[type[QuotaExceeded], tuple[RemedyKind, str]] = {
        InsufficientMax: (RemedyKind.RAISE_MAX, "max"),
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
    more = search.find_smallest(4 * guess, make, guess)
    if more is not None:
        was, then = (format_amount(key, amount) for amount in (least, least + more))
        yield Remedy(
            kind,
            RemedyActor.QUOTA_ADMIN,
            f"Raise {field_name} of quota {spec.name} from {was} to {then} {key}",
            {"path": f"/spec/{field_name}/{key}", "quota": spec.name, "from": was, "to": then},
        )


def _add_members(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
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
    count = search.find_smallest(_MOST_MEMBERS, make, guess)
    if count is not None:
        yield Remedy(
            RemedyKind.ADD_MEMBERS,
            RemedyActor.OWNER,
            f"Create {plural(count, 'more member')} like {pattern.name}",
            {"members": count, "like": pattern.name},
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


def _fix_name(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
    if not isinstance(reason, MissingPodGroup):
        return
    gangs = search.state.gangs
    namespace, name = reason.gang.split("/", 1)
    keys = [key for key in gangs.keys() if gangs.pod_group(key) is not None]  # noqa: SIM118 - no dict
    here = [key.partition("/")[2] for key in keys if key.startswith(f"{namespace}/")]
    pods = tuple(pod for pod in gangs.members(reason.gang).values() if pod.is_waiting)
    for similar in find_similar(name, here):
        renamed = Target(TargetKind.POD_GROUP, namespace, similar)
        there = RemedySearch(search.reading, renamed, search.is_over)
        if pods and there.starts_with(_Rename(pods, renamed.key)):
            yield Remedy(
                RemedyKind.FIX_NAME,
                RemedyActor.OWNER,
                f"Name PodGroup {similar} instead of {name} in the pods",
                {"from": name, "to": similar},
            )


def _remove_hold(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
    group = search.state.gangs.pod_group(search.gang) if search.gang else None
    if reason.code != "Held" or group is None or not group.spec.is_held:
        return
    let_go = replace(group, spec=replace(group.spec, is_held=False))
    if search.starts_with(Submit((), (let_go,))):
        yield Remedy(
            RemedyKind.REMOVE_HOLD,
            RemedyActor.OWNER,
            f"Release it (koord queue release {group.key})",
        )


def _preempt(search: RemedySearch, reason: Reason, _: _Closed) -> Iterator[Remedy]:
    settings = search.reading.preemption
    if settings is None or not settings.enabled or not reason.is_capacity or search.is_over():
        return
    unit = find_unit(search.state, search.target)
    context = PreemptionContext(search.state.now)
    plan = None if unit is None else find_plan(search.state, unit, settings, context)
    if isinstance(plan, Preemption):
        yield Remedy(
            RemedyKind.PREEMPT,
            RemedyActor.TIME,
            f"Wait: the operators preempt {named([victim.name for victim in plan.victims])}",
            {"pods": len(plan.pods)},
            tuple(victim.name for victim in plan.victims),
        )


_FINDERS: Final[tuple[_Finder, ...]] = (
    _fix_name,
    _remove_hold,
    _add_members,
    _preempt,
    _raise_quota,
    _uncordon,
    _add_nodes,
    _ask_less,
    _lower_min_member,
    _tolerate,
)
"""In the order in which remedies are told."""
