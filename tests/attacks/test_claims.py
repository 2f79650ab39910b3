"""Claims of a tenant about its own pods spare none of them from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.manifests.someone import Someone, create_account
from tests.operators.conftest import ROOT, make_pod

from koord.core.model.object_size import MOST_ANNOTATIONS, count_annotations

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

HIGH = "attacks-high"
UID = "11111111-1111-1111-1111-111111111111"
QUOTA = "quota.scheduling.koordinator.sh"


def owner(kind: str, version: str = "example.com/v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": "mine", "uid": UID, "controller": True}


CLAIMS: list[dict[str, Any]] = [
    {"ownerReferences": [owner("DaemonSet")]},
    {"ownerReferences": [owner("Node")]},
    {"labels": {f"{QUOTA}/preemptible": "false"}},
    {"labels": {"scheduling.koordinator.sh/disable-preemptible": "true"}},
    {"annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"}},
]


def test_claims_spare_no_pod_from_a_higher_priority(cluster: Cluster) -> None:
    """One node each; the gang of another needs them all."""
    create_account(cluster.box, cluster.namespace, "tenant", ["edit"])
    tenant = Someone(cluster.box, cluster.namespace, "tenant")
    cluster.priority_class(HIGH, 1_000_000)
    cluster.add_nodes(len(CLAIMS) + 1)
    for at, claim in enumerate(CLAIMS):
        body = make_pod(cluster.namespace, f"low-{at}")
        body["metadata"] |= claim
        assert tenant.send("POST", tenant.pods, body).status == 201
    # A gang with a member that another scheduler has placed, so that it cannot end as a whole.
    cluster.gang("low-gang", 1)
    cluster.expect_bound(*(f"low-{at}" for at in range(len(CLAIMS))), "low-gang-0")
    guard = make_pod(cluster.namespace, "guard", gpus=0, group="low-gang", gated=False)
    guard["spec"] |= {"schedulerName": "mine", "nodeName": cluster.bound()["low-gang-0"]}
    assert tenant.send("POST", tenant.pods, guard).status == 201
    # Filled to the last byte, so that no annotation can be written on them any more.
    for at in range(2):
        present = tenant.get_pod(f"low-{at}")["metadata"].get("annotations", {})
        filler = {"x": "x" * (MOST_ANNOTATIONS - 1 - count_annotations(present))}
        body = {"metadata": {"annotations": filler}}
        path = f"{tenant.pods}/low-{at}"
        answer = tenant.send("PATCH", path, body, "application/merge-patch+json")
        assert answer.status == 200, answer.message
    full = make_pod(cluster.namespace, "full", gpus=0, gated=False)
    full["metadata"]["annotations"] = {"x": "x" * (MOST_ANNOTATIONS - 1)}
    assert tenant.send("POST", tenant.pods, full).status == 201
    cluster.expect_pod("full", "TooLarge")
    cluster.gang("high", len(CLAIMS) + 1, priorityClassName=HIGH)
    cluster.expect_bound(*(f"high-{at}" for at in range(len(CLAIMS) + 1)))
    cluster.box.kubectl("apply", "-k", str(ROOT / "manifests/overlays/placeholders"))
    placeholder = make_pod(cluster.namespace, "like-a-placeholder")
    placeholder["spec"]["priorityClassName"] = "koord-placeholder"
    answer = tenant.send("POST", tenant.pods, placeholder)
    assert (answer.status, "koord-placeholder-class" in answer.message) == (403, True)
    tenant.close()
