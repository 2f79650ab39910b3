"""Reports about the use of nodes: read from NodeMetrics, kept by source."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.core.load.model import (
    Aggregation,
    HostApplicationLoad,
    LoadSource,
    NodeLoad,
    PodLoad,
)
from koord.core.load.plugin import Loads
from koord.core.model.koordinator_class import KoordinatorClass
from koord.kube.translate.amounts import parse_usage
from koord.kube.translate.load import translate_node_metric
from koord.kube.wire import WireNodeMetric

METRIC: dict[str, Any] = {
    "metadata": {"name": "n0"},
    "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 90}},
    "status": {
        "updateTime": "1970-01-01T00:16:40Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}},
            "systemUsage": {"resources": {"cpu": "100m"}},
            "aggregatedNodeUsages": [
                {
                    "duration": "5m0s",
                    "usage": {"p95": {"resources": {"cpu": "2"}}, "p77": {"resources": {}}},
                },
                {"duration": "30m0s", "usage": {"p95": {"resources": {}}}},
            ],
        },
        "podsMetric": [
            {
                "namespace": "a",
                "name": "p",
                "priority": "koord-batch",
                "podUsage": {"resources": {"cpu": "1", "memory": 5}},
            },
            {"namespace": "a", "name": "q", "podUsage": {"resources": {"cpu": "x"}}},
        ],
        "hostApplicationMetric": [
            {"name": "nginx", "priority": "koord-prod", "usage": {"resources": {"cpu": "3"}}},
            {"name": "other", "usage": {"resources": {}}},
        ],
        "prodReclaimableMetric": {"resource": {"resources": {"memory": "1Gi"}}},
    },
}


def metric_of(metric: dict[str, Any]) -> WireNodeMetric:
    return msgspec.json.decode(msgspec.json.encode(metric), type=WireNodeMetric)


def test_everything_that_counts_is_read() -> None:
    assert translate_node_metric(metric_of(METRIC)) == NodeLoad(
        "n0",
        LoadSource.NODE_METRIC,
        updated=1000.0,
        interval=90.0,
        usage={"cpu": 1500, "memory": 2 << 30},
        system={"cpu": 100},
        aggregates={Aggregation.P95: {300.0: {"cpu": 2000}}},
        pods={
            "a/p": PodLoad({"cpu": 1000, "memory": 5}, KoordinatorClass.BATCH),
            "a/q": PodLoad({}),
        },
        host_applications=(
            HostApplicationLoad({"cpu": 3000}, KoordinatorClass.PROD),
            HostApplicationLoad({}),
        ),
        reclaimable={"memory": 1 << 30},
    )


@pytest.mark.parametrize("interval", [None, 0, -5])
def test_empty_report_counts_as_outdated_and_without_numbers(interval: int | None) -> None:
    policy = {"reportIntervalSeconds": interval}
    metric = {"metadata": {"name": "n0"}, "spec": {"metricCollectPolicy": policy}, "status": {}}
    report = translate_node_metric(metric_of(metric))
    assert (report.is_reported, report.interval) == (False, 60.0)
    assert report.is_outdated(0.0)


def test_report_is_outdated_at_the_age_that_is_given() -> None:
    report = NodeLoad("n0", updated=1000.0)
    assert not report.is_outdated(1179.9)
    assert report.is_outdated(1180.0)
    assert not report.is_outdated(1180.0, 181.0)


def test_best_source_with_a_report_counts() -> None:
    loads = Loads()
    polled = NodeLoad("n0", LoadSource.METRICS_API, usage={"cpu": 1})
    agent = NodeLoad("n0", usage={"cpu": 2})
    loads.upsert(polled)
    assert loads.of("n0") is polled
    loads.upsert(agent)
    assert loads.of("n0") is agent
    loads.remove(agent)
    assert loads.of("n0") is polled
    loads.remove(polled)
    assert loads.of("n0") is None
    assert list(loads.nodes()) == []


@given(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]),
    st.one_of(
        st.integers(-5, 10**6),
        st.from_regex(r"[0-9]{0,17}(m|k|Ki|Mi|Gi|n|u|)", fullmatch=True),
        st.sampled_from(["1.5", "٣m", "1e3", "m", "Ki", "-1m", "+1Ki"]),
    ),
)
def test_amounts_of_reports_are_read_as_all_others(name: str, text: str | int) -> None:
    usage = {"resources": {name: text}}
    metric = {"metadata": {"name": "n"}, "status": {"nodeMetric": {"nodeUsage": usage}}}
    report = translate_node_metric(metric_of(metric))
    try:
        expected = {name: parse_usage(name, text)}
    except ValueError:
        expected = {}
    assert dict(report.usage) == expected
    assert report.is_readable == bool(expected)
