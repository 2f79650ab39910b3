"""What GPUs were held, of pods as the API has them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import make_cluster
from tests.objects import upsert_quota
from tests.usage.instants import at, between

from koord.answers.encoding import encode
from koord.answers.gpus import MOST_GPUS, MilliGpus, count_gpus, measure_gpus, measure_request
from koord.answers.usage import find_segments, view_usage
from koord.answers.usage_rows import list_columns, list_rows
from koord.cli.usage_files import format_csv
from koord.core.device.allocation import AllocatedDevices
from koord.core.device.model import DeviceShare
from koord.core.engine.state import ClusterState
from koord.core.model.gangs import GangKey
from koord.core.model.pods import OwnerReference, Pod, PodPhase
from koord.core.usage.segments import EndBasis, Flag, Window
from koord.core.usage.tables import By

GPU_CORE, GPU_RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
HOUR = between("08:00", "09:00")


def make_state(*pods: Pod) -> ClusterState:
    state = make_cluster().state
    state.upsert_node(make_node("n0").gpu(8).label("nvidia.com/gpu.product", "H100").build())
    for pod in pods:
        state.upsert_pod(pod)
    return state


def run(name: str, start: str, gpus: int = 1, namespace: str = "team-a", **fields: object) -> Pod:
    pod = make_pod(name).gpu(gpus).running("n0").created(at(start) / 1_000).build()
    return replace(pod, namespace=namespace, started=at(start) / 1_000, **fields)


def held_hours(state: ClusterState, by: By, window: Window = HOUR) -> dict[str, str]:
    segments = find_segments(state, at("09:00") / 1_000)
    document = encode(view_usage(state, segments, by, window))
    return {row[str(by)]: row["hours"] for row in document["rows"]}


def test_pods_of_a_namespace_are_added_up() -> None:
    state = make_state(
        run("early", "07:00", 2), run("late", "08:30"), run("other", "08:45", 4, "team-b")
    )
    assert held_hours(state, By.NAMESPACE) == {"team-a": "2.500", "team-b": "1.000"}
    assert held_hours(state, By.MODEL) == {"H100": "3.500"}
    assert held_hours(state, By.NODE) == {"n0": "3.500"}


def test_a_pod_holds_from_its_binding_on() -> None:
    early = replace(run("w", "08:30"), created=at("08:00") / 1_000, bound=at("08:15") / 1_000)
    assert held_hours(make_state(early), By.NAMESPACE) == {"team-a": "0.750"}


def test_a_pod_that_waits_holds_nothing() -> None:
    state = make_state(make_pod("w-0").gpu(8).created(at("08:00") / 1_000).build())
    assert held_hours(state, By.NAMESPACE) == {}


def test_a_pod_that_has_ended_counts_until_then() -> None:
    ended = run("done", "08:00", phase=PodPhase.SUCCEEDED, finished=at("08:15") / 1_000)
    (segment,) = find_segments(make_state(ended), at("09:00") / 1_000)
    assert (segment.basis, segment.end) == (EndBasis.STATUS, at("08:15"))
    assert held_hours(make_state(ended), By.NAMESPACE) == {"team-a": "0.250"}


def test_a_pod_that_ended_while_nobody_said_when_counts_as_no_time() -> None:
    (segment,) = find_segments(make_state(run("x", "08:00", phase=PodPhase.FAILED)), at("09:00"))
    assert (segment.basis, segment.held) == (EndBasis.LAST_SEEN, 0)


def test_a_clock_that_is_behind_makes_no_negative_time() -> None:
    (segment,) = find_segments(make_state(run("new", "09:30")), at("09:00") / 1_000)
    assert (segment.held, segment.flags) == (0, ())


def test_the_job_of_a_pod_is_its_gang_or_its_controller() -> None:
    owner = OwnerReference("train-x", "Job", "batch/v1", "u", is_controller=True)
    gang = GangKey("default/pg")
    in_gang = make_pod("m-0").gpu(1).running("n0").annotation_gang(gang, 1).build()
    state = make_state(run("a", "08:00", owners=(owner,)), run("b", "08:00"))
    state.upsert_pod(replace(in_gang, created=at("08:30") / 1_000))
    assert held_hours(state, By.OWNER) == {
        "team-a/train-x": "1.000",
        "team-a/b": "1.000",
        "default/pg": "0.500",
    }


def test_the_user_is_what_a_label_of_the_pod_says() -> None:
    pod = make_pod("u-0").gpu(1).running("n0").labels(user="ada").created(at("08:00") / 1_000)
    (segment,) = find_segments(make_state(pod.build()), at("09:00") / 1_000, "user")
    assert segment.holder.user == "ada"


def test_a_quota_has_its_own_and_what_is_below_it() -> None:
    state = make_state(
        run("r", "08:00", 2, quota="research"),
        run("v", "08:00", 1, quota="vision"),
        run("d", "08:00", 1, quota="deleted"),
    )
    for quota in (
        make_quota("research", is_parent=True),
        make_quota("vision", parent="research"),
    ):
        upsert_quota(state, quota)
    state.refresh()
    usage = view_usage(state, find_segments(state, at("09:00") / 1_000), By.QUOTA, HOUR)
    rows = {row["quota"]: row for row in encode(usage)["rows"]}
    assert rows["vision"]["hours"] == rows["vision"]["hoursWithChildren"] == "1.000"
    assert rows["research"]["heldWithChildren"] == (
        rows["research"]["held"] + rows["vision"]["held"]
    )
    assert [quota.own.name for quota in usage.quotas][:2] == ["research", "vision"]
    assert usage.table.total.held == sum(quota.own.held for quota in usage.quotas)


def shares(*parts: dict[str, int]) -> AllocatedDevices:
    gpus = [DeviceShare("gpu", at, tuple(part.items())) for at, part in enumerate(parts)]
    return AllocatedDevices("uid", tuple(gpus), ())


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"nvidia.com/gpu": 2}, MilliGpus(2_000)),
        ({"koordinator.sh/gpu": 200}, MilliGpus(2_000)),
        ({GPU_CORE: 25, GPU_RATIO: 25}, MilliGpus(250)),
        ({GPU_CORE: 20, GPU_RATIO: 40}, MilliGpus(400)),
        ({"koordinator.sh/gpu-memory": 1 << 30}, MilliGpus(1_000, is_estimate=True)),
        (
            {"koordinator.sh/gpu-memory": 1 << 30, "koordinator.sh/gpu.shared": 2},
            MilliGpus(2_000, is_estimate=True),
        ),
        ({"cpu": 4_000}, MilliGpus(0)),
    ],
)
def test_a_share_of_a_gpu_counts_as_what_it_is(
    requests: dict[str, int], expected: MilliGpus
) -> None:
    assert measure_request(requests) == expected


def test_no_pod_counts_for_more_gpus_than_a_node_may_have() -> None:
    assert count_gpus({"nvidia.com/gpu": 8}) == 8
    assert count_gpus({"nvidia.com/gpu": 10**14, "amd.com/gpu": 10**14}) == MOST_GPUS
    assert count_gpus({"koordinator.sh/gpu": 10**14}) == MOST_GPUS


def test_what_a_pod_was_given_counts_and_not_what_it_asked_for() -> None:
    pod = make_pod("p").resource("koordinator.sh/gpu-memory", 1 << 30).running("n0").build()
    assert measure_gpus(pod).is_estimate
    given = replace(pod, allocations=(shares({GPU_CORE: 0, GPU_RATIO: 12}),))
    assert measure_gpus(given) == MilliGpus(120)
    two = replace(pod, allocations=(shares({GPU_CORE: 50, GPU_RATIO: 30}, {GPU_CORE: 10}),))
    assert measure_gpus(two) == MilliGpus(600)


def test_an_estimate_is_said() -> None:
    pod = make_pod("p").resource("koordinator.sh/gpu-memory", 1 << 30).running("n0")
    (segment,) = find_segments(make_state(pod.created(at("08:00") / 1_000).build()), at("09:00"))
    assert segment.flags == (Flag.ESTIMATED,)


@given(st.lists(st.text(max_size=8), max_size=4, unique=True))
def test_names_of_others_are_no_formulas_and_break_no_table(names: Sequence[str]) -> None:
    state = make_state(*(run(f"p{at}", "08:00", 1, name) for at, name in enumerate(names)))
    segments = find_segments(state, at("09:00") / 1_000)
    usage = view_usage(state, segments, By.NAMESPACE, HOUR)
    text = format_csv(list_rows(usage.table), list_columns(By.NAMESPACE))
    lines = list(csv.reader(io.StringIO(text)))
    assert len(lines) == len(usage.table.rows) + 1
    assert all(len(line) == 6 and line[2][:1] not in {"=", "+", "@", "-"} for line in lines)
