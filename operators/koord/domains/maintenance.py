"""Maintenance of nodes that is known ahead."""

from typing import Final

from koord.api.nodemaintenance import NodeMaintenance
from koord.core.maintenance.plugin import Maintenances
from koord.domains.planning import Planning
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.maintenance import MaintenanceTranslator

MAINTENANCES: Final = of_model(
    NodeMaintenance,
    lambda _: MaintenanceTranslator(),
    of_plugin(Maintenances),
    Maintenances.upsert,
    Maintenances.remove,
    # Without the CRD, or with roles of earlier releases, no maintenance is known.
    absent_on=(NotFound, Forbidden),
)

PLANNING: Final = Planning(kinds=(MAINTENANCES,), make_plugins=lambda _: (Maintenances(),))
