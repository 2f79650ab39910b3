"""Devices that change their minor: a pod keeps the device with the id of its record."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cluster import make_cluster, make_unit
from tests.device.nodes import GPU_TOTAL, NIC_TOTAL
from tests.device.test_plugin import ROOMY, make_node, part, placed, settle, whole
from tests.support.laws import examples

from koord.core.device.allocation import ALLOCATED, AllocatedDevices
from koord.core.device.inventory import NamedDevices, Strayed
from koord.core.device.model import DeviceName, DeviceReport, FunctionGroup, Hint, NodeDevice
from koord.core.device.plugin import Devices
from koord.core.device.request import DeviceAllocationHints
from koord.core.device.session import NAME
from koord.core.device.status import NodeDeviceStatus, Records, find_drift, observe_devices
from koord.core.model.device_names import GPU, GPU_CORE, RDMA, RDMA_SHARE
from koord.kube.translate.devices import read_allocated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster import FakeCluster

    from koord.core.model.pods import Pod

GPUS = ("A", "B", "C", "D")
NICS = ("X", "Y")
VF = DeviceAllocationHints(hints=((RDMA, Hint(function_selector=())),))


def report(gpus: Sequence[str], nics: Sequence[str] = ()) -> DeviceReport:
    """Return what a node reports whose devices have these ids, in the order of their minors.

    "" is a device without an id, and "-" a minor that no device has.
    """
    pools = ((GPU, gpus), (RDMA, nics))
    devices = tuple((kind, tuple(_devices(kind, ids))) for kind, ids in pools if ids)
    names = {
        (kind, minor): DeviceName(device_id, _functions(device_id) if kind == RDMA else ())
        for kind, ids in pools
        for minor, device_id in enumerate(ids)
        if device_id != "-"
    }
    return DeviceReport("n0", devices, names)


def _devices(kind: str, ids: Sequence[str]) -> list[NodeDevice]:
    total = GPU_TOTAL if kind == GPU else NIC_TOTAL
    groups = (FunctionGroup((), (0, 1)),) if kind == RDMA else ()
    return [
        NodeDevice(n, total, groups=groups) for n, device_id in enumerate(ids) if device_id != "-"
    ]


def _functions(nic: str) -> tuple[tuple[int, str], ...]:
    return ((0, f"{nic}.0"), (1, f"{nic}.1"))


def one_node(first: DeviceReport) -> FakeCluster:
    node = make_node("n0").gpu(8)
    for name, amount in ROOMY.items():
        node.resource(name, amount)
    cluster = make_cluster().nodes(node)
    cluster.state.plugin(Devices).upsert(first)
    return cluster


def status_of(cluster: FakeCluster) -> NodeDeviceStatus:
    plugin = cluster.state.plugin(Devices)
    return observe_devices(plugin, plugin.reports["n0"], cluster.state.pods)


def test_a_pod_keeps_the_device_with_its_id_when_two_change_places() -> None:
    cluster = one_node(report("ABCD"))
    settle(cluster, whole("p"))
    cluster.state.plugin(Devices).upsert(report("BACD"))
    assert placed(cluster.plan(make_unit("u", [whole("q", 3)]))) == [("n0", [0, 2, 3])]
    status = status_of(cluster)
    assert status.records is Records.MOVED
    assert status.describe_records() == "default/p has gpu 0 (A), now 1"
    assert [(pod.pod, pod.minors) for pod in status.pods] == [("default/p", (1,))]
    cluster.state.plugin(Devices).upsert(report("ABCD"))
    assert status_of(cluster).records is Records.MATCH


def test_a_device_that_is_taken_out_leaves_its_pod_nothing_until_it_is_back() -> None:
    cluster = one_node(report("ABCD"))
    settle(cluster, whole("p"), whole("q"))
    cluster.state.plugin(Devices).upsert(report("BCD"))
    assert placed(cluster.plan(make_unit("u", [whole("r", 2)]))) == [("n0", [1, 2])]
    status = status_of(cluster)
    assert status.records is Records.GONE
    text = "default/p has gpu 0 (A), which is gone, default/q has gpu 1 (B), now 0"
    assert status.describe_records() == text
    cluster.state.plugin(Devices).upsert(report("DCBA"))
    assert placed(cluster.plan(make_unit("u", [whole("r", 2)]))) == [("n0", [0, 1])]


@pytest.mark.parametrize(
    ("recorded", "listed", "minor"),
    [
        (DeviceName("A"), report("BA"), 1),
        (DeviceName("a"), report("BA"), 1),
        (DeviceName(), report("BA"), 0),
        (DeviceName("A"), report(["", "B"]), 0),
        (DeviceName("A"), report("BC"), None),
        (DeviceName("A"), report("-B"), None),
        (DeviceName(), report("-B"), None),
        (DeviceName("A"), report([]), None),
        (DeviceName("0000:1F:00.0"), report(["B", "00000000:1f:00.0"]), 1),
        (DeviceName("1f:00.0"), report(["B", "0000:1f:00.0"]), 1),
        (DeviceName("0001:1f:00.0"), report(["B", "0000:1f:00.0"]), 0),
        (DeviceName("0001:1f:00.0"), report(["0000:2f:00.0", "0000:1f:00.0"]), None),
    ],
)
def test_which_device_a_record_of_minor_0_means(
    recorded: DeviceName, listed: DeviceReport, minor: int | None
) -> None:
    """By id, else by minor where ids cannot be compared; never a device with another id."""
    assert NamedDevices(listed.names).locate(GPU, 0, recorded) == minor


def test_records_are_taken_by_minor_where_nothing_is_reported() -> None:
    assert NamedDevices(None).locate(GPU, 3, DeviceName("A")) == 3


def test_a_nic_without_an_id_is_found_by_its_virtual_functions() -> None:
    named = NamedDevices(report([], ["X", "Y"]).names)
    recorded = DeviceName("", ((1, "Y.1"),))
    assert named.locate(RDMA, 0, recorded) == 1
    assert named.functions(RDMA, 1, recorded) == (1,)


def test_what_is_strayed_names_the_id() -> None:
    named = NamedDevices(report("BA").names)
    settled = AllocatedDevices("p", (), ())
    assert settled.strayed(named) == ()
    assert Strayed(GPU, 0, "A", 1).describe() == "gpu 0 (A), now 1"
    assert Strayed(GPU, 0, "").describe() == "gpu 0, which is gone"


# --- no device to two pods, by id ----------------------------------------------------------------

MOVES = st.tuples(
    st.just("report"), st.permutations([*GPUS, "-"]), st.permutations(NICS), st.integers(0, 63)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.sampled_from(["whole", "part", "function"])),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        MOVES,
    ),
    max_size=25,
)


def ask(kind: str, name: str) -> Pod:
    if kind == "function":
        return replace(make_pod(name).resource(RDMA_SHARE, 1).build(), extensions=((NAME, VF),))
    return (whole(name) if kind == "whole" else part(name)).build()


def moved(gpus: Sequence[str], nics: Sequence[str], listed: int) -> DeviceReport:
    """Return a report with those of the devices that are in a bit set, by these minors."""
    known_devices = [*GPUS, *NICS]
    there = {device for n, device in enumerate(known_devices) if listed >> n & 1}
    return report(
        [gpu if gpu in there else "-" for gpu in gpus],
        [nic if nic in there else "-" for nic in nics],
    )


def given_by_id(pods: Sequence[Pod]) -> Counter[tuple[str, str]]:
    """Return the percent of each device, and the uses of each function, that records say."""
    sums: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        for allocation in pod.allocations:
            assert isinstance(allocation, AllocatedDevices)
            for share, name in zip(allocation.shares, allocation.names, strict=True):
                sums[share.kind, name.id] += dict(share.part).get(GPU_CORE, 0)
                sums.update((share.kind, address) for _, address in name.functions)
    return sums


def restarted(cluster: FakeCluster) -> FakeCluster:
    """Return the cluster as it is read anew: from what is written on pods."""
    plugin = cluster.state.plugin(Devices)
    again = one_node(plugin.reports["n0"])
    for pod in cluster.state.pods.values():
        texts = [
            write.value
            for allocation in pod.allocations
            for write in allocation.writes()
            if write.key == ALLOCATED
        ]
        read = tuple(read_allocated(pod.uid, text) for text in texts)
        again.pods(replace(pod, node="n0", allocations=read))
    return again


@settings(max_examples=examples(30))
@given(STEPS)
def test_no_device_is_given_to_two_pods_whatever_becomes_of_minors(steps: list[tuple]) -> None:
    cluster = one_node(report(GPUS, NICS))
    plugin = cluster.state.plugin(Devices)
    for at, (step, *what) in enumerate(steps):
        alive = sorted(cluster.state.pods.values(), key=lambda pod: pod.name)
        if step == "place":
            pod = ask(what[0], f"p{at:02}")
            plan = cluster.plan(make_unit(pod.name, [pod]))
            for assignment in (
                assignment for made in plan.placements for assignment in made.assignments
            ):
                cluster.pods(replace(pod, node=assignment.node, allocations=assignment.allocations))
        elif step == "remove" and alive:
            cluster.state.remove_pod(alive[what[0] % len(alive)].uid)
        elif step == "report":
            plugin.upsert(moved(*what))
        pods = list(cluster.state.pods.values())
        for (kind, name), n in given_by_id(pods).items():
            assert n <= (100 if kind == GPU else 1), (name, n)
        again = restarted(cluster)
        kept, read = plugin.ledger_of("n0"), again.state.plugin(Devices).ledger_of("n0")
        assert (kept and kept.used) == (read and read.used)
        assert status_of(cluster) == status_of(again)
        assert not find_drift(cluster.state, ["n0"])
