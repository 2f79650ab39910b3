"""A stand-in for NVIDIA's bindings: the functions that the device agent calls, on a state in JSON.

A process finds it in front of the real module on its path. It is no recording of a library.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_NVLINK_MAX_LINKS = 18
NVML_FEATURE_ENABLED = 1
NVML_DEVICE_MIG_ENABLE = 1
nvmlEventTypeXidCriticalError = 8
NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0


class NVMLError(Exception):
    pass


class NVMLError_Timeout(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


state: dict[str, Any] = {}
"""The driver, the GPUs, and events that have not been delivered: pairs of GPU and XID."""


def nvmlInit() -> None:
    if file := os.environ.get("STAND_IN_NVML"):
        state.update(json.loads(Path(file).read_text("utf-8")))
    if not state.get("driver"):
        raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return str(state["driver"])


def nvmlDeviceGetCount() -> int:
    return len(state["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    return dict(state["gpus"][index])


def _get(handle: dict[str, Any], key: str) -> Any:
    if handle.get("lost"):
        raise NVMLError_GpuIsLost("GPU is lost")
    return handle[key]


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> str:
    return str(_get(handle, "uuid"))


def nvmlDeviceGetName(handle: dict[str, Any]) -> str:
    return str(_get(handle, "name"))


def nvmlDeviceGetMinorNumber(handle: dict[str, Any]) -> int:
    return int(_get(handle, "minor"))


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(total=_get(handle, "memory"), used=handle.get("used", 0))


def _get_supported(handle: dict[str, Any], key: str) -> Any:
    if key not in handle:
        raise NVMLError_NotSupported("Not Supported")
    return _get(handle, key)


def nvmlDeviceGetUtilizationRates(handle: dict[str, Any]) -> SimpleNamespace:
    gpu, memory = _get_supported(handle, "load")
    return SimpleNamespace(gpu=gpu, memory=memory)


def nvmlDeviceGetTemperature(handle: dict[str, Any], _sensor: int) -> int:
    return int(_get_supported(handle, "temperature"))


def nvmlDeviceGetPowerUsage(handle: dict[str, Any]) -> int:
    return int(_get_supported(handle, "power"))


def nvmlDeviceGetTotalEccErrors(handle: dict[str, Any], _kind: int, _counter: int) -> int:
    return int(_get_supported(handle, "ecc"))


def nvmlDeviceGetPciInfo(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(busId=_get(handle, "address"))


def nvmlDeviceGetMigMode(handle: dict[str, Any]) -> list[int]:
    if "mig" not in handle:
        raise NVMLError_NotSupported("Not Supported")
    return [handle["mig"], handle["mig"]]


def nvmlDeviceGetNvLinkState(handle: dict[str, Any], link: int) -> int:
    if link >= len(_get(handle, "links")):
        raise NVMLError_NotSupported("Not Supported")
    return NVML_FEATURE_ENABLED


def nvmlDeviceGetNvLinkRemotePciInfo(handle: dict[str, Any], link: int) -> SimpleNamespace:
    return SimpleNamespace(busId=_get(handle, "links")[link])


def nvmlEventSetCreate() -> object:
    return object()


def nvmlDeviceRegisterEvents(handle: dict[str, Any], _types: int, _events: object) -> None:
    _get(handle, "uuid")


def nvmlEventSetWait_v2(_events: object, milliseconds: int) -> SimpleNamespace:
    if not state["events"]:
        time.sleep(milliseconds / 1000)
        raise NVMLError_Timeout("Timeout")
    index, xid = state["events"].pop(0)
    return SimpleNamespace(device=dict(state["gpus"][index]), eventData=xid)
