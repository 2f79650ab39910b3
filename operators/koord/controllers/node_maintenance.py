"""The status of NodeMaintenances: for the operator ``nodemaintenance``."""

from dataclasses import dataclass, field
from typing import Final

from koord.api.nodemaintenance import NodeMaintenanceStatus
from koord.controllers.coalescing import Pause
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.state import ClusterState
from koord.core.maintenance.plugin import Maintenances, MaintenanceWindow
from koord.kube.status import ConditionPatch

READY: Final = "Ready"
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(slots=True)
class MaintenancePolicy:
    """Writes how many nodes each window is about."""

    state: ClusterState
    author: StatusAuthor[str, MaintenanceWindow]
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)

    def changed(self) -> list[str]:
        plugin = self.state.plugin(Maintenances)
        return self._inputs.compare(
            plugin.windows,
            lambda name: (plugin.windows[name], tuple(plugin.nodes_of(plugin.windows[name]))),
        )

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, name: str) -> float | None:
        plugin = self.state.plugin(Maintenances)
        window = plugin.windows.get(name)
        if window is None:
            return None
        nodes, is_valid = len(plugin.nodes_of(window)), window.end > 0
        reason = "Known" if is_valid else "Invalid"
        text = f"{nodes} nodes take no pods that would not end before"
        ready = ConditionPatch(
            READY,
            is_valid,
            reason,
            text if is_valid else "there are no valid settings; no pod is kept off",
            window.generation,
        )
        status = NodeMaintenanceStatus(nodes=nodes)
        self.author.write_status(window, status.encode_set(), (ready,))
        return None
