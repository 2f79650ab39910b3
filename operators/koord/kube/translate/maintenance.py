"""NodeMaintenances from the wire to the core.

Invalid windows keep nobody off.
"""

from typing import Final

import msgspec
from pydantic import TypeAdapter

from koord.api.nodemaintenance import DEFAULT_LEAD, NodeMaintenanceSpec
from koord.api.parse import InvalidObject, parse_value
from koord.api.quantity import parse_duration_seconds
from koord.core.maintenance.plugin import MaintenanceWindow
from koord.kube.translate.node_affinity import translate_selector
from koord.kube.translate.statuses import SeenStatuses
from koord.kube.wire import WireCustomResource

_adapter: Final = TypeAdapter(NodeMaintenanceSpec)


class MaintenanceTranslator(SeenStatuses):
    """Translates NodeMaintenances."""

    def translate(self, wire: WireCustomResource) -> MaintenanceWindow:
        meta = wire.metadata
        self._see(meta.uid, wire.status)
        nothing = MaintenanceWindow(meta.name, 0.0, 0.0, uid=meta.uid, generation=meta.generation)
        try:
            written = msgspec.json.decode(bytes(wire.spec) or b"{}")
        except msgspec.MsgspecError:
            return nothing
        spec = parse_value(_adapter, written, at=("spec",))
        if isinstance(spec, InvalidObject):
            return nothing
        selector = spec.node_selector
        return MaintenanceWindow(
            meta.name,
            spec.start.timestamp(),
            spec.end.timestamp(),
            frozenset(spec.nodes or ()),
            None if selector is None else translate_selector(selector),
            parse_duration_seconds(spec.lead_time or DEFAULT_LEAD) or 0.0,
            meta.uid,
            meta.generation,
        )
