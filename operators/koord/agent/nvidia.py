"""NVIDIA's GPUs, as its library NVML describes them; XID events are faults.

The library is only there where the driver is. It may come and go with the driver, so it is looked
for at every read until it can be used.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from typing_extensions import override

from koord.agent.reading import (
    SWITCH,
    DeviceReading,
    Fault,
    ObservedDevice,
    VendorReader,
    make_label,
)
from koord.agent.sysfs import Sysfs, normalise_address
from koord.core.device.vendors import (
    DRIVER_LABEL,
    MODEL_LABEL,
    NVIDIA,
    VENDOR_LABEL,
    VENDORS,
    normalise_model,
)
from koord.core.model.device_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE

IGNORED_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of applications, not of the GPU (source: Koordinator)."""
_UNAVAILABLE: Final = "NvmlUnavailable"


def load_nvml() -> Any:
    """Return NVIDIA's bindings, the extra ``nvml`` of this package. Raises ImportError."""
    return import_module("pynvml")


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as it was read last. ``handle`` and ``index`` are those of the library."""

    index: int
    minor: int
    uuid: str
    name: str
    memory: int
    handle: Any

    @property
    def model(self) -> str:
        """The label of its model."""
        return make_label(normalise_model(self.name))


UNNAMED: Final = ""
"""Instead of the UUID of a GPU that cannot even be named any more."""


class Nvidia(VendorReader):
    """Reads GPUs; ``load`` returns a module with the functions of ``pynvml``."""

    def __init__(self, sysfs: Sysfs, load: Callable[[], Any] = load_nvml) -> None:
        self._sysfs = sysfs
        self._load = load
        self._nvml: Any = None
        self._events: Any = None
        self._ids: tuple[str, ...] = ()
        self.cards: tuple[Card, ...] = ()
        """The GPUs that could be read last."""
        self.xids: Counter[tuple[str, int]] = Counter()
        """Errors that the driver has reported, those of applications included, by UUID."""

    @property
    def library(self) -> Any:
        """The module while its session is open, else None; any thread may call its functions."""
        return self._nvml

    @override
    def read(self) -> DeviceReading:
        fault = self._open()
        if fault is not None:
            has_gpus = bool(self._sysfs.find_displays(VENDORS[NVIDIA].pci))
            return DeviceReading(fault=fault if has_gpus or self._ids else None)
        nvml = self._nvml
        try:
            driver, count = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._close()
            return DeviceReading(fault=Fault(_UNAVAILABLE, str(error)))
        return self._read_all(driver, count)

    @override
    def wait(self, seconds: float) -> Mapping[str, Fault]:
        if self._events is None:
            time.sleep(seconds)
            return {}
        nvml = self._nvml
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except nvml.NVMLError_Timeout:
            return {}
        except nvml.NVMLError:
            self._close()
            time.sleep(seconds)
            return {}
        xid = int(event.eventData)
        try:
            uuid = str(nvml.nvmlDeviceGetUUID(event.device))
        except nvml.NVMLError:
            uuid = UNNAMED
        self.xids[uuid, xid] += 1
        if xid in IGNORED_XIDS:
            return {}
        fault = Fault(f"Xid{xid}", f"the driver reported XID {xid}")
        # A GPU that cannot be named may be any of them.
        return {uuid: fault} if uuid != UNNAMED else dict.fromkeys(self._ids, fault)

    def _open(self) -> Fault | None:
        if self._nvml is not None:
            return None
        try:
            nvml = self._load()
        except ImportError as error:
            return Fault(_UNAVAILABLE, str(error))
        try:
            nvml.nvmlInit()
            self._events = _subscribe(nvml)
        except nvml.NVMLError as error:
            return Fault(_UNAVAILABLE, str(error))
        self._nvml = nvml
        return None

    def _close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
        self._nvml = self._events = None

    def _read_all(self, driver: str, count: int) -> DeviceReading:
        nvml = self._nvml
        gpus, cards, fault = [], [], None
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                gpu, name = self._read_gpu(handle), str(nvml.nvmlDeviceGetName(handle))
            except nvml.NVMLError as error:
                fault = Fault("NvmlError", f"GPU {index} of {count}: {error}")
                continue
            gpus.append(gpu)
            memory = int(gpu.resources[GPU_MEMORY])
            cards.append(Card(index, gpu.minor or 0, gpu.id, name, memory, handle))
        self.cards = tuple(cards)
        models = {card.model for card in cards}
        self._ids = tuple(gpu.id for gpu in gpus) or self._ids
        labels = {VENDOR_LABEL: NVIDIA, DRIVER_LABEL: make_label(driver)} if gpus else {}
        # GPUs of different models have none in common.
        if len(models) == 1:
            labels[MODEL_LABEL] = models.pop()
        minors = {gpu.place.bus_id: gpu.minor for gpu in gpus if gpu.minor is not None}
        links = [
            (gpu.minor, minors.get(peer, SWITCH))
            for gpu, card in zip(gpus, cards, strict=True)
            if gpu.minor is not None
            for peer in _linked_to(nvml, card.handle)
        ]
        return DeviceReading(tuple(gpus), labels, tuple(links), fault=fault)

    def _read_gpu(self, handle: Any) -> ObservedDevice:
        nvml = self._nvml
        address = normalise_address(nvml.nvmlDeviceGetPciInfo(handle).busId)
        resources = {
            GPU_CORE: str(WHOLE),
            GPU_MEMORY: str(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            GPU_MEMORY_RATIO: str(WHOLE),
        }
        return ObservedDevice(
            GPU,
            nvml.nvmlDeviceGetUUID(handle),
            self._sysfs.place_of(address),
            resources,
            minor=nvml.nvmlDeviceGetMinorNumber(handle),
            fault=_find_mig(nvml, handle),
        )


def _subscribe(nvml: Any) -> Any:
    events = nvml.nvmlEventSetCreate()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            continue  # virtual GPUs have no events; a GPU that is lost is found by reading
    return events


def _find_mig(nvml: Any, handle: Any) -> Fault | None:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return None  # such GPUs, or drivers, know no MIG
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    return Fault("MigEnabled", "the GPU is divided by MIG, so nobody can use it as a whole")


def _linked_to(nvml: Any, handle: Any) -> Iterator[str]:
    """Yield the PCI address at the other end of each NVLink that is up."""
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            is_up = nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
            if is_up:
                other = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
                yield normalise_address(other)
        except nvml.NVMLError:
            return
