"""What users of other schedulers have reported of answers to "why is it pending", played here.

Each test names the public report that it follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import LEADING, NOW
from tests.cluster import make_cluster
from tests.objects import upsert_claim, upsert_volume

from koord.answers.edits import Drain
from koord.answers.encoding import encode
from koord.answers.fragmentation import view_fragmentation
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import Sight
from koord.answers.remedy_search import verify
from koord.answers.waiting import find_waiting
from koord.answers.what_if import ask_what_if
from koord.answers.why import make_answer
from koord.core.model.pods import PodPhase
from koord.core.plugins.volumes import Volume, VolumeClaim

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.engine.state import ClusterState

HERE = Target(TargetKind.POD, "default", "")


def explain(cluster: FakeCluster, name: str, kind: TargetKind = TargetKind.POD) -> Any:
    reading = Reading(cluster.state, leader=LEADING)
    answer = make_answer(reading, Target(kind, "default", name), NOW)
    answer, _ = verify(reading, answer, lambda: False)
    return encode(answer)


def helps(answer: Any) -> dict[str, Any]:
    return {
        item["kind"]: item["change"]
        for item in answer["remedies"]["items"]
        if item["verified"].startswith("Yes")
    }


def queue(state: ClusterState) -> list[Any]:
    return list(encode(find_waiting(Reading(state, leader=LEADING), HERE)))


def test_a_selector_that_no_node_matches_is_no_lack_of_room() -> None:
    """kubernetes-sigs/karpenter#1162: a misspelled label; "add nodes" was all that was told."""
    cluster = make_cluster(3)
    cluster.pods(make_pod("p").gpu(1).select("nodegroup", "gup"))
    answer = explain(cluster, "p")
    assert (answer["dominant"]["code"], answer["dominant"]["class"]) == (
        "NoSuitableNode",
        "Misconfigured",
    )
    message = answer["reason"]["message"]
    assert "all 3 nodes" in message.lower()
    assert "node affinity/selector" in message
    assert "more empty node" not in message
    assert helps(answer) == {"Relax": {"constraint": "nodeAffinity"}}


def test_the_one_node_that_matches_is_cordoned() -> None:
    """kubernetes/kubernetes#57574: two causes of different nodes were read as one."""
    cluster = make_cluster(3)
    cluster.nodes(make_node("special").gpu(8).label("disk", "fast").unschedulable())
    cluster.pods(make_pod("p").gpu(1).select("disk", "fast"))
    answer = explain(cluster, "p")
    assert (answer["dominant"]["code"], answer["dominant"]["class"]) == (
        "InsufficientNodes",
        "Room",
    )
    assert answer["nodes"] == [
        {"cause": "NodeAffinity", "nodes": 3, "examples": ["n0", "n1", "n2"]},
        {"cause": "NodeUnschedulable", "nodes": 1, "examples": ["special"]},
    ]
    found = helps(answer)
    assert found["Uncordon"] == {"nodes": ["special"]}
    assert found.get("AddNodes", {"like": "special"})["like"] == "special"


def test_numbers_of_nodes_are_not_taken_for_amounts() -> None:
    """kubernetes/kubernetes#53465: "Insufficient cpu (4)" was read as the request."""
    cluster = make_cluster()
    cluster.nodes(*(make_node(f"n{at}").cpu(500) for at in range(4)))
    cluster.pods(make_pod("p").requests(cpu=1000))
    message = explain(cluster, "p")["reason"]["message"]
    assert message.startswith("No room for default/p. All 4 nodes lack 1 free cpu.")


def test_a_pod_that_would_fit_alone_says_whose_room_is_lacking() -> None:
    """volcano-sh/volcano#4116: "can possibly be assigned to node1", and it never was."""
    cluster = make_cluster(1).gang("g", 2)
    for at in range(2):
        message = explain(cluster, f"g-{at}")["reason"]["message"]
        assert message.startswith("Room for 1 of 2 pods.")


def test_a_member_that_ended_well_is_not_missing() -> None:
    """volcano-sh/volcano#457: all had run, one was done, and the group was "unschedulable"."""
    cluster = make_cluster(3)
    cluster.pod_groups(make_pod_group("default/g", 3))
    cluster.pods(
        make_pod("g-0").gang("default/g").gpu(8).running("n0").phase(PodPhase.SUCCEEDED),
        *(make_pod(f"g-{at}").gang("default/g").gpu(8).running(f"n{at}") for at in (1, 2)),
    )
    answer = explain(cluster, "g", TargetKind.POD_GROUP)
    assert (answer["standing"], answer["reason"]) == ("NothingWaits", None)
    assert queue(cluster.state) == []


def test_a_group_of_another_namespace_is_named() -> None:
    """volcano-sh/volcano#604: pods waited for ever, without an event."""
    cluster = make_cluster(1)
    cluster.pod_groups(make_pod_group("elsewhere/nginx", 1))
    cluster.pods(make_pod("p").gang("default/nginx").gpu(1))
    answer = explain(cluster, "p")
    assert answer["dominant"]["class"] == "Misconfigured"
    assert "PodGroup" in answer["dominant"]["sentence"]


def test_more_than_a_quota_ever_admits_is_no_wait_for_quota() -> None:
    """opendatahub-io/odh-dashboard#9053: shown as pending, as if others had to end."""
    cluster = make_cluster(4)
    cluster.quotas(make_quota("team", min={GPU: 0}, max={GPU: 8}))
    cluster.pods(
        make_pod("runs").gpu(8).quota("team").running("n0"),
        make_pod("more").gpu(1).quota("team"),
        *(make_pod(f"big-{at}").gang("default/big").gpu(8).quota("team") for at in range(2)),
    )
    cluster.pod_groups(make_pod_group("default/big", 2))
    answer = explain(cluster, "big", TargetKind.POD_GROUP)
    assert (answer["dominant"]["code"], answer["dominant"]["class"]) == (
        "RequestAboveMax",
        "Misconfigured",
    )
    assert helps(answer)["RaiseMax"]["to"] == "24"
    (more,) = (row for row in queue(cluster.state) if row["names"] == ["default/more"])
    assert (more["reason"], more["class"]) == ("InsufficientMax", "Quota")


def test_what_is_above_the_max_of_a_parent_never_starts_either() -> None:
    cluster = make_cluster(4)
    cluster.quotas(
        make_quota("org", is_parent=True, min={GPU: 0}, max={GPU: 8}),
        make_quota("team", parent="org", min={GPU: 0}, max={GPU: 64}),
    )
    cluster.pods(
        *(make_pod(f"big-{at}").gang("default/big").gpu(8).quota("team") for at in range(2)),
    )
    cluster.pod_groups(make_pod_group("default/big", 2))
    answer = explain(cluster, "big", TargetKind.POD_GROUP)
    assert answer["dominant"]["class"] == "Misconfigured"
    assert "quota org may use at most 8" in answer["reason"]["message"]


def test_the_request_of_all_parts_is_told_as_that_of_the_gang() -> None:
    """kubernetes-sigs/kueue#4134: "request > maximum capacity (24 > 16)" of a part that has 8."""
    cluster = make_cluster(4)
    cluster.quotas(make_quota("team", min={GPU: 0}, max={GPU: 16}))
    cluster.pod_groups(make_pod_group("default/mpi", 3))
    cluster.pods(
        make_pod("mpi-master").gang("default/mpi").gpu(8).quota("team"),
        *(make_pod(f"mpi-{at}").gang("default/mpi").gpu(8).quota("team") for at in range(2)),
    )
    answer = explain(cluster, "mpi-master")
    assert "uses 0 and needs 24 more" in answer["reason"]["message"]
    assert answer["gang"]["members"]["total"] == 3


def test_free_cpus_that_are_not_together_are_told_and_moved_together() -> None:
    """rack2cloud.com: ten CPUs free, one on each node, and "the dashboard looks green"."""
    cluster = make_cluster()
    cluster.nodes(*(make_node(f"n{at}").cpu(4000) for at in range(2)))
    cluster.pods(
        *(
            make_pod(f"small-{at}").requests(cpu=2500).owners("rs").released(f"n{at}", "p")
            .running(f"n{at}")
            for at in range(2)
        ),
        make_pod("p").requests(cpu=2000),
    )  # fmt: skip
    answer = explain(cluster, "p")
    assert answer["dominant"]["class"] == "Room"
    assert answer["reason"]["message"].startswith(
        "No room for default/p. All 2 nodes lack 2 free cpu"
    )


def test_a_pod_that_is_leaving_anyway_is_not_created_twice_by_a_drain() -> None:
    """kubernetes/autoscaler#6718: a pod counted again beside the replacement that was there."""
    cluster = make_cluster(2)
    cluster.pods(
        make_pod("web-old").gpu(8).owners("web").running("n0").terminating(),
        make_pod("web-new").gpu(8).owners("web").running("n1"),
    )
    answer = ask_what_if(Reading(cluster.state, leader=LEADING), (Drain(("n0",)),))
    assert [str(ref) for ref in answer.order] == []


def test_a_pod_without_owner_is_gone_after_a_drain() -> None:
    """kubernetes/autoscaler#9110: nobody creates it again, so it waits for no room."""
    cluster = make_cluster(2)
    cluster.pods(
        make_pod("bare").gpu(8).running("n0"),
        make_pod("web").gpu(8).owners("web").running("n1"),
    )
    answer = ask_what_if(Reading(cluster.state, leader=LEADING), (Drain(("n0",)),))
    (change,) = encode(answer)["units"]
    assert (change["ref"]["name"], change["after"]["standing"]) == ("bare", None)


def test_the_only_node_is_tainted_without_a_value() -> None:
    """NVIDIA/k8s-device-plugin#421: "untolerated taint {gpu: }", and what then?"""
    cluster = make_cluster().nodes(make_node("n0").gpu(8).taint("gpu"))
    cluster.pods(make_pod("p").gpu(1))
    answer = explain(cluster, "p")
    assert helps(answer)["Tolerate"] == {"taint": {"key": "gpu", "value": ""}}


def test_free_gpus_of_closed_nodes_are_not_offered() -> None:
    """microsoft/DLWorkspace#415: GPUs of cordoned nodes were shown as free, those in use too."""
    cluster = make_cluster(1)
    cluster.nodes(make_node("closed").gpu(8).unschedulable(), make_node("kept").gpu(8).taint("x"))
    cluster.pods(make_pod("runs").gpu(3).running("closed"))
    (model,) = view_fragmentation(cluster.state)
    assert (model.total, model.used, model.free) == (24, 3, 8)
    assert model.total == model.used + model.held + model.free + model.broken + model.down + sum(
        model.stranded.values()
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_waits_is_counted_while_one_of_it_is_being_decided(count: int) -> None:
    """kubernetes-sigs/kueue#1937: pending workloads were counted as one less, for a long time."""
    cluster = make_cluster(0)
    cluster.nodes(make_node("n0").gpu(4))
    cluster.pods(*(make_pod(f"w-{at}").gpu(8) for at in range(count)))
    for _ in range(2):
        rows = queue(cluster.state)
        assert len(rows) == count
        assert [row["position"] for row in rows] == list(range(1, count + 1))


def test_the_claim_that_is_in_use_is_named() -> None:
    """kubernetes/kubernetes#129143: "ReadWriteOncePod", and no word about which claim, or whose."""
    cluster = make_cluster(1)
    upsert_claim(cluster.state, VolumeClaim("default/data", "v", is_bound=True, is_exclusive=True))
    upsert_volume(cluster.state, Volume("v"))
    cluster.pods(make_pod("app").claims("data").running("n0"), make_pod("app2").claims("data"))
    answer = explain(cluster, "app2")
    (offer,) = answer["offers"][0]["nodes"]
    assert offer["refusal"] == "VolumeRestrictions"
    assert offer["detail"] == "default/data by default/app"
    assert answer["dominant"]["class"] == "Room"


def test_who_sees_one_namespace_learns_no_class_of_reason_by_name() -> None:
    cluster = make_cluster(1)
    cluster.pods(make_pod("team-b/secret").gpu(1).select("label-of-b", "x"))
    sight = Sight(frozenset({"team-a"}), quotas=False, nodes=False)
    rows = encode(find_waiting(replace(Reading(cluster.state), sight=sight), HERE))
    assert [(row["class"], row["names"], row["message"]) for row in rows] == [
        ("Misconfigured", [None], "")
    ]
