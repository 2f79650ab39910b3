"""Reservations on a real API server: placed like pods, held for their owners, ended in time."""

from __future__ import annotations

import json
import re
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import Someone, create_account
from tests.operators.conftest import make_pod
from tests.operators.test_quotas import PREFIX, Quotas
from tests.support.namespaces import empty

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

PATH = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
GPU = "nvidia.com/gpu"


class Reservations:
    """The reservations of one test, of whole GPUs on the nodes of its namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._client, self._namespace = cluster.box.client, cluster.namespace
        self._cluster = cluster
        self._names: list[str] = []

    def name(self, short: str) -> str:
        return f"{self._namespace}-{short}"

    def make(self, short: str, gpus: int = 4, labels: Any = None, **spec: Any) -> dict[str, Any]:
        container = {"name": "c", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
        template = {
            "metadata": {"namespace": self._namespace, "labels": labels or {}},
            "spec": {"nodeSelector": {"test": self._namespace}, "containers": [container]},
        }
        given = {"owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}], **spec}
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": self.name(short)},
            "spec": {"template": template, "allocateOnce": False, **given},
        }

    def create(self, short: str, gpus: int = 4, labels: Any = None, **spec: Any) -> None:
        self.post(self.make(short, gpus, labels, **spec))

    def post(self, body: dict[str, Any]) -> None:
        self._client.create(PATH, body)
        self._names.append(body["metadata"]["name"])

    def get(self, short: str) -> dict[str, Any]:
        return self._client.get(f"{PATH}/{self.name(short)}")

    def status(self, short: str) -> dict[str, Any]:
        return self.get(short).get("status") or {}

    def delete(self, short: str) -> None:
        self._client.delete(f"{PATH}/{self.name(short)}")

    def patch(self, short: str, body: dict[str, Any]) -> None:
        self._client.patch(f"{PATH}/{self.name(short)}", body)

    def expect(self, short: str, phase: str = "Available") -> dict[str, Any]:
        self._cluster.expect(
            lambda: self.status(short).get("phase") == phase, f"{short} is {phase}"
        )
        return self.status(short)

    def expect_owners(self, short: str, *pods: str) -> None:
        def is_so() -> bool:
            owners = self.status(short).get("currentOwners") or []
            return sorted(one["name"] for one in owners) == sorted(pods)

        self._cluster.expect(is_so, f"{short} is used by {pods}")

    def close(self) -> None:
        for name in self._names:
            with suppress(SandboxApiError):
                self._client.delete(f"{PATH}/{name}")


@pytest.fixture
def reservations(cluster: Cluster) -> Iterator[Reservations]:
    with closing(Reservations(cluster)) as made:
        yield made


def allocated(cluster: Cluster, pod: str) -> str:
    """Return the name of the reservation that is recorded on a pod."""
    text = (cluster.get_pod(pod)["metadata"].get("annotations") or {}).get(ALLOCATED)
    return str(json.loads(text)["name"]) if text else ""


def test_room_is_held_used_and_given_back(cluster: Cluster, reservations: Reservations) -> None:
    (node,) = cluster.add_nodes(1)
    reservations.create("r", 6)
    status = reservations.expect("r")
    assert (status["nodeName"], status["allocatable"]) == (node, {GPU: "6"})
    kinds = {one["type"]: one["reason"] for one in status["conditions"]}
    assert (kinds["Scheduled"], kinds["Ready"]) == ("Scheduled", "Available")
    cluster.pod("other", gpus=4)
    cluster.expect_pod("other", "InsufficientNodes")
    cluster.pod("owner", gpus=4, labels={"app": "a"})
    cluster.expect_bound("owner")
    assert allocated(cluster, "owner") == reservations.name("r")
    reservations.expect_owners("r", "owner")
    assert reservations.status("r")["allocated"] == {GPU: "4"}
    assert not cluster.get_pod("other")["spec"].get("nodeName")
    cluster.delete_pod("owner")
    reservations.expect_owners("r")
    cluster.pod("next", gpus=6, labels={"app": "a"})
    cluster.expect_bound("next")
    reservations.delete("r")
    cluster.delete_pod("next")
    cluster.expect_bound("other")


def test_it_waits_for_room_and_says_why(cluster: Cluster, reservations: Reservations) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 16)
    wanted = ("False", "Unschedulable")
    cluster.expect(
        lambda: cluster.condition(reservations.get("r"), "Scheduled")[:2] == wanted, "it says so"
    )
    message = cluster.condition(reservations.get("r"), "Scheduled")[2]
    assert "lacks 16 free nvidia.com/gpu" in message
    cluster.add_nodes(1, gpus=16)
    reservations.expect("r")
    cluster.expect(
        lambda: cluster.condition(reservations.get("r"), "Scheduled")[0] == "True", "it has a node"
    )


def test_a_pod_waits_for_the_reservation_that_it_names(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    named = {AFFINITY: json.dumps({"name": reservations.name("r")})}
    cluster.pod("p", gpus=2, labels={"app": "a"}, annotations=named)
    cluster.expect_pod("p", "NoReservationFits")
    reservations.create("r", 2)
    cluster.expect_bound("p")
    assert allocated(cluster, "p") == reservations.name("r")


def test_it_expires_and_its_room_is_free(cluster: Cluster, reservations: Reservations) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 8, ttl="3s")
    reservations.expect("r")
    cluster.pod("other", gpus=8)
    cluster.expect_bound("other")
    status = reservations.expect("r", "Failed")
    (ready,) = [one for one in status["conditions"] if one["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "Expired")


def test_one_pod_uses_it_up(cluster: Cluster, reservations: Reservations) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 4, allocateOnce=True)
    reservations.expect("r")
    cluster.pod("a", gpus=2, labels={"app": "a"})
    cluster.expect_bound("a")
    reservations.expect("r", "Succeeded")
    reservations.expect_owners("r", "a")
    cluster.pod("b", gpus=6, labels={"app": "a"})
    cluster.expect_bound("b")
    assert allocated(cluster, "b") == ""
    named = {AFFINITY: json.dumps({"name": reservations.name("r")})}
    cluster.pod("late", gpus=1, labels={"app": "a"}, annotations=named)
    cluster.expect_pod("late", "NoReservationFits")
    message = cluster.condition(cluster.get_pod("late"), "operators.koordinator.sh/Placed")[2]
    assert f"Reservation {reservations.name('r')} is over: it was for one pod" in message


def test_reservations_of_one_gang_are_placed_together(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    cluster.pod_group("room", 2)
    group = {"pod-group.scheduling.sigs.k8s.io": "room"}
    reservations.create("r0", 8, group)
    reservations.create("r1", 8, group)
    cluster.expect(
        lambda: cluster.group_reason("room") == "InsufficientNodes", "the gang waits as a whole"
    )
    assert "nodeName" not in reservations.status("r0") | reservations.status("r1")
    cluster.add_nodes(1)
    nodes = {reservations.expect(one)["nodeName"] for one in ("r0", "r1")}
    assert len(nodes) == 2


def test_all_is_rebuilt_after_a_crash(cluster: Cluster, reservations: Reservations) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 6)
    reservations.expect("r")
    cluster.pod("owner", gpus=4, labels={"app": "a"})
    cluster.expect_bound("owner")
    cluster.operators.kill()
    cluster.operators.start()
    cluster.pod("late", gpus=4, labels={"app": "a"})
    cluster.pod("other", gpus=4)
    cluster.expect_bound("late")
    assert allocated(cluster, "late") == reservations.name("r")
    cluster.expect_pod("other", "InsufficientNodes")
    reservations.expect_owners("r", "owner", "late")
    assert reservations.status("r")["allocated"] == {GPU: "8"}


def test_it_pays_its_quota(cluster: Cluster, reservations: Reservations) -> None:
    cluster.add_nodes(1)
    quotas = Quotas(cluster)
    quotas.create("team", 4, 4)
    label = {f"{PREFIX}name": quotas.name("team")}
    reservations.create("r", 4, label)
    reservations.expect("r")
    cluster.pod("outside", gpus=1, labels=label)
    cluster.expect_pod("outside", "InsufficientMax")
    cluster.pod("owner", gpus=4, labels={"app": "a", **label})
    cluster.expect_bound("owner")
    reservations.create("more", 1, label)
    wanted = ("False", "Unschedulable")
    cluster.expect(
        lambda: cluster.condition(reservations.get("more"), "Scheduled")[:2] == wanted, "refused"
    )
    assert quotas.name("team") in cluster.condition(reservations.get("more"), "Scheduled")[2]


def test_a_record_of_somebody_else_changes_nothing(
    unprotected_cluster: Cluster,
) -> None:
    cluster = unprotected_cluster
    with closing(Reservations(cluster)) as reservations:
        cluster.add_nodes(1)
        reservations.create("r", 6)
        reservations.expect("r")
        uid = reservations.get("r")["metadata"]["uid"]
        forged = {ALLOCATED: json.dumps({"name": reservations.name("r"), "uid": uid})}
        cluster.pod("forged", gpus=2, annotations=forged)
        cluster.expect_bound("forged")
        cluster.pod("other", gpus=1)
        cluster.expect_pod("other", "InsufficientNodes")
        assert not reservations.status("r").get("currentOwners")


def test_owners_are_pods_of_its_own_namespace(cluster: Cluster, reservations: Reservations) -> None:
    """A label of the owners helps nobody in another namespace."""
    cluster.add_nodes(1)
    reservations.create("r", 8)
    reservations.expect("r")
    elsewhere = f"{cluster.namespace}-b"
    cluster.box.create_namespace(elsewhere)
    try:
        pod = make_pod(elsewhere, "thief", gpus=1, labels={"app": "a"})
        pod["spec"]["nodeSelector"] = {"test": cluster.namespace}
        path = f"/api/v1/namespaces/{elsewhere}/pods"
        cluster.box.client.create(path, pod)

        def reason() -> str:
            found = cluster.box.client.get(f"{path}/thief")
            return cluster.condition(found, "operators.koordinator.sh/Placed")[1]

        cluster.expect(lambda: reason() == "InsufficientNodes", "it gets nothing")
    finally:
        empty(cluster.box.client, elsewhere)


def test_a_tenant_reserves_only_for_its_own_namespace(
    cluster: Cluster, reservations: Reservations
) -> None:
    """Even one who may create reservations, which the role edit does not allow."""
    create_account(cluster.box, cluster.namespace, "tenant", ["edit"])
    with closing(Someone(cluster.box, cluster.namespace, "tenant")) as tenant:
        body = reservations.make("mine")
        assert tenant.send("POST", PATH, body).status == 403
        account = f"--serviceaccount={cluster.namespace}:tenant"
        name = f"{cluster.namespace}-reserve"
        kubectl = cluster.box.kubectl
        kubectl("create", "clusterrole", name, "--verb=create", "--resource=reservations")
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
        try:
            cluster.expect(lambda: tenant.send("POST", PATH, body).status == 201, "it may")
            body = reservations.make("yours")
            body["spec"]["template"]["metadata"]["namespace"] = "default"
            answer = tenant.send("POST", PATH, body)
            assert answer.status == 403
            assert "spec.template.metadata.namespace: default" in answer.message
        finally:
            kubectl("delete", "clusterrolebinding", name)
            kubectl("delete", "clusterrole", name)
            cluster.box.client.delete(f"{PATH}/{reservations.name('mine')}")


def test_without_its_node_it_fails_even_if_the_node_comes_back(
    cluster: Cluster, reservations: Reservations
) -> None:
    (node,) = cluster.add_nodes(1)
    reservations.create("r", 4)
    reservations.expect("r")
    cluster.box.client.delete(f"/api/v1/nodes/{node}")
    cluster.expect(
        lambda: (
            reservations.name("r") not in str(cluster.box.client.get(PATH)["items"])
            or reservations.status("r").get("phase") == "Failed"
        ),
        "it fails, and is deleted soon",
    )


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"owners": []}, "spec.owners"),
        ({"owners": [{}]}, "spec.owners[0]"),
        ({"ttl": "-5s"}, "spec.ttl"),
    ],
    ids=["no owners", "an owner that says nothing", "a negative ttl"],
)
def test_bad_input_is_refused(
    cluster: Cluster, reservations: Reservations, bad: dict[str, Any], field: str
) -> None:
    with pytest.raises(SandboxApiError, match=re.escape(field)):
        reservations.create("refused", **bad)


def test_an_empty_template_is_named(cluster: Cluster, reservations: Reservations) -> None:
    empty = reservations.make("empty")
    del empty["spec"]["template"]["spec"]["containers"]
    reservations.post(empty)
    cluster.expect(
        lambda: cluster.condition(reservations.get("empty"), "SpecValid")[1] == "InvalidSpec",
        "an empty template is named",
    )
    message = cluster.condition(reservations.get("empty"), "SpecValid")[2]
    assert message.startswith("spec.template.spec.containers must request")


def test_a_node_that_does_not_exist_is_named(cluster: Cluster, reservations: Reservations) -> None:
    cluster.add_nodes(1)
    gone = reservations.make("gone")
    gone["spec"]["template"]["spec"]["nodeName"] = "no-such-node"
    reservations.post(gone)
    why = "didn't match the nodeName specified by reservation"
    cluster.expect(
        lambda: why in cluster.condition(reservations.get("gone"), "Scheduled")[2],
        "the missing node is named",
    )


def test_a_broken_affinity_is_named(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    broken = {AFFINITY: '{"name": r}'}
    cluster.pod("broken", gpus=1, labels={"app": "a"}, annotations=broken)
    cluster.expect_pod("broken", "InvalidReservationAnnotation")
    message = cluster.condition(cluster.get_pod("broken"), "operators.koordinator.sh/Placed")[2]
    assert f"metadata.annotations[{AFFINITY}]" in message


def test_an_exact_match_of_what_does_not_exist_is_named(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 4)
    reservations.expect("r")
    exact = {EXACT: json.dumps({"resourceNames": [GPU, "example.com/none"]})}
    cluster.pod("p", gpus=4, labels={"app": "a"}, annotations=exact)
    cluster.expect_pod("p", "InvalidReservationAnnotation")
    message = cluster.condition(cluster.get_pod("p"), "operators.koordinator.sh/Placed")[2]
    assert f"metadata.annotations[{EXACT}].resourceNames[1]" in message
    assert "example.com/none" in message


def test_an_exact_match_of_another_amount_goes_elsewhere(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 4)
    reservations.expect("r")
    exact = {EXACT: json.dumps({"resourceNames": [GPU]})}
    cluster.pod("unequal", gpus=2, labels={"app": "a"}, annotations=exact)
    cluster.expect_bound("unequal")
    assert allocated(cluster, "unequal") == "", "two are not four"


def test_an_edit_of_the_template_changes_nothing_that_is_held(
    cluster: Cluster, reservations: Reservations
) -> None:
    cluster.add_nodes(1)
    reservations.create("r", 6)
    reservations.expect("r")
    container = {"name": "c", "resources": {"requests": {GPU: "1"}}}
    reservations.patch("r", {"spec": {"template": {"spec": {"containers": [container]}}}})
    cluster.pod("other", gpus=4)
    cluster.expect_pod("other", "InsufficientNodes")
    assert reservations.status("r")["allocatable"] == {GPU: "6"}

    def told() -> tuple[str, str, str]:
        return cluster.condition(reservations.get("r"), "TemplateApplied")

    cluster.expect(lambda: told()[1] == "TemplateChanged", "it says so")
    message = told()[2]
    assert f"spec.template: {GPU} is 6, not 1" in message
