"""Looks at the queues: what is told of a gang, what was promised, and what became of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import SCORING, FakeCluster, make_cluster
from tests.model.clock import virtual_time

from koord.cli.object_notes import read_told
from koord.controllers.queue_looks import ENOUGH_STARTS, LONGEST_BUSY_SECONDS, QueueLooks
from koord.controllers.queue_status import make_queue_status, read_promise
from koord.core.maintenance.plugin import Maintenances, MaintenanceWindow
from koord.core.model.gang_history import Episode
from koord.core.model.reasons import InternalError, TooExpensive
from koord.core.queue.plugin import QueueOptions, Queues
from koord.core.queue.promises import Certainty, MoveCause
from koord.core.queue.run_time import QueueHints
from koord.core.queue.turns import TIMED, StartReservation

if TYPE_CHECKING:
    from koord.core.model.reasons import Reason

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z


def run_until(cluster: FakeCluster, name: str, node: str, seconds: int) -> None:
    """Have a pod run since noon that is killed after so many seconds."""
    says = (("queue", QueueHints(deadline=seconds)),)
    pod = make_pod(name).gpu(8).running(node).build()
    cluster.pods(replace(pod, started=NOON, extensions=says))


def make_waiting() -> FakeCluster:
    """Return a busy node, and a gang that waits for it."""
    cluster = make_cluster(1)
    run_until(cluster, "run", "n0", 600)
    cluster.pod_groups(replace(make_pod_group("default/g", 1).build(), uid="g"))
    return cluster.pods(make_pod("g-0").gang("default/g").gpu(8).created(NOON))


def make_looks(cluster: FakeCluster, **recorded: Any) -> QueueLooks:
    return QueueLooks(
        cluster.state,
        cluster.queue,
        SCORING,
        lambda: cluster.state.now,
        lambda: True,
        lambda: False,
        recorded.get,
    )


def look(cluster: FakeCluster, looks: QueueLooks, now: float = NOON) -> None:
    cluster.state.advance(now)
    cluster.step(now)
    looks.look()


def promise(monkeypatch: pytest.MonkeyPatch, start: float | None, *nodes: str) -> None:
    """Have room reserved for everybody from then on."""
    reserved = None
    if start is not None:
        reserved = StartReservation(TIMED, int(start), int(NOON), dict.fromkeys(nodes, 1))
    monkeypatch.setattr(Queues, "_find_head", lambda *_: (int(NOON), reserved))


def test_a_look_tells_when_a_gang_starts() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    standing = looks.of("default/g")
    assert standing is not None
    assert (standing.state, standing.certainty) == ("WaitingForNodes", Certainty.ESTIMATED)
    assert standing.expected_start == NOON + 600
    assert make_queue_status(standing).encode_set() == {
        "position": 1,
        "ahead": 0,
        "expectedStart": "2026-01-01T12:10:00Z",
        "certainty": "Estimated",
        "basis": {"Declared": 1},
    }


def test_of_a_gang_that_was_never_refused_nothing_is_told_yet() -> None:
    """What is told first stands for a minute."""
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    cluster.gang("later", 1).absorb()
    looks.look()
    assert looks.of("default/later") is None
    look(cluster, looks)
    standing = looks.of("default/later")
    assert standing is not None
    assert standing.state == "WaitingForNodes"


def test_who_waits_behind_reserved_room_is_not_told_that_it_never_fits() -> None:
    cluster = FakeCluster(queue=QueueOptions({"protect_after": 0}))
    cluster.nodes(make_node("n0").gpu(8), make_node("n1").gpu(8))
    run_until(cluster, "run", "n0", 600)
    for at in range(2):
        cluster.gang(f"g{at}", 2)
    looks = make_looks(cluster)
    look(cluster, looks)
    standings = [looks.of(f"default/g{at}") for at in range(2)]
    states = [standing and standing.state for standing in standings]
    assert states == ["Reserved", "WaitingForNodes"]


def test_what_is_told_stays_while_a_gang_is_about_to_be_tried_again() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    cluster.nodes(make_node("n1").gpu(8)).absorb()
    assert not cluster.queue.blocked
    looks.look()
    standing = looks.of("default/g")
    assert standing is not None
    assert standing.state == "WaitingForNodes"


def test_who_is_told_of_first_is_reported() -> None:
    cluster, news = make_waiting(), list[set[str]]()
    looks = make_looks(cluster)
    looks.on_told = news.append
    looks.look()
    look(cluster, looks)
    look(cluster, looks, NOON + 60)
    assert news == [{"default/g"}]


def test_who_is_always_about_to_be_tried_again_is_told_all_the_same() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    cluster.state.advance(NOON)
    cluster.step(NOON)
    cluster.nodes(make_node("n1").gpu(4)).absorb()
    cluster.queue.wake_all()
    assert not cluster.queue.blocked
    looks.look()
    standing = looks.of("default/g")
    assert standing is not None
    assert standing.state == "WaitingForNodes"


def test_who_waits_is_told_though_pods_are_always_being_bound() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    looks.is_busy = lambda: True
    cluster.state.advance(NOON)
    cluster.step(NOON)
    looks.note()
    with virtual_time() as loop:
        running = loop.create_task(looks.run())
        loop.run_until_complete(asyncio.sleep(LONGEST_BUSY_SECONDS / 2))
        assert looks.of("default/g") is None
        loop.run_until_complete(asyncio.sleep(LONGEST_BUSY_SECONDS))
        running.cancel()
        loop.run_until_complete(asyncio.wait([running]))
    assert looks.of("default/g") is not None


def test_a_start_is_covered_that_comes_before_all_that_it_waited_for_must_have_ended() -> None:
    """That is expected to end after 600 seconds; killing it may take another minute."""
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    cluster.state.advance(NOON + 630)
    looks.note_start(cluster.queue.pending()[0])
    (error,) = looks.errors
    assert (error.seconds, error.is_covered) == (30, True)


def test_what_was_placed_is_forgotten_and_compared_with_what_was_expected() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    (unit,) = cluster.queue.pending()
    cluster.state.advance(NOON + 780)
    looks.note_start(unit)
    (error,) = looks.errors
    assert (error.seconds, error.is_covered) == (180, False)
    cluster.delete_pods("run")
    look(cluster, looks, NOON + 780)
    assert looks.of("default/g") is None


def test_whose_starts_come_late_is_given_guesses_and_nobody_else() -> None:
    """Who says that his jobs end at once makes his own times worthless, not those of all."""
    cluster = make_waiting()
    ends = (("queue", QueueHints(deadline=60)),)
    cluster.pods(replace(cluster.pod("g-0"), extensions=ends))
    cluster.pods(make_pod("other/p").gpu(8).created(NOON + 1))
    looks = make_looks(cluster)
    for at in range(ENOUGH_STARTS):
        look(cluster, looks, NOON + at)
        late = next(unit for unit in cluster.queue.pending() if unit.group)
        cluster.state.advance(NOON + 9000)
        looks.note_start(late)
    look(cluster, looks, NOON + ENOUGH_STARTS)
    standings = [looks.standings[unit.key] for unit in cluster.queue.pending()]
    assert [standing.certainty for standing in standings] == [Certainty.GUESS, Certainty.ESTIMATED]


def test_a_queue_with_many_units_hides_none_of_the_others() -> None:
    cluster = make_cluster(1)
    run_until(cluster, "run", "n0", 600)
    cluster.quotas(make_quota("many", max={GPU: 99}), make_quota("one", max={GPU: 99}))
    for at in range(103):
        cluster.pods(make_pod(f"p{at:03}").gpu(8).quota("many").created(NOON + at))
    cluster.pods(make_pod("last").gpu(8).quota("one").created(NOON + 200))
    looks = make_looks(cluster)
    look(cluster, looks, NOON + 300)
    last = cluster.queue.pending()[-1]
    assert (len(looks.standings), last.pods[0].name) == (101, "last")
    standing = looks.standings[last.key]
    assert (standing.position, standing.waiting, standing.ahead) == (1, 1, 103)


@pytest.mark.parametrize("is_maintained", [False, True])
def test_a_promise_that_moves_later_names_the_lost_node(
    monkeypatch: pytest.MonkeyPatch, *, is_maintained: bool
) -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    promise(monkeypatch, NOON + 600, "n0")
    look(cluster, looks)
    standing = looks.of("default/g")
    assert standing is not None
    assert (standing.certainty, standing.last_move) == (Certainty.PROMISED, None)
    cluster.nodes(make_node("n1").gpu(8))
    if is_maintained:
        window = MaintenanceWindow("w", NOON, NOON + 9000, frozenset({"n0"}))
        cluster.state.plugin(Maintenances).upsert(window)
    else:
        cluster.nodes(make_node("n0").gpu(8).unschedulable())
    run_until(cluster, "other", "n1", 1200)
    promise(monkeypatch, NOON + 1200, "n1")
    look(cluster, looks, NOON + 10)
    standing = looks.of("default/g")
    assert standing is not None
    assert standing.last_move is not None
    assert (standing.last_move.cause, standing.last_move.by) == (MoveCause.NODE, "n0")
    assert standing.text().endswith("It was promised 12:10 UTC before, and moved later (Node, n0).")
    assert looks.broken[MoveCause.NODE] == 1
    promise(monkeypatch, NOON + 900, "n1")
    look(cluster, looks, NOON + 20)
    assert looks.broken.total() == 1, "moves earlier are silent"


@pytest.mark.parametrize(
    ("what", "cause"),
    [("Preempted", MoveCause.PREEMPTED), ("Reclaimed", MoveCause.GUARANTEE), ("Restarted", None)],
)
def test_who_loses_the_place_that_was_promised_to_him_is_told_for_whom(
    monkeypatch: pytest.MonkeyPatch, what: str, cause: MoveCause | None
) -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    promise(monkeypatch, NOON + 600, "n0")
    look(cluster, looks)
    (unit,) = cluster.queue.pending()
    waiting = cluster.pod("g-0")
    cluster.pods(replace(waiting, node="n0"))
    looks.note_start(unit)
    look(cluster, looks, NOON + 600)
    group = cluster.state.gangs.pod_group("default/g")
    assert group is not None
    history = (Episode(int(NOON) + 700, what, "no room", "b/high"),)
    cluster.pod_groups(replace(group, history=history))
    cluster.delete_pods("g-0")
    cluster.pods(replace(waiting, uid="again"))
    promise(monkeypatch, NOON + 1200, "n0")
    for at in (0, 1):
        look(cluster, looks, NOON + 710 + at)
    standing = looks.of("default/g")
    assert standing is not None
    move = standing.last_move
    assert (move and (move.before, move.cause, move.by)) == (
        cause and (NOON + 600, cause, "b/high")
    )
    assert looks.broken.total() == bool(cause)


@pytest.mark.parametrize("least", [8, 7])
@pytest.mark.parametrize("is_started", [True, False])
def test_a_promise_moves_for_what_is_guaranteed_to_others(
    monkeypatch: pytest.MonkeyPatch, least: int, *, is_started: bool
) -> None:
    cluster = make_waiting()
    owner, borrower = make_quota("owner", min={GPU: least}, max={GPU: 99}), make_quota("borrower")
    cluster.quotas(owner, replace(borrower, max={GPU: 99}))
    cluster.pods(replace(cluster.pod("run"), quota="borrower"))
    looks = make_looks(cluster)
    promise(monkeypatch, NOON + 600, "n0")
    look(cluster, looks)
    cluster.pods(make_pod("own").gpu(8).quota("owner").created(NOON - 1)).absorb()
    (unit,) = (unit for unit in cluster.queue.pending() if unit.pods[0].name == "own")
    if is_started:
        cluster.delete_pods("run")
        cluster.pods(replace(cluster.pod("own"), node="n0"))
        cluster.state.refresh()
        looks.note_start(unit)
    promise(monkeypatch, NOON + 1200, "n0")
    look(cluster, looks, NOON + 10)
    (cause,) = looks.broken.keys() - {cause for cause, n in looks.broken.items() if not n}
    assert cause is (MoveCause.GUARANTEE if least == 8 else MoveCause.LOAD)


def test_a_promise_of_an_earlier_process_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_waiting()
    promise(monkeypatch, NOON + 600, "n0")
    looks = make_looks(cluster)
    look(cluster, looks)
    standing = looks.of("default/g")
    assert standing is not None
    status = {"queue": make_queue_status(standing).encode_set()}

    after = make_looks(cluster, g=status)
    promise(monkeypatch, None)
    look(cluster, after, NOON + 60)
    assert after.broken.total() == 1
    kept = after.of("default/g")
    assert kept is not None
    assert kept.last_move is not None
    assert kept.last_move.before == NOON + 600


def test_a_promise_that_is_lost_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    promise(monkeypatch, NOON + 600, "n0")
    look(cluster, looks)
    promise(monkeypatch, None)
    for at in range(3):
        look(cluster, looks, NOON + at)
    assert looks.broken.total() == 1
    standing = looks.of("default/g")
    assert standing is not None
    assert standing.text().endswith("It was promised 12:10 UTC before (Other).")


def test_room_that_was_idle_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    reserved = StartReservation(
        TIMED, int(NOON) + 600, int(NOON), {"n0": 1}, idle_seconds=24 * 3600 - 5
    )
    monkeypatch.setattr(Queues, "_find_head", lambda *_: (int(NOON), reserved))
    look(cluster, looks)
    promise(monkeypatch, None)
    look(cluster, looks, NOON + 5)
    assert looks.broken[MoveCause.HOLD_EXPIRED] == 1


def test_a_promise_is_not_broken_within_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    for start in (601, 640, 605, 660):
        promise(monkeypatch, NOON + start, "n0")
        look(cluster, looks)
    assert looks.broken.total() == 0
    promise(monkeypatch, NOON + 661, "n0")
    look(cluster, looks)
    assert looks.broken.total() == 1


def test_what_is_told_can_be_read_by_who_may_read_no_more() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    standing = looks.of("default/g")
    assert standing is not None
    condition = {
        "type": "Queued",
        "status": "True",
        "reason": standing.state,
        "message": standing.text(),
    }
    status = {"queue": make_queue_status(standing).encode_set(), "conditions": [condition]}
    told = read_told(json.dumps(status).encode())
    assert told is not None
    assert told.worth_a_write[1:] == standing.worth_a_write[1:], "the queue is in the text"
    assert told.text() == standing.text()
    assert read_told(b"{") is read_told(b"{}") is read_told(b'{"queue": 7}') is None


def test_the_first_hundred_of_a_tree_are_told() -> None:
    cluster = make_cluster(1)
    run_until(cluster, "run", "n0", 600)
    for at in range(103):
        cluster.gang(f"g{at:03}", 1)
    looks = make_looks(cluster)
    look(cluster, looks)
    assert len(looks.standings) == 100
    first = looks.of("default/g000")
    assert first is not None
    assert (first.position, first.waiting) == (1, 103)
    assert looks.of("default/g102") is None


def test_a_queue_is_summed_up_at_most_once_a_minute() -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    look(cluster, looks)
    (queue,) = looks.summaries
    first = looks.summaries[queue]
    assert (first.policy, first.pending, first.head) == ("Backfill", 1, "default/g")
    cluster.gang("later", 1)
    look(cluster, looks, NOON + 59)
    assert looks.summaries[queue] == first
    look(cluster, looks, NOON + 60)
    assert looks.summaries[queue].pending == 2


@pytest.mark.parametrize(
    "reason", [TooExpensive("default/g-0", 1, 0, 9, 5), InternalError("ZeroDivisionError")]
)
def test_what_costs_too_much_to_plan_is_not_foreseen(reason: Reason) -> None:
    cluster = make_waiting()
    looks = make_looks(cluster)
    cluster.state.advance(NOON)
    cluster.step(NOON)
    (key,) = cluster.queue.blocked
    cluster.queue.last_reasons[key] = reason
    looks.look()
    standing = looks.of("default/g")
    assert standing is not None
    assert standing.expected_start is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = ("certainty", "startNoLaterThan", "reservation", "places")


@given(st.dictionaries(st.sampled_from(FIELDS), json_values | st.just("Promised")) | json_values)
def test_nonsense_in_a_status_promises_nothing(queue: object) -> None:
    assert read_promise({"queue": queue}) is None
