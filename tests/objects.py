"""Applies observed objects to a cluster state, as reflectors do.

Each function is given the state and a value of the core; which plugin keeps it is not of interest
to a test.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Namespace
from koord.core.quota.catalog import QuotaKey
from koord.domains.device import DEVICES, RESOURCE_CLAIMS
from koord.domains.gang import POD_GROUPS
from koord.domains.numa import NODE_TOPOLOGIES
from koord.domains.placement import CLAIMS, NAMESPACES, STORAGE_CLASSES, VOLUMES
from koord.domains.quota import QUOTAS
from koord.domains.reservation import PRIORITY_CLASSES, RESERVATIONS
from koord.domains.topology import TOPOLOGIES
from koord.kube.kind import AnyKind

_Apply: TypeAlias = Callable[[ClusterState, Any], None]

upsert_pod_group: _Apply = POD_GROUPS.upsert
upsert_quota: _Apply = QUOTAS.upsert
upsert_topology: _Apply = TOPOLOGIES.upsert
upsert_devices: _Apply = DEVICES.upsert
upsert_numa: _Apply = NODE_TOPOLOGIES.upsert
remove_numa: _Apply = NODE_TOPOLOGIES.remove
upsert_reservation: _Apply = RESERVATIONS.upsert
remove_reservation: _Apply = RESERVATIONS.remove
upsert_priority_class: _Apply = PRIORITY_CLASSES.upsert
remove_priority_class: _Apply = PRIORITY_CLASSES.remove
upsert_resource_claim: _Apply = RESOURCE_CLAIMS.upsert
upsert_claim: _Apply = CLAIMS.upsert
upsert_volume: _Apply = VOLUMES.upsert
upsert_storage_class: _Apply = STORAGE_CLASSES.upsert


@dataclass(frozen=True)
class _Gone:
    """What is gone, by what it is called: nothing else is read of it."""

    key: Any
    name: Any
    node: Any


def _remover(kind: AnyKind) -> _Apply:
    return lambda state, name: kind.remove(state, _Gone(name, name, name))


remove_pod_group = _remover(POD_GROUPS)
remove_topology = _remover(TOPOLOGIES)
remove_devices = _remover(DEVICES)
remove_namespace = _remover(NAMESPACES)
remove_claim = _remover(CLAIMS)
remove_volume = _remover(VOLUMES)
remove_storage_class = _remover(STORAGE_CLASSES)


def remove_quota(state: ClusterState, key: QuotaKey) -> None:
    state.quotas.catalog.remove(key)


def upsert_namespace(state: ClusterState, name: str, labels: Mapping[str, str]) -> None:
    NAMESPACES.upsert(state, Namespace(name, labels))
