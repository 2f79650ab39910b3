"""From the wire: what is reported of nodes, what pods say, and what is recorded on them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from tests.cluster import make_unit
from tests.numa.test_plugin import PINNED, SINGLE, given, numa_cluster, pod

from koord.api.keys import device
from koord.core.engine.scoring import ScoringStrategy
from koord.core.model.amplification import Amplification
from koord.core.model.nodes import Node
from koord.core.model.processor import Processor
from koord.core.model.units import CPU, MEMORY
from koord.core.numa.cpu_topology import CpuExclusive
from koord.core.numa.cpus import CpuBind
from koord.core.numa.model import NumaAllocation, NumaAllocationHints, make_layout
from koord.core.numa.policy import NumaExclusive, NumaPolicy
from koord.kube.translate.numa import (
    read_amplification,
    read_numa_hints,
    read_reserved,
    read_status,
)
from koord.kube.translate.numa import translate_node_topology as translate
from koord.kube.wire import WireNodeTopology
from koord_sandbox import load_shape
from koord_sandbox.node_reports import make_report

SPEC, CPUS = device.NUMA_TOPOLOGY_SPEC, device.RESOURCE_SPEC


def decode(body: dict[str, Any]) -> WireNodeTopology:
    return msgspec.convert(body, WireNodeTopology)


def test_the_report_of_a_sandbox_node_is_read() -> None:
    report = translate(decode(make_report("n0", load_shape("a100x8").capacity, 2)))
    assert (report.problems, report.policy, report.node) == ((), None, "n0")
    part = ((CPU, 64_000), (MEMORY, 1 << 40))
    assert report.zones == ((0, part), (1, part))
    assert report.cpus is not None
    assert (report.cpus.cpus_per_core, report.cpus.cpus_per_numa) == (2, 64)
    assert report.cpus.numa_of(1 << 31) == 1


def test_reserved_cpus_count_on_their_numa_node() -> None:
    body = make_report("n0", {"cpu": "16", "memory": "64Gi"}, 2)
    annotations = body["metadata"]["annotations"]
    annotations[device.CPU_MANAGER_POLICY] = (
        '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0,8"}'
    )
    annotations[device.POD_CPU_ALLOCS] = '[{"uid":"u","cpuset":"1,9","managedByKubelet":true}]'
    body["topologyPolicies"] = ["SingleNUMANodePodLevel"]
    report = translate(decode(body))
    assert (report.policy, report.pinned) == (NumaPolicy.SINGLE_NUMA_NODE, (("u", 0x202),))
    reserved = read_reserved({"node.koordinator.sh/reservation": '{"reservedCPUs":"4"}'})
    labels = {"node.koordinator.sh/numa-allocate-strategy": "MostAllocated"}
    layout = make_layout(report, Node("n0", labels=labels, reserved=reserved))
    assert [dict(part)[CPU] for _, part in layout.zones] == [6000, 7000]
    assert layout.pool is not None
    assert layout.pool.usable == 0xFFFF & ~0x101 & ~0x10
    assert layout.pool.strategy is ScoringStrategy.MOST_ALLOCATED
    assert (layout.bind, layout.kubelet) == (CpuBind.FULL_PCPUS, NumaPolicy.SINGLE_NUMA_NODE)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"zones": [{"name": "node-x", "type": "Node"}]}, "zones[0].name"),
        ({"zones": [{"name": "node-1024", "type": "Node"}]}, "zones[0].name"),
        ({"zones": [{"name": "node-0", "type": "Node"}] * 2}, "zones[1].name"),
        (
            {
                "zones": [
                    {
                        "name": "node-0",
                        "type": "Node",
                        "resources": [{"name": "cpu", "capacity": "a lot"}],
                    }
                ]
            },
            "zones[0].resources",
        ),
        ({"cpus": "{"}, "metadata.annotations[node.koordinator.sh/cpu-topology]"),
        ({"cpus": '{"detail":[]}'}, "metadata.annotations[node.koordinator.sh/cpu-topology]"),
        (
            {"cpus": '{"detail":[{"id":9999,"core":0,"socket":0,"node":0}]}'},
            "metadata.annotations[node.koordinator.sh/cpu-topology]",
        ),
        ({"cpus": "[" * 100_000}, "metadata.annotations[node.koordinator.sh/cpu-topology]"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], field: str) -> None:
    text = change.pop("cpus", "")
    report = translate(
        decode({"metadata": {"name": "n0", "annotations": {device.CPU_TOPOLOGY: text}}, **change})
    )
    assert [problem for problem, _ in report.problems] == [field]


def test_wishes_of_pods() -> None:
    annotations = {
        SPEC: '{"numaTopologyPolicy":"Restricted","singleNUMANodeExclusive":"Preferred"}',
        CPUS: '{"requiredCPUBindPolicy":"SpreadByPCPUs",'
        '"preferredCPUExclusivePolicy":"NUMANodeLevel"}',
    }
    hints = read_numa_hints(annotations, {"koordinator.sh/qosClass": "LSE"}, 9500)
    assert hints == NumaAllocationHints(
        NumaPolicy.RESTRICTED,
        NumaExclusive.PREFERRED,
        is_pinned=True,
        required=CpuBind.SPREAD_BY_PCPUS,
        cpu_exclusive=CpuExclusive.NUMA_NODE_LEVEL,
    )


@pytest.mark.parametrize(
    ("labels", "priority", "is_pinned"),
    [
        ({"koordinator.sh/qosClass": "LSR"}, 0, True),
        ({"koordinator.sh/qosClass": "LS"}, 9000, False),
        ({"koordinator.sh/qosClass": "LSR"}, 5500, False),
        (
            {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-mid"},
            0,
            False,
        ),
    ],
)
def test_whose_cpus_are_pinned(labels: dict[str, str], priority: int, is_pinned: bool) -> None:  # noqa: FBT001
    assert read_numa_hints({}, labels, priority).is_pinned is is_pinned


@pytest.mark.parametrize(
    ("key", "text", "field"),
    [
        (SPEC, "{", f"metadata.annotations[{SPEC}]"),
        (SPEC, '{"numaTopologyPolicy":"Single"}', f"metadata.annotations[{SPEC}]"),
        (CPUS, '{"requiredCPUBindPolicy":1}', f"metadata.annotations[{CPUS}]"),
    ],
)
def test_annotations_that_cannot_be_read(key: str, text: str, field: str) -> None:
    ((path, _),) = read_numa_hints({key: text}, {}, 0).problems
    assert path.startswith(field)


@pytest.mark.parametrize("wishes", [PINNED, SINGLE, replace(SINGLE, is_pinned=True)])
def test_what_is_written_is_read_back(wishes: NumaAllocationHints) -> None:
    wishes = replace(wishes, cpu_exclusive=CpuExclusive.PCPU_LEVEL)
    plan = numa_cluster().plan(make_unit("u", [pod("p", wishes, cpu=3000, memory=1 << 33)]))
    (assignment,) = plan.placements[0].assignments
    assert given(assignment) != ([], "", [])
    (mine,) = (
        allocation
        for allocation in assignment.allocations
        if isinstance(allocation, NumaAllocation)
    )
    (write,) = mine.writes()
    assert (write.key, write.is_record) == (device.RESOURCE_STATUS, True)
    assert read_status(assignment.pod.uid, write.value, wishes) == mine


def test_the_form_of_the_annotation_is_that_of_koordinator() -> None:
    wishes = replace(SINGLE, is_pinned=True)
    plan = numa_cluster().plan(make_unit("u", [pod("p", wishes, cpu=4000, memory=1 << 33)]))
    (mine,) = plan.placements[0].assignments[0].allocations
    (write,) = mine.writes()
    assert msgspec.json.decode(write.value) == {
        "cpuset": "0-3",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "4", "memory": "8Gi"}}],
    }


RATIOS = "node.koordinator.sh/resource-amplification-ratio"


@pytest.mark.parametrize(
    ("text", "cpu", "memory"),
    [
        ("", 1000, 1000),
        ('{"cpu":1.5}', 1500, 1000),
        ('{"memory":2}', 1000, 2000),
        ('{"cpu":1.333,"memory":1.005}', 1330, 1010),
        ('{"cpu":100}', 100_000, 1000),
        ("{}", 1000, 1000),
    ],
)
def test_ratios_of_a_node_have_two_decimals(text: str, cpu: int, memory: int) -> None:
    assert read_amplification({RATIOS: text}) == Amplification(cpu, memory)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "is no JSON object of numbers"),
        ('{"cpu":"1.5"}', "is no JSON object of numbers"),
        ('{"cpu":NaN}', "is no JSON object of numbers"),
        ('{"cpu":0.5}', "cpu must be 1 to 100: 0.5"),
        ('{"cpu":1e300}', "cpu must be 1 to 100: 1e+300"),
        ('{"cpu":1.5,"memory":-1}', "memory must be 1 to 100: -1"),
        ('{"cpu":[[[[1]]]]}', "is no JSON object of numbers"),
    ],
)
def test_ratios_that_cannot_be_read_are_a_problem(text: str, problem: str) -> None:
    found = read_amplification({RATIOS: text})
    assert found.problem.startswith(problem)
    assert (found.cpu, found.memory) == (1000, 1000)


@for_all(st.text() | st.dictionaries(st.text(), st.floats() | st.integers()).map(json.dumps))
def test_no_text_of_ratios_is_fatal(text: str) -> None:
    found = read_amplification({RATIOS: text})
    assert 1000 <= found.cpu <= 100_000
    assert 1000 <= found.memory <= 100_000


def test_the_processor_of_a_node_is_read() -> None:
    body = make_report("n0", {"cpu": "16", "memory": "64Gi"}, 2)
    text = '{"cpuModel":"Xeon 8369B","hyperThreadEnabled":true,"turboEnabled":false,"vendorID":"x"}'
    body["metadata"]["annotations"]["node.koordinator.sh/cpu-basic-info"] = text
    report = translate(decode(body))
    assert (report.processor, report.is_amplified) == (Processor("Xeon 8369B", True, False), False)
    body["metadata"]["annotations"] |= {"node.koordinator.sh/cpu-basic-info": "[", RATIOS: "{}"}
    report = translate(decode(body))
    assert (report.processor, report.is_amplified) == (None, False)
    assert [field for field, _ in report.problems] == [
        "metadata.annotations[node.koordinator.sh/cpu-basic-info]"
    ]
    body["metadata"]["annotations"] |= {RATIOS: '{"cpu":1.5}'}
    assert translate(decode(body)).is_amplified
