"""Who holds which GPU, as series of the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
from tests.builders import make_pod
from tests.device.nodes import MEMORY
from tests.device.test_plugin import gpu_cluster, part, settle, whole

from koord.core.device.plugin import Devices
from koord.runtime import device_series
from koord.runtime.device_series import FAMILIES, HAMI_LIMIT, DeviceSeries

if TYPE_CHECKING:
    import pytest
    from tests.cluster import FakeCluster

INFO, MILLI, MEMORY_LIMIT = (family.name for family in FAMILIES)


def read(series: DeviceSeries) -> dict[str, dict[tuple[str, str], float]]:
    """Return the samples by name, and by minor and pod."""
    text = series.render(series.read()).decode()
    return {
        family.name: {
            (
                sample.labels.get("minor", sample.labels.get("vdeviceid", "")),
                sample.labels.get("pod", sample.labels.get("podname", "")),
            ): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


def make_series(cluster: FakeCluster, *, leads: bool = True) -> DeviceSeries:
    return DeviceSeries(cluster.state, lambda: leads, (*FAMILIES, HAMI_LIMIT))


def test_each_pod_and_card_has_one_series_of_what_was_given() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("two", 2), part("half"), part("quarter", 25), make_pod("none"))
    found = read(make_series(cluster))
    milli = {pod: value for (_, pod), value in found[MILLI].items()}
    assert milli == {"two": 1000, "half": 500, "quarter": 250}
    assert len(found[INFO]) == 4
    assert set(found[INFO].values()) == {1.0}
    limits = {pod: value for (_, pod), value in found[MEMORY_LIMIT].items()}
    assert limits == {"two": MEMORY, "half": MEMORY // 2, "quarter": MEMORY // 4}
    assert found[HAMI_LIMIT.name] == found[MEMORY_LIMIT]
    assert found[device_series.LEFT_OUT] == {("", ""): 0}


def test_labels_join_with_the_uuid_of_the_card() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a"))
    text = make_series(cluster).render(make_series(cluster).read()).decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{INFO}{{")]
    (name,) = cluster.state.plugin(Devices).pods_on("n0").values()
    uuid = cluster.state.plugin(Devices).reports["n0"].names["gpu", name[0].minor].id
    assert f'node="n0",minor="{name[0].minor}",uuid="{uuid}",model=' in line
    assert 'namespace="default",pod="a"' in line


def test_series_go_with_their_pods_and_nodes() -> None:
    cluster = gpu_cluster(2)
    settle(cluster, whole("a", 8), whole("b", 8))
    series = make_series(cluster)
    assert len(read(series)[INFO]) == 16
    cluster.delete_pods("a")
    assert {pod for _, pod in read(series)[INFO]} == {"b"}
    devices = cluster.state.plugin(Devices)
    for report in list(devices.reports.values()):
        devices.remove(report)
    assert read(series)[INFO] == {}


def test_a_process_that_stands_by_serves_none() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a"))
    assert read(make_series(cluster, leads=False))[INFO] == {}


def test_too_many_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_series, "MOST_SHARES", 3)
    cluster = gpu_cluster(2)
    settle(cluster, whole("a", 8))
    found = read(make_series(cluster))
    assert len(found[INFO]) == 3
    assert found[device_series.LEFT_OUT] == {("", ""): 5}
