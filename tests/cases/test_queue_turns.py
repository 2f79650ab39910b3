"""A gang that waits is told its turn and when it starts; it is held, let go, and starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.operators.test_everyday import ask, koord

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster


def test_a_waiting_gang_is_told_when_it_starts(cluster: Cluster) -> None:
    (node,) = cluster.add_nodes(1)
    try:
        cluster.gang("runs", 1, gpus=8, activeDeadlineSeconds=900)
        cluster.expect_bound("runs-0")
        cluster.gang("waits", 1, gpus=8)
        cluster.expect_group("waits", "WaitingForNodes", "Queued")
        status = cluster.get_group("waits")["status"]["queue"]
        assert (status["certainty"], status["basis"]) == ("Estimated", {"Declared": 1})
        message = cluster.group_message("waits", "Queued")
        assert message.startswith("Position ")
        assert f"waits for {cluster.namespace}/runs (limit ends" in message
        where = ("-n", cluster.namespace)
        (entry,) = ask(cluster, "queue", *where)["waiting"]
        assert entry["turn"]["certainty"] == "Estimated"
        assert ask(cluster, "queue", "explain", "pg/waits", *where)["turn"]["waitsFor"]

        assert ask(cluster, "queue", "hold", "pg/waits", *where)["held"]
        cluster.expect_group("waits", "Held")
        cluster.box.kubectl("delete", "pod", "runs-0", f"-n={cluster.namespace}", "--now")
        assert cluster.bound() == {}
        assert koord(cluster, "queue", "release", "pg/waits", *where).exit_code == 0
        cluster.expect_bound("waits-0")
        cluster.expect_group("waits", "Started", "Queued")
        assert "queue" not in cluster.get_group("waits")["status"]
    finally:
        cluster.box.kubectl("delete", "node", node, "--ignore-not-found")
