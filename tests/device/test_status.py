"""The status of the devices of one node."""

from __future__ import annotations

from dataclasses import replace

from tests.device.nodes import a100x8, report
from tests.device.test_plugin import gpu_cluster, part, settle, whole

from koord.controllers.device_status import make_fields
from koord.core.device.names import GPU, RDMA
from koord.core.device.plugin import Devices
from koord.core.device.status import Counts, Readiness, observe_devices


def test_who_holds_what_and_what_is_free() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a", 2))
    settle(cluster, part("b", 30))
    cluster.pods(whole("other").not_ours().bound("n0"))
    plugin = cluster.state.plugin(Devices)
    keys = {pod.uid: pod.key for pod in cluster.state.pods.values()}
    status = observe_devices(plugin, plugin.reports["n0"], keys)
    assert status.readiness is Readiness.SYNCED
    assert status.counts == {GPU: Counts(8, 8, 5, 1), RDMA: Counts(4, 4, 4, 0)}
    assert [(one.pod, one.minors) for one in status.holders] == [
        ("default/a", (0, 1)),
        ("default/b", (2,)),
    ]
    assert (status.foreign, status.foreign_pods) == (1, ("default/other",))
    # One of the five is left for the pod of others.
    assert status.largest == 4
    fields = make_fields(status)
    assert fields["fragmentation"] == {"largestFreePartition": 4, "index": "0.20"}
    gpu = fields["devices"][2]
    assert gpu["free"]["koordinator.sh/gpu-core"] == "70"
    assert gpu["pods"] == ["default/b"]


def test_a_device_object_without_a_node() -> None:
    plugin = Devices()
    plugin.upsert_report(report("gone", a100x8()))
    status = observe_devices(plugin, plugin.reports["gone"], {})
    assert status.readiness is Readiness.NO_NODE
    assert status.counts[GPU] == Counts(8, 8, 0, 0)


def test_entries_that_cannot_be_used_are_named() -> None:
    cluster = gpu_cluster(1)
    plugin = cluster.state.plugin(Devices)
    plugin.upsert_report(replace(report("n0"), problems=(("spec.devices[3].minor", "is twice"),)))
    status = observe_devices(plugin, plugin.reports["n0"], {})
    assert status.readiness is Readiness.INVALID_ENTRIES
    assert "spec.devices[3].minor is twice" in status.describe()
