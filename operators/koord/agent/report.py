"""Makes the Device object of a node from what was found and from what was reported before.

From the previous object come the numbers of devices that nothing else numbers, the times of
conditions, and devices that are missing now: pods may hold them, so they stay, unhealthy.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from koord.agent.partitions import propose
from koord.agent.reading import DeviceReading, Fault, ObservedDevice
from koord.api.keys.device import GPU_PARTITIONS
from koord.core.model.device_names import GPU

API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
HEALTHY: Final = "Healthy"
MISSING: Final = Fault("DeviceMissing", "the device was reported before, and is not found now")
_Object = Mapping[str, Any]


def make_device(
    node: _Object, reading: DeviceReading, faults: Mapping[str, Fault], before: _Object, now: str
) -> dict[str, Any]:
    """Return the Device of a node, of which the metadata is given; ``now`` as in the API.

    ``before`` is the object as it is, empty if there is none.
    """
    previous = {entry["id"]: entry for entry in _entries_of(before) if entry.get("id")}
    entries = [
        _make_entry(device, minor, previous.get(device.id, {}), faults.get(device.id), now)
        for device, minor in _number(reading.devices, previous)
    ]
    taken = {(entry["type"], entry["minor"]) for entry in entries}
    present = {device.id for device in reading.devices}
    lost = [
        entry
        for name, entry in previous.items()
        if name not in present and (entry["type"], entry["minor"]) not in taken
    ]
    entries += [_mark_missing(entry, faults.get(entry["id"], MISSING), now) for entry in lost]
    entries.sort(key=lambda entry: (entry["type"], entry["minor"]))
    metadata: dict[str, Any] = {"name": node["name"], "labels": dict(reading.labels)}
    if "uid" in node:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node["name"], "uid": node["uid"]}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    # While GPUs are missing the fabric is not what it is: the previous table stays, unless it is
    # about other GPUs by now, because they were renumbered.
    is_lost = any(entry["type"] == GPU for entry in lost)
    moved = any(previous.get(entry["id"], entry)["minor"] != entry["minor"] for entry in entries)
    table = _table_of(before) if is_lost and not moved else _make_table(reading)
    if table:
        metadata["annotations"] = {GPU_PARTITIONS: table}
    return {
        "apiVersion": API_VERSION,
        "kind": "Device",
        "metadata": metadata,
        "spec": {"devices": entries},
    }


def _table_of(device: _Object) -> str:
    annotations = device.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(GPU_PARTITIONS, ""))


def _make_table(reading: DeviceReading) -> str:
    gpus = [device for device in reading.devices if device.kind == GPU]
    table = reading.table or propose(gpus, reading.links)
    return json.dumps(table, separators=(",", ":")) if table else ""


def ids_of(device: _Object) -> set[str]:
    """Return the ids of the devices that an object lists."""
    return {entry["id"] for entry in _entries_of(device) if entry.get("id")}


def reported_faults(device: _Object) -> dict[str, Fault]:
    """Return what was wrong with devices when they were reported, by id."""
    return {
        entry["id"]: Fault(condition["reason"], condition["message"])
        for entry in _entries_of(device)
        if entry.get("id") and (condition := _condition(entry)) and condition["status"] != "True"
    }


def _entries_of(device: _Object) -> list[dict[str, Any]]:
    return list(device.get("spec", {}).get("devices") or ())


def _number(
    devices: tuple[ObservedDevice, ...], previous: Mapping[str, _Object]
) -> Iterator[tuple[ObservedDevice, int]]:
    """Yield each device with its minor: its own, its previous one, or the lowest that is free."""
    taken = {(entry["type"], entry["minor"]) for entry in previous.values()}
    taken |= {(device.kind, device.minor) for device in devices if device.minor is not None}
    for device in devices:
        if device.minor is not None:
            yield device, device.minor
        elif device.id in previous:
            yield device, previous[device.id]["minor"]
        else:
            minor = next(n for n in range(len(taken) + 1) if (device.kind, n) not in taken)
            taken.add((device.kind, minor))
            yield device, minor


def _make_entry(
    device: ObservedDevice, minor: int, before: _Object, fault: Fault | None, now: str
) -> dict[str, Any]:
    place = device.place
    entry: dict[str, Any] = {
        "type": device.kind,
        "minor": minor,
        "id": device.id,
        "health": fault is None,
        "resources": dict(device.resources),
        "topology": {
            "socketID": place.socket,
            "nodeID": place.numa,
            "pcieID": place.pcie,
            "busID": place.bus_id,
        },
        "conditions": [_make_condition(before, fault, now)],
    }
    if device.functions:
        functions = [{"minor": n, "busID": bus_id} for n, bus_id in enumerate(device.functions)]
        entry["vfGroups"] = [{"vfs": functions}]
    return entry


def _mark_missing(entry: _Object, fault: Fault, now: str) -> dict[str, Any]:
    return {**entry, "health": False, "conditions": [_make_condition(entry, fault, now)]}


def _make_condition(before: _Object, fault: Fault | None, now: str) -> dict[str, str]:
    status = "True" if fault is None else "False"
    last = _condition(before)
    return {
        "type": HEALTHY,
        "status": status,
        "reason": fault.reason if fault else "DeviceHealthy",
        "message": fault.message if fault else "device is healthy",
        "lastTransitionTime": last["lastTransitionTime"] if last.get("status") == status else now,
    }


def _condition(entry: _Object) -> _Object:
    conditions = entry.get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == HEALTHY), {})
