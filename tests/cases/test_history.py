"""A gang waits, starts and is deleted; what happened to it is told all the time, and after it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.operators.test_everyday import ask, koord

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster


def whats(story) -> list[str]:
    return [item["what"] for item in story["items"] if item["source"] == "Audit"]


def test_what_happened_to_a_gang_is_told_after_it_is_gone(cluster: Cluster) -> None:
    (node,) = cluster.add_nodes(1)
    where = ("-n", cluster.namespace)
    try:
        cluster.gang("first", 1, gpus=8)
        cluster.expect_bound("first-0")
        cluster.gang("waits", 2, gpus=4)
        cluster.expect_group("waits", "InsufficientNodes")
        # A leader that has just begun says a moment later where its records are.
        cluster.expect(lambda: bool(whats(ask(cluster, "history", "pg/waits", *where))), "records")
        story = ask(cluster, "history", "pg/waits", *where)
        assert whats(story)[-1] == "InsufficientNodes"
        assert story["phases"][-1]["phase"] == "Room"
        assert "Room for 0 of 2 pods" in story["now"]
        assert sum(phase["ms"] for phase in story["phases"]) == story["totalMs"]

        cluster.box.kubectl("delete", "pod", "first-0", *where, "--now")
        cluster.expect_bound("waits-0", "waits-1")
        cluster.box.kubectl("delete", "pod", "waits-0", "waits-1", *where, "--now")
        cluster.box.kubectl("delete", "podgroup", "waits", *where)
        deadline = time.monotonic() + 20
        while whats(story)[-1] != "Gone" and time.monotonic() < deadline:
            story = ask(cluster, "history", "waits", *where)
        assert {"Seen", "Complete", "InsufficientNodes", "Placed", "Bound"} <= set(whats(story))
        assert not story["approximate"]

        at = next(item["at"] for item in story["items"] if item["what"] == "Placed")
        decided = ask(cluster, "history", "pod/waits-1", "--at", at, *where)
        assert decided["decision"]["kind"] == "Placed"
        assert decided["decision"]["nodes"][0]["node"] == node
        # Pods begin to run at whole seconds, by the API: that may seem to come first.
        assert decided["next"]["kind"] in {"Committed", "Running"}
        text = koord(cluster, "history", "waits", *where)
        assert text.exit_code == 0
        assert "Where its time went" in text.stdout
        unknown = koord(cluster, "history", "nobody", *where)
        assert unknown.exit_code == 2
        assert "records go back to" in unknown.stderr
    finally:
        cluster.box.kubectl("delete", "node", node, "--ignore-not-found")
