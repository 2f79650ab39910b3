"""Migrated manifests are accepted by the server, and their gangs are placed."""

import pytest
import yaml
from tests.migrate.test_rewrite import PEERS, flatten, read

from koord.api.migration.rewrite import migrate

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]
CLUSTER_WIDE = {"ClusterNetworkTopology"}


@pytest.mark.parametrize("peer", PEERS)
def test_gangs_of_a_peer_are_placed(peer, cluster, controllers, frameworks):
    documents = flatten(migrate(read(peer)))
    items = [one for one in documents if one["kind"] == "List"]
    documents = [one for one in documents if one["kind"] != "List"]
    documents += [one for item in items for one in item["items"]]
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
        if shared:
            frameworks.kubectl("delete", "-f", "-", stdin=shared)
