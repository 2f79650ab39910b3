"""Work that a job loses when it is preempted."""

from hypothesis import given
from hypothesis import strategies as st
from tests.usage.instants import CARD, at, hold

from koord.core.usage.lost import LossBasis, find_lost
from koord.core.usage.segments import Holder, make_segment
from koord.core.usage.tables import format_hours

RUN = [hold("ft-0", 8 * CARD, "06:00", "07:42")]
PREEMPTED = ("Preempted", "team-b/high")


def test_work_since_the_last_checkpoint_is_lost() -> None:
    lost = find_lost(RUN, at("07:42"), *PREEMPTED, checkpointed=at("07:30"))
    assert (lost.lost, lost.basis, lost.cause, lost.by) == (
        5_760_000_000,
        LossBasis.CHECKPOINT,
        *PREEMPTED,
    )
    assert format_hours(lost.lost) == "1.600"


def test_without_a_checkpoint_at_most_everything_is_lost() -> None:
    lost = find_lost(RUN, at("07:42"), *PREEMPTED)
    assert (lost.lost, lost.basis) == (48_960_000_000, LossBasis.AT_MOST)
    assert format_hours(lost.lost) == "13.600"


@given(st.integers(0, at("23:59")))
def test_no_checkpoint_makes_a_job_lose_more_than_it_held(checkpointed: int) -> None:
    """The owner of the pod writes it."""
    lost = find_lost(RUN, at("07:42"), *PREEMPTED, checkpointed=checkpointed)
    assert 0 <= lost.lost <= RUN[0].held
    if not at("06:00") <= checkpointed <= at("07:42"):
        assert lost.basis is LossBasis.AT_MOST


def test_a_run_whose_devices_changed_is_counted_by_segment() -> None:
    parts = [
        make_segment("u", Holder("a", "p"), at("06:00"), at("07:00"), CARD),
        make_segment("u", Holder("a", "p"), at("07:00"), at("08:00"), 2 * CARD),
    ]
    assert format_hours(find_lost(parts, at("08:00"), *PREEMPTED).lost) == "3.000"
