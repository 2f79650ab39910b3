"""Migrated manifests are accepted by the server, and their gangs are placed."""

from contextlib import suppress

import pytest
import yaml
from tests.migrate.test_rewrite import PEERS, flatten, read

from koord_migrate.rewrite import migrate
from koord_sandbox.errors import SandboxApiError

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]
CLUSTER_WIDE = {"ClusterNetworkTopology"}


def remove_quotas(cluster):
    """Remove the quotas at once: they share all nodes, and live as long as their pods."""
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/elasticquotas"
    for one in cluster.box.client.get(path)["items"]:
        name = f"{path}/{one['metadata']['name']}"
        cluster.box.client.delete(name)
        with suppress(SandboxApiError):  # it had no pods
            cluster.box.client.patch(name, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "peer",
    [one if one == "volcano" else pytest.param(one, marks=pytest.mark.slow) for one in PEERS],
)
def test_gangs_of_a_peer_are_placed(peer, cluster, controllers, frameworks):
    documents = flatten(migrate(read(peer)))
    items = [one for one in documents if one["kind"] == "List"]
    documents = [one for one in documents if one["kind"] != "List"]
    documents += [one for item in items for one in item["items"]]
    documents.sort(key=lambda one: one["kind"] != "ElasticQuota")  # first, as the page says
    shared = yaml.safe_dump_all(one for one in documents if one["kind"] in CLUSTER_WIDE)
    if shared:
        frameworks.kubectl("apply", "-f", "-", stdin=shared)
    try:
        for one in documents:
            if one["kind"] not in CLUSTER_WIDE:
                controllers.create(one)
        names = [one["metadata"]["name"] for one in documents if one["kind"] == "PodGroup"]
        for name in names:
            cluster.expect_group(name, "AllBound", "Bound")
        waiting = cluster.pods().keys() - cluster.bound().keys()
        cluster.expect(lambda: not cluster.pods().keys() - cluster.bound().keys(), f"{waiting}")
    finally:
        remove_quotas(cluster)
        if shared:
            frameworks.kubectl("delete", "-f", "-", stdin=shared)
