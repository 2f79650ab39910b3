"""What happened to a unit, one list from several sources, and where its time went.

Made of records of decisions if there are any, and else of what API objects say: the history in the
status of the PodGroup, conditions, events. All are values here; nothing is read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, TypedDict

from koord.answers.audit import to_ms, to_text
from koord.answers.encoding import Encoded, encode
from koord.answers.happenings import (
    PLACED,
    Happening,
    SeenObjects,
    StorySource,
    Subject,
    find_quotas,
    merge,
    number_of,
    select,
    tell_objects,
    tell_quota_change,
    tell_record,
)
from koord.answers.redaction import NameKind, Sight
from koord.core.gang.status import ConditionType
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import class_of

MOST_HAPPENINGS: Final = 2000


class Phase(StrEnum):
    """What a unit waits for, or does. The intervals of a unit do not overlap."""

    INCOMPLETE = "Incomplete"
    """Until all members that it needs are there."""
    MISCONFIGURED = "Misconfigured"
    HELD = "Held"
    QUOTA = "Quota"
    ROOM = "Room"
    ORDER = "Order"
    ENDING = "Ending"
    """Others are being evicted for it."""
    DECIDING = "Deciding"
    """It is due, and being planned."""
    WRITING = "Writing"
    """Decided, and not written to all of its pods yet."""
    STARTING = "Starting"
    """Bound, and not running: kubelet, images, devices."""
    RUNNING = "Running"


_OF_CLASS: Final[Mapping[ReasonClass | None, Phase]] = {
    ReasonClass.MISCONFIGURED: Phase.MISCONFIGURED,
    ReasonClass.INCOMPLETE: Phase.INCOMPLETE,
    ReasonClass.HELD: Phase.HELD,
    ReasonClass.WRITING: Phase.WRITING,
    ReasonClass.ENDING: Phase.ENDING,
    ReasonClass.QUOTA: Phase.QUOTA,
    ReasonClass.ROOM: Phase.ROOM,
    ReasonClass.ORDER: Phase.ORDER,
    ReasonClass.ELSEWHERE: Phase.HELD,
    ReasonClass.OPERATORS: Phase.DECIDING,
}


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """How long a unit was in a phase; a unit may be in one several times."""

    phase: Phase
    ms: int


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to a unit, oldest first, and where its time went until ``until``.

    ``traces`` are the uids under which it is known, newest first. ``phases`` cover the time from
    ``created`` on; they are ``is_approximate`` if that is not recorded as a whole. ``now`` says how
    it stands.
    """

    subject: Subject
    happenings: tuple[Happening, ...] = ()
    phases: tuple[PhaseSpan, ...] = ()
    is_approximate: bool = False
    created: int | None = None
    until: int | None = None
    traces: tuple[str, ...] = ()
    sources: tuple[StorySource, ...] = ()
    now: str = ""

    def after(self, at: int) -> "Story":
        """Return it without what happened before; where its time went is as it was."""
        return replace(
            self, happenings=tuple(happening for happening in self.happenings if happening.at >= at)
        )

    @property
    def total_ms(self) -> int:
        return sum(span.ms for span in self.phases)


# --- where its time went -----------------------------------------------------------------------


def split_phases(
    created: int, marks: Iterable[tuple[int, Phase]], until: int
) -> tuple[PhaseSpan, ...]:
    """Return the phases from ``created`` to ``until``; ``marks`` say when which one begins.

    Whatever the marks are, the phases are at least 0 long and sum up to the time between. Until the
    first mark a unit is incomplete; phases that last no time are left out.
    """
    until = max(created, until)
    spans: list[tuple[int, Phase]] = [(created, Phase.INCOMPLETE)]
    for at, phase in sorted(marks, key=lambda mark: mark[0]):
        spans.append((min(max(at, created), until), phase))
    phases: list[PhaseSpan] = []
    for (begin, phase), (end, _) in pairwise([*spans, (until, Phase.RUNNING)]):
        if end == begin:
            continue
        if phases and phases[-1].phase is phase:
            phases[-1] = PhaseSpan(phase, phases[-1].ms + end - begin)
        else:
            phases.append(PhaseSpan(phase, end - begin))
    return tuple(phases)


def sum_phases(phases: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Return one span per phase, in the order in which a unit usually passes them."""
    totals: dict[Phase, int] = {}
    for span in phases:
        totals[span.phase] = totals.get(span.phase, 0) + span.ms
    return tuple(PhaseSpan(phase, totals[phase]) for phase in Phase if phase in totals)


class PhaseMarks:
    """When which phase of a unit began, as its records say; they come in their order."""

    __slots__ = ("marks", "waits")

    def __init__(self) -> None:
        self.marks: list[tuple[int, Phase]] = []
        self.waits = Phase.DECIDING
        """What it waits for, by its last refusal."""

    def add(self, record: Mapping[str, Any], at: int) -> None:
        """Take a record in, ``at`` milliseconds since the epoch."""
        kind, marks = str(record.get("kind")), self.marks
        if kind in _BEGINS:
            marks.append((_time_of(record, "since", at), _BEGINS[kind]))
        elif kind == "Attempt":
            self.waits = _phase_of(record)
            marks.append((_time_of(record, "firstAt", at), self.waits))
        elif kind == "Preempting":
            marks.append((at, self.waits if record.get("outcome") else Phase.ENDING))
        elif kind == "Placed":
            if not marks:
                marks.append((_time_of(record, "complete", at), Phase.DECIDING))
            marks += [(_time_of(record, "due", at), Phase.DECIDING), (at, Phase.WRITING)]
        elif kind == "Committed" and not record.get("notBound"):
            marks.append((at, Phase.STARTING))


def find_marks(records: Iterable[Mapping[str, Any]]) -> list[tuple[int, Phase]]:
    """Return when which phase of a unit began, as its records say, in their order."""
    marks = PhaseMarks()
    for record in records:
        at = to_ms(record.get("at"))
        if at is not None:
            marks.add(record, at)
    return marks.marks


_SECOND: Final = 1000
_BEGINS: Final[Mapping[str, Phase]] = {
    "Seen": Phase.INCOMPLETE,
    "Complete": Phase.DECIDING,
    "Held": Phase.HELD,
    "Released": Phase.DECIDING,
    "Running": Phase.RUNNING,
    "Evicted": Phase.INCOMPLETE,
}
"""Kind of record -> the phase that begins with it."""


def _time_of(record: Mapping[str, Any], name: str, at: int) -> int:
    """Return a time that a record names, which is not after its own."""
    named_time = to_ms(record.get(name))
    return at if named_time is None else min(named_time, at)


def _phase_of(record: Mapping[str, Any]) -> Phase:
    name = str(record.get("class"))
    return _OF_CLASS[ReasonClass(name)] if name in set(ReasonClass) else Phase.DECIDING


def make_story(
    subject: Subject, records: Sequence[Mapping[str, Any]], seen: SeenObjects, now: int
) -> Story:
    """Tell of an object by the records that are kept, in their order, and what API objects say."""
    own = select(records, subject)
    traces = tuple(dict.fromkeys(str(record.get("trace")) for record in reversed(own)))
    latest = [record for record in own if record.get("trace") == traces[0]] if traces else []
    recorded = list(_tell_in_terms(own))
    happenings = merge((*recorded, *_tell_quotas(records, own), *tell_objects(seen)))
    created, is_whole = _find_creation(latest, seen)
    is_over = bool(latest) and latest[-1].get("kind") in {"Ended", "Gone"}
    until = (to_ms(latest[-1].get("at")) if is_over else None) or now
    marks = find_marks(latest) if latest else _guess_marks(seen)
    phases = () if created is None else split_phases(created, marks, until)
    tellers = {happening.source for happening in happenings}
    return Story(
        subject,
        happenings=happenings[-MOST_HAPPENINGS:],
        phases=phases,
        is_approximate=bool(phases) and not (is_whole and _is_covered(records, latest, created)),
        created=created,
        until=until if phases else None,
        traces=traces or ((seen.uid,) if seen.uid else ()),
        sources=tuple(source for source in StorySource if source in tellers),
        now=_tell_now(latest, seen),
    )


_SKEW_MS: Final = 1000
"""Clocks of leaders that differ by less are taken for equal."""


def _tell_in_terms(records: Iterable[Mapping[str, Any]]) -> Iterator[Happening]:
    """Yield what records tell, those of a later leader after those of an earlier one.

    Each leader writes by its own clock, so times may go back from one to the next.
    """
    term, latest, floor = 0, 0, 0
    for record in records:
        happening, at = tell_record(record), to_ms(record.get("at"))
        if at is not None and number_of(record, "term") != term:
            behind, floor, term = latest - at, latest, number_of(record, "term")
            if behind >= _SKEW_MS:
                text = (
                    f"the clock of this leader is {behind // 1000} s or more behind the last one's"
                )
                yield Happening(at, "ClocksDiffer", text, StorySource.AUDIT, not_before=floor)
        latest = max(latest, at or 0)
        if happening is not None:
            yield replace(happening, not_before=floor)


def _tell_quotas(
    records: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]
) -> Iterator[Happening]:
    """Yield what was changed of the quotas of a unit while it was there."""
    quotas = find_quotas(own)
    first, last = (number_of(each, "seq") for each in (own[0], own[-1])) if own else (0, 0)
    for record in records if quotas else ():
        happening = tell_quota_change(record)
        is_own = str(record.get("quota")) in quotas
        if happening is not None and is_own and first <= number_of(record, "seq") <= last:
            yield happening


def _find_creation(
    records: Sequence[Mapping[str, Any]], seen: SeenObjects
) -> tuple[int | None, bool]:
    """Return when a unit was created, and whether all since then is recorded."""
    if not records:
        return seen.created, False
    first = records[0]
    for name in ("since", "created", "firstAt", "at"):
        at = to_ms(first.get(name))
        if at is not None:
            is_whole = first.get("kind") in {"Seen", "Placed"}
            return (at, is_whole) if is_whole else (min(at, seen.created or at), False)
    return seen.created, False


def _is_covered(
    records: Sequence[Mapping[str, Any]],
    own: Sequence[Mapping[str, Any]],
    created: int | None,
) -> bool:
    """Whether records tell of the whole time: this leader led already, and none is missing since.

    A leader that took over later knows when a unit was complete, and not for what it waited then.
    """
    # In which second something was created is all that its object says.
    latest = (created or 0) + _SECOND
    for record in records:
        if record.get("kind") == "Term" and latest <= (to_ms(record.get("at")) or 0):
            return False
        if record.get("kind") == "Gap" and number_of(record, "to") > number_of(own[0], "seq"):
            return False
    return True


def _guess_marks(seen: SeenObjects) -> list[tuple[int, Phase]]:
    """Return when phases began as far as the present conditions show it."""
    marks: list[tuple[int, Phase]] = []
    conditions = {kind: (is_true, reason, at) for kind, is_true, reason, _, at in seen.conditions}
    complete = conditions.get(ConditionType.QUORUM_REACHED)
    placed = conditions.get(ConditionType.PLACED) or conditions.get(
        "operators.koordinator.sh/Placed"
    )
    bound = conditions.get(ConditionType.BOUND) or conditions.get("PodScheduled")
    if complete is not None and complete[0]:
        marks.append((complete[2], Phase.DECIDING))
    if placed is not None:
        is_true, reason, at = placed
        phase = Phase.WRITING if is_true else _OF_CLASS.get(class_of(reason), Phase.DECIDING)
        marks.append((at, phase))
    if bound is not None and bound[0]:
        marks.append((bound[2], Phase.RUNNING if seen.runs else Phase.STARTING))
    return marks


def _tell_now(records: Sequence[Mapping[str, Any]], seen: SeenObjects) -> str:
    """Say how it stands, in a sentence."""
    for kind, is_true, reason, message, _ in seen.conditions:
        if kind.rpartition("/")[2] == PLACED:
            return f"{PLACED if is_true else reason}: {message}" if message else reason
    if seen.uid or not records:
        return ""
    happening = tell_record(records[-1])
    return "" if happening is None else f"{happening.what}: {happening.text}"


@dataclass(frozen=True, slots=True)
class DecisionAt:
    """The last record about an object at a time, and the one after it."""

    record: Mapping[str, Any] | None
    following: Mapping[str, Any] | None = field(default=None)


def find_decision(records: Sequence[Mapping[str, Any]], subject: Subject, at: int) -> DecisionAt:
    """Return what was decided last about an object at a time."""
    last: Mapping[str, Any] | None = None
    for record in select(records, subject):
        if (to_ms(record.get("at")) or 0) > at:
            return DecisionAt(last, record)
        last = record
    return DecisionAt(last)


class StoryDocument(TypedDict):
    """What happened to a unit, and where its time went; ``now`` says how it stands."""

    kind: str | None
    namespace: str
    name: str
    traces: list[str]
    sources: list[StorySource]
    created: str | None
    until: str | None
    phases: list[Encoded[PhaseSpan]]
    totalMs: int
    approximate: bool
    items: list[Encoded[Happening]]
    now: str | None


@encode.register
def _(story: Story) -> StoryDocument:
    return {
        "kind": story.subject.kind or None,
        "namespace": story.subject.namespace,
        "name": story.subject.name,
        "traces": list(story.traces),
        "sources": list(story.sources),
        "created": None if story.created is None else to_text(story.created),
        "until": None if story.until is None else to_text(story.until),
        "phases": encode(story.phases),
        "totalMs": story.total_ms,
        "approximate": story.is_approximate,
        "items": [encode(happening) for happening in story.happenings],
        "now": story.now or None,
    }


@encode.register
def _(decision: DecisionAt) -> dict[str, Any]:
    following = decision.following
    return {
        "decision": decision.record,
        "next": None
        if following is None
        else {
            "kind": following.get("kind"),
            "at": following.get("at"),
            "uids": (following.get("unit") or {}).get("uids", []),
        },
    }


def hide_others(story: Story, sight: Sight) -> Story:
    """Return a story without names that an asker may not list: records are those of everybody."""
    return replace(
        story,
        happenings=tuple(
            replace(happening, by=sight.hide(NameKind.UNIT, happening.by))
            for happening in story.happenings
            if _is_seen(happening, sight)
        ),
    )


def _is_seen(happening: Happening, sight: Sight) -> bool:
    if happening.source is StorySource.EVENT and not sight.events:
        return False
    is_of_quota = happening.what == "Changed" and not happening.ref
    return sight.quotas or not is_of_quota
