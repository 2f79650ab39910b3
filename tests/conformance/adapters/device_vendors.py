"""Adapters for the rules around devices: vendors, node resources, webhook, partition tables."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.builders import make_pod
from tests.cluster import make_cluster
from tests.conformance.adapters.device import read_report
from tests.conformance.compare import Exact

from koord.core.device.allocate import allocate
from koord.core.device.allocation import ALLOCATED, GPU_MINORS, GPU_UUIDS, AllocatedDevices
from koord.core.device.causes import ISOLATION, DeviceCause
from koord.core.device.inventory import HOPPER_PARTITIONS, NVSWITCH_LINK, make_inventory
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    KOORDINATOR,
    DeviceName,
    DeviceReport,
    DeviceRequest,
    DeviceShare,
    NodeDevice,
    make_part,
)
from koord.core.device.node_resources import PUBLISHED, Publishing, publish
from koord.core.device.request import (
    DeviceAllocationHints,
    describe_problems,
    find_problems,
    normalise,
    read_request,
)
from koord.core.device.vendors import (
    BIND_TIMESTAMP,
    CORE_LIMIT,
    DEVICE_PLUGINS,
    HAMI_NODE,
    ISOLATION_LABEL,
    MEMORY_LIMIT,
    MODEL_LABEL,
    VENDOR_LABEL,
    AdapterRejected,
    AllocatedGpu,
    Locked,
    hand_off,
    has_nvswitch,
    take_lock,
)
from koord.core.engine.allocator import score_terms
from koord.core.engine.scoring import Scoring, ScoringStrategy, Weighed, score_of
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY_RATIO
from koord.core.model.nodes import Node
from koord.core.model.pod_requests import InitContainer, simple_requests
from koord.core.plugins.scarce_resources import ScarceRules, score_nodes
from koord.kube.translate.amounts import parse_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.cluster import FakeCluster

    from koord.core.engine.cycle import Cycle
    from koord.core.engine.scoring import ScoreTerms
    from koord.core.model.pods import AnnotationWrite, Pod

Fields = dict[str, Any]

OURS = (ALLOCATED, GPU_UUIDS, MEMORY_LIMIT, CORE_LIMIT)
"""What Koordinator does not write, or elsewhere."""

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NANO = int(NOW.timestamp()) * 10**9
MOMENT = re.compile(r"<now((?:-\d+[smh])*)[ -](RFC3339|unix-nano)>")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}


def parse(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    return {key: parse_amount(key, text) for key, text in (amounts or {}).items()}


# --- device plugins ------------------------------------------------------------------------------


class Clock:
    """Replaces the moments that a case names by moments, and back."""

    def __init__(self) -> None:
        self.names = {str(NANO): "<now-unix-nano>", f"{NOW:%Y-%m-%dT%H:%M:%SZ}": "<now RFC3339>"}

    def read(self, text: str) -> str:
        return MOMENT.sub(self._moment, text)

    def write(self, value: Mapping[str, Any]) -> Fields:
        text = json.dumps(value)
        for moment, name in self.names.items():
            text = text.replace(moment, name)
        found: Fields = json.loads(text)
        return found

    def _moment(self, match: re.Match[str]) -> str:
        parts = re.findall(r"(\d+)([smh])", match[1])
        at = NOW - sum((timedelta(**{UNITS[u]: int(n)}) for n, u in parts), timedelta())
        nano = str(int(at.timestamp()) * 10**9)
        text = f"{at:%Y-%m-%dT%H:%M:%SZ}" if match[2] == "RFC3339" else nano
        self.names[text] = match[0]
        return text


def read_gpus(allocation: list[Fields]) -> list[AllocatedGpu]:
    return [
        AllocatedGpu(
            minor=one.get("minor", 0),
            amounts=parse(one.get("resources")),
            id=one.get("id", ""),
            template=(one.get("extension") or {}).get("gpuSharedResourceTemplate", ""),
        )
        for one in allocation
    ]


def device_plugin_adapt(case: Fields) -> Fields:
    """Return what one of Koordinator's adapters writes: (general), (general-gpu), of a vendor."""
    vendor = case["adapter"].strip("()")
    gpus = read_gpus(case.get("allocation") or [])
    model = case.get("gpu_model", "")
    if vendor in DEVICE_PLUGINS:
        found = DEVICE_PLUGINS[vendor].adapt(gpus, model)
        if isinstance(found, AdapterRejected):
            return {"error": found.describe()}
    general = {"general": {BIND_TIMESTAMP}, "general-gpu": {GPU_MINORS, HAMI_NODE}}
    found = [
        one
        for one in write(case["pod"], vendor, model, gpus, case["node_name"])
        if one.key in general.get(vendor, ()) or one.key not in set().union(*general.values())
    ]
    return Clock().write({"pod": merge(case["pod"], found)})


def write(
    pod: Fields, vendor: str, model: str, gpus: list[AllocatedGpu], node: str
) -> list[AnnotationWrite]:
    """Return what is written to a pod with these GPUs, without what Koordinator does not write."""
    provider = (pod.get("labels") or {}).get(ISOLATION_LABEL, "")
    shares = tuple(DeviceShare(GPU, one.minor, make_part(one.amounts)) for one in gpus)
    names = tuple(DeviceName(one.id) for one in gpus)
    handed = hand_off(gpus, vendor, model, provider, node)
    writes = AllocatedDevices("uid", shares, names, handed).writes()
    return [one for one in writes if not one.key.startswith(OURS)]


def merge(pod: Fields, writes: list[AnnotationWrite]) -> Fields:
    labels = {one.key: one.value for one in writes if one.is_label}
    annotations = {
        one.key: str(NANO) if one.is_time else one.value for one in writes if not one.is_label
    }
    return pod | {
        "labels": (pod.get("labels") or {}) | labels,
        "annotations": (pod.get("annotations") or {}) | annotations,
    }


def device_plugin_adapt_full(case: Fields) -> Fields:
    clock = Clock()
    pod, node, other = case["pod"], case["node"] or {}, case.get("existing_pod")
    pods = {f"{one['namespace']}/{one['name']}" for one in (pod, other) if one}
    held = {key: clock.read(text) for key, text in (node.get("annotations") or {}).items()}
    is_there = case["device_name"] == case["node_name"]
    device = (case.get("device_labels") or {}) if is_there else {}
    vendor, given = device.get(VENDOR_LABEL, ""), case.get("allocations") or {}
    gpus = read_gpus(given.get(GPU) or [])
    model = device.get(MODEL_LABEL, "")
    writes = write(pod, vendor, model, gpus, case["node_name"])
    locks, plugin = {}, DEVICE_PLUGINS.get(vendor)
    if gpus and plugin is not None and plugin.lock:
        key = f"{pod['namespace']}/{pod['name']}"
        locks[plugin.lock] = take_lock(
            held.get(plugin.lock), key, lambda holder, _: holder in pods, NOW
        )
    is_locked = any(isinstance(one, Locked) for one in locks.values())
    answer = {
        "pod": merge(pod, writes),
        "node": node | {"annotations": Exact(held if is_locked else held | locks)},
    }
    # Without a Device there is no ledger, so nothing is ever given out there.
    return clock.write(answer) | {"error": is_locked or not device}


def shared_gpu_node_gate(case: Fields) -> Fields:
    gpu = NodeDevice(0, make_part(dict.fromkeys((GPU_CORE, GPU_MEMORY_RATIO), 100)))
    report = DeviceReport("n0", ((GPU, (gpu,)),), {})
    asked = {GPU_MEMORY_RATIO: 50 if case["gpu_shared"] else 100}
    wishes = DeviceAllocationHints(isolation=case["pod_labels"].get(ISOLATION_LABEL, ""))
    request = read_request(asked, wishes, KOORDINATOR)
    assert isinstance(request, DeviceRequest)
    found = allocate(DeviceLedger(make_inventory(report, case["node_labels"])), request)
    if not isinstance(found, DeviceCause):
        return {"fits": True}
    # Koordinator ends the whole attempt where a node lacks the provider; ours goes on.
    code = "Error" if found.cause is ISOLATION else "UnschedulableAndUnresolvable"
    return {"error": found.describe(), "code": code}


# --- nodes ---------------------------------------------------------------------------------------


def node_resources_from_device(case: Fields) -> Fields:
    report = read_report(case.get("device"), {})
    listed = report.devices if report is not None else ()
    healthy = {kind: [dict(one.total) for one in some if one.total] for kind, some in listed}
    labels = report.labels if report is not None else {}
    found = publish(healthy, labels, Publishing(shared=case["enable_sync_gpu_shared"]))
    return {
        "capacity_and_allocatable": Exact(found.amounts),
        "labels": Exact(found.labels),
        "remove_resources": sorted(found.removed.intersection(PUBLISHED[GPU])),
    }


def partition_table(case: Fields) -> Fields:
    if not all(has_nvswitch(case["vendor"], one) for one in case["models"]):
        return {}
    table = {
        str(size): [[n for n in range(64) if one.minors >> n & 1] for one in listed]
        for size, listed in HOPPER_PARTITIONS
    }
    (score,) = {one.score for _, listed in HOPPER_PARTITIONS for one in listed}
    return {"table": Exact(table), "allocation_score": score, "gpu_link_type": NVSWITCH_LINK}


# --- scores --------------------------------------------------------------------------------------


def fit_plus_score(case: Fields) -> Fields:
    plus = {
        name: Weighed(ScoringStrategy(one["type"]), one.get("weight") or 1)
        for name, one in case["resources"].items()
    }
    cluster, pod = make_scored(case)
    cycle = cluster.open_cycle()
    (_, terms) = score_terms(cycle, pod.shape, Scoring(plus=plus))
    return rank({name: score_node(cycle, terms, row) for name, row in cycle.table.live_rows()})


def score_node(cycle: Cycle, terms: ScoreTerms, row: int) -> int:
    used, sizes = (
        one[terms.columns, row].tolist() for one in (cycle.used, cycle.table.allocatable)
    )
    return score_of(terms.terms, used, sizes, 1)


def scarce_avoidance_score(case: Fields) -> Fields:
    rules = ScarceRules(frozenset(case["scarce_resources"]))
    cluster, pod = make_scored(case)
    table = cluster.state.table
    found = score_nodes(rules, table, pod.shape)
    return rank({name: int(found[row]) for name, row in table.live_rows()})


def make_scored(case: Fields) -> tuple[FakeCluster, Pod]:
    """Make the nodes of a case, each with a pod that uses what is requested there."""
    cluster = make_cluster()
    for name, node in case["nodes"].items():
        cluster.nodes(Node(name, allocatable=parse(node.get("allocatable"))))
        used = make_pod(f"on-{name}")
        for resource, amount in parse(node.get("requested")).items():
            used.resource(resource, amount)
        cluster.pods(used.running(name))
    pod = make_pod("pod")
    for resource, amount in parse(case["pod_requests"]).items():
        pod.resource(resource, amount)
    return cluster, pod.build()


def rank(scores: Mapping[str, int]) -> Fields:
    order = sorted(scores, key=lambda name: (-scores[name], name))
    return {"order": order, "scores": Exact(scores)}


# --- pods ----------------------------------------------------------------------------------------


def webhook_mutate(case: Fields) -> Fields:
    found = normalise(parse(case["container_requests"]), is_strict=True)
    return {"container_requests": Exact(found)}


def webhook_validate(case: Fields) -> Fields:
    faults = list(find_problems(parse(case["container_requests"]))) if case["enabled"] else []
    return {"allowed": not faults, "reason": describe_problems(faults)}


def pod_request_sum(case: Fields) -> Fields:
    inits = [
        InitContainer(parse(one["requests"]), bool(one.get("restart_policy_always")))
        for one in case["init_containers"]
    ]
    found = simple_requests(map(parse, case["containers"]), inits)
    amount = found.get(case["resource"], 0)
    return {"milli_value": amount if case["resource"] == "cpu" else amount * 1000}


ADAPTERS: dict[str, Callable[[Fields], Fields]] = {
    "device_plugin_adapt": device_plugin_adapt,
    "device_plugin_adapt_full": device_plugin_adapt_full,
    "fit_plus_score": fit_plus_score,
    "node_resources_from_device": node_resources_from_device,
    "partition_table": partition_table,
    "pod_request_sum": pod_request_sum,
    "scarce_avoidance_score": scarce_avoidance_score,
    "shared_gpu_node_gate": shared_gpu_node_gate,
    "webhook_mutate": webhook_mutate,
    "webhook_validate": webhook_validate,
}
