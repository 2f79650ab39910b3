"""Segments of what is seen again and again: whatever is missed is said, and is at most a minute."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.usage.instants import CARD, at, between, hold

from koord.core.usage.book import UsageBook, book_part, key_of, owner_of, split_hours, tabulate_book
from koord.core.usage.following import LOOK_MS, SegmentFollower
from koord.core.usage.levels import UsageLevels, integrate_levels
from koord.core.usage.lost import LossCause
from koord.core.usage.quota_time import QuotaLevel, QuotaTime, integrate
from koord.core.usage.segments import EndBasis, Segment, Window
from koord.core.usage.tables import By, tabulate


def running(pod: str, start: str, gpus: int = 1, **holder: str) -> Segment:
    return hold(pod, gpus * CARD, start, start, **holder)


def test_a_pod_is_written_as_it_begins_and_as_it_ends() -> None:
    follower = SegmentFollower()
    pod = running("w", "08:00")
    (begun,) = follower.look([pod], at("08:01")).changed
    assert (begun.basis, begun.start, begun.end) == (EndBasis.OPEN, at("08:00"), at("08:01"))
    assert follower.look([pod], at("08:02")).changed == ()
    ended = replace(pod, end=at("08:02:30"), basis=EndBasis.STATUS)
    assert follower.look([ended], at("08:03")).changed == (ended,)
    assert follower.look([ended], at("08:04")).changed == ()
    assert follower.look([], at("08:05")).changed == ()


def test_a_pod_that_is_gone_ended_between_two_looks() -> None:
    follower = SegmentFollower()
    follower.look([running("w", "08:00")], at("08:01"))
    (gone,) = follower.look([], at("08:02")).changed
    assert (gone.basis, gone.end, gone.uncertain) == (EndBasis.DELETED, at("08:02"), 60_000)


def test_what_changes_of_a_pod_begins_another_segment_at_the_same_instant() -> None:
    follower = SegmentFollower()
    follower.look([running("w", "08:00", quota="a")], at("08:01"))
    before, after = follower.look([running("w", "08:00", quota="b")], at("08:02")).changed
    assert (before.holder.quota, before.basis, before.end) == ("a", EndBasis.CHANGED, at("08:02"))
    assert (after.holder.quota, after.basis, after.start) == ("b", EndBasis.OPEN, at("08:02"))


def test_after_a_crash_what_vanished_ends_when_it_was_seen_last() -> None:
    """And all that is uncertain is the time in which nobody looked."""
    first = SegmentFollower()
    first.look([running("a", "08:00"), running("b", "08:00")], at("08:30"))
    second = SegmentFollower(first.open_segments, at("08:30"))
    look = second.look([running("b", "08:00")], at("08:45"))
    (gone,) = look.changed
    assert (gone.uid, gone.basis, gone.end) == ("uid-a", EndBasis.LAST_SEEN, at("08:30"))
    assert (gone.uncertain, look.unseen) == (15 * 60_000, 14 * 60_000)
    (goes_on,) = second.open_segments
    assert (goes_on.start, goes_on.end) == (at("08:00"), at("08:45"))


@given(
    st.lists(st.tuples(st.integers(1, LOOK_MS), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 3 * LOOK_MS),
)
def test_a_crash_loses_a_minute_and_the_outage_at_most_and_says_so(
    looks: list[tuple[int, bool]], ends: int
) -> None:
    """The pod ends while it is looked at every minute at most, by processes that may crash."""
    pod, now = running("w", "08:00"), at("08:00")
    follower, written = SegmentFollower(), dict[tuple[str, int], Segment]()
    true_end = now + ends
    for pause, crashes in [*looks, (LOOK_MS, False), *[(LOOK_MS, False)] * 3]:
        now += pause
        if crashes:
            follower = SegmentFollower(follower.open_segments, now - pause)
        for segment in follower.look([pod] if now < true_end else [], now).changed:
            written[segment.uid, segment.start] = segment
    for segment in written.values():
        assert segment.basis is not EndBasis.OPEN
        assert abs(segment.end - true_end) <= max(segment.uncertain, 0) <= LOOK_MS


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 8_000))),
    st.lists(st.integers(0, 10**7), min_size=2, max_size=2).map(sorted),
)
def test_sums_by_hour_are_those_of_the_segments(
    spans: list[tuple[int, int, int]], window: list[int]
) -> None:
    whole = Window(*window)
    segments = [
        replace(hold(f"p{number}", held, "08:00", "08:00"), start=start, end=max(start, end))
        for number, (start, end, held) in enumerate(spans)
    ]
    book, hours = UsageBook(whole), UsageBook(whole)
    book.add_segments(segments)
    for segment in segments:
        for hour in split_hours(whole):
            part = book_part(segment, hour)
            hours.add(key_of(segment.holder), part)
            hours.owners[owner_of(segment.holder)] += part.held
    for by in (By.QUOTA, By.NAMESPACE, By.USER, By.OWNER, By.MODEL, By.BAND):
        table = tabulate(segments, by, whole)
        assert tabulate_book(book, by).total.held == table.total.held
        assert tabulate_book(hours, by).total.held == table.total.held
        assert sum(row.held for row in tabulate_book(book, by).rows) == table.total.held


def test_what_a_victim_held_is_lost_since_its_checkpoint() -> None:
    """Eight GPUs from six o'clock on, saved at half past seven, and preempted at 07:42."""
    victim = replace(
        hold("ft-0", 8 * CARD, "06:00", "07:42"),
        basis=EndBasis.DELETED,
        cause=str(LossCause.PREEMPTED),
        by="team-b/high",
        checkpointed=at("07:30"),
    )
    book = UsageBook(between("00:00", "12:00"))
    book.add_segments([victim, replace(victim, uid="x", checkpointed=0)])
    lost = {(key.basis, key.by): amount for key, amount in book.losses.items()}
    assert lost == {
        ("Checkpoint", "team-b/high"): 5_760_000_000,
        ("AtMost", "team-b/high"): 48_960_000_000,
    }


def test_a_level_counts_from_one_look_to_the_next_and_no_longer_than_a_minute() -> None:
    level = QuotaLevel(at("08:59:30"), 2 * CARD, CARD, 3 * CARD)
    before = UsageLevels(level.at, {"q": level}, {"H100": {}})
    sums = list(integrate_levels(before, at("09:00:10")))
    assert [part.window for part in sums] == [
        between("08:59:30", "09:00"),
        between("09:00", "09:00:10"),
    ]
    total = sum((part.quotas["q"] for part in sums), QuotaTime())
    assert total == integrate([level], between("08:59:30", "09:00:10"))
    late = integrate_levels(before, at("12:00"))
    assert sum(part.window.milliseconds for part in late) == LOOK_MS


def test_a_clock_that_was_ahead_for_one_look_counts_nothing_that_was_not() -> None:
    follower = SegmentFollower()
    pod = running("w", "08:00")
    follower.look([pod, running("v", "08:00")], at("08:01"))
    follower.look([pod, running("v", "08:00")], at("20:00"))
    (corrected, *_) = follower.look([pod], at("08:02")).changed
    assert (corrected.basis, corrected.end) == (EndBasis.OPEN, at("08:02"))
    (gone,) = follower.look([], at("08:03")).changed
    assert (gone.basis, gone.end) == (EndBasis.DELETED, at("08:03"))
    # Also where another process looked then.
    ahead = replace(pod, end=at("20:00"))
    second = SegmentFollower([ahead], at("20:00"))
    assert all(each.end <= at("08:05") for each in second.look([], at("08:05")).changed)


def test_no_segment_ends_before_it_begins_once_a_clock_is_set_back() -> None:
    follower = SegmentFollower()
    follower.look([running("w", "08:00", quota="a")], at("08:01"))
    follower.look([running("w", "08:00", quota="b")], at("20:00"))
    for minute in ("08:02", "08:03"):
        follower.look([running("w", "08:00", quota="b")], at(minute))
        assert all(each.end >= each.start for each in follower.open_segments)
