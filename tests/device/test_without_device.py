"""Nodes without a Device object: what is not known to be free is given to nobody.

That a node has had one is known by what was published of it, or given of it, so that a restart
changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.cluster import SCORING, make_cluster, make_unit
from tests.device.nodes import report
from tests.device.test_plugin import gpu_cluster, part, placed, settle, whole
from tests.objects import remove_devices, upsert_devices
from tests.support.laws import examples

from koord.answers.explain import explain_pod
from koord.core.device.plugin import Devices
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.device_names import (
    FPGA_SHARE,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    KOORD_GPU,
    RDMA_SHARE,
)

if TYPE_CHECKING:
    from tests.builders import PodBuilder
    from tests.cluster import FakeCluster

    from koord.core.model.plan import Plan

ABSENT = "had no Device: unknown which devices are free"


def refusal(plan: Plan) -> str:
    assert not plan.placements
    (refused,) = plan.refusals
    assert isinstance(refused.reason, InsufficientNodes)
    return refused.reason.text()


def bare_cluster(*published: str, **options: Any) -> FakeCluster:
    """A node that offers whatever is asked for, and whose Device is gone; or never was."""
    node = make_node("n0").gpu(8)
    for name in (GPU_CORE, GPU_MEMORY_RATIO, RDMA_SHARE, FPGA_SHARE, KOORD_GPU, GPU_MEMORY):
        node.resource(name, 800)
    for name in (GPU_CORE, GPU_MEMORY):
        node.resource(name.replace("koordinator.sh", "kubernetes.io"), 800)
    return make_cluster(**options).nodes(replace(node.build(), published=published))


def published_cluster() -> FakeCluster:
    """A node with a Device, whose resources are published."""
    cluster = gpu_cluster(1)
    node = cluster.state.table.node_at(cluster.row("n0"))
    return cluster.nodes(replace(node, published=(GPU_CORE, GPU_MEMORY_RATIO)))


@pytest.mark.parametrize(
    "requests",
    [
        {GPU_CORE: 50, GPU_MEMORY_RATIO: 50},
        {GPU_CORE: 100, GPU_MEMORY_RATIO: 100},
        {GPU_MEMORY: 80},
        {KOORD_GPU: 100},
        {RDMA_SHARE: 100},
        {FPGA_SHARE: 100},
        {"kubernetes.io/gpu-core": 50, "kubernetes.io/gpu-memory": 50},
    ],
)
def test_what_only_a_device_object_offers_is_refused_without_it(requests: dict[str, int]) -> None:
    pod = make_pod("p")
    for name, amount in requests.items():
        pod.resource(name, amount)
    assert ABSENT in refusal(bare_cluster(GPU_CORE).plan(make_unit("u", [pod])))
    assert bare_cluster().plan(make_unit("u", [pod])).placements  # there has never been one


def test_with_compat_they_start_as_with_koordinator() -> None:
    cluster = bare_cluster(GPU_CORE, compat=True)
    assert cluster.plan(make_unit("u", [part("q")])).placements


def test_whole_cards_are_counted_where_no_part_is_used() -> None:
    cluster = bare_cluster(GPU_CORE).pods(whole("p", 3).bound("n0"))
    assert cluster.plan(make_unit("u", [whole("q", 5)])).placements
    assert "lacks 6 free nvidia.com/gpu" in refusal(cluster.plan(make_unit("u", [whole("q", 6)])))


def test_whole_cards_are_refused_where_a_pod_uses_a_part_of_an_unknown_one() -> None:
    cluster = bare_cluster(GPU_CORE).pods(part("p").bound("n0"))
    assert ABSENT in refusal(cluster.plan(make_unit("u", [whole("q")])))
    cluster.delete_pods("p")
    assert cluster.plan(make_unit("u", [whole("q")])).placements


def test_a_deleted_device_object_gives_nothing_and_comes_back_as_it_was() -> None:
    cluster = published_cluster()
    settle(cluster, *(part(f"p{at}", 60) for at in range(8)))
    plugin = cluster.state.plugin(Devices)
    before = plugin.ledger_of("n0")
    remove_devices(cluster.state, "n0")
    for pod in (part("q"), whole("q")):
        assert ABSENT in refusal(cluster.plan(make_unit("u", [pod])))
    upsert_devices(cluster.state, report("n0"))
    assert plugin.ledger_of("n0") == before
    assert placed(cluster.plan(make_unit("u", [part("q", 40)]))) == [("n0", [0])]


def test_the_explanation_names_the_device_object() -> None:
    cluster = bare_cluster(GPU_CORE)
    (shape_offer,) = explain_pod(cluster.pods(part("q")).state, cluster.pod("q"), SCORING).offers
    assert shape_offer.nodes[0].detail == "there is no Device n0"


def test_nothing_is_said_where_devices_could_not_be_read() -> None:
    """A user who may not list them is not told that there are none."""
    cluster = bare_cluster(GPU_CORE)
    cluster.state.plugin(Devices).is_known = False
    assert cluster.plan(make_unit("u", [part("q")])).placements


@settings(max_examples=examples(20))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("report"), st.booleans()),
            st.tuples(st.just("place"), st.sampled_from(["whole", "part", "cores"])),
            st.tuples(st.just("remove"), st.integers(0, 9)),
        ),
        max_size=20,
    )
)
def test_who_asks_for_parts_gets_certain_devices_or_waits(steps: list[tuple]) -> None:
    """And nobody gets a card while it is not known whose parts are on it; the same anew."""
    cluster = published_cluster()
    makers = {"whole": whole, "part": part, "cores": lambda name: part(name, 100)}
    for at, (step, what) in enumerate(steps):
        plugin, alive = cluster.state.plugin(Devices), list(cluster.state.pods.values())
        if step == "report":
            if what:
                upsert_devices(cluster.state, report("n0"))
            else:
                remove_devices(cluster.state, "n0")
        elif step == "remove" and alive:
            cluster.state.remove_pod(alive[what % len(alive)].uid)
        elif step == "place":
            pod: PodBuilder = makers[what](f"p{at:02}")
            built = pod.build()
            plan = cluster.plan(make_unit(built.name, [built]))
            made = [
                assignment for placement in plan.placements for assignment in placement.assignments
            ]
            for placed_pod in made:
                is_known, holds = "n0" in plugin.reports, what != "whole"
                assert placed_pod.allocations or not holds
                assert bool(placed_pod.allocations) == is_known
                assert is_known or not any(GPU_CORE in dict(pod.shape.requests) for pod in alive)
                cluster.pods(
                    replace(built, node=placed_pod.node, allocations=placed_pod.allocations)
                )
        assert anew(cluster) == states(cluster)


def states(cluster: FakeCluster) -> tuple[object, ...]:
    plugin = cluster.state.plugin(Devices)
    ledger = plugin.ledger_of("n0")
    return bool(plugin.missing), ledger and ledger.used, ledger and ledger.foreign


def anew(cluster: FakeCluster) -> tuple[object, ...]:
    again = published_cluster()
    if "n0" not in cluster.state.plugin(Devices).reports:
        remove_devices(again.state, "n0")
    again.pods(*cluster.state.pods.values())
    return states(again)
