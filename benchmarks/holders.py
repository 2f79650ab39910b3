"""Who holds which device, read from the objects of the API server alone, and whether that can be.

Every device, or part of it, must have one holder: nothing here asks the operators or shares their
code for devices. A device is that with the id of a record, where a record has one.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from koord.api.quantity import parse_quantity

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
_ENDED: Final = ("Succeeded", "Failed")

DeviceAt: TypeAlias = tuple[str, str, int]
"""Node, type and minor."""
Holders: TypeAlias = dict[DeviceAt, list[str]]
"""The pods that hold a device, in whole or in part."""


class HeldTwiceError(AssertionError):
    """More is held of a device than there is of it."""


def read_holders(
    devices: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> Holders:
    """Return who holds what. Raises HeldTwiceError with everything that is held twice.

    Nodes without a Device are left out.
    """
    devices = list(devices)
    nodes = {device["metadata"]["name"] for device in devices}
    totals = {
        (device["metadata"]["name"], one["type"], one["minor"]): {
            key: parse_quantity(amount).whole for key, amount in one.get("resources", {}).items()
        }
        for device in devices
        for one in device["spec"].get("devices") or ()
    }
    ids = {
        (device["metadata"]["name"], one["type"], one["minor"]): one["id"]
        for device in devices
        for one in device["spec"].get("devices") or ()
        if one.get("id")
    }
    now = {(*at[:2], name): at for at, name in ids.items()}
    held: Counter[tuple[DeviceAt, str]] = Counter()
    functions: Counter[tuple[str, str]] = Counter()
    holders: Holders = {}
    for pod, recorded, given in _allocations(pods):
        at = now.get((*recorded[:2], given.get("id", "")), recorded)
        is_gone = bool(given.get("id")) and ids.get(at, given["id"]) != given["id"]
        if is_gone or at[0] not in nodes:
            continue
        holders.setdefault(at, []).append(pod)
        held[at, ""] += 0
        for key, amount in given.get("resources", {}).items():
            held[at, key] += parse_quantity(amount).whole
        for one in (given.get("extension") or {}).get("vfs") or ():
            functions[at[0], one["busID"]] += 1
    wrong = [
        f"{at} is no device of its node" if at not in totals else f"{at}: {amount} of {key} is held"
        for (at, key), amount in held.items()
        if at not in totals or (key and amount > totals[at].get(key, 0))
    ]
    wrong += [f"{function} is held {n} times" for function, n in functions.items() if n > 1]
    if wrong:
        raise HeldTwiceError("; ".join(sorted(wrong)))
    return holders


def _allocations(
    pods: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[str, DeviceAt, Mapping[str, Any]]]:
    for pod in pods:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        text = (meta.get("annotations") or {}).get(ALLOCATED)
        if not node or not text or pod.get("status", {}).get("phase") in _ENDED:
            continue
        for kind, listed in json.loads(text).items():
            for given in listed:
                yield f"{meta['namespace']}/{meta['name']}", (node, kind, given["minor"]), given
