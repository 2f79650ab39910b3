"""What an incomplete reading leaves unknown: reasons to drop, and warnings for the user.

Statements that depend on a missing right are dropped, never guessed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from koord.answers.leaders import describe_absence
from koord.answers.reading import VOLUME_KINDS, Extent, KindName, Reading
from koord.answers.similar_names import MAX_SUGGESTIONS, find_similar
from koord.answers.target import Target, TargetKind
from koord.core.gang.reasons import InconsistentGroup, MissingGang, MissingMembers
from koord.core.model.gangs import GangKey
from koord.core.model.pods import Pod
from koord.core.model.reasons import Reason

_ROLE: Final = "the ClusterRole koord-user has it"
_ROLE_SHOWS: Final = "the ClusterRole koord-user shows more"


def keep_known(reason: Reason | None, reading: Reading, namespace: str) -> Reason | None:
    """Return the part of a reason that is certain from what was read."""
    if reason is None or any(is_unknown(reading, kind) for kind in reason.rests_on):
        return None
    if Extent.NAMESPACE not in {
        reading.extent_of(KindName.POD_GROUPS),
        reading.extent_of(KindName.PODS),
    }:
        return reason
    match reason:
        case MissingMembers(gangs):
            readable = tuple(count for count in gangs if _is_in(count.gang, namespace))
            return MissingMembers(readable) if readable else None
        case MissingGang(_, gangs) | InconsistentGroup(_, gangs):
            return reason if all(_is_in(gang, namespace) for gang in gangs) else None
        case _:
            return reason


def _is_in(gang: GangKey, namespace: str) -> bool:
    return gang.startswith(f"{namespace}/")


_UNKNOWN: Final[Mapping[str, frozenset[Extent]]] = {
    KindName.NODES: frozenset(Extent),
    KindName.POD_GROUPS: frozenset({Extent.NOTHING}),
    KindName.QUOTAS: frozenset({Extent.NAMESPACE, Extent.NOTHING}),  # a part of a tree is useless
    KindName.TOPOLOGIES: frozenset({Extent.NOTHING}),
}
"""Kind -> the extents that leave statements about its objects unknown."""


def is_unknown(reading: Reading, kind: str) -> bool:
    """Whether statements about objects of a kind, given by its name, are unknown."""
    return reading.extent_of(kind) in _UNKNOWN[kind]


def _title(reading: Reading, kind: str) -> str:
    """Return what RBAC calls a kind with a gap."""
    gap = reading.gap_of(kind)
    return kind if gap is None else str(gap.kind)


def describe_missing(reading: Reading, target: Target, keys: Iterable[str]) -> str:
    problem = reading.rejected.get(target.key)
    if problem is not None:
        return f"{target.kind} {target.key} cannot be understood: {problem}"
    if target.kind is TargetKind.POD_GROUP and is_unknown(reading, KindName.POD_GROUPS):
        kind = _title(reading, KindName.POD_GROUPS)
        return (
            f"you may not list {kind} ({_ROLE}): whether there is a PodGroup {target.name} "
            "is not known; ask about one of its pods"
        )
    split = [key.split("/", 1) for key in keys]
    here = [name for namespace, name in split if namespace == target.namespace]
    elsewhere = sorted(namespace for namespace, name in split if name == target.name)
    text = f"there is no {target.kind} {target.name} in namespace {target.namespace}"
    if (
        reading.extent_of(KindName.POD_GROUPS) is Extent.NOT_SERVED
        and target.kind is TargetKind.POD_GROUP
    ):
        text += "; PodGroups are not installed: kubectl apply --server-side -f crds/"
    if elsewhere:
        text += f"; there is one in {', '.join(elsewhere[:MAX_SUGGESTIONS])}"
    if close := find_similar(target.name, here):
        text += f"; did you mean {' or '.join(close)}?"
    return text


def _asks_for_topology(reading: Reading, target: Target) -> bool:
    book, key = reading.state.gangs, target.key
    if target.is_planned_alone:
        pod = reading.state.pod_by_key(key)
        key = pod.gang.key if pod is not None and pod.gang is not None else ""
    spec = book.spec(key)
    return spec is not None and spec.topology is not None


def list_warnings(reading: Reading, target: Target) -> tuple[str, ...]:
    """Return what makes an answer less certain: that nobody leads, and what could not be read."""
    return (*describe_absence(reading.leader), *warn_of_gaps(reading, target))


def warn_of_gaps(reading: Reading, target: Target) -> Iterator[str]:
    """Yield what could not be read; all missing rights are one line."""
    gaps = list(_list_gaps(reading, target))
    if _sees_one_namespace(reading):
        yield (
            f"you may read namespace {target.namespace} only ({_ROLE_SHOWS}): what is said of "
            "nodes, quotas and others is what the operators reported"
        )
    elif gaps:
        kinds, unknown = (tuple(dict.fromkeys(of)) for of in zip(*gaps, strict=True))
        verb = "is" if len(unknown) == 1 else "are"
        what = f"{_enumerate(unknown)} {verb} not known"
        yield f"you may not list {_enumerate(kinds)} ({_ROLE}): {what}"
    if (
        reading.extent_of(KindName.POD_GROUPS) is Extent.NOT_SERVED
        and target.kind is TargetKind.POD_GROUP
    ):
        yield "PodGroups are not installed: kubectl apply --server-side -f crds/"
    if reading.rejected:
        key, problem = next(iter(sorted(reading.rejected.items())))
        count = len(reading.rejected)
        yield f"{count} invalid objects are left out; the first is {key}: {problem}"
    if reading.state.quotas.is_in_use:
        yield from _warn_of_hooks(reading)


def _sees_one_namespace(reading: Reading) -> bool:
    """Whether a user has the rights of a namespace, as with ``edit``, and no more."""
    return (
        reading.extent_of(KindName.NODES) is Extent.NOTHING
        and reading.extent_of(KindName.PODS) is Extent.NAMESPACE
        and is_unknown(reading, KindName.QUOTAS)
    )


def _list_gaps(reading: Reading, target: Target) -> Iterator[tuple[str, str]]:
    """Yield what may not be listed, and what of the answer is therefore not known."""
    if reading.extent_of(KindName.NODES) is not None:
        yield "nodes", "whether there is room"
    if reading.extent_of(KindName.TOPOLOGIES) is Extent.NOTHING and _asks_for_topology(
        reading, target
    ):
        yield _title(reading, KindName.TOPOLOGIES), "distances between nodes"
    if reading.extent_of(KindName.PODS) is Extent.NAMESPACE:
        yield "pods of other namespaces", "what these use"
    match reading.extent_of(KindName.POD_GROUPS):
        case Extent.NAMESPACE:
            yield f"{_title(reading, KindName.POD_GROUPS)} of other namespaces", "their gangs"
        case Extent.NOTHING:
            yield _title(reading, KindName.POD_GROUPS), "what gangs need"
        case _:
            pass
    if is_unknown(reading, KindName.QUOTAS):
        yield f"all {_title(reading, KindName.QUOTAS)}", "what quotas allow"
    yield from _list_gaps_of_pods(reading, target)


def _list_gaps_of_pods(reading: Reading, target: Target) -> Iterator[tuple[str, str]]:
    """Yield the same of kinds that only some pods depend on."""
    pods = reading.state.pods.values()
    if reading.extent_of(KindName.NAMESPACES) is not None and any(map(_chooses_namespaces, pods)):
        yield "namespaces", "which of them selectors choose"
    if any(pod.claims for pod in pods if _is_asked_about(pod, target)):
        for kind in VOLUME_KINDS:
            if reading.extent_of(kind) is not None:
                yield f"all {_title(reading, kind)}", "where volumes can be used"


def _enumerate(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _warn_of_hooks(reading: Reading) -> Iterator[str]:
    hooks = reading.state.quotas.hooks
    for (name, operation), failure in sorted(hooks.failures.items()):
        yield (
            f"hook {name} fails here ({failure.last}, in {operation}): whether it refuses anything "
            "is not known"
        )
    if reading.operators_have_hooks and not hooks:
        yield (
            "the operators use quota hooks, and none is installed here: whether they refuse "
            "anything is not known; install the packages of the hooks beside koord"
        )
    if reading.operators_have_hooks is False and hooks.hooks:
        yield f"hook {', '.join(hooks.hooks)} is used here, and the operators use none"


def _chooses_namespaces(pod: Pod) -> bool:
    constraints = pod.shape.constraints
    return constraints is not None and any(
        selector.namespace_selector for selector in constraints.selectors
    )


def _is_asked_about(pod: Pod, target: Target) -> bool:
    if target.is_planned_alone:
        return pod.key == target.key
    return pod.gang is not None and pod.gang.key == target.key
