"""Nodes come for a gang that lacks them: by an autoscaler that reads pods as the real ones do.

``ScalerStandIn`` stands in for them: it reads what both are known to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import Cluster, Operators

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = "autoscaler: {signal: mark, delaySeconds: 0}\n"


@dataclass
class ScalerStandIn:
    """Adds a node for each eight GPUs that pods lack which no scheduler found a node for."""

    cluster: Cluster
    bought: int = 0

    def asks(self, pod: dict[str, Any]) -> bool:
        """Whether a pod makes it add nodes: neither placed nor nominated, and unschedulable."""
        status = pod["status"]
        if pod["spec"].get("nodeName") or status.get("nominatedNodeName"):
            return False
        found = [each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        return [(each["status"], each["reason"]) for each in found] == [("False", "Unschedulable")]

    def marked(self) -> set[str]:
        return {name for name, pod in self.cluster.pods().items() if self.asks(pod)}

    def act(self, free: int) -> None:
        """Add nodes for the pods that ask and do not fit on ``free`` nodes."""
        lacking = len(self.marked()) - free
        if lacking > 0:
            self.cluster.add_nodes(lacking)
            self.bought += lacking


@pytest.fixture
def elastic(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for pod in cluster.pods():
            cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()


def test_a_gang_of_eight_gets_the_nodes_that_it_lacks_and_no_more(elastic: Cluster) -> None:
    scaler = ScalerStandIn(elastic)
    elastic.add_nodes(3)
    elastic.gang("train", 8)
    names = [f"train-{at}" for at in range(8)]
    elastic.expect(lambda: scaler.marked() == set(names), "all members are marked")
    scaler.act(free=3)
    elastic.expect_bound(*names)
    scaler.act(free=0)
    assert (scaler.bought, scaler.marked()) == (5, set())
    condition = elastic.condition(elastic.get_pod("train-0"), "PodScheduled")
    assert condition[0] == "True"


def test_a_mark_goes_with_its_reason(elastic: Cluster) -> None:
    scaler = ScalerStandIn(elastic)
    elastic.add_nodes(1)
    elastic.gang("train", 2)
    elastic.expect(lambda: len(scaler.marked()) == 2, "both members are marked")
    elastic.delete_pod("train-1")  # now it is incomplete
    elastic.expect(lambda: not scaler.marked(), "the mark is taken off")
    assert elastic.condition(elastic.get_pod("train-0"), "PodScheduled")[1] == "SchedulingGated"
