"""The devices that a pod was given on its node, and the annotations that record them.

The form of ``device-allocated`` is Koordinator's. ``gpu-uuids`` is ours: a container can be given
its GPUs by the downward API without an agent on the node. It names all GPUs or is not written: an
incomplete list would give a container fewer GPUs than it was charged.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from koord.core.device.model import DeviceName, Share
from koord.core.device.names import GPU, DeviceType
from koord.core.pods import AnnotationWrite
from koord.core.units import format_amount

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"
GPU_UUIDS: Final = "scheduling.koordinator.sh/gpu-uuids"


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The devices of one pod (uid), in the order of types and minors, with their names.

    Virtual functions of a share are numbered as in its name, which is the device's own only as long
    as its Device object does not change: see :meth:`numbered`.
    """

    pod: str
    shares: tuple[Share, ...]
    names: tuple[DeviceName, ...]

    def writes(self) -> Iterable[AnnotationWrite]:
        yield AnnotationWrite(self.pod, ALLOCATED, self._encode())
        gpus = [
            (share.minor, name)
            for share, name in zip(self.shares, self.names, strict=True)
            if share.kind == GPU
        ]
        if gpus:
            yield AnnotationWrite(self.pod, GPU_MINORS, ",".join(str(minor) for minor, _ in gpus))
        if gpus and all(name.id for _, name in gpus):
            yield AnnotationWrite(self.pod, GPU_UUIDS, ",".join(name.id for _, name in gpus))

    def numbered(self, names: Mapping[tuple[DeviceType, int], DeviceName]) -> tuple[Share, ...]:
        """Return the shares with the numbers that their virtual functions have now."""
        return tuple(
            replace(share, functions=_renumber(share, name, names.get((share.kind, share.minor))))
            if share.functions
            else share
            for share, name in zip(self.shares, self.names, strict=True)
        )

    def _encode(self) -> str:
        by_type: dict[str, list[dict[str, Any]]] = {}
        for share, name in zip(self.shares, self.names, strict=True):
            by_type.setdefault(share.kind, []).append(dict(_encode_share(share, name)))
        return json.dumps(by_type, separators=(",", ":"))


def _renumber(share: Share, then: DeviceName, now: DeviceName | None) -> tuple[int, ...]:
    if now is None or now.functions == then.functions:
        return share.functions
    taken = {then.functions[number][1] for number in share.functions}
    return tuple(number for number, (_, bus_id) in enumerate(now.functions) if bus_id in taken)


def _encode_share(share: Share, name: DeviceName) -> Iterator[tuple[str, Any]]:
    yield "minor", share.minor
    yield "resources", {key: format_amount(key, amount) for key, amount in share.part}
    if name.id:
        yield "id", name.id
    extension: dict[str, Any] = {}
    if share.functions:
        functions = [name.functions[number] for number in share.functions]
        extension["vfs"] = [
            {"minor": minor, "busID": bus_id} if minor else {"busID": bus_id}
            for minor, bus_id in functions
        ]
    if share.template:
        extension["gpuSharedResourceTemplate"] = share.template
    if extension:
        yield "extension", extension
