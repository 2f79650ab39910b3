"""The series of what pods hold, where it is counted."""

import time
from typing import TYPE_CHECKING

from koord.core.usage.plugin import UsageTimes
from koord.domains.usage_settings import UsageSettings
from koord.operators.names import PLACEMENT
from koord.runtime import collectors

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    if PLACEMENT not in parts.operators or not parts.settings.of(UsageSettings).metrics:
        return
    times = parts.reader.state.plugin(UsageTimes)
    parts.metrics.watch(collectors.usage(lambda: times.collect(time.time())))
