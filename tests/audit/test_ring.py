"""The ring of records: bounded, dense, and honest about what is missing."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from koord.answers.audit import write_record
from koord.core.audit.records import (
    Attempt,
    AuditRecord,
    RecordedUnit,
    RecordGap,
    RecordKind,
    Told,
)
from koord.core.audit.ring import Ring
from koord.core.engine.cause import RESOURCE
from koord.core.engine.reasons import CauseCount, Elsewhere, InsufficientNodes
from koord.core.model.reasons import TooLarge
from koord.runtime.audit import encode_record

MANY_BYTES = 1 << 30


def unit(name="a"):
    return RecordedUnit(f"team/{name}", "team", f"uid-{name}", (f"team/{name}",))


def told(name="a"):
    return AuditRecord(RecordKind.DEGRADED, unit(name), Told("2 of 3 members are left"))


def no_room(fit=1, users=()):
    refused = (CauseCount(RESOURCE, 4, "nvidia.com/gpu"),)
    elsewhere = Elsewhere(4, refused, users=users)
    return InsufficientNodes(2, fit, 5, refused, "team/a-0", elsewhere=elsewhere)


def refuse(ring, reason, at, name="a"):
    if not ring.repeat(f"uid-{name}", reason, at, 1):
        body = Attempt(1, reason, 1, 1, 1, 5, at, at)
        ring.append(AuditRecord(RecordKind.ATTEMPT, unit(name), body, at))


def read_all(ring, limit, after=0):
    found = []
    while page := ring.read(after, limit):
        found += page
        after = page[-1].seq
    return found


@given(made=st.integers(0, 60), most=st.integers(1, 30), limit=st.integers(1, 9))
def test_what_is_read_and_what_is_missing_are_all_that_was_made(made, most, limit):
    ring = Ring(most, MANY_BYTES)
    ring.begin(3)
    for _ in range(made):
        ring.append(told())
    records = read_all(ring, limit)
    gaps = [record.body for record in records if isinstance(record.body, RecordGap)]
    kept = [record.seq for record in records if not isinstance(record.body, RecordGap)]
    assert len(kept) <= most
    assert len(kept) + sum(gap.count for gap in gaps) == made == ring.made
    assert kept == list(range(made - len(kept) + 1, made + 1))
    assert all(gap.count == gap.to - gap.from_ + 1 for gap in gaps)
    assert {record.term for record in records} <= {3}
    again = read_all(ring, limit)
    assert list(map(encode_record, records)) == list(map(encode_record, again))


@given(read=st.integers(0, 20), made=st.integers(0, 60))
def test_who_has_read_a_part_learns_only_what_is_missing_since(read, made):
    ring = Ring(10, MANY_BYTES)
    ring.begin(1)
    for _ in range(made):
        ring.append(told())
    records = ring.read(read, 1000)
    counted = sum(r.body.count if isinstance(r.body, RecordGap) else 1 for r in records)
    assert counted == max(0, made - read)


def test_a_gap_takes_the_place_of_what_had_no_room():
    ring = Ring(8192, MANY_BYTES)
    ring.begin(41)
    while ring.dropped < 8999:
        ring.append(told())
    gap, first = ring.read(7710, 2)
    document = write_record(gap)
    last = ring.dropped
    assert (document["kind"], document["from"], document["to"]) == ("Gap", 7711, last)
    assert (document["count"], first.seq) == (last - 7710, last + 1)


@given(
    made=st.lists(st.sampled_from("aaaab"), max_size=60),
    most=st.integers(1, 30),
    after=st.integers(0, 60),
    limit=st.integers(1, 9),
)
def test_gaps_and_records_follow_each_other_without_holes(made, most, after, limit):
    ring = Ring(most, MANY_BYTES)
    ring.begin(1)
    for name in made:
        record = told(name)
        record.unit = replace(record.unit, namespace=name)
        ring.append(record)
    records = read_all(ring, limit, after)
    for record in records:
        first = record.body.from_ if isinstance(record.body, RecordGap) else record.seq
        assert first == after + 1
        after = record.seq
    assert not records or after == len(made)
    kept = [record for record in read_all(ring, limit) if record.kind is not RecordKind.GAP]
    assert len(kept) <= most
    assert len(kept) + ring.dropped == len(made)


def test_who_makes_many_records_pushes_out_its_own():
    ring = Ring(100, MANY_BYTES)
    ring.begin(1)
    quiet = told("quiet")
    quiet.unit = replace(quiet.unit, namespace="quiet")
    ring.append(quiet)
    for _ in range(10_000):
        ring.append(told("busy"))
    first, gap, *others = ring.read(0, 1000)
    assert (first.unit.namespace, gap.kind) == ("quiet", RecordKind.GAP)
    assert {record.unit.key for record in others} == {"team/busy"}
    assert others[-1].seq == 10_001


def test_a_refusal_that_had_no_room_is_recorded_again_when_it_repeats():
    ring = Ring(16, MANY_BYTES)
    ring.begin(1)
    refuse(ring, no_room(), 1)
    for _ in range(40):
        ring.append(told("b"))
    refuse(ring, no_room(), 2)
    assert ring.read(0, 100)[-1].body.last_at == 2


def test_memory_is_bounded_by_bytes_too():
    ring = Ring(8192, 64 * 1024)
    ring.begin(1)
    for _ in range(1000):
        ring.append(told())
    assert sum(record.size for record in ring.read(0, 9000)[1:]) <= 64 * 1024
    assert ring.dropped > 800


def test_equal_refusals_are_one_record_that_counts_them():
    ring = Ring(100, MANY_BYTES)
    ring.begin(1)
    for at in range(118):
        refuse(ring, no_room(users=(f"team/b-{at}",)), at * 1000)
    (record,) = ring.read(0, 10)
    document = write_record(record)
    assert (document["repeats"], document["attempt"], document["class"]) == (117, 1, "Room")
    assert document["firstAt"] == "1970-01-01T00:00:00.000Z"
    assert document["lastAt"] == "1970-01-01T00:01:57.000Z"
    causes = [{"cause": "Insufficient nvidia.com/gpu", "nodes": 4, "examples": None}]
    assert document["nodes"] == {"total": 5, "fit": 1, "causes": causes}
    assert (document["code"], document["fields"]["want"]) == ("InsufficientNodes", 2)


def test_other_numbers_are_another_record_and_it_closes_the_first():
    ring = Ring(100, MANY_BYTES)
    ring.begin(1)
    for at, fit in enumerate((1, 1, 1, 2)):
        refuse(ring, no_room(fit), at)
    first, second = ring.read(0, 10)
    assert (first.body.repeats, second.body.repeats, first.closed) == (2, 0, None)
    assert (second.closed.seq, second.closed.repeats, second.closed.last_at) == (1, 2, 2)


_REASONS = (no_room(), no_room(2), TooLarge("gang", "team/a", "members", 9, 5))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(_REASONS)), max_size=30))
def test_counted_repeats_are_the_refusals_that_there_were(refusals):
    ring = Ring(100, MANY_BYTES)
    ring.begin(1)
    for at, (name, reason) in enumerate(refusals):
        refuse(ring, reason, at, name)
    for name in "ab":
        attempts = [r.body for r in ring.read(0, 100) if r.unit == unit(name)]
        expanded = [body.reason for body in attempts for _ in range(body.repeats + 1)]
        assert expanded == [reason for other, reason in refusals if other == name]
        for body, following in pairwise(attempts):
            assert body.first_at <= body.last_at < following.first_at


def test_a_new_term_begins_with_the_first_number():
    ring = Ring(100, MANY_BYTES)
    ring.begin(1)
    ring.append(told())
    ring.begin(2)
    ring.append(told("b"))
    assert [(r.term, r.seq, r.unit.key) for r in ring.read(0, 9)] == [(2, 1, "team/b")]
