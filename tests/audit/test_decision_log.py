"""What placement and evictions decide is recorded, with names and amounts only."""

from __future__ import annotations

import json
import time

import pytest
from tests.builders import make_node, make_pod, make_pod_group
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group

from koord.answers.audit import write_record
from koord.answers.happenings import tell_record
from koord.controllers.decision_log import DecisionLog
from koord.core.audit import ring
from koord.core.audit.ring import Ring
from koord.core.device.reasons import InvalidDeviceAnnotation
from koord.core.eviction.model import EvictionPlan, Outcome
from koord.core.gang.reasons import InvalidAnnotation
from koord.core.model.changes import Changes
from koord.core.model.gang_history import Happened
from koord.core.model.gangs import BadValue
from koord.core.model.plan import Demand, Placement, Unit, Unplaced
from koord.core.model.reasons import PinnedNodeUnfit, RefusedByScheduler, TooLarge
from koord.core.queue.reasons import QueueStopped
from koord.kube.outcomes import Refused
from koord.runtime.audit import encode_record


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    operator = scene.operator
    audit = DecisionLog(
        Ring(1000, 1 << 24),
        scene.state,
        operator.queue,
        time.time,
        time.monotonic,
        operator.places.last_position,
    )
    audit.begin_term(7, "leader-a")
    operator.audit = audit
    scene.evictions.on_step = audit.eviction
    return scene


def documents(scene, *kinds):
    audit = scene.operator.audit
    found = [json.loads(encode_record(record)) for record in audit.ring.read(0, 1000)]
    return [each for each in found if not kinds or each["kind"] in kinds]


def kinds_of(scene):
    return [each["kind"] for each in documents(scene)]


def gang(name="train", pods=2, gpus=8):
    return [
        make_pod(f"{name}-{at}").gang(f"default/{name}").gpu(gpus).created(time.time()).build()
        for at in range(pods)
    ]


async def test_a_gang_that_starts_leaves_its_story(scene: Scene) -> None:
    scene.state.upsert_node(make_node("n1").gpu(8).build())
    scene.state.upsert_node(make_node("n2").gpu(8).build())
    upsert_pod_group(scene.state, make_pod_group("default/train", 2).build())
    async with scene.running():
        scene.add(*gang())
        assert await scene.eventually(lambda: "Committed" in kinds_of(scene))
    records = documents(scene)
    assert [each["seq"] for each in records] == list(range(1, len(records) + 1))
    assert {each["term"] for each in records} == {7}
    assert kinds_of(scene)[:5] == ["Term", "Seen", "Complete", "Placed", "Committed"]
    assert len({each["trace"] for each in records[1:]}) == 1
    (placed,) = documents(scene, "Placed")
    assert placed["unit"]["key"] == "default/train"
    assert (placed["unit"]["pods"], placed["unit"]["required"]) == (2, 2)
    assert {node["node"]: node["names"] for node in placed["nodes"]}.keys() == {"n1", "n2"}
    assert placed["created"] <= placed["due"] <= placed["at"]
    (committed,) = documents(scene, "Committed")
    assert (committed["binds"], committed["notBound"], committed["failures"]) == (2, 0, [])
    assert committed["planId"] == placed["planId"]


async def test_a_refusal_is_recorded_once_however_often_it_is_repeated(scene: Scene) -> None:
    scene.state.upsert_node(make_node("n1").gpu(8).build())
    async with scene.running():
        scene.add(make_pod("large").gpu(16).build())
        assert await scene.eventually(lambda: "Attempt" in kinds_of(scene))
        for at in range(3):
            scene.operator.queue.wake_all()
            scene.operator.wake()
            count = at + 1
            assert await scene.eventually(
                lambda count=count: documents(scene, "Attempt")[0]["repeats"] == count
            )
    (attempt,) = documents(scene, "Attempt")
    assert (attempt["class"], attempt["code"]) == ("Misconfigured", "NoSuitableNode")
    assert attempt["attempt"] == 1
    assert attempt["text"].startswith("No room for default/large")
    assert attempt["unit"]["names"] == ["default/large"]


async def test_a_write_that_is_refused_is_kept_with_its_answer(scene: Scene) -> None:
    scene.state.upsert_node(make_node("n1").gpu(8).build())
    scene.writer.answers["p"] = Refused(403, "not allowed: " + "x" * 5000)
    async with scene.running():
        scene.add(make_pod("p").gpu(1).build())
        assert await scene.eventually(lambda: "Committed" in kinds_of(scene))
    first = documents(scene, "Committed")[0]
    (failure,) = first["failures"]
    assert (failure["pod"], failure["status"]) == ("default/p", 403)
    assert len(failure["message"]) <= 256


async def test_what_ran_before_the_term_is_taken_over_in_silence(scene: Scene) -> None:
    scene.state.upsert_node(make_node("n1").gpu(8).build())
    upsert_pod_group(scene.state, make_pod_group("default/old", 1).build())
    scene.state.upsert_pod(make_pod("old-0").gang("default/old").gpu(1).running("n1").build())
    async with scene.running():
        await scene.settle()
        assert kinds_of(scene) == ["Term"]
        scene.remove("old-0")
        assert await scene.eventually(lambda: kinds_of(scene) != ["Term"])


def test_evictions_name_the_pods_and_for_whom(scene: Scene) -> None:
    audit = scene.operator.audit
    pods = tuple(gang("low"))
    plan = EvictionPlan("preemption", "uid-high", pods, beneficiary="uid-default-high")
    scene.state.upsert_pod(make_pod("high").gpu(8).build())
    audit.eviction(plan, pods, None)
    audit.eviction(plan, None, Outcome.BOUND)
    (evicted,) = documents(scene, "Evicted")
    assert evicted["unit"]["key"] == "default/low"
    assert (evicted["policy"], evicted["by"], evicted["count"]) == ("preemption", "default/high", 2)
    assert [pod["name"] for pod in evicted["pods"]] == ["low-0", "low-1"]


def test_episodes_that_no_eviction_tells_of_are_recorded(scene: Scene) -> None:
    group = make_pod_group("default/train", 2).build()
    audit = scene.operator.audit
    audit.episode(group, Happened.DEGRADED, "1 of 2 members is left")
    audit.episode(group, Happened.PREEMPTED, "told by the eviction")
    assert kinds_of(scene) == ["Term", "Degraded"]


@pytest.mark.isolates
def test_a_failure_here_costs_a_record_and_nothing_else(scene: Scene) -> None:
    audit = scene.operator.audit
    unit = Unit("uid-p", (Demand("", (make_pod("p").build(),), 1),))
    audit.committed(unit, None, None, 0.0)
    assert kinds_of(scene) == ["Term"]


def test_nothing_is_recorded_by_default() -> None:
    assert Scene().operator.audit is None


def test_a_record_is_cut_to_eight_kilobytes(scene: Scene) -> None:
    scene.state.upsert_node(make_node("n" * 200).gpu(8).build())
    audit = scene.operator.audit
    pods = [
        make_pod("p" * 240 + f"{at}").gang("default/" + "g" * 200).gpu(1).build()
        for at in range(200)
    ]
    plan = EvictionPlan("preemption", "key", tuple(pods))
    audit.eviction(plan, pods, None)
    for record in audit.ring.read(0, 10):
        assert len(encode_record(record)) <= 8192
        assert write_record(record)["kind"]


QUOTED = "s3cr3t-value"


def test_what_users_wrote_into_annotations_is_not_in_records(scene: Scene) -> None:
    reasons = [
        InvalidAnnotation((BadValue("key/a", QUOTED, "is no number", "1"),)),
        InvalidDeviceAnnotation("default/p", (("hint", QUOTED),)),
        RefusedByScheduler("default/p", "n1", QUOTED),
    ]
    audit = scene.operator.audit
    unit = Unit("uid-p", (Demand("", (make_pod("p").build(),), 1),))
    for reason in reasons:
        audit.refused(unit, Unplaced("uid-p", unit.pods, reason))
    attempts = documents(scene, "Attempt")
    assert [each["code"] for each in attempts] == [reason.code for reason in reasons]
    assert QUOTED not in json.dumps(attempts)
    assert [each["attempt"] for each in attempts] == [1, 2, 3]


def test_a_group_of_many_gangs_with_long_names_fits_into_a_record(scene: Scene) -> None:
    audit = scene.operator.audit
    gangs = [f"default/{'g' * 240}{at:03}" for at in range(100)]
    demands = [Demand(gang, (make_pod(f"p{gang[-3:]}").gang(gang).build(),), 1) for gang in gangs]
    unit = Unit(",".join(gangs), tuple(demands), group=",".join(gangs))
    audit.refused(unit, Unplaced(unit.key, unit.pods, TooLarge("gang", gangs[0], "pods", 9, 5)))
    (attempt,) = documents(scene, "Attempt")
    assert attempt["truncated"]
    assert len(attempt["unit"]["names"]) == 3


def test_a_pod_group_without_pods_is_nothing_that_happened(scene: Scene) -> None:
    for at in range(20):
        upsert_pod_group(scene.state, make_pod_group(f"default/g{at}", 1).build())
    changes = Changes(gangs={f"default/g{at}" for at in range(20)})
    scene.operator.audit.note(changes)
    assert kinds_of(scene) == ["Term"]


@pytest.mark.parametrize("is_placed", [True, False])
def test_who_is_held_no_longer_is_recorded(scene: Scene, is_placed) -> None:
    audit = scene.operator.audit
    pod = make_pod("p").gpu(1).build()
    unit = Unit("u", (Demand("", (pod,), 1),))
    for reason in (QueueStopped("team", "Hold"), QueueStopped("team", "Hold")):
        audit.refused(unit, Unplaced("u", (pod,), reason))
    if is_placed:
        audit.placed(unit, Placement("u", "id", "", ()))
    else:
        audit.refused(unit, Unplaced("u", (pod,), PinnedNodeUnfit("default/p", "n1")))
    last = "Placed" if is_placed else "Attempt"
    assert kinds_of(scene) == ["Term", "Seen", "Held", "Attempt", "Released", last]
    (held,) = documents(scene, "Held")
    assert held["code"] == "QueueStopped"
    assert held["text"] == documents(scene, "Attempt")[0]["text"]
    assert tell_record(documents(scene, "Released")[0]).text == "nobody holds it any more"


def test_records_that_nobody_reads_keep_few_pods_alive(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and amounts are put together by who reads, or for the oldest of many."""
    monkeypatch.setattr(ring, "MOST_SKETCHED", 3)
    audit = scene.operator.audit
    assert audit is not None
    for at in range(5):
        pod = make_pod(f"p-{at}").gpu(1).build()
        unit = Unit(pod.uid, (Demand("", (pod,), 1),))
        audit.refused(unit, Unplaced(unit.key, unit.pods, QueueStopped("q", "Hold")))
    kept = [record for record in audit.ring._records.values() if record.sketch is not None]
    assert len(kept) == 3
    told = documents(scene, "Attempt")
    assert [each["unit"]["key"] for each in told] == [f"default/p-{at}" for at in range(5)]
    assert [each["unit"]["asks"] for each in told] == [{"nvidia.com/gpu": "1", "pods": "1"}] * 5
    assert not [record for record in audit.ring._records.values() if record.sketch is not None]
