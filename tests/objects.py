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
from koord.kube import kinds

_Apply: TypeAlias = Callable[[ClusterState, Any], None]

upsert_pod_group: _Apply = kinds.POD_GROUPS.upsert
upsert_quota: _Apply = kinds.QUOTAS.upsert
upsert_topology: _Apply = kinds.TOPOLOGIES.upsert
upsert_devices: _Apply = kinds.DEVICES.upsert
upsert_numa: _Apply = kinds.NODE_TOPOLOGIES.upsert
remove_numa: _Apply = kinds.NODE_TOPOLOGIES.remove
upsert_reservation: _Apply = kinds.RESERVATIONS.upsert
remove_reservation: _Apply = kinds.RESERVATIONS.remove
upsert_priority_class: _Apply = kinds.PRIORITY_CLASSES.upsert
remove_priority_class: _Apply = kinds.PRIORITY_CLASSES.remove
upsert_resource_claim: _Apply = kinds.RESOURCE_CLAIMS.upsert
upsert_claim: _Apply = kinds.CLAIMS.upsert
upsert_volume: _Apply = kinds.VOLUMES.upsert
upsert_storage_class: _Apply = kinds.STORAGE_CLASSES.upsert


@dataclass(frozen=True)
class _Gone:
    """What is gone, by what it is called: nothing else is read of it."""

    key: Any
    name: Any
    node: Any


def _remover(kind: kinds.AnyKind) -> _Apply:
    return lambda state, name: kind.remove(state, _Gone(name, name, name))


remove_pod_group = _remover(kinds.POD_GROUPS)
remove_topology = _remover(kinds.TOPOLOGIES)
remove_devices = _remover(kinds.DEVICES)
remove_namespace = _remover(kinds.NAMESPACES)
remove_claim = _remover(kinds.CLAIMS)
remove_volume = _remover(kinds.VOLUMES)
remove_storage_class = _remover(kinds.STORAGE_CLASSES)


def remove_quota(state: ClusterState, key: QuotaKey) -> None:
    state.quotas.catalog.remove(key)


def upsert_namespace(state: ClusterState, name: str, labels: Mapping[str, str]) -> None:
    kinds.NAMESPACES.upsert(state, Namespace(name, labels))
