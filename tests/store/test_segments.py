"""Segments in a store, and their sums by hour."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.stores import ALWAYS, EPOCH, FEW, new_path, open_store
from tests.support.laws import examples

from koord.core.usage.segments import EndBasis, Flag, Holder, Window, make_segment
from koord.store.days import HOUR_MS
from koord.store.reading import StoreReader

BASES = (EndBasis.OPEN, EndBasis.STATUS, EndBasis.LAST_SEEN)


def make(uid, start, length, *, gpus=1000, basis=EndBasis.STATUS, user="ann"):
    holder = Holder("team-a", f"pod-{uid}", "quota-a", user, "team-a/train", "n1", "H100", "prod")
    flags = (Flag.ESTIMATED,) if gpus == 500 else ()
    begin = EPOCH + start
    amounts = {"cpu": 4000, "memory": 1 << 46}
    return make_segment(
        uid, holder, begin, begin + length, gpus, basis=basis, amounts=amounts, flags=flags
    )


SEGMENTS = st.lists(
    st.builds(
        make,
        uid=st.sampled_from("ab"),
        start=st.sampled_from([0, HOUR_MS - 7, HOUR_MS, 5 * HOUR_MS + 1]),
        length=st.integers(-1, 3 * HOUR_MS),
        gpus=st.sampled_from([0, 500, 8000]),
        basis=st.sampled_from(BASES),
        user=st.sampled_from(["ann", "bob"]),
    ),
    max_size=8,
)


def sum_hours(path):
    held, estimated, amounts = Counter(), Counter(), Counter()
    for hour in StoreReader(path).hours(ALWAYS).rows:
        held[hour.key.user] += hour.held
        estimated[hour.key.user] += hour.estimated
        amounts.update({(hour.key.user, name): amount for name, amount in hour.amounts})
    return +held, +estimated, +amounts


@given(SEGMENTS)
@settings(max_examples=examples(FEW))
def test_hours_are_the_sums_of_closed_segments_however_often_they_are_written(segments):
    with new_path() as path, open_store(path) as store:
        for segment in segments:
            store.put_segments([segment])
        store.flush()
        kept = {(segment.uid, segment.start): segment for segment in segments}
        read = StoreReader(path).segments(ALWAYS).rows
        within = [kept[key] for key in sorted(kept)]
        assert list(read) == within
        closed = [each for each in within if each.basis is not EndBasis.OPEN]
        held, estimated, amounts = Counter(), Counter(), Counter()
        for each in closed:
            user = each.holder.user
            held[user] += each.held
            estimated[user] += each.held if each.flags[:1] == (Flag.ESTIMATED,) else 0
            amounts.update({(user, name): each.held_of(name) for name, _ in each.amounts})
        assert sum_hours(path) == (+held, +estimated, +amounts)
        before = StoreReader(path).hours(ALWAYS).rows
        store.rebuild_hours().result()
        assert StoreReader(path).hours(ALWAYS).rows == before


def test_what_goes_on_is_found_after_a_restart(tmp_path):
    path = tmp_path / "s"
    with open_store(path) as store:
        store.put_segments([make("a", 0, 60_000, basis=EndBasis.OPEN), make("b", 0, 5)]).result()
    with open_store(path) as store:
        (seen,) = StoreReader(path).open_segments().rows
        assert (seen.uid, seen.end) == ("a", EPOCH + 60_000)
        store.put_segments([make("a", 0, 60_000, basis=EndBasis.LAST_SEEN)]).result()
    assert not StoreReader(path).open_segments().rows


def test_segments_of_a_range_and_a_namespace(tmp_path):
    path = tmp_path / "s"
    with open_store(path) as store:
        store.put_segments([make("a", 0, 10), make("b", 10, 10), make("c", 30, 10)]).result()
    reader = StoreReader(path)
    window = Window(EPOCH + 10, EPOCH + 30)
    assert [each.uid for each in reader.segments(window).rows] == ["a", "b"]
    assert [each.uid for each in reader.segments(window, "team-a").rows] == ["a", "b"]
    assert not reader.segments(window, "team-b").rows
