"""Preemption on a real API server: stories of users, bad input, and restarts of the operators."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import GROUP_LABEL, SERVICE_ACCOUNT, Cluster, Operators

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HIGH, LOW, NEVER = "test-high", "test-low", "test-never"
NOMINATION = "operators.koordinator.sh/nomination"
MARK = "operators.koordinator.sh/Preempted"


class Scene:
    """A namespace with priority classes; pods of it take their time to die."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for name, value, policy in (
            (HIGH, 1_000_000, "PreemptLowerPriority"),
            (NEVER, 1_000_000, "Never"),
            (LOW, 1000, "PreemptLowerPriority"),
        ):
            cluster.priority_class(name, value, policy)

    def pod(self, name: str, priority: str, **options: Any) -> None:
        self.cluster.pod(name, priorityClassName=priority, **options)

    def gang(self, name: str, count: int, priority: str, **options: Any) -> None:
        self.cluster.gang(name, count, priorityClassName=priority, **options)

    def run(self, *names: str) -> None:
        """Wait until pods run."""

        def is_running() -> bool:
            pods = self.cluster.pods()
            return all(pods[name]["status"]["phase"] == "Running" for name in names)

        self.cluster.expect_bound(*names)
        self.cluster.expect(is_running, f"{names} run")

    def annotations(self, name: str) -> dict[str, str]:
        return self.cluster.get_pod(name)["metadata"].get("annotations") or {}

    def holds(self, name: str) -> None:
        """Keep a pod from going with a finalizer, until :meth:`let_go`."""
        self._patch(name, {"metadata": {"finalizers": ["example.com/slow"]}})

    def let_go(self, *names: str) -> None:
        for name in names:
            with suppress(SandboxApiError):
                self._patch(name, {"metadata": {"finalizers": None}})

    def _patch(self, name: str, body: Any) -> None:
        self.cluster.box.client.patch(f"{self.cluster.pods_path}/{name}", body)

    def is_leaving(self, *names: str) -> bool:
        pods = self.cluster.pods()
        return all(
            name not in pods or "deletionTimestamp" in pods[name]["metadata"] for name in names
        )

    def deleted(self) -> list[str]:
        """Return the pods that the operators have deleted, in order."""
        return [
            one.name
            for one in self.cluster.box.writes(SERVICE_ACCOUNT)
            if one.namespace == self.cluster.namespace
            and (one.verb, one.resource, one.subresource) == ("delete", "pods", "")
            and one.code < 300
        ]

    def nominated(self) -> dict[str, str]:
        pods = self.cluster.pods().items()
        found = {name: pod["status"].get("nominatedNodeName", "") for name, pod in pods}
        return {name: node for name, node in found.items() if node}

    def notes(self, reason: str, kind: str = "Pod") -> list[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.cluster.namespace}/events"
        events = self.cluster.box.client.get(path)["items"]
        return [
            one["note"]
            for one in events
            if one["reason"] == reason and one["regarding"]["kind"] == kind
        ]

    def expect(self, is_true: Callable[[], bool], what: str) -> None:
        self.cluster.expect(is_true, what)


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    made = Scene(cluster)
    yield made
    made.let_go(*cluster.pods())


def test_gang_takes_two_nodes_from_low_pods_and_starts_whole(scene: Scene) -> None:
    nodes = scene.cluster.add_nodes(2)
    scene.pod("low-1", LOW)
    scene.pod("low-2", LOW)
    scene.run("low-1", "low-2")
    scene.holds("low-1")
    scene.holds("low-2")
    scene.gang("hp-training-job", 2, HIGH)
    scene.expect(lambda: scene.is_leaving("low-1", "low-2"), "both victims are deleted")
    members = {"hp-training-job-0", "hp-training-job-1"}
    assert scene.nominated().keys() == members
    assert set(scene.nominated().values()) == set(nodes)
    victim = scene.cluster.get_pod("low-1")
    status, reason, message = scene.cluster.condition(victim, "DisruptionTarget")
    assert (status, reason) == ("True", "PreemptionByScheduler")
    told = f"{scene.cluster.namespace}/hp-training-job (priority 1000000) needs its place (plan "
    assert message.startswith(told)
    assert scene.cluster.condition(victim, MARK)[0] == "True"
    scene.cluster.expect_group("hp-training-job", "WaitingForPreemption")
    scene.cluster.expect_group("hp-training-job", "VictimsTerminating", "Preempting")
    scene.let_go("low-1")
    time.sleep(1)
    assert not members & set(scene.cluster.bound()), "not before both have gone"
    scene.let_go("low-2")
    scene.cluster.expect_bound(*members)
    assert sorted(scene.deleted()) == ["low-1", "low-2"]
    scene.expect(lambda: bool(scene.notes("Preempted")), "victims have an event")
    scene.expect(lambda: bool(scene.notes("Preempting", "PodGroup")), "the gang has an event")
    scene.cluster.expect_group("hp-training-job", "", "Preempting")


def test_room_of_victims_waits_for_the_preemptor(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    scene.pod("low-1", LOW)
    scene.pod("low-2", LOW)
    scene.run("low-1", "low-2")
    scene.holds("low-1")
    scene.holds("low-2")
    scene.gang("high", 2, HIGH)
    scene.expect(lambda: scene.is_leaving("low-1", "low-2"), "both victims are deleted")
    scene.let_go("low-1")
    scene.expect(lambda: "low-1" not in scene.cluster.pods(), "the first has gone")
    scene.pod("low-3", LOW)
    scene.cluster.expect_pod("low-3", "InsufficientNodes")
    scene.let_go("low-2")
    scene.cluster.expect_bound("high-0", "high-1")
    assert "low-3" not in scene.cluster.bound()


def test_gang_is_preempted_as_a_whole(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    scene.gang("low", 2, LOW)
    scene.run("low-0", "low-1")
    scene.pod("high", HIGH)
    scene.cluster.expect_bound("high")
    scene.expect(lambda: set(scene.cluster.pods()) == {"high"}, "no part of the gang is left")
    scene.cluster.expect_group("low", "Preempted", "Preempted")
    (episode,) = scene.cluster.get_group("low")["status"]["history"]
    assert (episode["what"], episode["by"]) == ("Preempted", f"{scene.cluster.namespace}/high")
    for name in ("low-0", "low-1"):
        scene.pod(name, LOW, labels={"pod-group.scheduling.sigs.k8s.io": "low"})
    scene.cluster.delete_pod("high")
    scene.cluster.expect_group("low", "RunsAgain", "Preempted")


def test_pod_of_policy_never_waits(scene: Scene) -> None:
    scene.cluster.add_nodes(1)
    scene.pod("low", LOW)
    scene.run("low")
    scene.pod("patient", NEVER)
    scene.cluster.expect_pod("patient", "InsufficientNodes")
    time.sleep(2)
    assert set(scene.cluster.bound()) == {"low"}
    assert not scene.deleted()


def test_nobody_is_evicted_for_a_gang_that_would_not_fit_anyway(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    scene.pod("low", LOW)
    scene.run("low")
    scene.gang("high", 3, HIGH)
    scene.cluster.expect_group("high", "InsufficientNodes")
    time.sleep(2)
    assert not scene.deleted()


def test_pods_with_budgets_are_spared_if_others_will_do(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    budgets = f"/apis/policy/v1/namespaces/{scene.cluster.namespace}/poddisruptionbudgets"
    for name in ("one", "two"):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"is": "protected"}}}
        scene.cluster.box.client.create(budgets, {"metadata": {"name": name}, "spec": spec})
    scene.pod("protected", LOW, labels={"is": "protected"})
    scene.pod("plain", LOW)
    scene.run("protected", "plain")
    scene.pod("high-1", HIGH)
    scene.cluster.expect_bound("high-1")
    assert scene.deleted() == ["plain"]
    scene.pod("high-2", HIGH)
    scene.cluster.expect_bound("high-2")
    assert scene.deleted() == ["plain", "protected"], "budgets bind nobody, as in kube-scheduler"


def test_preemptor_that_is_deleted_leaves_the_rest_as_it_is(scene: Scene) -> None:
    scene.cluster.add_nodes(1)
    scene.pod("low", LOW)
    scene.run("low")
    scene.holds("low")
    scene.pod("high", HIGH)
    scene.expect(lambda: scene.is_leaving("low"), "the victim is deleted")
    scene.cluster.delete_pod("high")
    scene.let_go("low")
    scene.pod("next", LOW)
    scene.cluster.expect_bound("next")


SOFT_TIME = "operators.koordinator.sh/soft-eviction-time"
SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"


def test_victim_may_save_its_work_and_end_by_itself(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    scene.pod("asks", LOW, annotations={SOFT_TIME: "4m"})
    scene.pod("plain", LOW)
    scene.run("asks", "plain")
    scene.gang("high", 2, HIGH)
    scene.expect(lambda: SOFT_EVICTION in scene.annotations("asks"), "it is asked to end")
    asked = json.loads(scene.annotations("asks")[SOFT_EVICTION])
    assert asked["initiator"] == "koord-scheduler"
    assert "preempted by" in asked["reason"]
    assert SOFT_EVICTION not in scene.annotations("plain")
    scene.expect(lambda: bool(scene.notes("SoftEviction")), "an event says so")
    assert "has 240 s to save its work" in scene.notes("SoftEviction")[0]
    scene.cluster.expect_group("high", "WaitingForPreemption")
    message = scene.cluster.group_message("high")
    assert f"2 of 2 pods may end by themselves until {asked['deadline']}" in message
    assert scene.deleted() == []
    scene.cluster.delete_pod("asks")  # as its controller does when it has saved its work
    scene.cluster.expect_bound("high-0", "high-1")
    assert scene.deleted() == ["plain"]


def test_victim_that_is_not_needed_any_more_is_not_asked_any_more(scene: Scene) -> None:
    scene.cluster.add_nodes(1)
    scene.pod("asks", LOW, annotations={SOFT_TIME: "4m"})
    scene.run("asks")
    scene.pod("high", HIGH)
    scene.expect(lambda: SOFT_EVICTION in scene.annotations("asks"), "it is asked to end")
    scene.cluster.add_nodes(1)
    scene.cluster.expect_bound("high")
    scene.expect(lambda: SOFT_EVICTION not in scene.annotations("asks"), "it may stay")
    assert scene.cluster.condition(scene.cluster.get_pod("asks"), MARK)[0] == "False"
    assert scene.deleted() == []


def test_time_is_up_for_a_victim_that_does_not_end(scene: Scene) -> None:
    scene.cluster.add_nodes(1)
    scene.pod("asks", LOW, annotations={SOFT_TIME: "3s"})
    scene.run("asks")
    scene.pod("high", HIGH)
    scene.cluster.expect_bound("high")
    assert scene.deleted() == ["asks"]


def test_node_that_goes_during_the_wait_is_replaced_by_another_plan(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    scene.pod("low-1", LOW)
    scene.pod("low-2", LOW)
    scene.run("low-1", "low-2")
    scene.holds("low-1")
    scene.holds("low-2")
    scene.pod("high", HIGH)
    scene.expect(lambda: len(scene.deleted()) == 1, "one victim is deleted")
    [node] = scene.nominated().values()
    scene.cluster.box.client.delete(f"/api/v1/nodes/{node}")
    scene.expect(lambda: len(scene.deleted()) == 2, "another one is deleted")
    scene.let_go("low-1", "low-2")
    scene.cluster.expect_bound("high")
    assert scene.cluster.bound()["high"] != node


def test_unknown_priority_class_is_refused_by_the_server(scene: Scene) -> None:
    scene.cluster.add_nodes(1)
    with pytest.raises(SandboxApiError, match="no PriorityClass with name"):
        scene.pod("lost", "no-such-class")


class TestRestarts:
    """What the operators write survives them."""

    @pytest.fixture
    def scene(
        self, request: pytest.FixtureRequest, quiet_cluster: Cluster, tmp_path: Path
    ) -> Iterator[Scene]:
        settings = f"preemption: {{stuckAfter: {getattr(request, 'param', '3s')}}}\n"
        running = Operators(quiet_cluster.box, tmp_path, settings=settings)
        cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
        running.start()
        made = Scene(cluster)
        yield made
        made.let_go(*cluster.pods())
        cluster.remove_nodes()
        assert running.is_running(), running.log.read_text()[-3000:]
        running.stop()

    @pytest.mark.parametrize("scene", ["60s"], indirect=True)
    def test_next_process_goes_on_with_a_preemption(self, scene: Scene) -> None:
        scene.cluster.add_nodes(2)
        scene.pod("low-1", LOW)
        scene.pod("low-2", LOW)
        scene.run("low-1", "low-2")
        scene.holds("low-1")
        scene.holds("low-2")
        scene.gang("high", 2, HIGH)
        scene.expect(lambda: scene.is_leaving("low-1", "low-2"), "both victims are deleted")
        scene.let_go("low-1")
        scene.cluster.operators.kill()
        scene.pod("low-3", LOW)
        scene.cluster.operators.start()
        scene.cluster.expect_pod("low-3", "InsufficientNodes")
        assert "low-3" not in scene.cluster.bound()
        scene.let_go("low-2")
        scene.cluster.expect_bound("high-0", "high-1")
        assert sorted(scene.deleted()) == ["low-1", "low-2"]

    def test_victim_with_a_finalizer_has_another_plan_made(self, scene: Scene) -> None:
        scene.cluster.add_nodes(2)
        scene.pod("low-1", LOW)
        scene.pod("low-2", LOW)
        scene.run("low-1", "low-2")
        scene.holds("low-1")
        scene.holds("low-2")
        scene.pod("high", HIGH)
        scene.expect(lambda: len(scene.deleted()) == 2, "another victim is tried")
        scene.cluster.expect_pod("high", "TerminationStuck")
        time.sleep(3)
        assert len(scene.deleted()) == 2
        scene.let_go("low-1")
        scene.cluster.expect_bound("high")


def test_labels_of_koordinator_are_honoured(scene: Scene) -> None:
    scene.cluster.add_nodes(2)
    allow = "operators.koordinator.sh/allow-disable-preemptible=true"
    scene.cluster.box.kubectl("label", "namespace", scene.cluster.namespace, allow)
    never = {"scheduling.koordinator.sh/disable-preemptible": "true"}
    scene.pod("kept", LOW, labels=never)
    scene.run("kept")
    scene.pod("low", LOW)
    scene.run("low")
    scene.gang("high", 2, HIGH)
    scene.cluster.expect_group("high", "InsufficientNodes")
    assert not scene.deleted()
    scene.pod("single", HIGH, labels={GROUP_LABEL: ""})
    scene.cluster.expect_bound("single")
    assert scene.deleted() == ["low"]
