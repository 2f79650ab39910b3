"""Defects that users of similar software have reported, played here: each is a law of its kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod
from tests.colocation.nodes import NOW, batch, node, pod
from tests.colocation.test_publisher import CPU, Publishing
from tests.eviction import test_batch_reclaim as reclaim

from koord.controllers.over_commit import LONGEST_AGAIN_SECONDS
from koord.core.balance.batch_reclaim import BatchReclaimRules
from koord.core.colocation.decide import decide_offer
from koord.core.colocation.node_facts import facts_of
from koord.core.colocation.publishing import Unusable
from koord.core.eviction.model import Moment
from koord.core.load.model import NAME as LOAD
from koord.core.load.model import NodeLoad, PodLoad
from koord.core.load.options import OwnLimits
from koord.core.load.plugin import Loads
from koord.kube.errors import Invalid
from koord.kube.load_metrics import read_metrics
from koord.kube.translate.load import translate_node_metric
from koord.kube.wire import WireNodeMetric

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

    from koord.core.model.nodes import Node

NO_USE = st.one_of(st.integers(max_value=-1), st.integers(min_value=1 << 48))
"""What agents report when a counter starts again."""


def metric(pod_cpu: str, node_cpu: str = "8") -> NodeLoad:
    """Return a NodeMetric of this moment: what pod a/x and the whole node use."""
    status = {
        "updateTime": "1970-01-12T13:46:40Z",
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": node_cpu, "memory": "1Gi"}}},
        "podsMetric": [
            {
                "namespace": "a",
                "name": "x",
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": pod_cpu, "memory": "1Gi"}},
            }
        ],
    }
    text = msgspec.json.encode({"metadata": {"name": "n0"}, "status": status})
    return translate_node_metric(msgspec.json.decode(text, type=WireNodeMetric))


def offered(report: NodeLoad, **strategy: Any) -> int:
    return batch(node(pod("a/x", 20), report=report), **strategy)


@given(NO_USE)
def test_what_nothing_can_use_counts_like_no_report_of_the_pod(amount: int) -> None:
    without = NodeLoad("n0", updated=NOW)
    for policy in ("usage", "maxUsageRequest"):
        seen = offered(metric(str(amount)), cpu_calculate_policy=policy)
        assert seen == offered(without, cpu_calculate_policy=policy)


@pytest.mark.parametrize("cpu", ["x", "-513m", "18446744073"])
def test_what_agents_report_when_a_counter_starts_again(cpu: str) -> None:
    assert offered(metric(cpu)) == offered(NodeLoad("n0", updated=NOW)) == 40_000


@given(NO_USE)
def test_a_report_of_no_use_replaces_none(amount: int) -> None:
    loads, good = Loads(), metric("1")
    loads.upsert(good)
    loads.upsert(metric("1", str(amount)))
    assert loads.of("n0") is good
    loads.remove(good)
    loads.upsert(metric("1", str(amount)))
    first = loads.of("n0")
    assert first is not None
    assert not first.is_reported


def test_one_pod_or_node_costs_no_other_its_report() -> None:
    def item(name: str, cpu: str) -> dict[str, Any]:
        usage = {"cpu": cpu, "memory": "1Gi"}
        meta = {"name": name, "namespace": "a"}
        stamp = "1970-01-12T13:46:40Z"
        return {
            "metadata": meta,
            "usage": usage,
            "timestamp": stamp,
            "containers": [{"usage": usage}],
        }

    nodes = msgspec.json.encode({"items": [item("n0", "4"), item("bad", "-1")]})
    pods = msgspec.json.encode({"items": [item("x", "1"), item("bad", "-513m")]})
    reports = read_metrics(nodes, pods, lambda _: "n0", 30.0)
    assert list(reports) == ["n0"]
    assert list(reports["n0"].pods) == ["a/x"]


async def test_a_report_from_the_future_does_not_count_for_ever() -> None:
    publishing = Publishing()
    await publishing.round(4_000)
    ahead = NodeLoad("n0", updated=publishing.now + 365 * 86_400.0)
    publishing.cluster.state.plugin(Loads).upsert(ahead)
    offer = decide_offer(publishing.cluster.state, "n0", publishing.now)
    assert offer is not None
    assert offer.degradation is not None
    assert offer.degradation.why is Unusable.FUTURE
    assert "31536000 s in the future" in offer.degradation.describe("Batch")


def amplified(made: Node) -> Node:
    """Return a node of 64 CPUs, of which the kubelet reserves 2, and that offers 93."""
    raw = OwnLimits(raw_allocatable=(("cpu", 62_000),))
    allocatable = {**made.allocatable, "cpu": 93_000}
    return replace(made, allocatable=allocatable, extensions=((LOAD, raw), *made.extensions))


async def test_what_the_kubelet_reserves_counts_where_cpus_are_offered_several_times() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    publishing.cluster.nodes(amplified(publishing.node))
    await publishing.round(0)
    assert publishing.published[CPU] == 62_000


async def test_a_new_node_of_the_same_name_has_not_offered_anything_yet() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    assert publishing.published[CPU] == 60_000
    made = make_node("n0").cpu(8_000).build()
    publishing.cluster.nodes(replace(made, uid="another", capacity=dict(made.allocatable)))
    await publishing.round(4_000)
    assert publishing.published[CPU] == 4_000


async def test_a_node_that_has_become_smaller_offers_what_it_has() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    before = publishing.node
    small = {key: 8_000 if key == "cpu" else n for key, n in before.capacity.items()}
    publishing.cluster.nodes(replace(before, capacity=small, allocatable=small))
    await publishing.round(4_000)
    assert publishing.published[CPU] == 4_000


async def test_what_a_new_pod_requests_counts_before_the_next_report() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    publishing.publisher.changed()
    assert "n0" not in publishing.publisher.changed()
    publishing.cluster.pods(make_pod("new").requests(cpu=10_000).running("n0"))
    assert "n0" in publishing.publisher.changed()
    publishing.now += 60.0
    await publishing.publisher.update("n0")
    assert publishing.published[CPU] == 50_000


async def test_writes_that_are_refused_again_and_again_become_rare() -> None:
    publishing = Publishing()
    publishing.nodes.error = Invalid(422, "Invalid", "an admission policy refuses it")
    waits = [await publishing.round() for _ in range(9)]
    assert waits[:4] == [3.0, 6.0, 12.0, 24.0]
    assert waits[-1] == LONGEST_AGAIN_SECONDS
    publishing.nodes.error = None
    await publishing.round()
    publishing.nodes.error = Invalid(422, "Invalid", "test failed")
    publishing.set_policy(cpuReclaimThresholdPercent=10)
    assert await publishing.round() == 3.0


def test_a_pod_of_which_a_report_says_nothing_counts_its_request() -> None:
    for usage in ({}, {"memory": 1}):
        report = NodeLoad("n0", updated=NOW, pods={"a/x": PodLoad(usage)})
        assert offered(report) == 40_000


async def test_switching_over_commitment_off_evicts_nobody() -> None:
    publishing = Publishing(cpuReclaimThresholdPercent=100)
    await publishing.round(4_000)
    publishing.cluster.pods(make_pod("b").resource(CPU, 500).running("n0"))
    publishing.set_policy(enable=False)
    await publishing.publisher.update("n0")
    facts = facts_of(publishing.node)
    assert publishing.published == {CPU: 0}
    assert facts.record == '{"kubernetes.io/batch-cpu":null}'
    assert (facts.recorded, facts.withdrawn) == (((CPU, 0),), (CPU,))
    rules = BatchReclaimRules(overcommit_grace=0.0)
    report = publishing.cluster.state.plugin(Loads).of("n0")
    assert report is not None
    assert not short_nodes(publishing.cluster, rules, report.updated)
    publishing.set_policy(cpuReclaimThresholdPercent=0)
    await publishing.publisher.update("n0")
    assert publishing.published[CPU] == 0
    assert short_nodes(publishing.cluster, rules, report.updated)


def test_memory_that_is_offered_several_times_is_as_full_as_it_is() -> None:
    cluster = reclaim.make_cluster(reclaim.prod("web", gib=70), reclaim.batch("a"), nodes=1)
    made = cluster.state.table.node_at(0)
    raw = OwnLimits(raw_allocatable=(("memory", 100 << 30),))
    twice = {**made.allocatable, "memory": 200 << 30}
    cluster.nodes(replace(made, allocatable=twice, extensions=((LOAD, raw),)))
    reclaim.report(cluster)
    assert short_nodes(cluster, BatchReclaimRules(), reclaim.NOW) == ["n0"]


def short_nodes(cluster: FakeCluster, rules: BatchReclaimRules, now: float) -> list[str]:
    outcome = reclaim.run(
        cluster, replace(reclaim.SETTINGS, batch_reclaim=rules), moment=Moment(now)
    )
    return [shortage.node for shortage in outcome.shortages]
