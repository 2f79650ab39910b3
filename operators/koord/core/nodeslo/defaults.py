"""What a NodeSLO says where nothing is configured: Koordinator's defaults. All of it is off."""

from collections.abc import Mapping
from typing import Any, Final

_NETWORK: Final = {
    "enable": False,
    "ingressRequest": 0,
    "ingressLimit": 0,
    "egressRequest": 0,
    "egressLimit": 0,
}
_MEMORY: Final = {
    "enable": False,
    "minLimitPercent": 0,
    "lowLimitPercent": 0,
    "throttlingPercent": 0,
    "wmarkRatio": 95,
    "wmarkScalePermill": 20,
    "wmarkMinAdj": -25,
    "priorityEnable": 0,
    "priority": 0,
    "oomKillGroup": 0,
}
_NO_BLOCKS: Final[Mapping[str, Any]] = {"enable": False, "blocks": []}


def _of_class(
    identity: int,
    *,
    expels: bool = False,
    cache: int = 100,
    memory: Mapping[str, int] | None = None,
) -> Mapping[str, Any]:
    return {
        "cpuQOS": {
            "enable": False,
            "groupIdentity": identity,
            "schedIdle": 0,
            "coreExpeller": expels,
        },
        "memoryQOS": {**_MEMORY, **(memory or {})},
        "blkioQOS": _NO_BLOCKS,
        "resctrlQOS": {
            "enable": False,
            "catRangeStartPercent": 0,
            "catRangeEndPercent": cache,
            "mbaPercent": 100,
        },
        "networkQOS": _NETWORK,
    }


THRESHOLDS: Final[Mapping[str, Any]] = {
    "enable": False,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressPolicy": "cpuset",
    "memoryEvictThresholdPercent": 70,
    "cpuEvictPolicy": "evictByRealLimit",
}
QOS: Final[Mapping[str, Any]] = {
    "lsrClass": _of_class(2, expels=True),
    "lsClass": _of_class(2, expels=True),
    "beClass": _of_class(-1, cache=30, memory={"wmarkMinAdj": 50}),
    "systemClass": _of_class(
        0, memory={"wmarkRatio": 0, "wmarkScalePermill": 50, "wmarkMinAdj": 0}
    ),
    "cgroupRoot": {"blkioQOS": _NO_BLOCKS},
}
BURST: Final[Mapping[str, Any]] = {
    "policy": "none",
    "cpuBurstPercent": 1000,
    "cfsQuotaBurstPercent": 300,
    "cfsQuotaBurstPeriodSeconds": -1,
    "sharePoolThresholdPercent": 50,
}
SYSTEM: Final[Mapping[str, Any]] = {
    "minFreeKbytesFactor": 100,
    "watermarkScaleFactor": 150,
    "memcgReapBackGround": 0,
    "totalNetworkBandwidth": "0",
}
