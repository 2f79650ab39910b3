"""Placement: pods, nodes, and the rules of kube-scheduler about them."""

from collections.abc import Iterable
from typing import Final

from koord.api.keys.operators import RESERVATION_UID
from koord.core.engine.plugin import Plugin
from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Namespace, Node
from koord.core.model.pods import Pod
from koord.core.model.units import PODS as PODS_RESOURCE
from koord.core.plugins.awaited_daemons import AwaitedDaemons
from koord.core.plugins.host_ports import HostPorts
from koord.core.plugins.inter_pod import InterPod
from koord.core.plugins.late_volumes import StorageClass
from koord.core.plugins.node_rules import NodeRules
from koord.core.plugins.nominations import Nominations
from koord.core.plugins.rejections import Rejections
from koord.core.plugins.scarce_resources import ScarceResources, ScarceRules
from koord.core.plugins.volumes import Volume, VolumeClaim, Volumes
from koord.core.reservation.model import PLACEHOLDERS, Placeholder
from koord.core.reservation.plugin import Reservations
from koord.domains.planning import Planning, PlanOptions
from koord.kube.kind import Kind, Stateless, of_plugin, of_state
from koord.kube.translate.cluster_objects import (
    translate_namespace,
    translate_node,
    translate_storage_class,
    translate_volume,
    translate_volume_claim,
)
from koord.kube.translate.pods import PodTranslator
from koord.kube.wire import (
    WireNamespace,
    WireNode,
    WirePod,
    WireStorageClass,
    WireVolume,
    WireVolumeClaim,
)


def _read_placeholder(pod: Pod) -> Placeholder | None:
    """Return the placeholder that a pod is; None for an ordinary pod."""
    if pod.namespace != PLACEHOLDERS:
        return None
    requests = {name: n for name, n in pod.shape.requests if name != PODS_RESOURCE}
    owner = pod.profile.labels.get(RESERVATION_UID, "")
    return Placeholder(pod.uid, pod.name, pod.node, owner, requests, pod.is_alive)


def _upsert_pod(state: ClusterState, pod: Pod) -> None:
    placeholder = _read_placeholder(pod)
    if placeholder is None:
        state.upsert_pod(pod)
    elif placeholder.node:  # one that only tells autoscalers of a pod has none
        state.plugin(Reservations).note_placeholder(placeholder)


def _remove_pod(state: ClusterState, pod: Pod) -> None:
    placeholder = _read_placeholder(pod)
    if placeholder is None:
        state.remove_pod(pod.uid)
    elif placeholder.node:
        state.plugin(Reservations).note_placeholder(placeholder, is_gone=True)


PODS: Final = Kind[WirePod, Pod, PodTranslator](
    "v1",
    "pods",
    WirePod,
    PodTranslator,
    of_state,
    _upsert_pod,
    _remove_pod,
    is_useful_in_part=True,
)
NODES: Final = Kind[WireNode, Node, Stateless[WireNode, Node]](
    "v1",
    "nodes",
    WireNode,
    lambda _: Stateless(translate_node),
    of_state,
    ClusterState.upsert_node,
    lambda state, node: state.remove_node(node.name),
    is_namespaced=False,
)
NAMESPACES: Final = Kind[WireNamespace, Namespace, Stateless[WireNamespace, Namespace]](
    "v1",
    "namespaces",
    WireNamespace,
    lambda _: Stateless(translate_namespace),
    of_plugin(InterPod),
    InterPod.upsert_namespace,
    InterPod.remove_namespace,
    is_namespaced=False,
)
CLAIMS: Final = Kind[WireVolumeClaim, VolumeClaim, Stateless[WireVolumeClaim, VolumeClaim]](
    "v1",
    "persistentvolumeclaims",
    WireVolumeClaim,
    lambda _: Stateless(translate_volume_claim),
    of_plugin(Volumes),
    Volumes.upsert_claim,
    Volumes.remove_claim,
    is_useful_in_part=True,
)
VOLUMES: Final = Kind[WireVolume, Volume, Stateless[WireVolume, Volume]](
    "v1",
    "persistentvolumes",
    WireVolume,
    lambda _: Stateless(translate_volume),
    of_plugin(Volumes),
    Volumes.upsert_volume,
    Volumes.remove_volume,
    is_namespaced=False,
)
STORAGE_CLASSES: Final = Kind[
    WireStorageClass, StorageClass, Stateless[WireStorageClass, StorageClass]
](
    "storage.k8s.io/v1",
    "storageclasses",
    WireStorageClass,
    lambda _: Stateless(translate_storage_class),
    of_plugin(Volumes),
    Volumes.upsert_storage_class,
    Volumes.remove_storage_class,
    is_namespaced=False,
)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    yield NodeRules()
    yield Rejections()
    yield HostPorts()
    yield Volumes()
    yield InterPod()
    yield Nominations()
    yield AwaitedDaemons()
    scarce = options.of(ScarceRules)
    if scarce.resources:
        yield ScarceResources(scarce)


PLANNING: Final = Planning(
    kinds=(PODS, NODES, NAMESPACES, CLAIMS, VOLUMES, STORAGE_CLASSES), make_plugins=_make_plugins
)
