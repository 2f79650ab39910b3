"""The queue of a cluster that is followed: nothing is planned, and what is unchanged is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import NOW, make_condition
from tests.cluster import make_cluster

from koord.answers import queue_sight, queue_view, reported_queue
from koord.answers.encoding import encode
from koord.answers.in_steps import finish
from koord.answers.queue_sight import SeenEntries, WaitingQueue, hide_others
from koord.answers.reading import Reading, Target, TargetDetails, TargetKind
from koord.answers.redaction import Sight
from koord.answers.reported_queue import ReportedQueue
from koord.answers.reports import Reported, make_report
from koord.answers.standing import QueueStanding
from koord.answers.waiting import find_waiting
from koord.api.keys import operators
from koord.core.engine.cycle import Cycle
from koord.core.queue.turns import StartReservation
from koord.see.cluster_routes import PARTS, QUEUE
from koord.see.paging import parse_query, select
from koord.see.route import Ask
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot, Snapshots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster import FakeCluster

HERE = Target(TargetKind.POD, "default", "")
GANG = "team-a/moe"
SIGHTS = (
    Sight(),
    Sight(nodes=False),
    Sight(frozenset({"team-a"})),
    Sight(frozenset({"team-a", "team-b"}), quotas=False),
    Sight(frozenset(), quotas=False, nodes=False, reservations=False),
)


def make_scene() -> FakeCluster:
    """A full node, a gang before two pods of other teams, and a gang that is not complete."""
    cluster = make_cluster().nodes(make_node("n0").gpu(8))
    cluster.quotas(make_quota("team-a", min={"nvidia.com/gpu": 8}, max={"nvidia.com/gpu": 64}))
    cluster.pods(make_pod("runs").gpu(8).running("n0"))
    cluster.pod_groups(make_pod_group(GANG, 2), make_pod_group("team-b/half", 4))
    for at in range(2):
        pod = make_pod(f"team-a/moe-{at}").gang(GANG).gpu(8).quota("team-a")
        cluster.pods(pod.created(NOW - 90))
    cluster.pods(make_pod("team-b/half-0").gang("team-b/half").gpu(1))
    for team, age in (("team-b", 60), ("team-c", 30)):
        cluster.pods(make_pod(f"{team}/waits").gpu(4).created(NOW - age))
    cluster.state.advance(NOW)
    return cluster


def follow(cluster: FakeCluster, **reports: str) -> Reading:
    """Return what is followed, with these codes reported on pods ``namespace__name``."""
    told = {name.replace("__", "/").replace("_", "-"): code for name, code in reports.items()}
    return Reading(
        cluster.state,
        reports={name: report(code) for name, code in told.items()},
        is_followed=True,
    )


def report(code: str, message: str = "told") -> Reported:
    return make_report(make_condition(operators.PLACED, "False", code, message))


def list_rows(reading: Reading) -> list[tuple[int, str, str]]:
    return [
        (entry.position, entry.names[0], entry.reason.code) for entry in find_waiting(reading, HERE)
    ]


def ask(snapshot: Snapshot, name: str, parts: Mapping[str, str]) -> Any:
    route = next(route for route in ROUTES if route.answer == name)
    value = route.answer_from(snapshot, Ask(parts)).value
    return value if route.form is None else [route.form.write(row) for row in value]


def test_places_are_those_of_the_queue_and_reasons_those_of_the_operators() -> None:
    reading = follow(make_scene(), team_a__moe_1="NoDomainFits", team_b__waits="SchedulingGated")
    assert list_rows(reading) == [
        (1, GANG, "NoDomainFits"),
        (2, "team-b/waits", "NotKnown"),
        (3, "team-c/waits", "NotKnown"),
        (0, "team-b/half", "MissingMembers"),
    ]
    first, second, *_ = find_waiting(reading, HERE)
    assert (first.reason.text(), first.gpus, second.gpus_ahead) == ("told", 16, 16)


def test_the_condition_of_a_pod_group_and_its_turn_are_told() -> None:
    condition = make_condition("Placed", "False", "InsufficientNodes", "0 of 1 nodes")
    told = QueueStanding("team-a", 1, 1, 0, 0, "WaitingForNodes", expected_start=60)
    reading = replace(
        follow(make_scene(), team_a__moe_0="NoDomainFits"),
        all_details={(TargetKind.POD_GROUP, GANG): TargetDetails({"Placed": condition})},
        standings={GANG: told},
    )
    first = find_waiting(reading, HERE)[0]
    assert (first.reason.code, first.reason.text()) == ("InsufficientNodes", "0 of 1 nodes")
    assert first.standing == told


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Overview", {}),
        ("Queue", {}),
        ("Quotas", {}),
        ("Quota", {"name": "team-a"}),
        ("Health", {}),
    ],
)
def test_no_list_is_planned(
    name: str, parts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something is planned")

    monkeypatch.setattr(queue_view, "plan_waiting", refuse)
    monkeypatch.setattr(Cycle, "expect", refuse)
    reading = follow(make_scene(), team_a__moe_0="NoDomainFits")
    for sight in SIGHTS[:4]:
        snapshot = Snapshot(reading, HERE, 1, NOW).seen_with(sight)
        for part in PARTS:
            part(snapshot)
        assert ask(snapshot, name, parts) is not None


def test_entries_of_units_of_which_nothing_changed_stay_the_same_objects() -> None:
    cluster = make_scene()
    before = find_waiting(follow(cluster), HERE)
    cluster.pods(make_pod("team-a/late").gpu(1).created(NOW - 10))
    after = find_waiting(follow(cluster, team_b__waits="InsufficientNodes"), HERE)
    assert [entry.names[0] for entry in after if entry in before] == [
        GANG, "team-c/waits", "team-b/half",
    ]  # fmt: skip
    assert [one is other for one, other in zip(before, after, strict=False)][:3] == [
        True, False, True,
    ]  # fmt: skip


def test_the_queue_of_others_moves_up_as_a_unit_before_them_starts() -> None:
    cluster = make_scene()
    find_waiting(follow(cluster), HERE)
    cluster.pods(make_pod("team-b/waits").gpu(4).created(NOW - 60).running("n0"))
    assert [row[:2] for row in list_rows(follow(cluster))] == [
        (1, GANG), (2, "team-c/waits"), (0, "team-b/half"),
    ]  # fmt: skip


@pytest.mark.parametrize("sight", SIGHTS, ids=str)
def test_what_is_shared_between_askers_is_what_each_of_them_sees(sight: Sight) -> None:
    cluster, seen = make_scene(), SeenEntries()
    for code in ("NoDomainFits", "InsufficientNodes"):
        entries = find_waiting(follow(cluster, team_a__moe_0=code), HERE)
        for other in (*SIGHTS, sight):
            shown = WaitingQueue(entries, seen).see(other)
            assert tuple(shown) == hide_others(entries, other)
        for namespace, rows in shown.by_namespace.items():
            assert rows == [entry for entry in shown if namespace in entry.namespaces]
        assert shown.by_namespace.keys() <= (sight.namespaces or {"team-a", "team-b", "team-c"})


def test_a_strangers_reason_is_its_code_alone() -> None:
    entries = find_waiting(follow(make_scene(), team_a__moe_0="NoDomainFits"), HERE)
    seen = WaitingQueue(entries, SeenEntries()).see(Sight(frozenset({"team-b"})))
    assert (seen[0].reason.code, seen[0].reason.text(), seen[0].gpus) == ("NoDomainFits", "", 16)


@pytest.mark.parametrize("sight", SIGHTS, ids=str)
@pytest.mark.parametrize("name", QUEUE.sorts)
def test_an_order_that_is_shared_between_askers_is_that_of_each_of_them(
    name: str, sight: Sight
) -> None:
    entries = find_waiting(follow(make_scene()), HERE)
    queue = WaitingQueue(entries, SeenEntries())
    queue.see(Sight(frozenset({"team-c"})))
    for sign in ("", "-"):
        query = parse_query({"sort": f"{sign}{name}"}, QUEUE, "i")
        seen = queue.see(sight)
        for _ in range(2):
            assert list(select(seen, query, QUEUE)) == select(tuple(seen), query, QUEUE)


def test_steps_between_questions_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state before answers as it did, and the next one as if it was computed at once."""
    monkeypatch.setattr(reported_queue, "STEP_UNITS", 2)
    monkeypatch.setattr(queue_sight, "STEP_ENTRIES", 2)
    cluster, last = make_scene(), None
    query = parse_query({"sort": "-since"}, QUEUE, "i")
    for number, code in enumerate(("NotKnown", "NoDomainFits", "InsufficientNodes", "NotKnown")):
        if number == 2:
            cluster.pods(make_pod("team-b/waits").gpu(4).created(NOW - 60).running("n0"))
        cluster.pods(make_pod(f"team-c/late-{number}").gpu(1).created(NOW - 95 + number))
        snapshot = Snapshot(follow(cluster, team_a__moe_0=code), HERE, number, NOW)
        steps = 0
        for part in PARTS:
            made = part(snapshot)
            for _ in made if isinstance(made, Generator) else ():
                steps += 1
                for sight in SIGHTS if last is not None else ():
                    seen = last[0].seen_with(sight).waiting
                    assert (tuple(seen), tuple(select(seen, query, QUEUE))) == last[1][sight]
        assert steps > (8 if last else 2)
        at_once = finish(ReportedQueue().view(snapshot.reading))
        told = {}
        for sight in SIGHTS:
            seen = snapshot.seen_with(sight).waiting
            told[sight] = tuple(seen), tuple(select(seen, query, QUEUE))
            assert told[sight][0] == hide_others(at_once, sight)
            assert list(told[sight][1]) == select(told[sight][0], query, QUEUE)
        last = snapshot, told


def test_what_is_behind_a_page_is_compared_without_putting_it_together() -> None:
    cluster, query = make_scene(), parse_query({}, QUEUE, "i")

    def find_rest(sight: Sight, **reports: str) -> Any:
        snapshot = Snapshot(follow(cluster, **reports), HERE, 1, NOW).seen_with(sight)
        return select(snapshot.waiting, query, QUEUE)[1:]

    for sight in (Sight(), Sight(frozenset({"team-b"}), nodes=False)):
        before = find_rest(sight)
        assert before == find_rest(sight)
        assert before != find_rest(sight, team_b__waits="InsufficientNodes")


async def test_who_asks_waits_for_one_event_of_streams_at_most() -> None:
    snapshots, done = Snapshots(lambda: (follow(make_scene()), HERE)), []
    try:
        events = [
            asyncio.create_task(snapshots.follow(partial(done.append, at))) for at in range(5)
        ]
        await asyncio.sleep(0)
        await snapshots.answer(partial(done.append, "asked"))
        await asyncio.gather(*events)
    finally:
        snapshots.close()
    assert done.index("asked") <= 1


@pytest.mark.parametrize("namespace", ["team-a", "team-b"])
def test_reserved_nodes_are_named_to_those_who_may_list_nodes(namespace: str) -> None:
    reservation = StartReservation(kind="Timed", start=60, since=0, nodes={"n0": 2})
    told = QueueStanding("team-a", 1, 1, 0, 0, "Reserved", reservation=reservation)
    entries = find_waiting(replace(follow(make_scene()), standings={GANG: told}), HERE)
    for sees_nodes in (True, False):
        sight = Sight(frozenset({namespace}), nodes=sees_nodes)
        seen = WaitingQueue(entries, SeenEntries()).see(sight)
        assert ("n0" in str(encode(seen[0])["turn"]["reservation"])) is sees_nodes


def test_an_entry_at_another_place_is_the_same_otherwise() -> None:
    """Whatever fields an entry has: each of them differs here."""
    values = {each.name: object() for each in fields(queue_view.QueueEntry)}
    made: Any = queue_view.QueueEntry
    entry = made(**values)
    assert entry.move_to(7, 64) == replace(entry, position=7, gpus_ahead=64)
    assert entry.move_to(entry.position, entry.gpus_ahead) is entry
