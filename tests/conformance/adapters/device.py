"""Adapters for devices: cases as API objects, allocated by the function that the planner uses."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from tests.conformance.adapters.device_cpus import unpack
from tests.conformance.compare import Exact

from koord.api.quantity import InvalidQuantityError
from koord.core.device.allocate import SLICED, AllocationSettings, allocate, drop_planned, size
from koord.core.device.causes import DeviceCause
from koord.core.device.choice import score, score_node
from koord.core.device.inventory import NamedDevices, make_inventory
from koord.core.device.ledger import DeviceLedger, complete
from koord.core.device.model import (
    ANYWHERE,
    KOORDINATOR,
    DeviceReport,
    DeviceRequest,
    DeviceScoring,
    DeviceShare,
    DeviceTerms,
    Scope,
    make_part,
)
from koord.core.device.numa_hints import find_hints
from koord.core.device.reasons import InvalidDeviceAnnotation
from koord.core.device.request import (
    DeviceAllocationHints,
    InvalidRequest,
    convert,
    read_normal,
    read_request,
    split_gpus,
)
from koord.core.device.states import NO_DEVICES, DeviceDemand, LedgerStates
from koord.core.model.device_names import GPU, GPU_MEMORY, GPU_MEMORY_RATIO
from koord.kube.decode import MALFORMED
from koord.kube.translate.amounts import parse_amount
from koord.kube.translate.devices import DeviceTranslator, read_allocated, read_device_hints
from koord.kube.wire import WireCustomResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Fields = dict[str, Any]

LABELS = {
    "nvidia.com/gpu": "NvidiaGPU",
    "amd.com/gpu": "AMDGPU",
    "dcu.com/gpu": "HygonDCU",
    "koordinator.sh/gpu": "KoordGPU",
    "koordinator.sh/gpu.shared": "GPUShared",
    "koordinator.sh/gpu-core": "GPUCore",
    "koordinator.sh/gpu-memory": "GPUMemory",
    "koordinator.sh/gpu-memory-ratio": "GPUMemoryRatio",
    "huawei.com/npu-core": "HuaweiNPUCore",
    "huawei.com/npu-cpu": "HuaweiNPUCPU",
    "huawei.com/npu-dvpp": "HuaweiNPUDVPP",
    "koordinator.sh/rdma": "RDMA",
    "koordinator.sh/fpga": "FPGA",
}
"""The names of resources in combinations."""


def amounts_of(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {key: parse_amount(key, text) for key, text in (quantities or {}).items()}


def show(part: Any) -> Fields:
    return Exact({key: str(amount) for key, amount in dict(part).items()})


def read_report(device: Any, labels: Mapping[str, str]) -> DeviceReport | None:
    """Return what a Device says; None if there is none, or if it is no Device."""
    if not isinstance(device, dict):
        return None
    meta, spec = device.get("metadata") or {}, device.get("spec") or {}
    manifest = {
        "metadata": {
            "name": meta.get("name", ""),
            "uid": "device",
            "annotations": meta.get("annotations"),
            "labels": {**(meta.get("labels") or {}), **labels},
        },
        "spec": {**spec, "devices": list(with_own_ids(spec.get("devices") or ()))},
    }
    try:
        wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)
    except MALFORMED:
        return None
    return DeviceTranslator().translate(wire)


def with_own_ids(entries: Iterable[Fields]) -> Iterator[Fields]:
    """Give devices of one id ids of their own: Koordinator does not compare them, and we do."""
    seen: set[tuple[Any, Any]] = set()
    for at, one in enumerate(entries):
        own = one.get("type"), one.get("id")
        is_known = bool(own[1]) and own in seen
        seen.add(own)
        yield one | {"id": f"{own[1]}-{at}"} if is_known else one


def shares_of(allocations: Any, report: DeviceReport) -> list[DeviceShare]:
    """Return what the record of a pod says; one that cannot be read says nothing."""
    with suppress(*MALFORMED):
        read = read_allocated("pod", json.dumps(allocations or {}))
        return list(read.numbered(NamedDevices(report.names)))
    return []


class Scene:
    """The node of a case, with what is used of it."""

    def __init__(self, case: Fields) -> None:
        report = read_report(case.get("device"), case.get("device_labels") or {})
        self.is_known = report is not None
        self.report = report or DeviceReport("")
        inventory = make_inventory(self.report, case.get("node_labels") or {})
        ledger = DeviceLedger(inventory, is_exact=False)
        for pod in case.get("used") or ():
            ledger = ledger.with_shares(shares_of(pod.get("allocations"), self.report))
        preemptible = shares_of(case.get("preemptible"), self.report)
        self.ledger = ledger.with_shares(preemptible, -1)
        self.terms = self._terms(case.get("designated_allocation"))
        scoring = case.get("scoring")
        templates = {
            key: {
                make_part(amounts_of(one)): name
                for name, one in sorted(named.items(), reverse=True)
            }
            for key, named in (case.get("templates") or {}).items()
        }
        self.settings = AllocationSettings(
            KOORDINATOR,
            templates,
            DeviceScoring(scoring["weights"], scoring["type"] == "MostAllocated")
            if scoring
            else None,
        )

    def _terms(self, designated: Mapping[str, Any] | None) -> DeviceTerms:
        if designated is None:
            return ANYWHERE
        shares = shares_of(designated, self.report)
        keys = {(one.kind, one.minor): one for one in shares}
        return DeviceTerms(
            required={key: one.part for key, one in keys.items()},
            functions={key: frozenset(one.functions) for key, one in keys.items() if one.functions},
        )

    def show(self, shares: tuple[DeviceShare, ...]) -> Fields:
        shown: Fields = {}
        for one in shares:
            entry: Fields = {"minor": one.minor, "resources": show(one.part)}
            functions = self.report.names[one.kind, one.minor].functions
            extension: Fields = {}
            if one.functions:
                taken = (functions[number] for number in one.functions)
                extension["vfs"] = [{"minor": minor, "busID": bus_id} for minor, bus_id in taken]
            if one.template:
                extension["gpuSharedResourceTemplate"] = one.template
            shown.setdefault(one.kind, []).append(entry | {"extension": extension})
        return shown


def request_of(case: Fields) -> DeviceRequest | InvalidRequest | InvalidDeviceAnnotation | None:
    """Return what a pod asks for, or why that cannot be said."""
    pod = case.get("pod") or {}
    wishes = read_device_hints(
        pod.get("annotations") or case.get("annotations") or {}, pod.get("labels") or {}
    )
    if wishes.problems:
        return InvalidDeviceAnnotation("pod", wishes.problems)
    if "normalised_device_requests" in case:
        return normal_request(case["normalised_device_requests"] or {}, wishes)
    return read_request(amounts_of(pod.get("requests")), wishes, KOORDINATOR)


def normal_request(
    groups: Mapping[str, Any], wishes: DeviceAllocationHints
) -> DeviceRequest | InvalidRequest:
    """Return a request whose resources are in normal form already."""
    return read_normal(
        {kind: amounts_of(group) for kind, group in groups.items()}, wishes, KOORDINATOR
    )


def read_case(case: Fields) -> tuple[DeviceRequest, Scene] | Fields:
    """Return the request and the node of a case; or the answer, if it does not come to that."""
    try:
        request = request_of(case)
    except InvalidQuantityError as error:
        return failed(str(error), is_resolvable=False)
    if request is None:
        return {"allocations": Exact({}), "fits": True}
    if not isinstance(request, DeviceRequest):
        return failed(describe(request), is_resolvable=False)
    scene = Scene(case)
    return (request, scene) if scene.is_known else fit_without_device(request, scene)


def describe(problem: InvalidRequest | InvalidDeviceAnnotation) -> str:
    return problem.describe() if isinstance(problem, InvalidRequest) else problem.text()


def fit_without_device(request: DeviceRequest, scene: Scene) -> Fields:
    fit = LedgerStates(scene.settings).fit(NO_DEVICES, DeviceDemand(request))
    if not fit.count:
        return failed(fit.device_cause.describe(), is_resolvable=fit.device_cause.is_resolvable)
    return {"allocations": Exact({}), "fits": True}


def allocate_case(case: Fields) -> Fields:
    read = read_case(case)
    if isinstance(read, dict):
        return read
    request, scene = read
    if case.get("phase") == "Filter":
        request = drop_planned(scene.ledger, request)
    found = allocate(scene.ledger, request, scene.terms, scene.settings)
    if isinstance(found, DeviceCause):
        return failed(found.describe(), is_resolvable=found.is_resolvable)
    return {"allocations": Exact(scene.show(found)), "fits": True}


def failed(text: str, *, is_resolvable: bool) -> Fields:
    code = "Unschedulable" if is_resolvable else "UnschedulableAndUnresolvable"
    return {"error": text, "error_message": text, "code": code}


def validate(case: Fields) -> Fields:
    requests = amounts_of(case["requests"])
    normal = convert(requests)
    if isinstance(normal, InvalidRequest):
        return {"error": normal.describe()}
    return {"normalised": show(normal), "combination": [LABELS[key] for key in requests]}


def convert_memory(case: Fields) -> Fields:
    total = amounts_of({GPU_MEMORY: case["total_memory"], GPU_MEMORY_RATIO: "100"})
    key, given = (GPU_MEMORY_RATIO, "ratio") if "ratio" in case else (GPU_MEMORY, "bytes")
    part = dict(complete(make_part(amounts_of({key: case[given]})), total))
    return {"bytes": part[GPU_MEMORY], "ratio": part[GPU_MEMORY_RATIO]}


def split(case: Fields) -> Fields:
    group = amounts_of(case["normalised_device_requests"]["gpu"])
    count, part, is_shared = split_gpus(group, KOORDINATOR)
    return {"per_gpu": show(part), "count": count, "shared": is_shared}


def fill_memory(case: Fields) -> Fields:
    filled = []
    totals = (case.get("device_total") or {}).get("gpu") or {}
    for entry in (case.get("allocations") or {}).get("gpu") or ():
        total = amounts_of(totals.get(str(entry["minor"])))
        if not total.get(GPU_MEMORY):
            return {
                "error": f"no healthy gpu device with minor {entry['minor']} of allocation",
                "error_message": f"no healthy gpu device with minor {entry['minor']} of allocation",
            }
        part = complete(make_part(amounts_of(entry["resources"])), total)
        filled.append({"minor": entry["minor"], "resources": show(part)})
    return {"allocations": {"gpu": filled}}


def split_devices(case: Fields) -> Fields:
    read = read_case(case)
    if isinstance(read, dict):
        return read
    request, scene = read
    found = size(scene.ledger.inventory, request.types[0])
    if isinstance(found, DeviceCause):
        return failed(found.describe(), is_resolvable=found.is_resolvable)
    return {"per_device": show(found.parts[0]), "count": len(found.parts)}


def parse_requirements(case: Fields) -> Fields:
    request = request_of(case)
    if isinstance(request, InvalidRequest | InvalidDeviceAnnotation):
        return {"error": describe(request)}
    if request is None or GPU not in request.by_type:
        return {"requirements": None}
    gpus = request.by_type[GPU]
    templates = {
        make_part(amounts_of(one))
        for named in (case.get("templates") or {}).values()
        for one in named.values()
    }
    is_sliced = gpus.is_shared and any(key in SLICED for key, _ in gpus.parts[0])
    if is_sliced and gpus.parts[0] not in templates:
        return {"error": "no matched GPU shared resource template"}
    wish, scope = request.partition, gpus.hint.scope
    names = {
        Scope.NODE: "Node",
        Scope.NUMA_NODE: "NUMANode",
        Scope.PCIE: "PCIe",
        Scope.DEVICE: "Device",
    }
    return {
        "requirements": {
            "numberOfGPUs": len(gpus.parts),
            "requestsPerGPU": show(gpus.parts[0]),
            "gpuShared": gpus.is_shared,
            "honorGPUPartition": wish is not None,
            "restrictedGPUPartition": wish is not None and wish.is_restricted,
            "ringBusBandwidth": wish.bandwidth if wish else None,
            "requiredTopologyScope": names[scope] if scope else None,
            "requiredTopologyScopeLevel": scope // 10 if scope else 0,
            "enforceGPUSharedResourceTemplate": is_sliced,
        }
    }


def score_device(case: Fields) -> Fields:
    scoring = DeviceScoring(case["scoring"]["weights"], case["scoring"]["type"] == "MostAllocated")
    total, free, part = (amounts_of(case[key]) for key in ("total", "free", "per_device_request"))
    return {"score": score(total, free, part, scoring)}


def score_whole_node(case: Fields) -> Fields:
    read = read_case(case)
    if isinstance(read, dict):
        return {"score": 0, **read}
    request, scene = read
    found = allocate(scene.ledger, request, scene.terms, scene.settings)
    if isinstance(found, DeviceCause):
        return failed(found.describe(), is_resolvable=found.is_resolvable)
    assert scene.settings.scoring is not None
    return {"score": score_node(scene.ledger, request, scene.settings.scoring, KOORDINATOR)}


def hints_of(case: Fields) -> Fields:
    read = read_case(case)
    if isinstance(read, dict):
        return {"hints": {}, **read}
    request, scene = read
    found = find_hints(scene.ledger, request, scene.terms, scene.settings)
    if isinstance(found, DeviceCause):
        return failed(found.describe(), is_resolvable=found.is_resolvable)
    return {
        "hints": {
            kind: hints
            and [
                {
                    "affinity": unpack(one.nodes),
                    "preferred": one.is_preferred,
                    "score": one.score,
                }
                for one in hints
            ]
            for kind, hints in found.items()
        }
    }


ADAPTERS = {
    "device_numa_hints": hints_of,
    "allocate": allocate_case,
    "allocate_reserve": allocate_case,
    "filter": allocate_case,
    "validate_device_request": validate,
    "convert_device_request": validate,
    "memory_conversion": convert_memory,
    "gpu_request_split": split,
    "fill_gpu_memory": fill_memory,
    "device_request_split": split_devices,
    "parse_gpu_requirements": parse_requirements,
    "score_device": score_device,
    "score_node": score_whole_node,
}
