"""Which object is meant: enough to find it, and to notice when another has taken its name.

The references of the core's values are made here; what is written to them is not known.
"""

from dataclasses import dataclass

from koord.core.gang.model import PodGroup
from koord.core.pods import Pod
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import QuotaProfile
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
        """Where the object is found."""
        root = "/apis" if "/" in self.api_version else "/api"
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}/{self.api_version}{scope}/{self.plural}/{self.name}"


def ref_of_pod(pod: Pod) -> ObjectRef:
    """Return the reference of a pod."""
    return ObjectRef("v1", "Pod", "pods", pod.name, pod.uid, pod.namespace)


def ref_of_pod_group(pod_group: PodGroup) -> ObjectRef:
    """Return the reference of a PodGroup."""
    namespace, _, name = pod_group.key.partition("/")
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return ObjectRef(version, "PodGroup", "podgroups", name, pod_group.uid, namespace)


def ref_of_quota(quota: QuotaSpec) -> ObjectRef:
    """Return the reference of an ElasticQuota."""
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return ObjectRef(
        version, "ElasticQuota", "elasticquotas", quota.name, quota.uid, quota.namespace
    )


def ref_of_profile(profile: QuotaProfile) -> ObjectRef:
    """Return the reference of an ElasticQuotaProfile."""
    version, kind = "quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile"
    plural = "elasticquotaprofiles"
    return ObjectRef(version, kind, plural, profile.name, profile.uid, profile.namespace)


def ref_of_topology(topology: Topology) -> ObjectRef:
    """Return the reference of a ClusterNetworkTopology."""
    version = "scheduling.koordinator.sh/v1alpha1"
    kind, plural = "ClusterNetworkTopology", "clusternetworktopologies"
    return ObjectRef(version, kind, plural, topology.name, topology.uid)
