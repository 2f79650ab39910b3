"""Which units autoscalers are told of: only those for which new nodes are all that is lacking."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster, make_cluster

from koord.core.autoscaler.demand import DemandFinder
from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.model.topology_constraint import (
    NODE_LAYER,
    GatherStrategy,
    LayerConstraint,
    TopologyConstraint,
)
from koord.core.topology.layers import Layer
from koord.domains.autoscaler_settings import AutoscalerSettings
from koord.domains.placement import PODS
from koord.domains.registry import make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WirePod
from koord.runtime.settings import InvalidConfiguration, parse_settings

if TYPE_CHECKING:
    from koord.core.autoscaler.demand import NodeDemand

MARK = AutoscalerOptions()


def demands(cluster: FakeCluster, options: AutoscalerOptions = MARK) -> list[NodeDemand]:
    cluster.step()
    blocked = cluster.queue.blocked
    with closing(cluster.open_cycle(cluster.queue.by_time)) as cycle:
        return DemandFinder(cycle, options).find(
            blocked[unit.key] for unit in cluster.queue.pending() if unit.key in blocked
        )


def charged(cluster: FakeCluster) -> FakeCluster:
    """Have all pods that wait name the quota ``team``."""
    for pod in list(cluster.state.pods.values()):
        cluster.pods(replace(pod, quota="team"))
    return cluster


def told(cluster: FakeCluster, options: AutoscalerOptions = MARK) -> list[list[str]]:
    return [[pod.name for pod in demand.pods] for demand in demands(cluster, options)]


def test_a_gang_that_lacks_nodes_is_told_whole() -> None:
    """X-32: free for 5 of 8 members, and the quota is fine."""
    (demand,) = demands(make_cluster(nodes=5).gang("train", 8))
    assert len(demand.pods) == demand.required == 8


def test_a_gang_that_waits_for_its_quota_is_not_told() -> None:
    """X-33."""
    quota = make_quota("team", min={GPU: 8}, max={GPU: 32})
    assert told(charged(make_cluster(nodes=5).quotas(quota).gang("train", 8))) == []


def test_a_quota_admits_one_of_two_gangs() -> None:
    quota = make_quota("team", min={GPU: 16}, max={GPU: 24})
    cluster = make_cluster(nodes=1).quotas(quota).gang("a", 2).gang("b", 2)
    assert told(charged(cluster)) == [["a-0", "a-1"]]


def test_a_quota_whose_share_is_all_that_there_is_lacks_nodes() -> None:
    quota = make_quota("team", min={GPU: 64}, max={GPU: 64})
    cluster = make_cluster(nodes=1).quotas(quota).gang("a", 8).gang("b", 4)
    assert [len(pods) for pods in told(charged(cluster))] == [4]


def test_nothing_is_told_of_a_gang_with_a_member_that_no_node_could_hold() -> None:
    cluster = make_cluster(nodes=2).gang("sane", 3)
    cluster.pod_groups(make_pod_group("default/mad", 3)).pods(
        *(make_pod(f"mad-{at}").gang("default/mad").gpu(8) for at in range(2)),
        make_pod("mad-2").gang("default/mad").gpu(1 << 40),
    )
    assert told(cluster) == [["sane-0", "sane-1", "sane-2"]]


@pytest.mark.parametrize(
    "pod",
    [
        make_pod("p").gpu(9),
        make_pod("p").gpu(8).resource("example.com/dream", 1),
        make_pod("p").gpu(8).selector(pool="none"),
        make_pod("p").gpu(8).select("kubernetes.io/hostname", "n0"),
        make_pod("p").gpu(8).foreign_gates("example.com/other"),
        make_pod("p").gpu(8).not_ours(),
        make_pod("p").gpu(8).says((("autoscaler", "request"),)),
    ],
)
def test_pods_that_no_new_node_would_help(pod: object) -> None:
    filler = make_pod("filler").gpu(8).running("n0")
    assert told(make_cluster(nodes=1).pods(filler, pod)) == []  # type: ignore[arg-type]


def test_nothing_is_told_of_a_gang_whose_nodes_were_asked_for() -> None:
    """As by Kueue: autoscalers add none for a pod that names its ProvisioningRequest."""
    cluster = make_cluster(nodes=1).gang("train", 3).gang("other", 2)
    cluster.pods(replace(cluster.pod("train-1"), extensions=(("autoscaler", "request"),)))
    assert told(cluster) == [["other-0", "other-1"]]


@pytest.mark.parametrize("prefix", ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"])
@pytest.mark.parametrize("signal", list(Signal))
def test_what_a_pod_says_of_its_request_is_read_where_somebody_asks(
    prefix: str, signal: Signal
) -> None:
    annotations = {f"{prefix}/consume-provisioning-request": "mine"}
    wire = msgspec.convert(
        {"metadata": {"name": "p", "namespace": "default", "annotations": annotations}}, WirePod
    )
    options = make_translator_options(TranslatorOptions(), AutoscalerOptions(signal))
    pod = PODS.make_translator(options).translate(wire)
    assert pod.extensions == (() if signal is Signal.NONE else (("autoscaler", "mine"),))


def test_taints_that_pass_do_not_make_another_kind_of_node() -> None:
    node = make_node("n0").gpu(8).taint("ToBeDeletedByClusterAutoscaler", "1700000000")
    kept = make_node("n1").gpu(8).taint("team", "x")
    assert told(make_cluster().nodes(kept).gang("a", 1)) == []
    assert told(make_cluster().nodes(node, kept).gang("a", 1)) == [["a-0"]]


def test_no_more_pods_than_allowed_and_no_part_of_a_gang() -> None:
    cluster = make_cluster(nodes=1).gang("a", 3).gang("b", 9).gang("c", 3).gang("d", 2)
    options = AutoscalerOptions(max_pods=8)
    assert [len(pods) for pods in told(cluster, options)] == [2, 3, 3]


def test_surplus_comes_after_all_that_is_required() -> None:
    cluster = make_cluster(nodes=1).gang("a", 6, 2).gang("b", 3)
    options = AutoscalerOptions(max_pods=7)
    assert [len(pods) for pods in told(cluster, options)] == [4, 3]


@pytest.mark.parametrize(("always", "count"), [(False, 0), (True, 1)])
def test_room_that_is_too_spread_is_told_only_if_asked(count: int, *, always: bool) -> None:
    assert len(told(spread(2), AutoscalerOptions(marks_topology=always))) == count


def test_too_little_room_anywhere_is_told_of_a_gang_with_a_topology() -> None:
    assert len(told(spread(3))) == 1


SHRUNK = """
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
autoscaler:
  signal: mark
  nodeKinds:
    - labels: {pool: gpu}
      taints: [{key: gpu}]
      allocatable: {cpu: "64", memory: 256Gi, nvidia.com/gpu: 8}
"""


@pytest.mark.parametrize(
    ("pod", "count"),
    [
        (make_pod("p").gpu(8).requests(cpu=64_000).tolerates("gpu").selector(pool="gpu"), 1),
        (make_pod("p").gpu(8).tolerates("gpu"), 1),
        (make_pod("p").gpu(8), 0),
        (make_pod("p").gpu(9).tolerates("gpu"), 0),
        (make_pod("p").gpu(8).tolerates("gpu").selector(pool="cpu"), 0),
    ],
)
def test_kinds_of_nodes_of_which_there_is_none_are_as_configured(pod: object, count: int) -> None:
    options = parse_settings(SHRUNK, "config.yaml").of(AutoscalerSettings).options
    cluster = make_cluster().nodes(make_node("cpu"))
    assert len(told(cluster.pods(pod), options)) == count  # type: ignore[arg-type]
    assert told(make_cluster().pods(pod), MARK) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["allocatable: {cpu: many}", "allocatable: {}", "labels: {a: b}"])
def test_a_kind_of_nodes_that_is_none_is_refused(bad: str) -> None:
    text = SHRUNK[: SHRUNK.index("    - labels")] + f"    - {bad}\n"
    with pytest.raises(InvalidConfiguration, match=r"autoscaler\.nodeKinds"):
        parse_settings(text, "config.yaml")


def spread(members: int) -> FakeCluster:
    """Two racks of one free node each, for a gang that must share one."""
    must = TopologyConstraint((LayerConstraint("rack", GatherStrategy.MUST),))
    cluster = make_cluster().topology(Layer("rack", "", ("rack",)), Layer(NODE_LAYER, "rack"))
    cluster.nodes(*(make_node(f"n{at}").gpu(8).label("rack", f"r{at}") for at in range(2)))
    cluster.pod_groups(make_pod_group("default/g", members).topology(must))
    return cluster.pods(*(make_pod(f"g-{at}").gang("default/g").gpu(8) for at in range(members)))


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 9)), max_size=6),
    st.integers(1, 12),
)
def test_gangs_are_told_whole_or_not_and_the_cycle_is_left_alone(
    gangs: list[tuple[int, int, int]], most: int
) -> None:
    quota = make_quota("team", min={GPU: 40}, max={GPU: 120})
    cluster = make_cluster(nodes=1).quotas(quota)
    minima = {}
    for at, (count, minimum, gpus) in enumerate(gangs):
        minima[f"default/g{at}"] = min(count, minimum), gpus
        cluster.gang(f"g{at}", count, min(count, minimum), gpus=gpus)
    charged(cluster).step()
    with closing(cluster.open_cycle(cluster.queue.by_time)) as cycle:
        before = cycle.checkpoint()
        found = DemandFinder(cycle, AutoscalerOptions(max_pods=most)).find(
            cluster.queue.blocked.values()
        )
        assert cycle.checkpoint() == before
    assert sum(len(demand.pods) for demand in found) <= most
    asked = sum(minima[d.pods[0].gang.key][1] * len(d.pods) for d in found if d.pods[0].gang)
    assert asked <= 120
    assert all(minima[d.pods[0].gang.key][1] <= 8 for d in found if d.pods[0].gang)
    assert all(len(d.pods) >= d.required for d in found)
