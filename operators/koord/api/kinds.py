"""The custom resources of this project, in the order in which they are installed."""

from typing import Final

from koord.api.device import Device
from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.podgroup import PodGroup
from koord.api.quotaprofile import ElasticQuotaProfile
from koord.api.reservation import Reservation
from koord.api.resource import Resource

RESOURCES: Final[tuple[type[Resource], ...]] = (
    PodGroup,
    ElasticQuota,
    ElasticQuotaProfile,
    Reservation,
    Device,
    ClusterNetworkTopology,
)
RESOURCE_BY_KIND: Final[dict[str, type[Resource]]] = {r.names.kind: r for r in RESOURCES}
