"""Who tells cluster autoscalers of pods that lack nodes."""

from typing import TYPE_CHECKING

from koord.controllers.scale_up import Channel, ScaleUpSignals
from koord.controllers.scale_up_marks import MarkChannel
from koord.controllers.scale_up_placeholders import PlaceholderChannel
from koord.controllers.scale_up_requests import RequestChannel
from koord.core.autoscaler.options import Signal
from koord.domains.autoscaler_settings import AutoscalerSettings
from koord.domains.placement import PODS
from koord.kube.provisioning_requests import ProvisioningRequests
from koord.kube.scale_up_marks import ScaleUpMarks
from koord.kube.scale_up_placeholders import ScaleUpPlaceholders
from koord.operators.names import PLACEMENT

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    placement = parts.placement
    if PLACEMENT not in parts.operators or placement is None:
        return
    state, marked = parts.reader.state, parts.reader.translator(PODS).marked
    options = parts.settings.of(AutoscalerSettings).options
    # Marks are taken off whatever is in use: that is a right which placement has. Placeholders that
    # were left would have autoscalers keep nodes for them.
    placeholders = ScaleUpPlaceholders(parts.client)
    channels: dict[Signal, Channel] = {
        Signal.MARK: MarkChannel(ScaleUpMarks(parts.client), marked, state.assumed),
        Signal.PLACEHOLDER: PlaceholderChannel(placeholders, state.assumed),
    }
    if options.signal is Signal.PROVISIONING_REQUEST:
        api = ProvisioningRequests(parts.client)
        channels[options.signal] = RequestChannel(api, state, parts.events)
    signals = ScaleUpSignals(
        state=state,
        queue=placement.queue,
        options=options,
        channels=channels,
        preempting=placement.preempting,
        note=placement.reporter.note,
        is_synced=placement.is_synced,
        clock=placement.clock,
    )
    parts.background.append(signals.run)
