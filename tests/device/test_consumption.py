"""How pods come to use what they were given: exactly, by a device plugin, without isolation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster, make_unit
from tests.device.nodes import GIB, report
from tests.device.test_plugin import ROOMY, gpu_cluster, part, placed, whole

from koord.core.device.model import DeviceOptions, make_part
from koord.core.device.plugin import Devices
from koord.core.device.reasons import InvalidDeviceRequest, IsolationAbsent
from koord.core.device.request import DeviceAllocationHints
from koord.core.device.session import NAME
from koord.core.device.status import Consumption, consumption_of, isolation_reason
from koord.core.device.vendors import HAMI_CORE
from koord.core.model.device_names import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NVIDIA_GPU,
)
from koord.domains.registry import make_cluster_state


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (NVIDIA_GPU, Consumption.ADVISORY),
        ("cambricon.com/mlu", Consumption.ADVISORY),
        ("cambricon.com/mlu.smlu.vcore", Consumption.EXACT),
        (GPU_CORE, Consumption.EXACT),
    ],
)
def test_devices_are_advice_where_a_device_plugin_counts_cards(
    resource: str, expected: Consumption
) -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n0").resource(resource, 8).build())
    devices = state.plugin(Devices)
    devices.upsert(report("n0"))
    assert consumption_of(devices, "n0") is expected


def test_pods_that_share_without_isolation_start_with_a_remark() -> None:
    cluster = gpu_cluster(1)
    devices = cluster.state.plugin(Devices)
    assert placed(cluster.plan(make_unit("u", [part("p")])))
    assert isolation_reason(devices, part("p").build()) == IsolationAbsent("default/p")
    isolated = replace(
        part("p").build(), extensions=((NAME, DeviceAllocationHints(isolation=HAMI_CORE)),)
    )
    served = part("p").resource("metax-tech.com/sgpu", 1).build()
    for pod in (whole("p").build(), make_pod("p").build(), isolated, served):
        assert isolation_reason(devices, pod) is None


def test_pods_that_share_without_isolation_wait_if_they_are_to() -> None:
    state = make_cluster_state(DeviceOptions(waits_for_isolation=True))
    node = make_node("n0").gpu(8)
    for name, amount in ROOMY.items():
        node.resource(name, amount)
    state.upsert_node(node.build())
    state.plugin(Devices).upsert(report("n0"))
    state.refresh()
    reasons = {
        pod.uid: reason
        for pod in (part("p").build(), whole("q").build())
        for session in state.open_cycle().sessions
        if session.name == NAME
        for reason in session.blocking_reasons([pod]).values()
    }
    assert [reason.code for reason in reasons.values()] == ["IsolationAbsent"]


def unequal(*parts: dict[str, int]) -> DeviceAllocationHints:
    return DeviceAllocationHints(gpu_parts=tuple(map(make_part, parts)))


def test_a_pod_gets_unequal_parts_of_gpus() -> None:
    cluster = gpu_cluster(1)
    amounts = {GPU_SHARED: 2, GPU_CORE: 70, GPU_MEMORY: 40 * GIB}
    cluster.nodes(node := make_node("n0"))
    for name, amount in {**ROOMY, GPU_SHARED: 800, GPU_MEMORY: 640 * GIB}.items():
        node.resource(name, amount)
    cluster.nodes(node)
    pod = make_pod("p")
    for name, amount in amounts.items():
        pod.resource(name, amount)
    small, large = {GPU_CORE: 20, GPU_MEMORY: 10 * GIB}, {GPU_CORE: 50, GPU_MEMORY: 30 * GIB}
    asking = replace(pod.build(), extensions=((NAME, unequal(small, large)),))
    (placement,) = cluster.plan(make_unit("u", [asking])).placements
    (given,) = placement.assignments[0].allocations
    cores = {dict(share.part)[GPU_CORE] for share in given.shares}  # type: ignore[attr-defined]
    assert cores == {20, 50}
    for wrong in (unequal(small, small), unequal(small, large, {}), unequal(large, {GPU_CORE: 20})):
        other = replace(pod.build(), extensions=((NAME, wrong),))
        (refusal,) = cluster.plan(make_unit("u", [other])).refusals
        assert isinstance(refusal.reason, InvalidDeviceRequest)


def test_an_invalid_request_is_named_with_field_and_value() -> None:
    pod = make_pod("p").resource(GPU_SHARED, 2).resource(GPU_CORE, 33)
    pod.resource(GPU_MEMORY_RATIO, 50).resource(GPU_MEMORY, GIB)
    (refusal,) = gpu_cluster(1).plan(make_unit("u", [pod])).refusals
    text = refusal.reason.text()
    assert "koordinator.sh/gpu-core: 33" in text
    field = "pod.spec.containers[*].resources.requests"
    assert f'{field}: Invalid value: "33": the requested gpuCore must multiple of shared' in text
    assert f"{field}: Forbidden: declare GPU memory and GPU memory ratio at same time" in text


def test_old_names_are_known_while_live_pods_request_them() -> None:
    state = make_cluster().state
    state.upsert_node(make_node("n0").build())
    devices = state.plugin(Devices)
    devices.upsert(report("n0"))
    names = devices.old_names
    pod = make_pod("p").resource("kubernetes.io/gpu-core", 50)
    seen = devices.changes_of_nodes.last
    state.upsert_pod(pod.build())
    state.upsert_pod(make_pod("q").resource(GPU_CORE, 50).build())
    assert names.names == {"kubernetes.io/gpu-core"}
    assert list(devices.changes_of_nodes.after(seen)) == ["n0"]
    state.upsert_pod(pod.running("n0").build())
    assert names.names == {"kubernetes.io/gpu-core"}
    state.remove_pod("uid-default-p")
    assert names.names == frozenset()
