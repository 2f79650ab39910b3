"""Stories: phases that add up, one list of several sources, and decisions at a time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.answers.audit import to_ms, to_text
from koord.answers.encoding import encode
from koord.answers.happenings import (
    Happening,
    SeenObjects,
    StorySource,
    Subject,
    merge,
    select,
    tell_episodes,
)
from koord.answers.story import (
    Phase,
    PhaseSpan,
    find_decision,
    find_marks,
    make_story,
    split_phases,
    sum_phases,
)
from koord.core.model.gang_history import Episode

DAY = "2026-11-25"
TRAIN = Subject("PodGroup", "team-a", "train")
UNIT = {
    "key": "team-a/train",
    "namespace": "team-a",
    "names": ["team-a/train"],
    "owner": {"kind": "Job", "name": "train-job", "uid": "u-job"},
    "uids": ["a"],
    "pods": 2,
    "required": 2,
}


def at(time):
    return f"{DAY}T{time}Z"


def ms(time):
    return to_ms(at(time))


class Records:
    """Documents of records with growing numbers."""

    def __init__(self, trace="pg-uid", **unit):
        self.documents = []
        self.trace, self.unit = trace, UNIT | unit

    def add(self, kind, time, **fields):
        number = len(self.documents) + 1
        head = {"term": 1, "seq": number, "at": at(time), "kind": kind}
        self.documents.append(head | {"unit": self.unit, "trace": self.trace} | fields)
        return self

    def refuse(self, kind, time, code):
        fields = {"class": kind, "code": code, "firstAt": at(time), "lastAt": at(time)}
        return self.add("Attempt", time, repeats=0, text=f"it is {code}", **fields)


def example():
    """The gang of the worked example: created at 05:17, running at 08:00:41.2."""
    records = Records()
    records.add("Seen", "05:17:01.000", since=at("05:17:00.000"))
    records.add("Complete", "05:20:00.000", since=at("05:20:00.000"))
    records.refuse("Quota", "05:20:00.000", "QuotaExceeded")
    records.refuse("Room", "06:00:00.000", "InsufficientNodes")
    records.add(
        "Placed",
        "08:00:00.014",
        due=at("08:00:00.000"),
        created=at("05:17:00.000"),
        complete=at("05:20:00.000"),
        planId="p1",
        nodes=[{"node": "n1", "pods": 2, "names": ["train-0", "train-1"]}],
        moreNodes=0,
    )
    records.add("Committed", "08:00:11.200", notBound=0, binds=2, tookMs=11186)
    return records.add("Running", "08:00:41.200")


def test_phases_add_up_to_the_time_until_it_runs():
    story = make_story(TRAIN, example().documents, SeenObjects(), ms("08:00:41.200"))
    phases = encode(story)["phases"]
    assert phases == [
        {"phase": "Incomplete", "ms": 180000},
        {"phase": "Quota", "ms": 2400000},
        {"phase": "Room", "ms": 7200000},
        {"phase": "Deciding", "ms": 14},
        {"phase": "Writing", "ms": 11186},
        {"phase": "Starting", "ms": 30000},
    ]
    assert encode(story)["totalMs"] == 9821200
    assert (story.is_approximate, story.sources) == (False, (StorySource.AUDIT,))


PHASES = st.sampled_from(list(Phase))
MARKS = st.lists(st.tuples(st.integers(-50, 150), PHASES), max_size=20)


@given(created=st.integers(0, 50), marks=MARKS, until=st.integers(-20, 100))
def test_phases_never_overlap_and_are_the_whole_time(created, marks, until):
    phases = split_phases(created, marks, until)
    assert all(span.ms > 0 for span in phases)
    assert sum(span.ms for span in phases) == max(0, until - created)
    totals = sum_phases(phases)
    assert sum(span.ms for span in totals) == max(0, until - created)
    assert len({span.phase for span in totals}) == len(totals)


STEPS = ("Seen", "Complete", "Attempt", "Preempting", "Placed", "Committed", "Running", "Evicted")
KINDS = st.sampled_from([*STEPS, "Held", "Released", "Changed", "VictimGone", "x"])
OF_KINDS = ("since", "due", "complete", "firstAt", "class", "outcome", "notBound", "nodes")
OF_OTHERS = ("changes", "quota", "quotas", "fields", "left")
FIELDS = st.dictionaries(
    st.sampled_from([*OF_KINDS, *OF_OTHERS]),
    st.one_of(
        st.none(), st.integers(), st.text(max_size=5), st.just(at("05:00:00.000")), st.just([None])
    ),
)


@given(st.lists(st.tuples(KINDS, st.integers(0, 59), FIELDS), max_size=15))
def test_no_document_makes_a_story_fail(parts):
    records = Records()
    for kind, minute, fields in parts:
        records.add(kind, f"05:{minute:02}:00.000", **fields)
    now = ms("06:00:00.000")
    story = make_story(TRAIN, records.documents, SeenObjects(created=ms("05:00:00.000")), now)
    json.dumps(encode(story))
    if story.phases:
        assert story.total_ms == max(0, story.until - story.created)


@given(st.lists(st.tuples(st.sampled_from(["Room", "Quota"]), st.integers(1, 4)), max_size=10))
def test_counted_repeats_give_the_phases_of_the_refusals_that_there_were(runs):
    collapsed, whole, minute = Records(), Records(), 0
    for records in (collapsed, whole):
        records.add("Seen", "05:00:00.000", since=at("05:00:00.000"))
    for kind, count in runs:
        collapsed.refuse(kind, f"05:{minute:02}:00.000", kind)
        for _ in range(count):
            whole.refuse(kind, f"05:{minute:02}:00.000", kind)
            minute += 1
    until = ms("06:00:00.000")
    begin = ms("05:00:00.000")
    assert split_phases(begin, find_marks(collapsed.documents), until) == split_phases(
        begin, find_marks(whole.documents), until
    )


def term(time):
    return {"term": 1, "seq": 1, "at": at(time), "kind": "Term", "holder": "a"}


def gap(begin, end):
    head = {"term": 1, "seq": end, "at": at("06:00:00.000"), "kind": "Gap"}
    return head | {"from": begin, "to": end, "count": end - begin + 1}


@pytest.mark.parametrize(
    ("others", "is_approximate"),
    [
        ([], False),
        ([term("05:00:00.000")], False),
        ([term("06:00:00.000")], True),
        # The API server says of objects in which second they were created.
        ([term("05:17:00.900")], False),
        ([term("05:17:01.000")], True),
        ([gap(4, 5)], True),
        ([term("05:00:00.000"), gap(0, 1)], False),
    ],
)
def test_phases_of_a_time_that_is_not_recorded_are_approximate(others, is_approximate):
    records = [*others, *example().documents]
    story = make_story(TRAIN, records, SeenObjects(), ms("08:00:41.200"))
    assert story.is_approximate == is_approximate
    assert story.total_ms == 9821200


def test_making_room_is_a_phase_until_it_is_over():
    records = Records().add("Seen", "05:00:00.000", since=at("05:00:00.000"))
    records.refuse("Room", "05:01:00.000", "InsufficientNodes")
    records.add("Preempting", "05:02:00.000", policy="preemption", victims=3, outcome="")
    records.add("Preempting", "05:04:00.000", policy="preemption", victims=3, outcome="Invalid")
    story = make_story(TRAIN, records.documents, SeenObjects(), ms("05:05:00.000"))
    assert story.phases == (
        PhaseSpan(Phase.INCOMPLETE, 60_000),
        PhaseSpan(Phase.ROOM, 60_000),
        PhaseSpan(Phase.ENDING, 120_000),
        PhaseSpan(Phase.ROOM, 60_000),
    )


def test_being_held_is_a_phase_and_what_was_changed_is_told():
    records = Records().add("Seen", "05:00:00.000", since=at("05:00:00.000"))
    records.add("Complete", "05:01:00.000", since=at("05:01:00.000"))
    records.add("Held", "05:02:00.000", code="OnHold", text="its owner holds it")
    records.refuse("Held", "05:02:00.000", "OnHold")
    records.add("Released", "05:10:00.000")
    change = {"field": "minMember", "from": "4", "to": "2"}
    records.add("Changed", "05:11:00.000", changes=[change], quota=None)
    records.refuse("Quota", "05:12:00.000", "InsufficientMax")
    records.documents[-1] |= {"fields": {"quota": "q"}}
    raised = {"field": "max.nvidia.com/gpu", "from": "8", "to": "16"}
    for quota in ("q", "other"):
        records.add("Changed", "05:13:00.000", changes=[raised], quota=quota)
        for name in ("unit", "trace"):
            del records.documents[-1][name]
    records.add("Preempting", "05:14:00.000", policy="preemption", victims=2, outcome="")
    for left, time in ((1, "05:14:10.000"), (0, "05:14:20.000")):
        records.add("VictimGone", time, pod="t/low-0", policy="preemption", left=left, tookMs=1)
    story = make_story(TRAIN, records.documents, SeenObjects(), ms("05:15:00.000"))
    assert story.phases == (
        PhaseSpan(Phase.INCOMPLETE, 60_000),
        PhaseSpan(Phase.DECIDING, 60_000),
        PhaseSpan(Phase.HELD, 480_000),
        PhaseSpan(Phase.DECIDING, 120_000),
        PhaseSpan(Phase.QUOTA, 120_000),
        PhaseSpan(Phase.ENDING, 60_000),
    )
    told = {happening.what: happening.text for happening in story.happenings}
    assert told["Held"] == "it may not start before somebody releases it (OnHold)"
    changes = [each.text for each in story.happenings if each.what == "Changed"]
    assert changes == [
        "minMember from 4 to 2",
        "quota q: max.nvidia.com/gpu from 8 to 16",
    ]
    gone = [each.text for each in story.happenings if each.what == "VictimGone"]
    assert gone == [
        "a pod that goes for it is gone (preemption); 1 other still there",
        "a pod that goes for it is gone (preemption); the last one",
    ]


def test_a_story_names_what_happened_in_order():
    records = example()
    pods = [{"name": "train-0", "uid": "a", "node": "n1"}]
    fields = {"policy": "preemption", "by": "team-b/high", "count": 2, "pods": pods}
    records.add("Evicted", "09:00:00.000", **fields)
    records.add("Gone", "09:01:00.000")
    story = make_story(TRAIN, records.documents, SeenObjects(), ms("10:00:00.000"))
    assert [happening.what for happening in story.happenings] == [
        "Seen", "Complete", "QuotaExceeded", "InsufficientNodes", "Placed", "Bound", "Running",
        "Preempted", "Gone",
    ]  # fmt: skip
    evicted = story.happenings[-2]
    assert (evicted.by, evicted.text) == ("team-b/high", "2 pods evicted: train-0")
    assert story.happenings[4].text == "2 pods on n1 (plan p1)"
    assert story.until == ms("09:01:00.000")
    assert story.now == "Gone: none of its objects exists any more"


@pytest.mark.parametrize(
    ("subject", "is_told"),
    [
        (TRAIN, True),
        (Subject("", "team-a", "train"), True),
        (Subject("Job", "team-a", "train-job"), True),
        (Subject("", "team-a", "train-job"), True),
        (Subject("Pod", "team-a", "train-1"), True),
        (Subject("Pod", "team-b", "train-1"), False),
        (Subject("PodGroup", "team-a", "train-job"), False),
        (Subject("PodGroup", "team-b", "train"), False),
        (Subject("Job", "team-a", "train"), False),
    ],
)
def test_records_are_found_by_gang_pod_and_owner(subject, is_told):
    records = example().documents
    assert (select(records, subject) == records) == is_told


def test_what_two_sources_tell_is_told_once_by_the_better_one():
    when = ms("05:00:00.000")
    audit = Happening(when, "Preempted", "2 pods evicted", StorySource.AUDIT, "b/x", "team-a/train")
    (episode,) = tell_episodes(
        [Episode(when // 1000 + 1, "Preempted", "needs its place", "b/x")], "team-a/train"
    )
    other = Happening(when, "Preempted", "…", StorySource.EVENT, "", "team-a/other")
    late = Happening(when + 9000, "Preempted", "again", StorySource.EVENT, "", "team-a/train")
    assert merge((late, other, episode, audit)) == (audit, other, late)


def test_what_a_later_leader_recorded_comes_later_though_its_clock_is_behind():
    """Times are told as they were written, and one line says that they cannot be compared."""
    records = Records().refuse("Room", "05:01:30.000", "InsufficientNodes")
    records.refuse("Quota", "05:00:00.000", "QuotaExceeded")
    records.refuse("Room", "05:00:05.000", "NoDomainFits")
    first, *later = records.documents
    story = make_story(
        TRAIN, [first, *({**each, "term": 2} for each in later)], SeenObjects(), ms("05:02:00.000")
    )
    assert [(each.at, each.what) for each in story.happenings] == [
        (ms("05:01:30.000"), "InsufficientNodes"),
        (ms("05:00:00.000"), "ClocksDiffer"),
        (ms("05:00:00.000"), "QuotaExceeded"),
        (ms("05:00:05.000"), "NoDomainFits"),
    ]
    assert story.happenings[1].text.startswith("the clock of this leader is 90 s or more behind")
    assert all(span.ms >= 0 for span in story.phases)


SOURCES = st.builds(
    Happening,
    at=st.integers(0, 10_000),
    what=st.sampled_from("ab"),
    text=st.just(""),
    source=st.sampled_from(list(StorySource)),
)


@given(st.lists(SOURCES))
def test_merging_again_changes_nothing_and_no_record_is_lost(happenings):
    merged = merge(happenings)
    assert merge(merged) == merged
    assert [one.at for one in merged] == sorted(one.at for one in merged)
    of_audit = [one for one in happenings if one.source is StorySource.AUDIT]
    assert all(one in merged for one in of_audit)


def test_without_records_objects_are_asked_and_the_phases_are_approximate():
    seen = SeenObjects(
        created=ms("05:00:00.000"),
        episodes=(Episode(ms("05:30:00.000") // 1000, "Preempted", "needs its place", "b/x"),),
        conditions=(
            ("QuorumReached", True, "Reached", "2 of 2", ms("05:01:00.000")),
            ("Placed", False, "InsufficientNodes", "Room for 1 of 2 pods.", ms("05:02:00.000")),
        ),
        events=((ms("05:02:00.000"), "InsufficientNodes", "Room for 1 of 2 pods."),),
        uid="pg-uid",
        ref="team-a/train",
    )
    story = make_story(TRAIN, [], seen, ms("06:00:00.000"))
    assert story.is_approximate
    assert {span.phase for span in story.phases} == {Phase.INCOMPLETE, Phase.DECIDING, Phase.ROOM}
    assert story.total_ms == 3_600_000
    assert story.sources == (StorySource.HISTORY, StorySource.CONDITION)
    assert story.now == "InsufficientNodes: Room for 1 of 2 pods."


def test_a_second_pod_of_the_name_is_told_apart_by_its_uid():
    pods = [{"name": "worker-0", "uid": "a", "node": "n1"}]
    records = Records(names=["team-a/worker"], key="team-a/worker", uids=["a"])
    fields = {"policy": "preemption", "by": "team-b/high", "count": 1, "pods": pods}
    records.add("Evicted", "07:00:00.000", **fields)
    records.unit = records.unit | {"uids": ["b"]}
    records.add("Complete", "07:01:00.000", since=at("07:01:00.000"))
    worker = Subject("Pod", "team-a", "worker-0")
    document = encode(find_decision(records.documents, worker, ms("07:00:30.000")))
    assert document["decision"]["kind"] == "Evicted"
    assert document["decision"]["by"] == "team-b/high"
    assert document["decision"]["pods"] == pods
    assert document["next"] == {"kind": "Complete", "at": at("07:01:00.000"), "uids": ["b"]}
    assert find_decision(records.documents, worker, ms("06:00:00.000")).record is None


@given(st.integers(0, 4_000_000_000_000))
def test_times_are_read_as_they_are_written(moment):
    assert to_ms(to_text(moment)) == moment
