"""The kinds that placement is decided on, each with its path and translation."""

from collections.abc import Callable
from typing import Final

from koord.core.gang.model import PodGroup
from koord.core.nodes import Node
from koord.core.pods import Pod
from koord.core.quota.model import QuotaSpec
from koord.kube.reflector import Source
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.nodes import translate_node
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.wire import WireElasticQuota, WireNode, WirePod, WirePodGroup

PODS_PATH: Final = "/api/v1/pods"
NODES_PATH: Final = "/api/v1/nodes"
POD_GROUPS_PATH: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
QUOTAS_PATH: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"

Reject = Callable[[str, str], None]
"""Is told ``namespace/name`` and what is wrong with the object."""


def pod_source(translator: PodTranslator, reject: Reject) -> Source[WirePod, Pod]:
    """Every pod of the cluster: ended ones count in the status of their gang."""
    return Source(PODS_PATH, WirePod, translator.translate, translator.forget, reject)


def node_source(reject: Reject) -> Source[WireNode, Node]:
    """Every node."""
    return Source(NODES_PATH, WireNode, translate_node, reject=reject)


def pod_group_source(
    translator: PodGroupTranslator, reject: Reject
) -> Source[WirePodGroup, PodGroup]:
    """Every PodGroup."""
    return Source(POD_GROUPS_PATH, WirePodGroup, translator.translate, translator.forget, reject)


def quota_source(
    translator: QuotaTranslator, reject: Reject
) -> Source[WireElasticQuota, QuotaSpec]:
    """Every ElasticQuota."""
    return Source(QUOTAS_PATH, WireElasticQuota, translator.translate, translator.forget, reject)
