"""ScheduleExplanations: what they say, of whom they do not tell, and how much is written."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.isolation.of_answers import FakeApi
from tests.topology.test_gang_topology import ask, make_network, must

from koord.answers.schedule_explanation import (
    MOST_NODES,
    ScheduleQuestion,
    explain_schedule,
)
from koord.api.keys.gang import TOPOLOGY_KEY_TO_EXPLAIN
from koord.controllers.schedule_explanations import (
    EVERY_SECONDS,
    MOST_BYTES,
    MOST_OBJECTS,
    ExplanationAnswers,
    limit_size,
)
from koord.core.model.pods import OwnerReference
from koord.kube.errors import Forbidden
from koord.kube.schedule_explanations import ExplanationKey, ExplanationSpec, ScheduleExplanations

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

NOW = 1_000_000.0


def explain(cluster: FakeCluster, key: str, namespace: str = "default") -> dict[str, Any]:
    return explain_schedule(cluster.state, ScheduleQuestion(namespace, key), NOW)


def test_a_pod_that_fits_nowhere_says_why_each_node_refuses_it() -> None:
    cluster = make_cluster(2).nodes(make_node("cordoned").gpu(16).unschedulable())
    cluster.pods(make_pod("big").gpu(9))
    status = explain(cluster, "default/big")
    assert status["schedulable"] is False
    assert "nvidia.com/gpu" in status["failedMessage"]
    assert status["lastUpdateTime"] == "1970-01-12T13:46:40Z"
    (whole,) = status["detailedExplanation"]
    assert whole["topologyDomain"] == ""
    assert whole["scheduleExplanation"]["nodeFailedDetails"] == [
        {
            "failedPlugin": "NodeResourcesFit",
            "reason": "Insufficient nvidia.com/gpu",
            "failedNodes": ["n0", "n1"],
            "failedNodeCount": 2,
        },
        {
            "failedPlugin": "NodeUnschedulable",
            "reason": "node(s) were unschedulable",
            "failedNodes": ["cordoned"],
            "failedNodeCount": 1,
        },
    ]


def test_what_fits_or_runs_is_schedulable_and_says_where_it_runs() -> None:
    cluster = make_cluster(1).pods(make_pod("fits").gpu(1), make_pod("runs").gpu(1).running("n0"))
    assert explain(cluster, "default/fits")["schedulable"] is True
    status = explain(cluster, "default/runs")
    assert status["schedulable"] is True
    (whole,) = status["detailedExplanation"]
    (result,) = whole["scheduleExplanation"]["feasibleSchedulingResult"]
    assert (result["namespace"], result["name"], result["nodeName"]) == ("default", "runs", "n0")


def test_each_domain_of_the_layer_that_a_pod_names_is_told_of() -> None:
    cluster = make_network({"s0": {"a": [8], "b": [8]}, "s1": {"c": [8, 8, 8]}})
    ask(cluster, must("Spine"), minimum=4)
    layer = {TOPOLOGY_KEY_TO_EXPLAIN: "Spine"}
    for at in range(4):
        pod = make_pod(f"w-{at}").gang("default/job").requests(cpu=8000).labels(**layer)
        cluster.pods(pod)
    status = explain(cluster, "default/job")
    domains = {one["topologyDomain"]: one for one in status["detailedExplanation"][1:]}
    assert {name: one["failedMessage"] for name, one in domains.items()} == {
        "s0": "room for 2 of 4 pods on 2 nodes",
        "s1": "room for 3 of 4 pods on 3 nodes",
    }


def test_a_pod_stands_for_its_gang_and_a_job_for_its_pods() -> None:
    cluster = make_cluster(1)
    cluster.gang("team", 2)
    owner = OwnerReference("job-1", "Job", "batch/v1", "u", is_controller=True)
    cluster.pods(make_pod("of-job").gpu(9)._set(owners=(owner,)))
    gang = explain(cluster, "default/team")
    member = min(pod.key for pod in cluster.state.pods.values() if pod.gang is not None)
    assert explain(cluster, member) == gang
    assert explain(cluster, "default/team,default/other") == gang
    assert explain(cluster, "default/job-1") == explain(cluster, "default/of-job")


@pytest.mark.parametrize(
    "key", ["default/none", "none", "", "other/there", "other/there,default/x"]
)
def test_of_other_namespaces_nothing_is_told(key: str) -> None:
    cluster = make_cluster(1).pods(make_pod("other/there").gpu(9))
    status = explain(cluster, key)
    assert status["schedulable"] is False
    assert status["detailedExplanation"] == []
    assert explain(make_cluster(1), key) == status


def test_nodes_are_counted_beyond_those_that_are_named() -> None:
    cluster = make_cluster(MOST_NODES + 50).pods(make_pod("big").gpu(9))
    (whole,) = explain(cluster, "default/big")["detailedExplanation"]
    (detail,) = whole["scheduleExplanation"]["nodeFailedDetails"]
    assert len(detail["failedNodes"]) == MOST_NODES
    assert detail["failedNodeCount"] == MOST_NODES + 50


@given(st.integers(0, 300), st.integers(0, 2000))
def test_no_status_is_larger_than_the_limit(domains: int, length: int) -> None:
    told = [{"topologyDomain": "x" * length}] * domains
    status = limit_size({"schedulable": False, "detailedExplanation": told})
    assert len(json.dumps(status)) <= MOST_BYTES
    assert status["detailedExplanation"] in (told, told[:1])


def key_of(name: str, namespace: str = "default", created: float = 0.0) -> ExplanationKey:
    return ExplanationKey(namespace, name, f"{namespace}-{name}", created)


def answers_of(api: FakeApi, clock: list[float]) -> ExplanationAnswers:
    cluster = make_cluster(1).pods(make_pod("a").gpu(9))
    return ExplanationAnswers(api, cluster.state, lambda: True, lambda: clock[0])


def look(answers: ExplanationAnswers, times: int = 1) -> None:
    async def look_often() -> None:
        for _ in range(times):
            await answers.look()

    asyncio.run(look_often())


def test_each_object_is_answered_once_a_minute() -> None:
    clock, api = [100.0], FakeApi(("a", "b"))
    answers = answers_of(api, clock)
    look(answers, 5)
    assert sorted(api.written) == ["a", "b"]
    api.written.clear()
    clock[0] += EVERY_SECONDS - 1
    look(answers, 5)
    assert not api.written
    clock[0] += 1
    look(answers, 5)
    assert sorted(api.written) == ["a", "b"]


def test_many_objects_of_one_namespace_keep_no_other_waiting() -> None:
    api = FakeApi(())
    api.keys = [key_of(f"x-{at}", "greedy") for at in range(3 * MOST_OBJECTS)]
    api.keys.append(key_of("late", "modest", 50.0))
    answers = answers_of(api, [100.0])
    look(answers, 2 * MOST_OBJECTS)
    assert len(api.written) == MOST_OBJECTS
    assert "late" in api.written


def test_what_has_had_its_time_is_deleted() -> None:
    clock, api = [3700.0], FakeApi(("a",))
    look(answers_of(api, clock))
    assert (api.deleted, api.written) == (["a"], {})


def test_without_the_right_or_the_crd_it_goes_on_later() -> None:
    api = FakeApi(("a",))

    async def refuse() -> list[ExplanationKey]:
        raise Forbidden(403, "Forbidden", "no")

    api.list = refuse  # type: ignore[method-assign]
    look(answers_of(api, [100.0]), 3)
    assert not api.written


class FakeClient:
    """Returns one object."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = json.dumps(body).encode()

    async def get(self, _path: str, of: Any) -> Any:
        return msgspec.json.decode(self.body, type=of, strict=False)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"questionObjectKey": "a/b", "ttl": "90s"}, ExplanationSpec("a/b", 90)),
        ({"questionObjectKey": "a/b", "ttl": "0s"}, ExplanationSpec("a/b", 0)),
        ({"questionObjectKey": "a/b", "ttl": "-5m"}, ExplanationSpec("a/b", 86400)),
        ({"questionObjectKey": "a/b", "ttl": "soon"}, ExplanationSpec("a/b", 86400)),
        ({"questionObjectKey": {"x": 1}, "ttl": 5}, ExplanationSpec("", 86400)),
        ({}, ExplanationSpec("", 86400)),
    ],
)
def test_what_users_write_is_read_as_far_as_it_makes_sense(spec: Any, expected: Any) -> None:
    client: Any = FakeClient({"metadata": {"name": "a", "uid": "default-a"}, "spec": spec})
    assert asyncio.run(ScheduleExplanations(client).read(key_of("a"))) == expected
    assert asyncio.run(ScheduleExplanations(client).read(key_of("b"))) is None
