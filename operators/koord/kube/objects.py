"""References to objects: the path and the uid, made from the core's values."""

from dataclasses import dataclass

from koord.core.device.model import DeviceReport
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.pods import Handling, Pod
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import QuotaProfile
from koord.core.reservation.model import POD_PREFIX, ReservationInfo
from koord.core.topology.cache import Topology


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
        return _ref_of_reservation(pod.name.removeprefix(POD_PREFIX), pod.uid)
    return ObjectRef("v1", "Pod", "pods", pod.name, pod.uid, pod.namespace)


def ref_of_pod_group(pod_group: ObservedPodGroup) -> ObjectRef:
    namespace, _, name = pod_group.key.partition("/")
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return ObjectRef(version, "PodGroup", "podgroups", name, pod_group.uid, namespace)


def ref_of_quota(quota: QuotaSpec) -> ObjectRef:
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return ObjectRef(
        version, "ElasticQuota", "elasticquotas", quota.name, quota.uid, quota.namespace
    )


def ref_of_profile(profile: QuotaProfile) -> ObjectRef:
    version, kind = "quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile"
    plural = "elasticquotaprofiles"
    return ObjectRef(version, kind, plural, profile.name, profile.uid, profile.namespace)


def ref_of_topology(topology: Topology) -> ObjectRef:
    version = "scheduling.koordinator.sh/v1alpha1"
    kind, plural = "ClusterNetworkTopology", "clusternetworktopologies"
    return ObjectRef(version, kind, plural, topology.name, topology.uid)


def ref_of_devices(report: DeviceReport) -> ObjectRef:
    version = "scheduling.koordinator.sh/v1alpha1"
    return ObjectRef(version, "Device", "devices", report.node, report.uid)


def ref_of_reservation(reservation: ReservationInfo) -> ObjectRef:
    return _ref_of_reservation(reservation.name, reservation.uid)


def _ref_of_reservation(name: str, uid: str) -> ObjectRef:
    version = "scheduling.koordinator.sh/v1alpha1"
    return ObjectRef(version, "Reservation", "reservations", name, uid)
