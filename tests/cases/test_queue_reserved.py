"""A gang of all nodes starts next although small jobs keep coming; short ones start meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operators.test_quotas import Quotas

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

QUEUE = "operators.koordinator.sh/queue"
NODES = 8


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
    cluster.expect_group("large", "InsufficientMax")

    for at in range(NODES // 2):
        cluster.delete_pod(f"old{at}-0")
    for at in range(NODES // 2):
        cluster.gang(f"new{at}", 1, labels=label, gpus=8)
    cluster.expect_group("new0", "WouldDelay")
    cluster.gang("short", 1, labels=label, gpus=8, activeDeadlineSeconds=60)
    cluster.expect_bound("short-0")
    for name in ("short-0", *(f"old{at}-0" for at in range(NODES // 2, NODES))):
        cluster.delete_pod(name)
    cluster.expect_bound(*(f"large-{at}" for at in range(NODES)))
    assert cluster.group_reason("new0") != "Placed"
