"""References to objects: path and uid, from values of the core and names of the models."""

import re
from dataclasses import dataclass
from typing import Final

from koord.api.clustercolocationprofile import ClusterColocationProfile
from koord.api.colocationpolicy import ColocationPolicy
from koord.api.defragmentationpolicy import DefragmentationPolicy
from koord.api.device import Device
from koord.api.elasticquota import ElasticQuota
from koord.api.networktopology import ClusterNetworkTopology
from koord.api.nodemaintenance import NodeMaintenance
from koord.api.podgroup import PodGroup
from koord.api.quotaprofile import ElasticQuotaProfile
from koord.api.rebalancepolicy import RebalancePolicy
from koord.api.reservation import Reservation
from koord.api.resource import Resource
from koord.core.balance.policy import BalancePolicy
from koord.core.colocation.strategy import ObservedColocation
from koord.core.defrag.policy import DefragPolicy
from koord.core.device.model import DeviceReport
from koord.core.maintenance.plugin import MaintenanceWindow
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.pods import Handling, Pod
from koord.core.profiles.model import ColocationProfile
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import QuotaProfile
from koord.core.reservation.model import POD_PREFIX, ReservationInfo
from koord.core.topology.cache import Topology

_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_object_name(text: str) -> bool:
    """Whether an object can have a name, as names that tenants write of owners and gangs need not.

    Others must not get into a path: they may be paths themselves.
    """
    return _OBJECT_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One incarnation of one object."""

    api_version: str
    kind: str
    plural: str
    name: str
    uid: str
    namespace: str = ""

    @property
    def path(self) -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}/{self.api_version}{scope}/{self.plural}/{self.name}"


def ref_of_pod(pod: Pod) -> ObjectRef:
    """Return the reference to a pod, or to the Reservation that it stands for."""
    if pod.handling is Handling.RESERVE:
        return _ref_of(Reservation, pod.name.removeprefix(POD_PREFIX), pod.uid)
    return ObjectRef("v1", "Pod", "pods", pod.name, pod.uid, pod.namespace)


def ref_of_pod_group(pod_group: ObservedPodGroup) -> ObjectRef:
    namespace, _, name = pod_group.key.partition("/")
    return _ref_of(PodGroup, name, pod_group.uid, namespace)


def ref_of_quota(quota: QuotaSpec) -> ObjectRef:
    return _ref_of(ElasticQuota, quota.name, quota.uid, quota.namespace)


def ref_of_profile(profile: QuotaProfile) -> ObjectRef:
    return _ref_of(ElasticQuotaProfile, profile.name, profile.uid, profile.namespace)


def ref_of_topology(topology: Topology) -> ObjectRef:
    return _ref_of(ClusterNetworkTopology, topology.name, topology.uid)


def ref_of_devices(report: DeviceReport) -> ObjectRef:
    return _ref_of(Device, report.node, report.uid)


def ref_of_reservation(reservation: ReservationInfo) -> ObjectRef:
    return _ref_of(Reservation, reservation.name, reservation.uid)


def ref_of_rebalance_policy(policy: BalancePolicy) -> ObjectRef:
    return _ref_of(RebalancePolicy, policy.name, policy.uid)


def ref_of_defrag_policy(policy: DefragPolicy) -> ObjectRef:
    return _ref_of(DefragmentationPolicy, policy.name, policy.uid)


def ref_of_colocation_policy(policy: ObservedColocation) -> ObjectRef:
    return _ref_of(ColocationPolicy, policy.name, policy.uid)


def ref_of_maintenance(window: MaintenanceWindow) -> ObjectRef:
    return _ref_of(NodeMaintenance, window.name, window.uid)


def ref_of_colocation_profile(profile: ColocationProfile) -> ObjectRef:
    return _ref_of(ClusterColocationProfile, profile.name, profile.uid)


def _ref_of(resource: type[Resource], name: str, uid: str, namespace: str = "") -> ObjectRef:
    names = resource.names
    return ObjectRef(names.api_version, names.kind, names.plural, name, uid, namespace)
