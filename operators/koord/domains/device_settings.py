"""How devices are given out: the section ``device`` of the configuration."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field
from typing_extensions import override

from koord.core.device.inventory import RECOVERY_SECONDS
from koord.core.device.model import DeviceOptions
from koord.domains.section import Seconds, Section


class UnisolatedShares(StrEnum):
    """What pods do that share a GPU without isolation; both say so in their condition."""

    START = "Start"
    WAIT = "Wait"


class DeviceSettings(Section):
    """How devices are given out."""

    recovery_seconds: Seconds = Field(default=RECOVERY_SECONDS, ge=0)
    """A device that was unhealthy is used again after it was healthy this long."""
    shares_without_isolation: UnisolatedShares = UnisolatedShares.START
    """Whether pods that share a GPU without isolation start or wait."""
    metrics: bool = Field(default=False, strict=True)
    """Whether the leader serves series of who holds which GPU (`koord_device_allocation_info`)."""
    hami_names: bool = Field(default=False, strict=True)
    """Whether memory limits have the name of HAMi's old releases, too; needs `metrics`."""

    @override
    def plan_options(self) -> Iterable[object]:
        waits = self.shares_without_isolation is UnisolatedShares.WAIT
        yield DeviceOptions(self.recovery_seconds, waits)
