"""Gangs on a real API server: all or nothing, for every way to declare a gang."""

import json
import time

from tests.operators.conftest import (
    GATE,
    SERVICE_ACCOUNT,
    Cluster,
    skip_without_prompt_retries,
)

GANG = "gang.scheduling.koordinator.sh/"
PLAN = "operators.koordinator.sh/plan"


def test_gang_waits_for_its_last_member(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    cluster.pod_group("a", 4)
    for at in range(3):
        cluster.pod(f"a-{at}", group="a")
    cluster.expect_group("a", "MissingMembers")
    cluster.expect_pod("a-0", "MissingMembers")
    assert "3 of 4" in cluster.condition(cluster.get_group("a"), "QuorumReached")[2]
    assert not cluster.bound()
    cluster.pod("a-3", group="a")
    cluster.expect_bound("a-0", "a-1", "a-2", "a-3")
    assert len(set(cluster.bound().values())) == 4
    cluster.expect_group("a", "Planned")
    cluster.expect_group("a", "AllBound", "Bound")
    cluster.expect(lambda: cluster.get_group("a")["status"]["phase"] == "Running", "and runs")
    cluster.expect_pod("a-0", "Planned")
    plan = json.loads(cluster.get_pod("a-0")["metadata"]["annotations"][PLAN])
    assert plan["members"] == 4


def test_gang_that_does_not_fit_reports_the_shortage_and_binds_nothing(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 3)
    cluster.expect_group("a", "InsufficientNodes")
    status = cluster.get_group("a")["status"]
    assert (status["attempts"], status["lastAttemptTime"][-1]) == (1, "Z")
    message = cluster.condition(cluster.get_group("a"), "Placed")[2]
    assert "lack 8 free nvidia.com/gpu" in message
    assert "2 of 3" in message
    assert not cluster.bound()
    cluster.pod("small", gpus=8)
    cluster.expect_bound("small")
    cluster.add_nodes(2)
    cluster.expect_bound("a-0", "a-1", "a-2")
    cluster.expect(lambda: "attempts" not in cluster.get_group("a")["status"], "all is well")


def test_gang_declared_by_annotations_is_bound(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    annotations = {f"{GANG}name": "x", f"{GANG}min-available": "2"}
    cluster.pod("x-0", annotations=annotations)
    cluster.expect_pod("x-0", "MissingMembers")
    cluster.pod("x-1", annotations=annotations)
    cluster.expect_bound("x-0", "x-1")


def test_deprecated_labels_work_and_are_reported_on_the_pods(cluster: Cluster) -> None:
    legacy = "pod-group.scheduling.sigs.k8s.io/"
    labels = {f"{legacy}name": "x", f"{legacy}min-available": "2"}
    cluster.pod("x-0", labels=labels)
    cluster.expect_pod("x-0", "MissingMembers")
    message = cluster.condition(cluster.get_pod("x-0"), "operators.koordinator.sh/Placed")[2]
    assert f"{legacy}name is deprecated, use {GANG}name" in message


def test_group_of_gangs_starts_together(cluster: Cluster) -> None:
    cluster.add_nodes(3)
    groups = json.dumps([f"{cluster.namespace}/head", f"{cluster.namespace}/workers"])
    cluster.pod_group("head", 1, **{f"{GANG}groups": groups})
    cluster.pod_group("workers", 2, **{f"{GANG}groups": groups})
    cluster.pod("head-0", group="head")
    cluster.pod("workers-0", group="workers")
    cluster.expect_group("head", "MissingMembers")
    assert not cluster.bound()
    cluster.pod("workers-1", group="workers")
    cluster.expect_bound("head-0", "workers-0", "workers-1")
    annotations = cluster.get_pod("head-0")["metadata"]["annotations"]
    assert annotations["scheduling.koordinator.sh/bind-gang-member-count"] == "3"


def test_ungated_gang_costs_one_write_per_pod(cluster: Cluster) -> None:
    cluster.add_nodes(3)
    cluster.gang("a", 3, gated=False)
    cluster.expect_bound("a-0", "a-1", "a-2")
    writes = [one for one in cluster.writes() if one[1] == "pods"]
    assert sorted(writes) == [("create", "pods", "binding", f"a-{at}") for at in range(3)]


def test_gang_placed_at_once_costs_two_writes_per_pod_and_three_per_gang(cluster: Cluster) -> None:
    cluster.add_nodes(4)
    cluster.gang("a", 4)
    cluster.expect(lambda: cluster.running("a") == 4, "it runs")
    time.sleep(2)
    writes = cluster.writes()
    assert len([one for one in writes if one[1] == "pods"]) == 8
    assert len([one for one in writes if one[1] != "pods"]) <= 3, writes


def test_gated_gang_of_the_default_scheduler_is_pinned(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2, scheduler="default-scheduler")
    cluster.expect_bound("a-0", "a-1")
    pod = cluster.get_pod("a-0")
    terms = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == [pod["spec"]["nodeName"]]


def test_pod_that_needs_kube_scheduler_is_left_to_it_or_refused(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    disk = {"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2026-01.com.example:d", "lun": 0}
    volumes = [{"name": "disk", "iscsi": disk}]
    cluster.pod("ours", gpus=1, volumes=volumes)
    cluster.pod(
        "theirs",
        gpus=1,
        scheduler="default-scheduler",
        volumes=volumes,
    )
    cluster.expect_bound("theirs")
    bindings = {
        one.user
        for one in cluster.box.writes()
        if one.namespace == cluster.namespace and one.subresource == "binding"
    }
    assert SERVICE_ACCOUNT not in bindings
    cluster.expect_pod("ours", "NeedsKubeScheduler")


def test_foreign_gates_are_waited_for_and_never_touched(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("p", gates=("example.com/hold",))
    cluster.expect_pod("p", "WaitingForForeignGate")
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/p"
    cluster.box.client.patch(path, {"spec": {"schedulingGates": [{"name": GATE}]}})
    cluster.expect_bound("p")


def test_ungated_pod_without_room_is_unschedulable_as_autoscalers_expect(cluster: Cluster) -> None:
    cluster.add_nodes(1, gpus=1)
    cluster.pod("p", gpus=2, gated=False)

    def condition() -> tuple[str, str, str]:
        return cluster.condition(cluster.get_pod("p"), "PodScheduled")

    cluster.expect(lambda: condition()[:2] == ("False", "Unschedulable"), "it says so")
    assert "lacks 2 free nvidia.com/gpu" in condition()[2]
    cluster.add_nodes(1)
    cluster.expect_bound("p")


def test_surplus_members_join_when_there_is_room(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 3, minimum=2)
    cluster.expect(lambda: len(cluster.bound()) == 2, "the minimum is bound")
    (late,) = {"a-0", "a-1", "a-2"} - set(cluster.bound())
    cluster.expect_pod(late, "InsufficientNodes")
    cluster.expect_group("a", "PartiallyBound", "Bound")
    time.sleep(2)
    assert cluster.condition(cluster.get_group("a"), "Placed")[:2] == ("True", "Planned")
    cluster.add_nodes(1)
    cluster.expect_bound("a-0", "a-1", "a-2")


def test_pods_of_other_schedulers_count_as_used(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("theirs", gpus=4, gated=False, scheduler="default-scheduler")
    cluster.expect_bound("theirs")
    cluster.pod("ours", gpus=8)
    cluster.expect_pod("ours", "InsufficientNodes")
    cluster.delete_pod("theirs")
    cluster.expect_bound("ours")


def test_replacement_of_a_lost_member_is_placed_alone(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-0")
    cluster.expect_group("a", "BelowMin", "Degraded")
    cluster.pod("a-0", group="a")
    cluster.expect_bound("a-0", "a-1")
    cluster.expect_group("a", "AtStrength", "Degraded")


def test_member_that_kube_scheduler_cannot_bind_is_lost(cluster: Cluster) -> None:
    """Its ResourceClaim asks for a device, and no node offers one yet."""
    skip_without_prompt_retries()
    client, name, api = cluster.box.client, cluster.namespace, "/apis/resource.k8s.io/v1"
    (node,) = cluster.add_nodes(1, gpus=16)
    cluster.gang("a", 2, scheduler="default-scheduler")
    cluster.expect_bound("a-0", "a-1")
    cluster.delete_pod("a-1")
    asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": name}}]}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": asked}}
    client.create(f"{api}/namespaces/{name}/resourceclaims", claim)
    client.create(f"{api}/deviceclasses", {"metadata": {"name": name}, "spec": {}})
    claims = [{"name": "c", "resourceClaimName": "c"}]
    cluster.pod("a-1", group="a", scheduler="default-scheduler", resourceClaims=claims)
    said = "does not bind it"
    cluster.expect(lambda: said in cluster.group_message("a", "Degraded"), "it is lost")
    assert cluster.group_reason("a", "Degraded") == "BelowMin"
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "nodeName": node, "pool": pool, "devices": [{"name": "d0"}]}
    client.create(f"{api}/resourceslices", {"metadata": {"name": name}, "spec": spec})
    cluster.expect_bound("a-1")
    cluster.expect_group("a", "AtStrength", "Degraded")
    client.delete(f"{api}/resourceslices/{name}")
    client.delete(f"{api}/deviceclasses/{name}")
