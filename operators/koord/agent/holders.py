"""The pods of this node that hold GPUs, as the status of its Device lists them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koord.core.model.device_names import GPU


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A pod, and the minors of the GPUs that it holds, whole or in part."""

    namespace: str
    name: str
    uid: str
    minors: frozenset[int]


def read_holders(device: Mapping[str, Any]) -> dict[str, GpuHolder]:
    """Return the holders by uid; what of a status cannot be read is left out."""
    status = device.get("status")
    return {holder.uid: holder for holder in _list_holders(status)} if status else {}


def _list_holders(status: Mapping[str, Any]) -> Iterator[GpuHolder]:
    for allocation in status.get("allocations") or ():
        for entry in allocation.get("entries") or () if allocation.get("type") == GPU else ():
            uid = str(entry.get("uuid") or "")
            minors = frozenset(int(minor) for minor in entry.get("minors") or ())
            if uid and minors:
                name, namespace = str(entry.get("name") or ""), str(entry.get("namespace") or "")
                yield GpuHolder(namespace, name, uid, minors)
