"""The status of the devices of one node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.builders import make_pod_group
from tests.cluster import make_cluster
from tests.device.nodes import a100x8, report
from tests.device.test_plugin import gpu_cluster, make_unit, part, recover, settle, whole
from tests.objects import remove_devices, upsert_resource_claim

from koord.answers.devices import make_fields
from koord.controllers.device_status import DeviceStatusPolicy
from koord.core.device.model import DeviceName, DeviceResourceClaim
from koord.core.device.plugin import Devices
from koord.core.device.status import Counts, DeviceReadiness, observe_devices
from koord.core.model.device_names import GPU, RDMA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.device.model import DeviceReport
    from koord.core.model.gangs import ObservedPodGroup
    from koord.core.model.pods import Pod
    from koord.kube.status import ConditionPatch


def test_who_holds_what_and_what_is_free() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a", 2))
    settle(cluster, part("b", 30))
    cluster.pods(whole("other").not_ours().bound("n0"))
    plugin = cluster.state.plugin(Devices)
    status = observe_devices(plugin, plugin.reports["n0"], cluster.state.pods)
    assert status.readiness is DeviceReadiness.SYNCED
    assert status.counts == {GPU: Counts(8, 8, 5, 1), RDMA: Counts(4, 4, 4, 0)}
    assert [(pod.pod, pod.minors) for pod in status.pods] == [
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


def test_gpus_that_dra_gave_out_are_left_free() -> None:
    cluster = gpu_cluster(1)
    plugin = cluster.state.plugin(Devices)

    def given() -> tuple[int, tuple[str, ...], bool]:
        plan = cluster.plan(make_unit("u", [whole("a", 6).build()]))
        status = observe_devices(plugin, plugin.reports["n0"], cluster.state.pods)
        return status.foreign, status.foreign_pods, bool(plan.placements)

    for key, gpus in (("default/one", 1), ("default/two", 2)):
        upsert_resource_claim(cluster.state, DeviceResourceClaim(key, "n0", gpus))
    assert given() == (3, ("ResourceClaim default/one", "ResourceClaim default/two"), False)
    upsert_resource_claim(cluster.state, DeviceResourceClaim("default/two", "n1", 2))
    assert given() == (1, ("ResourceClaim default/one",), True)
    upsert_resource_claim(cluster.state, DeviceResourceClaim("default/one"))
    assert given() == (0, (), True)


def test_what_dra_gave_out_survives_that_devices_are_reported_again() -> None:
    cluster = gpu_cluster(1)
    plugin = cluster.state.plugin(Devices)
    upsert_resource_claim(cluster.state, DeviceResourceClaim("default/one", "n0", 2))
    plugin.upsert(report("n0", a100x8()))
    assert observe_devices(plugin, plugin.reports["n0"], {}).foreign == 2


def test_a_device_object_without_a_node() -> None:
    plugin = make_cluster().state.plugin(Devices)
    plugin.upsert(report("gone", a100x8()))
    status = observe_devices(plugin, plugin.reports["gone"], {})
    assert status.readiness is DeviceReadiness.NO_NODE
    assert status.counts[GPU] == Counts(8, 8, 0, 0)


def test_entries_that_cannot_be_used_are_named() -> None:
    cluster = gpu_cluster(1)
    plugin = cluster.state.plugin(Devices)
    plugin.upsert(replace(report("n0"), problems=(("spec.devices[3].minor", "is twice"),)))
    status = observe_devices(plugin, plugin.reports["n0"], {})
    assert status.readiness is DeviceReadiness.INVALID_ENTRIES
    assert "spec.devices[3].minor is twice" in status.describe()


class Statuses:
    """Keeps the conditions of the last status."""

    def write_status(
        self, value: DeviceReport, fields: Mapping[str, Any], conditions: tuple[ConditionPatch, ...]
    ) -> None:
        assert value.node == "n0"
        assert fields
        self.conditions = {condition.type: condition for condition in conditions}


class Events:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def announce_unhealthy(self, user: Pod | ObservedPodGroup, text: str) -> None:
        self.events.append((user.uid, text))


async def test_who_uses_devices_that_fail_is_told_once_per_gang() -> None:
    cluster = gpu_cluster(1)
    members = [whole(f"g-{at}").gang("default/g") for at in range(2)]
    cluster.pod_groups(make_pod_group("default/g", 2))
    settle(cluster, *members)
    settle(cluster, whole("single"))
    statuses, events = Statuses(), Events()
    policy = DeviceStatusPolicy(cluster.state, statuses, events)
    plugin = cluster.state.plugin(Devices)
    await policy.update("n0")
    assert statuses.conditions["Healthy"].status
    plugin.upsert(report("n0", a100x8(sick={0, 1, 2, 7})))
    for _ in range(2):
        await policy.update("n0")
    group = cluster.state.gangs.pod_group("default/g")
    assert group is not None
    assert events.events == [
        (
            group.uid,
            "devices of node n0 are unhealthy: default/g-0 uses gpu 0, default/g-1 uses gpu 1",
        ),
        (
            cluster.pod("single").uid,
            "devices of node n0 are unhealthy: default/single uses gpu 2",
        ),
    ]
    assert statuses.conditions["Healthy"].reason == "DevicesUnhealthy"
    assert "gpu 0 is unhealthy, used by default/g-0" in statuses.conditions["Healthy"].message
    assert "gpu 7 is unhealthy" in statuses.conditions["Healthy"].message
    plugin.upsert(report("n0"))
    await policy.update("n0")
    assert "gpu 7 recovers" in statuses.conditions["Healthy"].message
    recover(cluster)
    await policy.update("n0")
    assert statuses.conditions["Healthy"].status


async def test_devices_that_are_elsewhere_than_records_say_are_a_condition() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, *(whole(f"p{at}") for at in range(8)))
    plugin, statuses = cluster.state.plugin(Devices), Statuses()
    policy = DeviceStatusPolicy(cluster.state, statuses, Events())
    await policy.update("n0")
    match = statuses.conditions["RecordsMatch"]
    assert (match.status, match.reason) == (True, "AllMatch")
    first = report("n0")
    names = {
        key: first.names[key[0], (key[1] + 1) % 8 if key[0] == GPU else key[1]]
        for key in first.names
    }
    plugin.upsert(replace(first, names=names))
    await policy.update("n0")
    moved = statuses.conditions["RecordsMatch"]
    assert (moved.status, moved.reason) == (False, "DevicesMoved")
    assert "default/p0 has gpu 0 (GPU-n0-0), now 7" in moved.message
    assert moved.message.endswith("and 3 more")


async def test_who_uses_a_device_that_is_gone_is_told_once() -> None:
    cluster = gpu_cluster(1)
    settle(cluster, whole("a"), whole("b"))
    plugin, events = cluster.state.plugin(Devices), Events()
    policy = DeviceStatusPolicy(cluster.state, Statuses(), events)
    first = report("n0")
    plugin.upsert(replace(first, names={**first.names, (GPU, 0): DeviceName("new")}))
    for _ in range(2):
        await policy.update("n0")
    text = "default/a uses gpu 0 (GPU-n0-0), which is gone"
    message = f"devices of node n0 are unhealthy: {text}"
    assert events.events == [(cluster.pod("a").uid, message)]


def test_a_status_is_looked_at_once_per_change_of_its_node() -> None:
    cluster = gpu_cluster(3)
    policy = DeviceStatusPolicy(cluster.state, Statuses(), Events())
    assert sorted(policy.changed()) == ["n0", "n1", "n2"]
    assert policy.changed() == []
    cluster.state.plugin(Devices).upsert(report("n1"))
    assert policy.changed() == [], "only its status has changed"
    settle(cluster, whole("a", 2))
    [node] = policy.changed()
    assert policy.changed() == []
    assert cluster.state.plugin(Devices).pods_on(node)
    cluster.state.remove_node(node)
    assert policy.changed() == [node]
    remove_devices(cluster.state, node)
    assert policy.changed() == []
