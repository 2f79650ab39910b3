"""A cluster for the page: teams with quotas, racks, devices, a reservation, and what waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster
from tests.device.nodes import report
from tests.objects import upsert_devices, upsert_reservation
from tests.reservation.make import make_reservation

from koord.core.model.gang_history import Episode
from koord.core.topology.layers import NODE_LAYER, Layer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster import FakeCluster

GPU = "nvidia.com/gpu"
LAYERS = (
    Layer("Block", "", ("block",)),
    Layer("Rack", "Block", ("rack",)),
    Layer(NODE_LAYER, "Rack"),
)


def make_team(name: str, least: int, most: int, parent: str = "") -> Mapping[str, object]:
    above = {"parent": parent} if parent else {}
    return {**above, "namespace": name, "min": {GPU: least}, "max": {GPU: most}}


def make_scene(now: float, nodes: int = 12) -> FakeCluster:
    """Make a cluster of racks with four nodes each, two racks in a block."""
    cluster = make_cluster().topology(*LAYERS)
    for at in range(nodes):
        node = make_node(f"gpu-{at:02}").gpu(8)
        node.label("rack", f"r{at // 4}").label("block", f"b{at // 8}")
        if at == nodes - 1:
            node.taint("maintenance")
        elif at == nodes - 2:
            node.unschedulable()
        cluster.nodes(node)
        if at < 2:
            upsert_devices(cluster.state, report(f"gpu-{at:02}"))
    cluster.quotas(
        make_quota("research", is_parent=True, min={GPU: 64}, max={GPU: 96}),
        make_quota("team-a", **make_team("team-a", 32, 64, "research")),
        make_quota("team-b", **make_team("team-b", 16, 48, "research")),
        make_quota("team-c", **make_team("team-c", 16, 32)),
    )
    for at in range(5):
        pod = make_pod(f"bert-{at}").gpu(8).quota("team-a").running(f"gpu-{at:02}")
        cluster.pods(pod.created(now - 7200))
    for at in range(3):
        pod = make_pod(f"eval-{at}").gpu(3).quota("team-c").running(f"gpu-{at + 5:02}")
        cluster.pods(pod.created(now - 900))
    evicted = Episode(int(now) - 3600, "Preempted", "it gave way", "default/bert")
    for name, team, pods, gpus, age in (
        ("moe", "team-b", 8, 8, 187_000),
        ("tune", "team-a", 2, 8, 5400),
        ("sweep", "team-c", 4, 8, 600),
    ):
        key = f"default/{name}"
        pod_group = make_pod_group(key, pods).build()
        cluster.pod_groups(replace(pod_group, history=(evicted,) if name == "tune" else ()))
        cluster.pods(
            *(
                make_pod(f"{name}-{at}").gang(key).gpu(gpus).quota(team).created(now - age)
                for at in range(pods)
            )
        )
    cluster.pod_groups(make_pod_group("default/half", 4))
    cluster.pods(make_pod("half-0").gang("default/half").gpu(1).quota("team-a").created(now - 60))
    cluster.pods(make_pod("note<b>book").gpu(1).quota("team-c").created(now - 30))
    upsert_reservation(cluster.state, make_reservation("nightly", "gpu-08"))
    return cluster
