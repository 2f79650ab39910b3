"""The benchmark as a whole, with a few pods: not how fast it is, but that it can tell."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.cluster import open_cluster

from benchmarks import churn, plan, scale, topology

ROOT = Path(__file__).parents[2]
OF_EVERY_ROW = {
    "name",
    "scheduler",
    "pods",
    "nodes",
    "gated",
    "mode",
    "ceiling_pods_per_s",
    "pods_per_s",
    "share",
    "writes_per_pod",
    "p50_ms",
    "p99_ms",
    "cpu_ms_per_pod",
    "rss_mib",
}


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_gangs_in_a_burst(tmp_path):
    file = tmp_path / "rows.json"
    options = ["--quick", "--only", "gangs-gated-burst", "--json", str(file)]
    command = [sys.executable, "-m", "benchmarks", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())
    assert row.keys() >= OF_EVERY_ROW
    assert row["name"] == "gangs-gated-burst"
    assert row["name"] in done.stdout
    assert (row["pods"], row["gated"], row["mode"]) == (100, True, "burst")
    ratio = row["pods_per_s"] / row["ceiling_pods_per_s"]
    assert row["share"] == pytest.approx(ratio, abs=0.01)
    # The release and the binding; statuses and events of ten gangs on top.
    assert 2.0 <= row["writes_per_pod"] < 4.0
    assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert row["cpu_ms_per_pod"] > 0
    assert row["rss_mib"] > 0


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_scale_and_churn_in_a_small_cluster():
    with open_cluster() as cluster:
        figures = scale.measure_scale(cluster, nodes=6, pods=10)
        assert [(one.nodes, one.pods) for one in figures.starts] == [(0, 0), (6, 0), (6, 10)]
        assert [(one.what, one.cycles > 0) for one in figures.plans] == [
            ("one pod", True),
            ("a gang of 3", True),
        ]
        churned = churn.measure_churn(cluster, seconds=12.0, rate=10.0)
    assert churned.pods > churn.LIVE
    assert churned.not_placed == 0
    assert len(churned.rss_mib) > 1


@pytest.mark.parametrize(
    ("main", "options"),
    [
        (plan.main, ["--nodes", "40", "--runs", "1"]),
        (topology.main, ["--nodes", "400", "--runs", "1", "--gangs", "10"]),
    ],
    ids=["plan", "topology"],
)
def test_benchmark_of_the_planner_prints_its_rows(
    main: Callable[[], None],
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", *options])
    main()
    assert capsys.readouterr().out.count("placed") >= 4
