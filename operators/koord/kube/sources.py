"""The kinds that placement is decided on, each with its path and translation."""

from collections.abc import Callable
from typing import Final

from koord.api.gang import GangDefaults
from koord.api.keys.kubernetes import NATIVE_VERSION
from koord.core.gang.model import PodGroup
from koord.core.nodes import Namespace, Node
from koord.core.plugins.volumes import StorageClass, Volume, VolumeClaim
from koord.core.pods import Pod
from koord.core.quota.model import QuotaSpec
from koord.core.quota.profile import QuotaProfile
from koord.core.topology.cache import Topology
from koord.kube.errors import Forbidden, NotFound
from koord.kube.reflector import Source
from koord.kube.translate.cluster_objects import (
    translate_claim,
    translate_namespace,
    translate_node,
    translate_storage_class,
    translate_volume,
)
from koord.kube.translate.gangs import PodGroupTranslator, translate_native
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.profiles import ProfileTranslator
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.translate.topologies import TopologyTranslator
from koord.kube.wire import (
    WireClaim,
    WireElasticQuota,
    WireNamespace,
    WireNativePodGroup,
    WireNode,
    WirePod,
    WirePodGroup,
    WireQuotaProfile,
    WireStorageClass,
    WireTopology,
    WireVolume,
)

PODS_PATH: Final = "/api/v1/pods"
NODES_PATH: Final = "/api/v1/nodes"
NAMESPACES_PATH: Final = "/api/v1/namespaces"
CLAIMS_PATH: Final = "/api/v1/persistentvolumeclaims"
VOLUMES_PATH: Final = "/api/v1/persistentvolumes"
STORAGE_CLASSES_PATH: Final = "/apis/storage.k8s.io/v1/storageclasses"
POD_GROUPS_PATH: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
QUOTAS_PATH: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
PROFILES_PATH: Final = "/apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles"
TOPOLOGIES_PATH: Final = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"
NATIVE_POD_GROUPS_PATH: Final = f"/apis/{NATIVE_VERSION}/podgroups"

Reject = Callable[[str, str], None]
"""Is told ``namespace/name`` and what is wrong with the object."""


def pod_source(translator: PodTranslator, reject: Reject) -> Source[WirePod, Pod]:
    """Every pod of the cluster: ended ones count in the status of their gang."""
    return Source(PODS_PATH, WirePod, translator.translate, translator.forget, reject)


def node_source(reject: Reject) -> Source[WireNode, Node]:
    """Every node."""
    return Source(NODES_PATH, WireNode, translate_node, reject=reject)


def namespace_source(reject: Reject) -> Source[WireNamespace, Namespace]:
    """Every namespace: affinity may choose them by their labels."""
    return Source(NAMESPACES_PATH, WireNamespace, translate_namespace, reject=reject)


def claim_source(reject: Reject) -> Source[WireClaim, VolumeClaim]:
    """Every PersistentVolumeClaim."""
    return Source(CLAIMS_PATH, WireClaim, translate_claim, reject=reject)


def volume_source(reject: Reject) -> Source[WireVolume, Volume]:
    """Every PersistentVolume."""
    return Source(VOLUMES_PATH, WireVolume, translate_volume, reject=reject)


def storage_class_source(reject: Reject) -> Source[WireStorageClass, StorageClass]:
    """Every StorageClass."""
    return Source(STORAGE_CLASSES_PATH, WireStorageClass, translate_storage_class, reject=reject)


def pod_group_source(
    translator: PodGroupTranslator, reject: Reject
) -> Source[WirePodGroup, PodGroup]:
    """Every PodGroup; none if the kind is taken away, which takes all of its objects away."""
    return Source(
        POD_GROUPS_PATH,
        WirePodGroup,
        translator.translate,
        translator.forget,
        reject,
        absent_on=(NotFound,),
    )


def native_pod_group_source(
    defaults: GangDefaults, reject: Reject
) -> Source[WireNativePodGroup, PodGroup]:
    """Every PodGroup of Kubernetes' own; none where it is not served, or not ours to read."""
    return Source(
        NATIVE_POD_GROUPS_PATH,
        WireNativePodGroup,
        lambda wire: translate_native(wire, defaults),
        reject=reject,
        absent_on=(NotFound, Forbidden),
    )


def quota_source(
    translator: QuotaTranslator, reject: Reject
) -> Source[WireElasticQuota, QuotaSpec]:
    """Every ElasticQuota; none where the kind is not served."""
    return Source(
        QUOTAS_PATH,
        WireElasticQuota,
        translator.translate,
        translator.forget,
        reject,
        absent_on=(NotFound,),
    )


def profile_source(
    translator: ProfileTranslator, reject: Reject
) -> Source[WireQuotaProfile, QuotaProfile]:
    """Every ElasticQuotaProfile; none where the kind is not installed."""
    return Source(
        PROFILES_PATH,
        WireQuotaProfile,
        translator.translate,
        translator.forget,
        reject,
        absent_on=(NotFound,),
    )


def topology_source(
    translator: TopologyTranslator, reject: Reject
) -> Source[WireTopology, Topology]:
    """Every ClusterNetworkTopology; none where the kind is not installed."""
    return Source(
        TOPOLOGIES_PATH,
        WireTopology,
        translator.translate,
        translator.forget,
        reject,
        absent_on=(NotFound,),
    )
