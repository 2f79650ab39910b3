"""The series of what pods hold, where it is counted."""

import time
from typing import TYPE_CHECKING

from koord.domains.usage_settings import UsageSettings
from koord.operators.names import PLACEMENT
from koord.runtime.usage_series import UsageFigures, watch_usage

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    settings = parts.settings.of(UsageSettings)
    if PLACEMENT not in parts.operators or not settings.metrics:
        return
    queue = None if parts.placement is None else parts.placement.queue
    figures = UsageFigures(parts.reader.state, queue, time.time, settings.budgets)
    parts.metrics.watch(*watch_usage(figures))
