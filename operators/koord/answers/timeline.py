"""What happened in the cluster, newest last, one list from several sources.

Made of the records of decisions, if they are served, and of what API objects say: the histories of
PodGroups, why something waits since when, what is not well since when. What happened to one unit,
and where its time went, is a story. All are values here; nothing is read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Any, Final, TypedDict

from koord.answers.audit import to_ms, to_text
from koord.answers.encoding import encode
from koord.answers.happenings import (
    Happening,
    HappeningDocument,
    StorySource,
    merge,
    tell_episodes,
    tell_quota_change,
    tell_record,
)
from koord.answers.health import find_sick, see_sick
from koord.answers.reading import KindName, Reading, Target, TargetKind
from koord.answers.redaction import NameKind, Sight, namespace_of
from koord.answers.reports import SeenCondition
from koord.core.engine.state import ClusterState
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import class_of
from koord.core.model.text import MAX_TEXT, cut
from koord.isolation import Isolation

_NEW_LEADER: Final = "NewLeader"
MOST_OF_NAMESPACE: Final = 1000
"""Happenings that its objects tell of."""
_ISOLATED: Final = Isolation("answers")
_CLOCKS_DIFFER: Final = 300
"""Seconds that a clock may be ahead of ours."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened to a unit, or to another object of ``kind``; ``key`` is its own."""

    key: str
    happening: Happening
    kind: str
    reason_class: ReasonClass | None

    @property
    def at(self) -> int:
        """When, in milliseconds since the epoch."""
        return self.happening.at


def make_timeline(
    reading: Reading, target: Target, records: Iterable[Mapping[str, Any]]
) -> tuple[TimelineEntry, ...]:
    """Return all that is known to have happened, of what an asker may list, oldest first."""
    sight = _find_sight(reading, target)
    told_records = (_ISOLATED.call("record", _tell, record, sight) for record in records)
    units = [happening for happening in told_records if happening is not None]
    units += _tell_pod_groups(reading.state)
    units += _tell_conditions(reading)
    seen = [
        replace(happening, by=sight.hide(NameKind.UNIT, happening.by))
        for happening in units
        if not happening.ref or sight.sees(namespace_of(happening.ref))
    ]
    chosen = _choose(seen, reading.state.now)
    entries = [(_find_kind(reading.state, happening.ref), happening) for happening in merge(chosen)]
    entries += _tell_sick(reading.state, reading.state.now, sight)
    counts: Counter[str] = Counter()
    return tuple(
        _number(kind, happening, counts)
        for kind, happening in sorted(entries, key=lambda entry: entry[1].at)
    )


def _choose(happenings: Iterable[Happening], now: float) -> Iterator[Happening]:
    """Yield what was recorded, and what may be true of what objects say: the last of a namespace.

    Whoever may write a status may write what has happened in years to come, and thousands of it.
    """
    latest = (now + _CLOCKS_DIFFER) * 1000 if now else float("inf")  # 0: nobody has said it
    by_namespace: dict[str, list[Happening]] = {}
    for happening in happenings:
        if happening.source is StorySource.AUDIT:
            yield happening
        elif happening.at <= latest:
            by_namespace.setdefault(namespace_of(happening.ref), []).append(happening)
    for chosen in by_namespace.values():
        yield from nlargest(MOST_OF_NAMESPACE, chosen, key=lambda happening: happening.at)


def _find_sight(reading: Reading, target: Target) -> Sight:
    """Return what the asker may list: records are not read with the rights of one."""
    sight = replace(
        reading.sight,
        quotas=reading.sight.quotas and reading.extent_of(KindName.QUOTAS) is None,
    )
    if reading.extent_of(KindName.PODS) is None:
        return sight
    return replace(sight, namespaces=frozenset({target.namespace}))


def _tell(record: Mapping[str, Any], sight: Sight) -> Happening | None:
    at = to_ms(record.get("at"))
    if record.get("kind") == "Term" and at is not None:
        text = f"{record.get('holder')} leads the operators"
        return Happening(at, _NEW_LEADER, text, StorySource.AUDIT)
    if record.get("quota") and record.get("unit") is None:
        return tell_quota_change(record) if sight.quotas else None
    return tell_record(record)


def _tell_pod_groups(state: ClusterState) -> Iterator[Happening]:
    keys = state.gangs.keys()
    for key in keys:
        pod_group = state.gangs.pod_group(key)
        if pod_group is not None and pod_group.history:
            yield from _ISOLATED.call(key, tell_episodes, pod_group.history, key) or ()


def _tell_conditions(reading: Reading) -> Iterator[Happening]:
    """Yield since when and why something waits, as its conditions say.

    A member that says what its gang says is not told of: a gang of hundreds would hide all else.
    """
    for (kind, title), details in reading.all_details.items():
        of_gang = _find_reasons_of_gang(reading, title) if kind == TargetKind.POD else frozenset()
        for condition in details.conditions.values():
            at = to_ms(condition.last_transition_time)
            is_left_out = condition.reason in of_gang or class_of(condition.reason) is None
            if at is not None and not is_left_out:
                yield _tell_condition(condition, at, title)


def _find_reasons_of_gang(reading: Reading, pod_key: str) -> frozenset[str]:
    """Return the reasons that the PodGroup of a pod gives."""
    pod = reading.state.pod_by_key(pod_key)
    if pod is None or pod.gang is None:
        return frozenset()
    details = reading.all_details.get((TargetKind.POD_GROUP, pod.gang.key))
    conditions = {} if details is None else details.conditions
    return frozenset(condition.reason for condition in conditions.values())


def _tell_condition(condition: SeenCondition, at: int, title: str) -> Happening:
    what, text = cut(condition.reason), cut(condition.message, MAX_TEXT)
    return Happening(at, what, text, StorySource.CONDITION, "", title)


def _tell_sick(state: ClusterState, now: float, sight: Sight) -> Iterator[tuple[str, Happening]]:
    for finding in see_sick(find_sick(state, now), sight):
        subject = finding.subject
        name = f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name
        if finding.since:
            at = int(finding.since * 1000)
            yield (
                subject.kind.lower(),
                Happening(at, finding.reason, finding.message, StorySource.CONDITION, "", name),
            )


def _find_kind(state: ClusterState, ref: str) -> str:
    if not ref:
        return "operators"
    return "pod" if ref not in state.gangs and state.pod_by_key(ref) is not None else "podgroup"


def _number(kind: str, happening: Happening, counts: Counter[str]) -> TimelineEntry:
    """Give an entry a key that no other has, and that is the same when all is told again."""
    begin = f"{to_text(happening.at)} {kind}/{happening.ref} {happening.what}"
    counts[begin] += 1
    key = begin if counts[begin] == 1 else f"{begin} {counts[begin]}"
    return TimelineEntry(key, happening, kind, class_of(happening.what))


_OF_ENTRY = TypedDict("_OF_ENTRY", {"key": str, "kind": str, "class": ReasonClass | None})


class TimelineEntryDocument(HappeningDocument, _OF_ENTRY):
    """One thing that happened to an object of a kind."""


@encode.register
def _(entry: TimelineEntry) -> TimelineEntryDocument:
    happening: HappeningDocument = encode(entry.happening)
    return {
        "key": entry.key,
        **happening,
        "kind": entry.kind,
        "class": entry.reason_class,
    }
