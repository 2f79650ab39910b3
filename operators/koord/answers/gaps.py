"""What is missing in an answer because of what could not be read, and the one line that says so.

Gaps are values of a closed list of causes, for programs; people get one line for all of them, and
others for what is no gap: objects that make no sense, hooks of quotas. Reads nothing itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from koord.answers.envelope import AnswerGap, AnswerHead, AnswerSource, GapCause
from koord.answers.leaders import describe_absence
from koord.answers.reading import (
    ROLE_HINT,
    VOLUME_KINDS,
    Extent,
    KindName,
    Reading,
    Target,
    TargetKind,
    is_unknown,
    title_of_kind,
)
from koord.core.model.pods import Pod

_ROLE_SHOWS: Final = "the ClusterRole koord-user shows more"
_OTHERS: Final = "pods of other namespaces"
_NAMES: Final = "names of their units"
_ONE_DIGIT: Final = AnswerGap(
    "amounts of others",
    GapCause.HIDDEN,
    "positions, and more of sums than one digit,",
    are_many=True,
)
_LEADER_KNOWS: Final = "what only the operators know"
NO_TARGET: Final = Target(TargetKind.POD, "", "")
"""For answers about no object."""
_POD_GROUPS_MISSING: Final = "PodGroups are not installed: kubectl apply --server-side -f crds/"


def head_of(
    answer: str, reading: Reading, target: Target = NO_TARGET, more: Iterable[AnswerGap] = ()
) -> AnswerHead:
    """Return the envelope of an answer made from a reading; ``more`` are gaps of its own."""
    leader = reading.leader
    is_reported = reading.reported_quotas is not None
    listed = AnswerSource.LIVE if reading.is_followed else AnswerSource.ONCE
    return AnswerHead(
        answer,
        reading.state.now,
        AnswerSource.REPORTED if is_reported else listed,
        None if leader is None else leader.holder or None,
        None if leader is None else leader.term,
        (*find_gaps(reading, target), *more),
    )


def find_gaps(reading: Reading, target: Target) -> tuple[AnswerGap, ...]:
    """Return what is missing in an answer about a target."""
    is_led = reading.leader is None or bool(reading.leader.holder)
    absent = () if is_led else (AnswerGap("leader", GapCause.NO_LEADER, _LEADER_KNOWS),)
    sees_all = reading.sight.namespaces is None
    hidden = () if sees_all else (AnswerGap(_OTHERS, GapCause.HIDDEN, _NAMES, are_many=True),)
    sights = {"quotas of others": reading.sight.quotas, "nodes": reading.sight.nodes}
    unnamed = (
        AnswerGap(kind, GapCause.HIDDEN, "their names", are_many=True)
        for kind, is_seen in sights.items()
        if not is_seen
    )
    rounded = () if reading.sight.amounts else (_ONE_DIGIT,)
    return (*absent, *hidden, *unnamed, *rounded, *_find_unread(reading, target))


def list_warnings(
    reading: Reading, target: Target, more: Iterable[AnswerGap] = ()
) -> tuple[str, ...]:
    """Return what makes an answer less certain: that nobody leads, and what could not be read."""
    return (*describe_absence(reading.leader), *warn_of_gaps(reading, target, more))


def warn_of_gaps(reading: Reading, target: Target, more: Iterable[AnswerGap] = ()) -> Iterator[str]:
    """Yield what could not be read; all missing rights are one line, with ``more`` of them."""
    if _sees_one_namespace(reading):
        yield (
            f"you may read namespace {target.namespace} only ({_ROLE_SHOWS}): what is said of "
            "nodes, quotas and others is what the operators reported"
        )
    else:
        yield from describe_gaps((*_find_unread(reading, target), *more))
    if (
        reading.extent_of(KindName.POD_GROUPS) is Extent.NOT_SERVED
        and target.kind is TargetKind.POD_GROUP
    ):
        yield _POD_GROUPS_MISSING
    rejected = {
        key: problem
        for key, problem in reading.rejected.items()
        if reading.sight.sees(key.partition("/")[0])
    }
    if rejected:
        key, problem = next(iter(sorted(rejected.items())))
        count = len(rejected)
        yield f"{count} invalid objects are left out; the first is {key}: {problem}"
    if reading.state.quotas.is_in_use:
        yield from _warn_of_hooks(reading)


def describe_gaps(gaps: Iterable[AnswerGap]) -> Iterator[str]:
    """Yield one line about all that the asker may not list; none if that is nothing."""
    missing = [gap for gap in gaps if gap.because is GapCause.NO_RIGHT]
    if not missing:
        return
    kinds = tuple(dict.fromkeys(gap.missing for gap in missing))
    unknown = tuple(dict.fromkeys(gap.unknown for gap in missing))
    verb = "is" if len(unknown) == 1 else "are"
    what = f"{_enumerate(unknown)} {verb} not known"
    yield f"you may not list {_enumerate(kinds)} ({ROLE_HINT}): {what}"


def _sees_one_namespace(reading: Reading) -> bool:
    """Whether a user has the rights of a namespace, as with ``edit``, and no more."""
    return (
        reading.extent_of(KindName.NODES) is Extent.NOTHING
        and reading.extent_of(KindName.PODS) is Extent.NAMESPACE
        and is_unknown(reading, KindName.QUOTAS)
    )


def _find_unread(reading: Reading, target: Target) -> Iterator[AnswerGap]:
    """Yield what may not be listed, or is not served, and matters for the answer."""
    no_right = GapCause.NO_RIGHT
    if reading.extent_of(KindName.NODES) is not None:
        yield AnswerGap("nodes", no_right, "whether there is room")
    if reading.extent_of(KindName.TOPOLOGIES) is Extent.NOTHING and _asks_for_topology(
        reading, target
    ):
        topologies = title_of_kind(reading, KindName.TOPOLOGIES)
        yield AnswerGap(topologies, no_right, "distances between nodes", are_many=True)
    load = reading.extent_of(KindName.LOAD)
    if load is not None:
        cause = no_right if load is Extent.NOTHING else GapCause.NOT_SERVED
        yield AnswerGap(title_of_kind(reading, KindName.LOAD), cause, "what nodes use")
    pods = reading.extent_of(KindName.PODS)
    if pods is not None:
        where = " of other namespaces" if pods is Extent.NAMESPACE else ""
        yield AnswerGap(f"pods{where}", no_right, "what these use")
    groups = title_of_kind(reading, KindName.POD_GROUPS)
    match reading.extent_of(KindName.POD_GROUPS):
        case Extent.NAMESPACE:
            there = f"{groups} of other namespaces"
            yield AnswerGap(there, no_right, "their gangs", are_many=True)
        case Extent.NOTHING:
            yield AnswerGap(groups, no_right, "what gangs need")
        case Extent.NOT_SERVED:
            yield AnswerGap(groups, GapCause.NOT_SERVED, "what gangs need")
        case None:
            pass
    if is_unknown(reading, KindName.QUOTAS):
        quotas = f"all {title_of_kind(reading, KindName.QUOTAS)}"
        yield AnswerGap(quotas, no_right, "what quotas allow")
    yield from _find_unread_of_pods(reading, target)


def _find_unread_of_pods(reading: Reading, target: Target) -> Iterator[AnswerGap]:
    """Yield the same of kinds that only some pods depend on."""
    pods = reading.state.pods.values()
    if reading.extent_of(KindName.NAMESPACES) is not None and any(map(_chooses_namespaces, pods)):
        yield AnswerGap("namespaces", GapCause.NO_RIGHT, "which of them selectors choose")
    unread = [kind for kind in VOLUME_KINDS if reading.extent_of(kind) is not None]
    if unread and any(pod.claims for pod in _find_asked_about(reading, target)):
        for kind in unread:
            title = f"all {title_of_kind(reading, kind)}"
            yield AnswerGap(title, GapCause.NO_RIGHT, "where volumes can be used")


def _enumerate(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _asks_for_topology(reading: Reading, target: Target) -> bool:
    book, key = reading.state.gangs, target.key
    if target.is_planned_alone:
        pod = reading.state.pod_by_key(key)
        key = pod.gang.key if pod is not None and pod.gang is not None else ""
    spec = book.spec(key)
    return spec is not None and spec.topology is not None


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


def _find_asked_about(reading: Reading, target: Target) -> Iterable[Pod]:
    if target.is_planned_alone:
        pod = reading.state.pod_by_key(target.key)
        return () if pod is None else (pod,)
    gangs = reading.state.gangs
    return gangs.members(target.key).values() if target.key in gangs else ()
