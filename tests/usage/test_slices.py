"""Slices of GPUs: seven make a whole one, in whatever order they come and go."""

from hypothesis import given
from hypothesis import strategies as st

from koord.core.usage.slices import SliceSlots, SliceSpan, measure_slices, share_slices


def test_a_seventh_is_143_and_seven_are_a_gpu() -> None:
    assert measure_slices(1) == 143
    assert measure_slices(7) == 1_000
    assert sum(measure_slices(1, first) for first in range(7)) == 1_000


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=20))
def test_what_is_held_together_is_never_more_than_its_gpus(events: list[tuple[int, int]]) -> None:
    slots, held = SliceSlots(), dict[str, int]()
    most = 0
    for pod, count in events:
        slots.free(str(pod))
        held.pop(str(pod), None)
        if count:
            held[str(pod)] = slots.take(str(pod), count)
        sizes = {uid: slots.take(uid, len(slots._held[uid])) for uid in held}
        assert sizes == held  # it stays while a pod has it
        most = max(most, sum(len(slots._held[uid]) for uid in held))
        assert sum(held.values()) <= measure_slices(most)


def test_a_slice_that_is_free_again_is_taken_by_the_next() -> None:
    spans = [SliceSpan(f"p{at}", 0, 10 + at, 1) for at in range(7)] + [SliceSpan("next", 16, 30, 1)]
    assert share_slices(spans)["next"] == 143
    assert share_slices([*spans[:6], SliceSpan("seventh", 5, 9, 1)])["seventh"] == 142
