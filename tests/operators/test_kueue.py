"""Kueue beside us: its part is played here, with the writes that it makes to pods and Jobs."""

from typing import Any

import pytest
import yaml
from tests.docs.markdown import parse_page
from tests.operators.conftest import ROOT, Cluster

ADMISSION, TOPOLOGY = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"
PREFERRED = {"kueue.x-k8s.io/podset-preferred-topology": "kubernetes.io/hostname"}


def ungate(cluster: Cluster, pod: str, gate: str, **selector: str) -> None:
    """Take a gate off and add to the node selector in one write, as Kueue does."""
    spec = cluster.get_pod(pod)["spec"]
    gates = [one for one in spec["schedulingGates"] if one["name"] != gate]
    body: dict[str, Any] = {"schedulingGates": gates, "nodeSelector": selector}
    cluster.box.client.patch(f"{cluster.pods_path}/{pod}", {"spec": body})


@pytest.mark.sandbox
def test_pods_start_where_kueue_put_them_once_it_has_let_go(cluster: Cluster) -> None:
    first, second = cluster.add_nodes(2)
    cluster.pod_group("train", 2)
    for name in ("train-0", "train-1"):
        cluster.pod(name, group="train", gates=(ADMISSION, TOPOLOGY), annotations=PREFERRED)
    cluster.expect_pod("train-0", "WaitingForForeignGate")
    assert "it is the turn of Kueue, which has not admitted the job" in placed_text(cluster)
    for name in ("train-0", "train-1"):
        ungate(cluster, name, ADMISSION)
    ungate(cluster, "train-0", TOPOLOGY, **{"kubernetes.io/hostname": first})
    assert not cluster.bound()
    # Both on one node, which has room for one of them.
    ungate(cluster, "train-1", TOPOLOGY, **{"kubernetes.io/hostname": first})
    cluster.expect_pod("train-0", "KueueAssignmentBlocked")
    assert f"to node {first}, which has room for 1" in placed_text(cluster)
    assert not cluster.bound(), f"{second} is free, and is not what Kueue chose"
    cluster.delete_pod("train-1")
    cluster.pod("train-1", group="train", gates=(TOPOLOGY,), annotations=PREFERRED)
    ungate(cluster, "train-1", TOPOLOGY, **{"kubernetes.io/hostname": second})
    cluster.expect_bound("train-0", "train-1")
    assert cluster.bound() == {"train-0": first, "train-1": second}


def placed_text(cluster: Cluster) -> str:
    return cluster.condition(cluster.get_pod("train-0"), "operators.koordinator.sh/Placed")[2]


@pytest.mark.sandbox
def test_example_of_the_page_starts_once_kueue_resumes_it(cluster: Cluster) -> None:
    (example,) = (b for b in parse_page(ROOT / "docs/kueue.md", "page") if b.language == "yaml")
    group, job = yaml.safe_load_all(example.text)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"test": cluster.namespace}
    jobs = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
    cluster.add_nodes(2)
    cluster.box.client.create(cluster.groups_path, group)
    cluster.box.client.create(jobs, job)
    cluster.expect_group("train", "MissingMembers", "QuorumReached")
    assert not cluster.pods()
    cluster.box.client.patch(f"{jobs}/train", {"spec": {"suspend": False}})
    cluster.expect(lambda: len(cluster.bound()) == 2, "all of the Job are bound")
