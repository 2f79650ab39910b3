"""Karpenter buys nodes for gangs that lack them, and none for gangs that wait for their quota."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.operators.conftest import Cluster, Operators
from tests.operators.test_quotas import Quotas
from tests.support.karpenter import claims, run_karpenter, wait_for_claims

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SETTINGS = "autoscaler: {signal: mark, delaySeconds: 0}\n"
SETTLED_SECONDS = 20.0
"""Longer than it waits for further pods before it decides."""


@pytest.fixture
def elastic(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    cluster.patience = 90.0
    with run_karpenter(cluster, tmp_path):
        running.start()
        try:
            yield cluster
            assert running.is_running(), running.log.read_text()[-3000:]
        finally:
            for pod in cluster.pods():
                cluster.delete_pod(pod)
            cluster.remove_nodes()
            running.stop()


def test_a_gang_gets_its_nodes_once_and_a_gang_without_quota_none(elastic: Cluster) -> None:
    elastic.add_nodes(3)
    quotas = Quotas(elastic)
    quotas.create("team", 0, 64, namespaces=[elastic.namespace])
    mine = {"labels": quotas.label("team"), "tolerations": [{"key": "test", "operator": "Exists"}]}
    elastic.gang("poor", 9, **mine)
    elastic.expect_group("poor", "RequestAboveMax")
    time.sleep(SETTLED_SECONDS / 2)
    assert claims(elastic) == []
    elastic.gang("train", 8, **mine)
    wait_for_claims(elastic, 5)
    elastic.expect_bound(*(f"train-{at}" for at in range(8)))
    time.sleep(SETTLED_SECONDS)
    assert len(claims(elastic)) == 5
