"""Gangs that start with room for the pods that their framework makes later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import SCORING
from tests.owners.frameworks import LWS, Jobs, reference
from tests.owners.test_worked_examples import LLM, job, lws_group, mpi, mpi_pod

from koord.answers.explain import PlacementState, explain_pod
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.awaited.model import MOST_SECONDS, RoomRecord, read_record
from koord.core.awaited.plugin import AwaitedRooms
from koord.core.model.gangs import GangSource
from koord.core.model.pods import Handling, Pod
from koord.core.suspend.lines import MOST_IN_LINE
from koord.isolation import FAILURES
from koord.replay.values import ValueReader, ValueWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = "nvidia.com/gpu"
EXCLUSIVE = f"{LWS}exclusive-topology"


@pytest.fixture(autouse=True)
def _nothing_fails() -> Iterator[None]:
    before = FAILURES.counts.total()
    yield
    assert FAILURES.counts.total() == before


def template(gpus: int = 8, **more: Any) -> dict[str, Any]:
    resources = {"limits": {GPU: str(gpus)}}
    return {"spec": {"containers": [{"name": "c", "resources": resources}]}, **more}


def leader_ready(name: str = "llm", size: int = 4, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    """Return a LeaderWorkerSet whose workers come once their leader is ready."""
    workers = {"size": size, "workerTemplate": template(gpus)}
    metadata = {"name": name, "annotations": spec.pop("annotations", {})}
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": workers, **spec}
    return {**LLM, "metadata": metadata, "spec": spec}


def held(jobs: Jobs) -> list[str]:
    """Return the nodes on which room is held."""
    return sorted(
        pod.node
        for pod in jobs.state.pods.values()
        if pod.handling is Handling.STAND_IN and pod.node
    )


def submit(jobs: Jobs, lws: dict[str, Any], group: int = 0, **fields: Any) -> list[Pod]:
    """Have a group made as far as its leader; return its pods."""
    sets, pods = lws_group(lws, group)
    pods = [replace(pod, **fields) for pod in pods]
    jobs.own_objects(lws, *sets).pods(pods[0])
    return pods


def restarted(jobs: Jobs, nodes: int, *documents: dict[str, Any]) -> Jobs:
    """Return what a process sees that starts now: objects alone."""
    again = Jobs(nodes)
    again.now = jobs.now
    again.own_objects(*documents)
    pods = (jobs.state.observed(uid) for uid in list(jobs.state.pods))
    real = [pod for pod in pods if pod is not None and pod.handling is not Handling.STAND_IN]
    again.pods(*(jobs.raw(pod) for pod in real))
    again.state.advance(again.now)
    return again


def test_8_a_leader_starts_with_room_for_its_workers() -> None:
    lws = leader_ready()
    jobs = Jobs(nodes=3)
    pods = submit(jobs, lws)
    assert jobs.run() == []
    assert jobs.spec_of("llm-0").min_member == 4
    jobs.nodes(make_node("n3").gpu(8))
    assert jobs.run() == ["llm-0"]
    assert jobs.spec_of("llm-0").min_member == 1
    others = {"n0", "n1", "n2", "n3"} - {jobs.pod("llm-0").node}
    assert held(jobs) == sorted(others)
    jobs.pods(make_pod("thief").gpu(8).created(0))
    assert jobs.run() == []
    jobs.pods(*pods[1:3])
    assert jobs.run() == []
    jobs.pods(pods[3])
    assert jobs.run() == ["llm-0-1", "llm-0-2", "llm-0-3"]
    assert held(jobs) == []
    assert {jobs.pod(pod.name).node for pod in pods[1:]} == others


def test_leaders_that_would_take_the_room_of_each_others_workers() -> None:
    jobs = Jobs(nodes=5)
    groups = [submit(jobs, leader_ready(name)) for name in ("a", "b")]
    (leader,) = jobs.run()
    first, second = groups if leader == "a-0" else groups[::-1]
    jobs.pods(*first[1:])
    assert len(jobs.run()) == 3
    assert jobs.run() == []
    jobs.nodes(*(make_node(f"more-{at}").gpu(8) for at in range(3)))
    assert jobs.run() == [second[0].name]
    jobs.pods(*second[1:])
    assert len(jobs.run()) == 3


def test_workers_of_an_exclusive_topology_get_room_beside_their_leader() -> None:
    lws = leader_ready(annotations={EXCLUSIVE: "rack"}, startupPolicy="LeaderCreated")
    jobs = Jobs(nodes=0)
    jobs.nodes(*(make_node(f"a{at}").gpu(8).label("rack", "a") for at in range(3)))
    jobs.nodes(make_node("b0").gpu(8).label("rack", "b"))
    submit(jobs, lws)
    assert jobs.run() == []
    jobs.nodes(*(make_node(f"b{at}").gpu(8).label("rack", "b") for at in range(1, 4)))
    assert jobs.run() == ["llm-0"]
    assert {jobs.pod("llm-0").node[0], *(node[0] for node in held(jobs))} == {"b"}


def test_the_quota_must_have_room_for_the_whole_group() -> None:
    jobs = Jobs(nodes=8)
    quota = make_quota("team", min={GPU: 24}, max={GPU: 24})
    jobs.quotas(quota)
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    workers = {"size": 4, "workerTemplate": template(metadata={"labels": labels})}
    submit(jobs, leader_ready(leaderWorkerTemplate=workers), quota="team")
    assert jobs.run() == []
    jobs.quotas(replace(quota, min={GPU: 32}, max={GPU: 32}))
    assert jobs.run() == ["llm-0"]
    jobs.pods(make_pod("other").gpu(8).quota("team"))
    assert jobs.run() == [], "what is held is charged"


def test_room_is_given_back_when_its_time_is_over_and_a_condition_says_so() -> None:
    jobs = Jobs(nodes=4)
    pods = submit(jobs, leader_ready())
    jobs.run()
    rooms = jobs.state.plugin(AwaitedRooms)
    remark = rooms.remark_on(jobs.pod("llm-0"))
    assert remark is not None
    assert remark.text() == (
        "it has its node; room for 3 pods of role worker is held on 3 nodes until "
        "2027-01-15T08:10:00Z"
    )
    told = set[str]()
    rooms.on_told = told.update
    jobs.pods(make_pod("next").gpu(8))
    jobs.state.advance(jobs.now)
    assert rooms.next_due() == jobs.now + MOST_SECONDS
    jobs.now += MOST_SECONDS
    jobs.state.advance(jobs.now)
    assert held(jobs) == []
    assert told == {jobs.gang_of("llm-0")}
    assert rooms.remark_on(jobs.pod("llm-0")).code == "RoomGivenBack"
    assert jobs.run() == ["next"]
    jobs.pods(*pods[1:])
    assert jobs.run() == [], "they wait like others"
    jobs.delete_pods("next")
    assert len(jobs.run()) == 3
    assert rooms.remark_on(jobs.pod("llm-0")) is None


def test_the_wait_time_of_the_gang_says_how_long_and_600_s_at_most() -> None:
    for asked, seconds in (("30s", 30.0), ("2h", MOST_SECONDS)):
        jobs = Jobs(nodes=4)
        waiting = {"gang.scheduling.koordinator.sh/waiting-time": asked}
        submit(jobs, leader_ready(annotations=waiting))
        jobs.run()
        jobs.state.advance(jobs.now)
        assert jobs.state.plugin(AwaitedRooms).next_due() == jobs.now + seconds


def test_after_a_restart_the_same_room_is_held() -> None:
    lws = leader_ready()
    jobs = Jobs(nodes=6)
    pods = submit(jobs, lws)
    sets, _ = lws_group(lws, 0)
    jobs.run()
    before = held(jobs)
    again = restarted(jobs, 6, lws, *sets)
    assert held(again) == before
    again.pods(*pods[1:])
    assert len(again.run()) == 3
    assert sorted(again.pod(pod.name).node for pod in pods[1:]) == before
    assert held(restarted(again, 6, lws, *sets)) == []


def test_the_record_is_read_as_it_was_written_and_no_longer_than_allowed() -> None:
    record = RoomRecord("uid", 100.0, 60.0, ((0, "n1", 2), (0, "n2", 1)))
    (write,) = record.writes()
    assert write.is_record
    assert read_record("uid", write.value) == record
    assert read_record("uid", write.value.replace(":60", ":6000")).seconds == MOST_SECONDS
    for nonsense in ("{", "[]", "{}", '{"at":1,"nodes":[]}'):
        with pytest.raises(ValueError, match=r"room|Expecting"):
            read_record("uid", nonsense)


def test_a_snapshot_holds_what_is_held() -> None:
    jobs = Jobs(nodes=4)
    submit(jobs, leader_ready())
    jobs.run()
    for value in (*jobs.state.pods.values(), *jobs.owners.owners.values()):
        assert ValueReader().read(ValueWriter().write(value)) == value


def test_a_unit_of_higher_priority_takes_the_room_that_it_needs_and_no_more() -> None:
    jobs = Jobs(nodes=4)
    submit(jobs, leader_ready())
    jobs.run()
    jobs.pods(make_pod("urgent").gpu(8).priority(10))
    assert jobs.run() == ["urgent"]
    assert len(held(jobs)) == 2
    assert jobs.pod("urgent").node not in held(jobs)
    jobs.state.advance(jobs.now)
    assert len(held(jobs)) == 2


def test_room_of_a_leader_that_is_gone_is_free_and_the_next_waits_for_a_while() -> None:
    lws = leader_ready()
    jobs = Jobs(nodes=4)
    submit(jobs, lws)
    jobs.run()
    jobs.delete_pods("llm-0")
    jobs.state.advance(jobs.now)
    assert held(jobs) == []
    sets, pods = lws_group(lws, 0, "-again")
    jobs.own_objects(*sets).pods(pods[0])
    assert jobs.run() == []
    assert jobs.why("llm-0").code == "RoomBackoff"
    jobs.state.advance(jobs.now)
    due = jobs.state.plugin(AwaitedRooms).next_due()
    assert due is not None
    assert due > jobs.now
    jobs.now = due
    assert jobs.run() == ["llm-0"]


def test_a_tenant_with_many_large_groups_has_few_stand_ins() -> None:
    jobs = Jobs(nodes=2)
    for at in range(40):
        submit(jobs, leader_ready(f"l{at:02}", size=101))
    jobs.run()
    stand_ins = [p for p in jobs.state.pods.values() if p.handling is Handling.STAND_IN]
    assert len(stand_ins) == MOST_IN_LINE // 100 * 100
    assert jobs.why("l39-0").code == "BehindGroups"


def test_a_group_of_nonsensical_size_makes_no_stand_ins_and_starts_alone() -> None:
    jobs = Jobs(nodes=2)
    submit(jobs, leader_ready("huge", size=2_000_000_000))
    assert jobs.run() == ["huge-0"]
    assert not any(p.handling is Handling.STAND_IN for p in jobs.state.pods.values())


def test_an_owner_that_is_changed_all_the_time_makes_few_stand_ins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, made = Jobs(nodes=2), list[int]()
    submit(jobs, leader_ready(size=300))
    jobs.state.advance(jobs.now)
    replace_all = AwaitedRooms._replace

    def count(rooms: AwaitedRooms, room: Any, pods: dict[str, Pod]) -> None:
        made.append(len(pods))
        replace_all(rooms, room, pods)

    monkeypatch.setattr(AwaitedRooms, "_replace", count)
    for at in range(50):
        jobs.own_objects(leader_ready(size=301 + at))
        jobs.now += 0.1
        assert jobs.run() == []
    assert sum(made) <= 6 * MOST_IN_LINE
    jobs.now += 1.0
    jobs.state.advance(jobs.now)
    assert jobs.spec_of("llm-0").min_member == 350, "the last one counts"


@pytest.mark.parametrize(
    "lie",
    [
        "text",
        {"spec": []},
        {"spec": {"containers": [{"resources": {"limits": {GPU: "many"}}}]}},
        {"spec": {"nodeName": "n0"}},
    ],
)
def test_templates_that_make_no_sense_keep_nobody_else(lie: Any) -> None:
    jobs = Jobs(nodes=8)
    submit(jobs, leader_ready("liar", leaderWorkerTemplate={"size": 4, "workerTemplate": lie}))
    submit(jobs, leader_ready())
    assert "llm-0" in jobs.run()


def test_a_template_that_asks_for_everything_waits_and_keeps_nobody() -> None:
    jobs = Jobs(nodes=4)
    submit(jobs, leader_ready("greedy", gpus=1_000_000), priority=10)
    submit(jobs, leader_ready())
    assert jobs.run() == ["llm-0"]


def test_4_room_is_held_for_a_launcher_that_waits_for_its_workers() -> None:
    cfd = mpi({"launcherCreationPolicy": "WaitForWorkersReady"})
    cfd["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = template()
    jobs = Jobs(nodes=8).own_objects(cfd)
    jobs.pods(*(mpi_pod(f"cfd-worker-{at}", cfd, "worker", at) for at in range(8)))
    assert jobs.run() == []
    jobs.nodes(make_node("n8").gpu(8))
    assert len(jobs.run()) == 8
    jobs.pods(make_pod("thief").gpu(8).created(0))
    assert jobs.run() == []
    launcher = job("cfd-launcher", {"backoffLimit": 6}, ownerReferences=[reference(cfd)])
    jobs.own_objects(launcher).pods(mpi_pod("cfd-launcher-x", launcher, "launcher"))
    assert jobs.run() == ["cfd-launcher-x"]
    assert held(jobs) == []


def test_where_nodes_are_asked_for_leaders_start_alone() -> None:
    jobs = Jobs(nodes=1, autoscaler=AutoscalerOptions(signal=Signal.MARK))
    submit(jobs, leader_ready())
    assert jobs.run() == ["llm-0"]
    assert held(jobs) == []


def test_explaining_a_leader_says_for_whom_room_is_lacking_or_held() -> None:
    jobs = Jobs(nodes=2)
    submit(jobs, leader_ready())
    jobs.run()
    membership = jobs.pod("llm-0").gang
    assert membership is not None
    assert membership.source is GangSource.OWNER
    assert "starts with room for 3 pods of role worker, which come later" in membership.found_by
    waits = explain_pod(jobs.state, jobs.pod("llm-0"), SCORING)
    assert waits.reason is not None
    assert (waits.reason.want, waits.reason.fit) == (4, 2)
    jobs.nodes(*(make_node(f"more-{at}").gpu(8) for at in range(2)))
    jobs.run()
    runs = explain_pod(jobs.state, jobs.pod("llm-0"), SCORING)
    assert (runs.standing, runs.reason.code) == (PlacementState.BOUND, "PlacedWithRoom")


STEPS = st.lists(
    st.sampled_from(["leader", "workers", "thief", "wait", "restart", "lose", "run"]),
    min_size=3,
    max_size=12,
)


@given(STEPS)
def test_room_is_counted_once_and_the_same_after_a_restart(steps: list[str]) -> None:
    """Whatever comes in whichever order: no node has more than it offers."""
    lws, size = leader_ready(), 5
    sets, pods = lws_group(lws, 0)
    jobs = Jobs(size).own_objects(lws, *sets)
    for at, step in enumerate(steps):
        match step:
            case "leader":
                jobs.pods(pods[0])
            case "workers":
                jobs.pods(*pods[1:])
            case "thief":
                jobs.pods(make_pod(f"thief-{at}").gpu(8))
            case "wait":
                jobs.now += 250.0
            case "lose":
                worker = jobs.state.pods.get(pods[1].uid)
                if worker is not None:
                    jobs.state.remove_pod(worker.uid)
            case "restart":
                jobs.state.advance(jobs.now)
                before = held(jobs)
                jobs = restarted(jobs, size, lws, *sets)
                assert held(jobs) == before
            case _:
                jobs.run()
        for node in range(size):
            assert jobs.state.used_on(f"n{node}").get(GPU, 0) <= 8
