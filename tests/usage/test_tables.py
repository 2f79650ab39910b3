"""Tables of what was held: rows add up, and time can be cut anywhere."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.usage.instants import CARD, at, between, hold

from koord.core.usage.segments import EndBasis, Flag, Holder, Segment, Window, make_segment
from koord.core.usage.tables import MILLI_GPU_MS_PER_HOUR, By, format_hours, tabulate

NAMES = st.sampled_from(["a", "b", "c", ""])
HOLDERS = st.builds(Holder, NAMES, NAMES, NAMES, NAMES, NAMES, NAMES, NAMES, NAMES)
SEGMENTS = st.builds(
    make_segment,
    st.sampled_from(["u1", "u2", "u3", "u4"]),
    HOLDERS,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 8_000),
    basis=st.sampled_from(EndBasis),
    amounts=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 10**12)),
)


def test_four_pods_share_a_gpu_for_an_hour() -> None:
    shares = [hold(f"nb-{number}", CARD // 4, "08:00", "09:00") for number in (1, 2, 3, 4)]
    table = tabulate(shares, By.OWNER, between("08:00", "09:00"))
    assert [(row.name, row.held, format_hours(row.held)) for row in table.rows] == [
        (f"team-a/nb-{number}", 900_000_000, "0.250") for number in (1, 2, 3, 4)
    ]
    assert (table.total.held, format_hours(table.total.held)) == (3_600_000_000, "1.000")
    whole = tabulate([hold("one", CARD, "08:00", "09:00")], By.OWNER, table.window)
    assert whole.total.held == table.total.held


def test_a_job_is_one_row_however_many_pods_it_has() -> None:
    pods = [hold(f"ft-{n}", 8 * CARD, "08:00", "08:30", owner="team-a/ft") for n in range(4)]
    (row,) = tabulate(pods, By.OWNER, between("08:00", "09:00")).rows
    assert (row.name, row.pods, format_hours(row.held)) == ("team-a/ft", 4, "16.000")


def test_a_pod_that_ended_before_it_began_counts_as_no_time() -> None:
    skewed = hold("late", CARD, "08:30", "08:29")
    assert skewed.flags == (Flag.CLOCK_SKEW,)
    table = tabulate([skewed], By.NAMESPACE, between("08:00", "09:00"))
    assert (table.rows, table.total.held, table.skewed) == ((), 0, 1)


def test_what_is_not_known_of_the_end_is_said() -> None:
    lost = replace(
        make_segment("u", Holder("a", "p"), at("08:00"), at("08:10"), CARD), uncertain=60_000
    )
    known = hold("q", CARD, "08:00", "08:10")
    assert tabulate([lost, known], By.NAMESPACE, between("08:00", "09:00")).uncertain == 60_000
    assert tabulate([lost, known], By.NAMESPACE, between("08:00", "08:05")).uncertain == 0


@given(st.lists(SEGMENTS), st.integers(0, 10**6), st.integers(0, 10**6))
def test_rows_of_each_table_add_up_to_the_same_total(
    segments: list[Segment], start: int, end: int
) -> None:
    window = Window(start, end)
    tables = [tabulate(segments, by, window) for by in By]
    for table in tables:
        assert sum(row.held for row in table.rows) == table.total.held
        assert table.total == tables[0].total
    cut = [part for part in map(window.clip, segments) if part is not None]
    assert tables[0].total.held == sum(part.held for part in cut)


@given(st.lists(SEGMENTS), st.lists(st.integers(0, 10**6), min_size=3, max_size=3))
def test_what_is_held_in_two_halves_is_held_in_the_whole(
    segments: list[Segment], instants: list[int]
) -> None:
    start, middle, end = sorted(instants)
    for by in By:
        halves = [
            tabulate(segments, by, Window(*half)) for half in ((start, middle), (middle, end))
        ]
        whole = tabulate(segments, by, Window(start, end))
        assert whole.total.held == sum(half.total.held for half in halves)
        for row in whole.rows:
            assert row.held == sum(
                part.held for half in halves for part in half.rows if part.name == row.name
            )


@given(st.integers(-(10**15), 10**15))
def test_hours_are_rounded_half_to_even(held: int) -> None:
    exact = Fraction(held, MILLI_GPU_MS_PER_HOUR)
    assert Fraction(format_hours(held)) == Fraction(round(exact * 1_000), 1_000)
    assert format_hours(held) != "-0.000"
