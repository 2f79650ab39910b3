"""The report of what decisions say of a time: worked examples, and laws against plain counting."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.audit.test_story import FIELDS, KINDS, Records, at, example, ms
from tests.support.laws import examples

from koord.answers.audit import to_text
from koord.answers.audit_analysis import AuditAnalysis, AuditScope
from koord.answers.audit_contention import Blame, Overtaking, Rivals
from koord.answers.audit_report import Spread, hide_names, spread
from koord.answers.encoding import encode
from koord.answers.redaction import Sight
from koord.core.usage.segments import Window

GPU = "nvidia.com/gpu"
WINDOW = Window(ms("05:00:00.000"), ms("09:00:00.000"))


def analyse(documents, window=WINDOW, **options):
    analysis = AuditAnalysis(window, **options)
    analysis.add_all(documents)
    return analysis.report()


class Stream:
    """Records of several units in one order."""

    def __init__(self):
        self.documents = []

    def add(self, name, kind, time, gpus=8, quota="team-a", **fields):
        unit = {
            "key": f"team-a/{name}",
            "namespace": "team-a",
            "pods": 1,
            "quota": quota,
            "priority": 9000,
            "asks": {"cpu": "8", GPU: str(gpus), "pods": "1"},
            "milliGpus": 1000 * gpus,
        }
        head = {"term": 1, "seq": len(self.documents) + 1, "at": time, "kind": kind}
        self.documents.append(head | {"trace": f"uid-{name}", "unit": unit} | fields)
        return self

    def refuse(self, name, time, position=1, kind="Room", **fields):
        lacks = {"fields": {"resource": GPU}} if kind == "Room" else {}
        more = {"class": kind, "code": kind, "firstAt": time, "position": position, "attempt": 1}
        return self.add(name, "Attempt", time, **(more | lacks | fields))


def test_phases_of_the_worked_example():
    report = analyse(example().documents, Window(ms("05:00:00.000"), ms("08:00:41.200")))
    assert [(each.phase, each.ms) for each in report.phases] == [
        ("Incomplete", 180_000),
        ("Quota", 2_400_000),
        ("Room", 7_200_000),
        ("Deciding", 14),
        ("Writing", 11_186),
        ("Starting", 30_000),
    ]
    assert report.total_ms == 9_821_200
    assert sum(each.share for each in report.phases) <= 10_000
    (longest,) = report.waits.longest
    assert (longest.unit, longest.waited_ms, longest.is_waiting) == (
        "team-a/train",
        9_791_200,
        False,
    )
    assert report.retries.placed == 1
    assert report.writes.binds == 2


def test_a_unit_that_has_waited_since_before_counts_with_its_part_and_its_whole():
    stream = Stream().refuse("old", at("01:00:00.000"))
    report = analyse(stream.documents, Window(ms("05:00:00.000"), ms("06:00:00.000")))
    assert [(each.phase, each.ms) for each in report.phases] == [("Room", 3_600_000)]
    (longest,) = report.waits.longest
    assert (longest.waited_ms, longest.phase, longest.is_waiting) == (5 * 3_600_000, "Room", True)
    assert [(row.name, row.waits.p50_ms) for row in report.waits.by_phase] == [("Room", 3_600_000)]
    assert [row.name for row in report.waits.by_band] == ["koord-prod"]


def test_who_holds_what_others_wait_for_is_blamed_by_what_he_holds():
    stream = Stream()
    stream.add("large", "Placed", at("05:00:00.000"), gpus=24)
    stream.add("small", "Placed", at("05:00:00.000"), gpus=8)
    stream.refuse("waits", at("05:10:00.000"))
    stream.add("large", "Ended", at("05:20:00.000"), gpus=24)
    stream.add("waits", "Placed", at("05:30:00.000"))
    blockers = analyse(stream.documents).blockers
    waited = 8000 * 1_200_000
    assert (blockers.total_milli_gpu_ms, blockers.unattributed_milli_gpu_ms) == (waited, 0)
    assert [(row.unit, row.milli_gpu_ms, row.share) for row in blockers.units] == [
        ("team-a/small", waited // 2 // 4 + waited // 2, 6250),
        ("team-a/large", waited // 2 * 3 // 4, 3750),
    ]


def test_in_a_quota_only_those_that_hold_of_it_are_blamed():
    stream = Stream()
    stream.add("own", "Placed", at("05:00:00.000"), quota="team-a")
    stream.add("other", "Placed", at("05:00:00.000"), quota="team-b")
    lacks = {"topo": ["team-a"], "shortages": [{"resource": GPU}]}
    stream.refuse("waits", at("05:10:00.000"), kind="Quota", fields=lacks)
    assert [row.unit for row in analyse(stream.documents).blockers.units] == ["team-a/own"]


def test_who_is_overtaken_often_starves():
    stream = Stream().refuse("first", at("05:00:00.000"), position=1)
    for number in range(20):
        stream.add(f"p{number}", "Placed", at(f"05:{number:02}:30.000"), position=5)
    stream.add("ahead", "Placed", at("05:30:00.000"), position=0)
    stream.add("cpu", "Placed", at("05:31:00.000"), position=9, gpus=0)
    report = analyse(stream.documents)
    (starving,) = report.starving
    assert (starving.wait.unit, starving.wait.overtaken) == ("team-a/first", 21)
    assert (starving.is_overtaken, starving.is_slow) == (True, False)
    assert not analyse(stream.documents, starves_from=22).starving


def test_a_wait_of_ten_medians_of_its_size_is_slow():
    stream = Stream()
    for number in range(6):
        stream.refuse(f"u{number}", at("05:00:00.000"))
        stream.add(f"u{number}", "Placed", at("05:00:10.000"))
        stream.add(f"u{number}", "Committed", at("05:00:10.000"))
    stream.refuse("slow", at("05:00:00.000"))
    (starving,) = analyse(stream.documents).starving
    assert (starving.wait.unit, starving.median_ms, starving.is_slow) == (
        "team-a/slow",
        10_000,
        True,
    )


def test_what_was_tried_evicted_and_written():
    stream = Stream()
    causes = {"total": 100, "fit": 0, "causes": [{"cause": f"Insufficient {GPU}", "nodes": 100}]}
    more = {"cycle": 1, "cycleMicros": 500, "repeats": 117, "nodes": causes}
    stream.add("victim", "Placed", at("05:00:00.000"))
    stream.refuse("high", at("05:10:00.000"), **more)
    stream.add("high", "Preempting", at("05:10:01.000"), victims=1, outcome="")
    stream.add("victim", "Evicted", at("05:10:02.000"), policy="preemption", count=1)
    stream.add("high", "VictimGone", at("05:10:32.000"), left=0, tookMs=30_000)
    stream.add("high", "Preempting", at("05:10:33.000"), victims=1, outcome="Expired")
    failure = {"pod": "p", "status": 403, "message": "denied by policy"}
    unknown = {"pod": "p", "status": 0, "message": ""}
    done = {"binds": 1, "failures": [failure, failure, unknown], "moreFailures": 4, "notBound": 0}
    stream.add("high", "Committed", at("05:10:42.000"), **done)
    stream.documents.insert(0, {"at": at("05:00:00.000"), "kind": "Term", "holder": "a", "term": 1})
    stream.documents.append({"at": at("05:20:00.000"), "kind": "Gap", "count": 12, "term": 1})
    report = analyse(stream.documents)
    retries, preemption = report.retries, report.preemption
    assert (retries.attempts, retries.repeats, retries.plans, retries.plan_micros) == (
        118,
        117,
        1,
        500,
    )
    lasted = ms("05:10:42.000") - ms("05:10:00.000")
    assert [(row.cause, row.node_ms >= 100 * lasted) for row in retries.causes] == [
        (f"Insufficient {GPU}", True)
    ]
    assert (preemption.plans, preemption.victims, preemption.invalidated) == (1, 1, 1)
    assert preemption.lost_milli_gpu_ms == 8000 * 602_000
    assert preemption.victims_took == Spread(1, 30_000, 30_000, 30_000)
    assert preemption.bound_after == Spread(1, 10_000, 10_000, 10_000)
    assert (report.writes.refused, report.writes.unknown) == (6, 1)
    assert [(row.status, row.count) for row in report.writes.failures] == [(403, 2), (0, 1)]
    coverage = report.coverage
    assert (coverage.gaps, coverage.missing, len(coverage.terms)) == (1, 12, 1)


def test_what_nobody_counted_is_not_taken_for_nothing():
    gaps = [
        {"at": at("05:20:00.000"), "kind": "Gap", "count": count, "term": 1} for count in (3, None)
    ]
    assert analyse(gaps).coverage.missing is None


def test_units_that_a_later_leader_does_not_know_are_gone():
    stream = Stream().refuse("lost", at("05:00:00.000"))
    stream.documents.append({"at": at("06:00:00.000"), "kind": "Term", "holder": "b", "term": 2})
    report = analyse(stream.documents)
    assert [(each.phase, each.ms) for each in report.phases] == [("Room", 3_600_000)]
    assert report.waits.waiting == 0


def test_a_report_of_one_namespace_or_quota():
    stream = Stream().refuse("a", at("05:00:00.000"), quota="q1")
    stream.refuse("b", at("05:00:00.000"), quota="q2")
    for scope, units in (
        (AuditScope("team-a"), 2),
        (AuditScope("team-b"), 0),
        (AuditScope(quota="q2"), 1),
    ):
        assert analyse(stream.documents, scope=scope).waits.units == units


def test_others_are_not_named_to_who_may_not_list_them():
    stream = Stream().refuse("secret", at("05:00:00.000"))
    stream.add("holder", "Placed", at("05:00:00.000"))
    report = hide_names(analyse(stream.documents), Sight(frozenset({"team-b"}), quotas=False))
    text = json.dumps(encode(report))
    assert "secret" not in text
    assert "holder" not in text.replace('"holder"', "")
    assert "team-a" not in text
    assert encode(report)["waits"]["longest"][0]["waitedMs"] > 0


# --- laws ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(KINDS, st.integers(0, 59), FIELDS), max_size=15))
def test_no_document_makes_the_analysis_fail(parts):
    records = Records()
    for kind, minute, fields in parts:
        records.add(kind, f"05:{minute:02}:00.000", **fields)
    report = analyse(records.documents)
    json.dumps(encode(report))
    assert sum(each.ms for each in report.phases) == report.total_ms


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["Attempt", "Placed", "Ended", "Evicted", "Committed", "Running"]),
        st.integers(0, 200),
        st.integers(0, 4),
        st.sampled_from(["Room", "Quota", "Held"]),
    ),
    max_size=20,
)


@given(EVENTS)
def test_phases_are_the_time_that_units_were_there_and_blame_is_what_was_waited(events):
    stream, now, lives = Stream(), ms("04:00:00.000"), {}
    for name, kind, minutes, gpus, reason in events:
        now += minutes * 60_000
        time = to_text(now)
        life = lives.setdefault(name, [now, None])
        life[1] = now if kind == "Ended" else None
        if kind == "Attempt":
            stream.refuse(name, time, kind=reason, gpus=gpus)
        else:
            stream.add(name, kind, time, gpus=gpus, count=1)
    report = analyse(stream.documents)
    start, end = WINDOW.start, WINDOW.end
    there = 0
    for begin, over in lives.values():
        if begin < end:
            until = end if over is None else min(over, end)
            there += max(0, until - max(begin, start))
    if all(begin < end for begin, _ in lives.values()) and now < end:
        assert report.total_ms == there
    blockers = report.blockers
    blamed = sum(row.milli_gpu_ms for row in blockers.units)
    left = blockers.total_milli_gpu_ms - blockers.unattributed_milli_gpu_ms - blamed
    assert 0 <= left <= 3 * len(events)


STEPS = st.lists(
    st.tuples(st.sampled_from("wpl"), st.integers(0, 3), st.integers(0, 6), st.integers(0, 1)),
    max_size=30,
)


@given(STEPS)
def test_overtaken_is_what_counting_each_pair_gives(steps):
    kinds = frozenset({GPU})
    overtaking, waiting, counts = Overtaking(), {}, dict.fromkeys(range(4), 0)
    for step, unit, position, quota in steps:
        trace, scope = str(unit), None if quota else "q"
        if step == "w":
            overtaking.wait(trace, Rivals(kinds, scope), position)
            waiting[unit] = position, scope
        else:
            waiting.pop(unit, None)
            if step == "l":
                overtaking.leave(trace)
                continue
            placed = "q" if quota else "r"
            overtaking.place(trace, kinds, placed, position)
            for other, (place, wanted) in waiting.items():
                counts[other] += position > place and wanted in {None, placed}
    assert {unit: overtaking.count(str(unit)) for unit in counts} == counts


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 50)), max_size=20))
def test_blame_adds_up_to_what_was_waited(steps):
    blame, now, pool = Blame(), 0, (GPU, "")
    for who, amount, later in steps:
        now += later
        if who:
            blame.hold(f"h{who}", [(pool, amount)], now)
        else:
            blame.wait("w", pool, 1000 * amount, now)
    blamed = sum(blame.end(now).values())
    assert 0 <= blame.total - blame.unattributed - blamed <= 2 * len(steps)


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.sampled_from(["Room", "Quota"]), st.integers(1, 4)), max_size=8))
def test_counted_repeats_give_the_report_of_the_refusals_that_there_were(runs):
    collapsed, whole, minute = Stream(), Stream(), 0
    for kind, count in runs:
        time = at(f"05:{minute:02}:00.000")
        fields = {"topo": ["team-a"], "shortages": [{"resource": GPU}], "resource": GPU}
        last = at(f"05:{minute + count - 1:02}:00.000")
        collapsed.refuse("u", time, kind=kind, fields=fields, repeats=count - 1, lastAt=last)
        for number in range(count):
            then = at(f"05:{minute + number:02}:00.000")
            whole.refuse("u", then, kind=kind, fields=fields, repeats=0)
        minute += count
        for stream in (collapsed, whole):
            stream.add("p", "Placed", at(f"05:{minute:02}:30.000"), position=3)
    first, second = analyse(collapsed.documents), analyse(whole.documents)
    assert (first.waits, first.phases, first.starving, first.blockers) == (
        second.waits,
        second.phases,
        second.starving,
        second.blockers,
    )
    assert first.retries.attempts == second.retries.attempts


def test_spreads_are_of_the_nearest_rank():
    assert spread([]) == Spread()
    assert spread([5]) == Spread(1, 5, 5, 5)
    assert spread(range(1, 11)) == Spread(10, 5, 9, 10)
