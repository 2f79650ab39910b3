"""Who asks what nodes use, where load counts, and the series about that."""

from typing import TYPE_CHECKING

from koord.core.load.aware import LoadAware
from koord.core.load.model import LoadSource
from koord.core.load.plugin import Loads
from koord.domains.colocation_settings import ColocationSettings
from koord.domains.load import NODE_METRICS
from koord.domains.load_settings import LoadAwareSettings
from koord.kube.load_metrics import MetricsPoller
from koord.operators.names import COLOCATION, PLACEMENT
from koord.runtime import collectors

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    settings = parts.settings.of(LoadAwareSettings)
    places = PLACEMENT in parts.operators and settings.enabled
    offers = COLOCATION in parts.operators and parts.settings.of(ColocationSettings).enabled
    state = parts.reader.state
    if places:
        parts.metrics.watch(*collectors.loads(state.plugin(LoadAware)))
    if not settings.poll_metrics or not (places or offers):
        return

    def node_of(key: str) -> str:
        pod = state.pod_by_key(key)
        return "" if pod is None else pod.node

    def notify() -> None:
        for listener in parts.reader.listeners:
            listener()

    poller = MetricsPoller(
        parts.client,
        state.plugin(Loads),
        nodes=lambda: state.table.row_of,
        node_of=node_of,
        notify=notify,
        interval=settings.poll_interval,
    )

    async def run() -> None:
        await parts.reader.wait_synced()  # of no nodes nobody is asked
        await poller.run()

    parts.background.append(run)
    loads = state.plugin(Loads)
    parts.reader.polled[NODE_METRICS] = lambda: loads.of_source(LoadSource.METRICS_API)
    if places:
        parts.awaited.append(lambda: poller.has_asked)
