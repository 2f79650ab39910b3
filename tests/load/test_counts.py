"""How many nodes are reported about, and how many are above their thresholds."""

from tests.load.load_cluster import GI, NOW, LoadCluster, node_of, options_of

from koord.core.load.counts import count_above, count_reports
from koord.core.load.model import LoadSource
from koord.core.load.options import LoadThresholds


def test_nodes_are_counted_by_report_and_by_what_is_above() -> None:
    cluster = LoadCluster(options_of(thresholds=LoadThresholds({"cpu": 50, "memory": 50})))
    assert (count_reports(cluster.aware), count_above(cluster.aware)) == ({}, {})
    cluster.nodes(*(node_of(f"n{at}", cpu=10_000, memory=10 * GI) for at in range(5)))
    cluster.report("n0", cpu=6000, memory=6 * GI)
    cluster.report("n1", cpu=6000, source=LoadSource.METRICS_API)
    cluster.report("n2", cpu=4000)
    cluster.report("n3", cpu=6000, updated=NOW - 600)
    cluster.state.refresh()
    assert count_reports(cluster.aware) == {
        ("NodeMetric", "Fresh"): 2,
        ("MetricsAPI", "Fresh"): 1,
        ("NodeMetric", "Outdated"): 1,
        ("None", "Absent"): 1,
    }
    assert count_above(cluster.aware) == {"cpu": 2, "memory": 1}
    cluster.state.remove_node("n0")
    assert count_above(cluster.aware) == {"cpu": 1, "memory": 0}
