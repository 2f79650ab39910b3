"""Who asks what nodes use, where load counts."""

from typing import TYPE_CHECKING

from koord.core.load.plugin import Loads
from koord.domains.load_settings import LoadAwareSettings
from koord.kube.load_metrics import MetricsPoller
from koord.operators.names import PLACEMENT

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    settings = parts.settings.of(LoadAwareSettings)
    if PLACEMENT not in parts.operators or not (settings.enabled and settings.poll_metrics):
        return
    state = parts.reader.state

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
    parts.background.append(poller.run)
