"""A gang of all nodes starts next although small jobs keep coming; short ones start meanwhile.

Also if the operators end in the meantime: whoever leads next keeps its room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operators.test_quotas import Quotas

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

QUEUE = "operators.koordinator.sh/queue"
NODES = 8
HALF = NODES // 2


def test_a_large_gang_starts_next(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    cluster.add_nodes(NODES)
    quotas.create("team", 0, 8 * NODES)
    annotate = ("annotate", f"--namespace={cluster.namespace}", "elasticquota", quotas.name("team"))
    cluster.box.kubectl(*annotate, f'{QUEUE}={{"protectAfter": "0s"}}')
    label = quotas.label("team")
    for at in range(NODES):
        cluster.gang(f"old{at}", 1, labels=label, gpus=8)
    cluster.expect_bound(*(f"old{at}-0" for at in range(NODES)))
    cluster.gang("large", NODES, labels=label, gpus=8)
    cluster.expect(lambda: "reservation" in queue_of(cluster, "large"), "room is reserved")
    assert queue_of(cluster, "large")["position"] == 1

    for at in range(HALF):
        cluster.delete_pod(f"old{at}-0")
    for at in range(HALF):
        cluster.gang(f"new{at}", 1, labels=label, gpus=8)
    cluster.expect_group("new0", "WouldDelay")
    cluster.gang("short", 1, labels=label, gpus=8, activeDeadlineSeconds=60)
    cluster.expect_bound("short-0")

    cluster.operators.kill()
    cluster.delete_pod(f"old{HALF}-0")
    for at in range(HALF, NODES):
        cluster.gang(f"new{at}", 1, labels=label, gpus=8)
    cluster.operators.start()
    cluster.expect_group(f"new{HALF}", "WouldDelay")
    for name in ("short-0", *(f"old{at}-0" for at in range(HALF + 1, NODES))):
        cluster.delete_pod(name)
    cluster.expect_bound(*(f"large-{at}" for at in range(NODES)))
    assert {cluster.group_reason(f"new{at}") for at in range(NODES)}.isdisjoint({"Placed"})


def queue_of(cluster: Cluster, group: str) -> dict[str, object]:
    """Return what the status of a PodGroup tells of its turn."""
    return cluster.get_group(group).get("status", {}).get("queue") or {}
