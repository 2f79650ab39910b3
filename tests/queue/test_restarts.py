"""Law 13: after a restart the same room is reserved, as statuses say, and no promise is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queue.planned import MINUTE, NOW, Job, Play, play_on
from tests.support.laws import examples

from koord.answers.standing import QueueStanding
from koord.api.place_lists import MOST_PLACES, read_places, write_places
from koord.controllers.queue_status import make_queue_status
from koord.core.model.gangs import QueueMemory
from koord.core.queue.plugin import Queues
from koord.core.queue.promises import round_start
from koord.core.queue.reasons import WouldDelay
from koord.core.queue.turns import TIMED
from koord.kube.translate.gangs import _STATUS, _read_queue

if TYPE_CHECKING:
    from koord.core.queue.turns import StartReservation

NAMES = "abcd"
NOTHING = QueueStanding("q", 1, 1, 0, 0, "Reserved")


def reservations_of(play: Play) -> dict[str, StartReservation]:
    """Return what is reserved, by name of the gang."""
    queues = play.cluster.state.plugin(Queues)
    found = (
        (unit.group.partition("/")[2], queues._find_head(unit.key)[1])
        for unit in play.cluster.queue.pending()
    )
    return {name: reservation for name, reservation in found if reservation is not None}


def memory_of(play: Play, job: Job) -> QueueMemory | None:
    """Return what the status of a gang says, written and read."""
    state = play.cluster.state
    units = [u for u in play.cluster.queue.pending() if u.group == f"default/{job.name}"]
    if not units:
        return None
    since, reservation = state.plugin(Queues)._find_head(units[0].key)
    latest = None
    if reservation is not None and reservation.kind == "Timed":
        latest = round_start(state.now, reservation.start)
    standing = replace(NOTHING, head_since=since, reservation=reservation, latest_start=latest)
    status = {"queue": make_queue_status(standing).encode_set()}
    return _read_queue(_STATUS.read(json.dumps(status).encode()).queue)


def restart(play: Play, nodes: str, minute: int, **changes: Any) -> Play:
    """Return a cluster of the same objects that a new process sees, after its first plans."""
    after = play_on(nodes, **changes)
    after.cluster.state.advance(float(NOW + minute * MINUTE))
    for pod in play.cluster.state.pods.values():
        after.cluster.pods(play.cluster.state.observed(pod.uid) or pod)
    for job in play.jobs.values():
        waits = job.at <= minute and job.name not in play.starts and job.name not in play.ends
        if waits and job.count > 1:
            group = replace(job.group().build(), queued=memory_of(play, job))
            after.cluster.pod_groups(group)
    after.cluster.step(float(NOW + minute * MINUTE))
    return after


@st.composite
def jobs(draw: Any) -> list[Job]:
    made = []
    for at in range(draw(st.integers(1, 5))):
        limit = draw(st.sampled_from([None, None, 0]))
        size = f"{draw(st.integers(2, 4))}x{draw(st.sampled_from([4, 8]))}"
        made.append(Job(f"J{at}", size, draw(st.integers(5, 60)), draw(st.integers(0, 5)), limit))
    return made


@given(jobs(), st.integers(0, 12), st.sampled_from([1, 2, 16]), st.sampled_from([0, None]))
@settings(max_examples=examples(6))
def test_13_a_new_process_reserves_the_same_room(
    made: list[Job], minute: int, depth: int, limit: int | None
) -> None:
    play = play_on(NAMES, reserve_depth=depth)
    for at, node in enumerate(NAMES):
        play.running(f"R{at}", "1x8", node, 10 + 7 * at, limit=None if at else limit)
    play.jobs |= {job.name: job for job in made}
    for at in range(minute + 1):
        play.step(at)
    before = reservations_of(play)
    after = reservations_of(restart(play, NAMES, minute, reserve_depth=depth))
    for name, reservation in before.items():
        again = after[name]
        assert (again.kind, dict(again.nodes)) == (reservation.kind, dict(reservation.nodes))
        assert again.since == reservation.since
        now = NOW + minute * MINUTE
        if again.kind == TIMED:
            assert round_start(now, again.start) <= round_start(now, reservation.start)


def test_13_places_stay_though_others_would_be_chosen_by_now() -> None:
    play = play_on("abc").running("Ra", "1x8", "a", 90, limit=0)
    play.running("Rb", "1x8", "b", 50).running("Rc", "1x8", "c", 50)

    def replace_one() -> None:
        play.ends.pop("Ra")
        play.cluster.delete_pods("Ra-0")
        play.running("N", "1x8", "a", 50)

    play.events = {5: replace_one}
    play.play(Job("H", "2x8", 20, 0), until=7)
    for seen in (play, restart(play, "abc", 7)):
        reservation = reservations_of(seen)["H"]
        assert (dict(reservation.nodes), reservation.start) == (
            {"b": 1, "c": 1}, NOW + 50 * MINUTE + 30
        )  # fmt: skip


def test_13_who_was_passed_at_the_same_time_has_other_room_reserved() -> None:
    """What an earlier process told of it cannot be any more, and it is not the first."""
    play = play_on("ab").running("Ra", "1x8", "a", 50).running("Rb", "1x8", "b", 60)
    play.play(Job("H", "2x8", 20, 0), until=1)
    passing = play.jobs["P"] = Job("P", "2x8", 10, 0, priority=10)
    play.cluster.pod_groups(passing.group()).pods(*passing.pods())
    after = reservations_of(restart(play, "ab", 0))
    starts = {name: reservation.start for name, reservation in after.items()}
    assert starts == {"P": NOW + 60 * MINUTE + 30, "H": NOW + 70 * MINUTE + 60}


NODES = st.from_regex(r"[a-z]{1,3}(-[0-9]{1,3})?(\.[a-z0-9]{1,2})?", fullmatch=True)


@given(st.dictionaries(NODES, st.integers(1, 99)))
def test_places_are_read_as_they_were_written(places: dict[str, int]) -> None:
    assert read_places(write_places(places)) == places


def test_many_nodes_are_a_short_text() -> None:
    places = {f"gpu-{at:03}": 8 for at in range(1, 301) if at != 17} | {"login": 1}
    assert write_places(places) == "gpu-[001-016,018-300]*8 login*1"


@given(st.text(alphabet="ab1[]-,* \n٣", max_size=30))
def test_nonsense_names_no_place_and_no_endless_list(text: str) -> None:
    assert len(read_places(text)) <= MOST_PLACES


def test_a_list_that_would_not_end_is_not_read() -> None:
    assert read_places("n[000000000-999999999]*1") == {}


@pytest.mark.parametrize("places", [{"a": 1}, {"a": 1, "b": 1}])
def test_whatever_statuses_say_no_more_have_room_reserved_than_may(places: dict[str, int]) -> None:
    """All but the first lie: they name the places and times that would suit them."""
    play = play_on("ab").running("R", "1x8", "a", 90)
    for at in range(4):
        job = Job(f"J{at}", "2x8", 20, at)
        memory = QueueMemory(NOW, NOW, 99, tuple(places.items()), NOW + 500 * MINUTE)
        play.cluster.pod_groups(replace(job.group().build(), queued=memory))
        play.cluster.pods(*job.pods())
    play.cluster.pods(*Job("S", "1x8", 200, 5, limit=0).pods())
    play.cluster.step(float(NOW))
    (reservation,) = reservations_of(play).values()
    assert reservation.start == NOW + 90 * MINUTE + 30
    assert isinstance(play.cluster.reasons()["S-0"], WouldDelay)
