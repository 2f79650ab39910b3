"""Two kinds of GPU for one team, and priorities that a quota does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operators.test_profiles import Profiles
from tests.operators.test_quotas import GPU, Quotas

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster


def test_a_pod_says_by_its_node_selector_which_of_two_pools_it_means(cluster: Cluster) -> None:
    profiles, quotas = Profiles(cluster), Quotas(cluster)
    for node, pool in zip(cluster.add_nodes(2), "ab", strict=True):
        profiles.put(node, pool)
        profiles.create(pool, quotas.name(f"root-{pool}"), pool)
        profiles.wait(pool, "Ready", "True", "Made")
        parent = {"parent": quotas.name(f"root-{pool}")}
        quotas.create(f"team-{pool}", 0, 8, parent, namespaces=[cluster.namespace])
    for pool in "ab":
        here = {"test": cluster.namespace, "pool": profiles.pools(pool)[0]}
        cluster.pod(f"in-{pool}", nodeSelector=here)
    cluster.pod("anywhere")
    cluster.expect_bound("in-a", "in-b")
    cluster.expect_pod("anywhere", "QuotaAmbiguous")
    for pool in "ab":
        cluster.expect(
            lambda pool=pool: quotas.get(f"team-{pool}")["status"].get("used", {}).get(GPU) == "8",
            "each pod is charged to the quota of its pool",
        )


def test_a_priority_above_that_of_the_quota_waits_with_the_reason(cluster: Cluster) -> None:
    quotas = Quotas(cluster)
    cluster.add_nodes(1)
    quotas.create("team", 0, 8)
    limit = "operators.koordinator.sh/max-priority=1000"
    here = f"--namespace={cluster.namespace}"
    cluster.box.kubectl("annotate", "elasticquota", quotas.name("team"), here, limit)
    critical = "system-cluster-critical"
    cluster.pod("critical", labels=quotas.label("team"), priorityClassName=critical)
    cluster.expect_pod("critical", "PriorityNotAllowed")
