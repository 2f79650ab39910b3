"""Who tells cluster autoscalers of pods that lack nodes."""

from typing import TYPE_CHECKING

from koord.controllers.scale_up import ScaleUpSignals
from koord.controllers.scale_up_marks import MarkChannel
from koord.core.autoscaler.options import Signal
from koord.domains.autoscaler_settings import AutoscalerSettings
from koord.domains.placement import PODS
from koord.kube.scale_up_marks import ScaleUpMarks
from koord.operators.names import PLACEMENT

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    placement = parts.placement
    if PLACEMENT not in parts.operators or placement is None:
        return
    signals = ScaleUpSignals(
        state=parts.reader.state,
        queue=placement.queue,
        options=parts.settings.of(AutoscalerSettings).options,
        channels={
            Signal.MARK: MarkChannel(
                ScaleUpMarks(parts.client),
                parts.reader.translator(PODS).marked,
                parts.reader.state.assumed,
            )
        },
        preempting=placement.preempting,
        note=placement.reporter.note,
        is_synced=placement.is_synced,
        clock=placement.clock,
    )
    parts.background.append(signals.run)
