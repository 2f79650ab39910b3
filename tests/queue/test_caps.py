"""Law 14: no more start than queues and users may run; lower limits stop starts, and end nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_quota
from tests.queue.planned import GPU, Job, play_on
from tests.support.laws import examples

from koord.core.queue.reasons import QueueFull

if TYPE_CHECKING:
    from tests.queue.planned import Play

USERS = "uv"


@st.composite
def jobs(draw: Any) -> list[Job]:
    return [
        Job(
            f"J{at}",
            f"{draw(st.integers(1, 2))}x{draw(st.sampled_from([1, 4]))}",
            draw(st.integers(2, 6)),
            draw(st.integers(0, 4)),
            user=draw(st.sampled_from(USERS)),
        )
        for at in range(draw(st.integers(2, 8)))
    ]


def limit(play: Play, running: int, per_user: int, pending: int) -> None:
    """Set what may run and wait."""
    queue = {"max_running": running, "max_running_per_user": per_user, "max_pending": pending}
    play.cluster.quotas(make_quota("team", max={GPU: 999}, queue=queue))


def running_of(play: Play, user: str | None = None) -> int:
    """Count what has started and not ended."""
    return sum(user in {None, play.jobs[name].user} for name in play.ends)


def turns_of(play: Play) -> int:
    """Count the units that wait and have not been told that the queue is full."""
    reasons = play.cluster.reasons().values()
    return sum(not isinstance(reason, QueueFull) for reason in reasons)


@given(jobs(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=examples(12))
def test_14_caps_hold_and_lower_ones_end_nobody(
    made: list[Job], running: int, per_user: int, pending: int, lowered_at: int
) -> None:
    play = play_on("ab")
    play.jobs |= {job.name: job for job in made}
    limits = (running, per_user, pending)
    limit(play, *limits)
    for minute in range(12):
        if minute == lowered_at:
            limits = (1, 1, 1)
            limit(play, *limits)
        going_on = {name for name, end in play.ends.items() if end != minute}
        play.step(minute)
        assert going_on <= play.ends.keys()
        for name in (name for name, at in play.starts.items() if at == minute):
            assert running_of(play) <= limits[0]
            assert running_of(play, play.jobs[name].user) <= limits[1]
        assert turns_of(play) <= limits[2]
