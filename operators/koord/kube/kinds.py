"""The kinds of objects that the operators and the command line read: one row of a table each.

A row says where objects are listed, how they are decoded and translated, how they are applied to
the ``ClusterState``, which operators reflect them, and what it means that the kind cannot be read.
Reflectors, the reader of the command line, the check for missing CRDs and the test of the RBAC
roles go over these rows. The table stands in ``kube`` because that is the lowest layer which knows
both the wire format and the state, and because the command line reads it without importing the
operators.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from koord.api.gang import UPSTREAM_DEFAULTS, GangDefaults
from koord.api.keys import operators
from koord.api.keys.gang import NATIVE_VERSION
from koord.core.device.model import DeviceReport, DeviceResourceClaim
from koord.core.device.plugin import Devices
from koord.core.engine.plugin import Plugin
from koord.core.engine.state import ClusterState
from koord.core.gang.cache import GangCache
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.nodes import Namespace, Node
from koord.core.model.pods import Pod
from koord.core.numa.model import NumaReport
from koord.core.numa.plugin import Numa
from koord.core.plugins.inter_pod import InterPod
from koord.core.plugins.late_volumes import StorageClass
from koord.core.plugins.volumes import Volume, VolumeClaim, Volumes
from koord.core.quota.model import QuotaSpec
from koord.core.quota.plugin import Quotas
from koord.core.quota.profile import QuotaProfile
from koord.core.reservation.model import ReservationInfo
from koord.core.reservation.plugin import Reservations
from koord.core.reservation.priority import PriorityClass
from koord.core.topology.cache import Topology
from koord.core.topology.plugin import Topologies
from koord.kube.errors import Forbidden, KubeError, NotFound
from koord.kube.plan_keys import PlanVerifier
from koord.kube.reflector import Absence, Source
from koord.kube.store import HasMeta
from koord.kube.translate.cluster_objects import (
    TopologyTranslator,
    translate_namespace,
    translate_node,
    translate_priority_class,
    translate_storage_class,
    translate_volume,
    translate_volume_claim,
)
from koord.kube.translate.devices import DeviceTranslator, translate_resource_claim
from koord.kube.translate.gangs import PodGroupTranslator, translate_native
from koord.kube.translate.numa import translate_node_topology
from koord.kube.translate.placeholders import read_placeholder
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.quotas import ProfileTranslator, QuotaTranslator
from koord.kube.translate.reservations import ReservationTranslator
from koord.kube.wire import (
    WireCustomResource,
    WireNamespace,
    WireNativePodGroup,
    WireNode,
    WireNodeTopology,
    WirePod,
    WirePriorityClass,
    WireResourceClaim,
)
from koord.kube.wire_volumes import WireStorageClass, WireVolume, WireVolumeClaim

W = TypeVar("W", bound=HasMeta)
W_contra = TypeVar("W_contra", bound=HasMeta, contravariant=True)
T = TypeVar("T")
P = TypeVar("P", bound=Plugin)

PLACEMENT: Final = "placement"
"""The operator that plans. The command line plans too, so it reads what this operator reads."""
POD_GROUP: Final = "podgroup"
QUOTA: Final = "elasticquota"
PROFILE: Final = "elasticquotaprofile"
TOPOLOGY: Final = "networktopology"
DEVICE: Final = "device"
RESERVATION: Final = "reservation"


class Translator(Protocol[W_contra, T]):
    """Makes values of the core from decoded objects."""

    def translate(self, wire: W_contra, /) -> T:
        """Return the core's view of an object. Raises ValueError if the object is malformed."""

    def forget(self, value: T, /) -> None:
        """Drop what is remembered of a deleted object."""


R = TypeVar("R", bound=Translator[Any, Any])


@dataclass(frozen=True, slots=True)
class Stateless(Generic[W, T]):
    """A translator that remembers nothing."""

    translate: Callable[[W], T]

    def forget(self, value: T, /) -> None:
        pass


@dataclass(frozen=True, slots=True)
class TranslatorOptions:
    """The settings that translation depends on."""

    scheduler_name: str = operators.SCHEDULER_NAME
    gang_defaults: GangDefaults = UPSTREAM_DEFAULTS
    plans: PlanVerifier | None = None
    """Tells our plans from others; None: no plan counts."""


@dataclass(frozen=True, eq=False)
class Kind(Generic[W, T, R]):
    """One kind of object: ``W`` as decoded, ``T`` as translated, ``R`` the translator's type."""

    api_version: str
    """``v1`` or ``group/version``."""
    plural: str
    wire: type[W]
    make_translator: Callable[[TranslatorOptions], R]
    owner: Callable[[ClusterState], Any]
    """Returns what keeps the objects of this kind: a plugin, mostly."""
    upsert_in: Callable[[Any, T], None]
    remove_from: Callable[[Any, T], None]
    read_by: frozenset[str]
    """The operators that reflect this kind. The others read their own resource by Kopf alone."""
    is_namespaced: bool = True
    is_required: bool = False
    """Whether an operator that reads this kind refuses to start where it is not served."""
    shares_plural: bool = False
    """Whether another kind has its plural, so that it is called by its full name."""
    is_useful_in_part: bool = False
    """Whether the objects of one namespace help a user who may not list all namespaces."""
    absent_on: tuple[type[KubeError], ...] = ()
    """Errors of a list that mean: there are no objects. All others keep the copy from syncing."""
    kept_seconds: float = 0.0
    """How long such errors may come before that is believed of objects that were there."""
    note_absence: Callable[[ClusterState, Absence], None] | None = None

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """``plural.group``, as RBAC and ``kubectl`` name it; just the plural in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def name(self) -> str:
        """What the kind is called in metrics and logs: the plural unless two kinds share it."""
        return self.resource if self.shares_plural else self.plural

    @property
    def path(self) -> str:
        """The path of the collection over all namespaces."""
        root = "/apis" if self.group else "/api"
        return f"{root}/{self.api_version}/{self.plural}"

    def __str__(self) -> str:
        return self.resource

    def upsert(self, state: ClusterState, value: T) -> None:
        """Apply an object as it is now."""
        self.upsert_in(self.owner(state), value)

    def remove(self, state: ClusterState, value: T) -> None:
        """Apply that an object is gone."""
        self.remove_from(self.owner(state), value)

    def source(
        self, translator: Translator[W, T], reject: Callable[[str, str], None]
    ) -> Source[W, T]:
        """Return the source of a reflector; ``reject`` gets ``namespace/name`` and the problem."""
        return Source(
            self.path,
            self.wire,
            translator.translate,
            translator.forget,
            reject,
            absent_on=self.absent_on,
            kept_seconds=self.kept_seconds,
        )


def _plugin(kind: type[P]) -> Callable[[ClusterState], P]:
    return lambda state: state.plugin(kind)


def _state(state: ClusterState) -> ClusterState:
    return state


def _gangs(state: ClusterState) -> GangCache:
    return state.gangs


_PLANNER_ONLY: Final = frozenset({PLACEMENT})

QUOTAS_KEPT_SECONDS: Final = 600.0
"""Without ElasticQuotas pods start without limits: nobody may have meant that."""

TOPOLOGIES: Final = Kind[WireCustomResource, Topology, TopologyTranslator](
    "scheduling.koordinator.sh/v1alpha1",
    "clusternetworktopologies",
    WireCustomResource,
    lambda _: TopologyTranslator(),
    _plugin(Topologies),
    Topologies.upsert,
    Topologies.remove,
    read_by=frozenset({PLACEMENT, POD_GROUP, TOPOLOGY}),
    is_namespaced=False,
    absent_on=(NotFound,),
)
NODES: Final = Kind[WireNode, Node, Stateless[WireNode, Node]](
    "v1",
    "nodes",
    WireNode,
    lambda _: Stateless(translate_node),
    _state,
    ClusterState.upsert_node,
    lambda state, node: state.remove_node(node.name),
    read_by=frozenset({PLACEMENT, POD_GROUP, QUOTA, PROFILE, TOPOLOGY, DEVICE, RESERVATION}),
    is_namespaced=False,
)
POD_GROUPS: Final = Kind[WireCustomResource, ObservedPodGroup, PodGroupTranslator](
    "scheduling.sigs.k8s.io/v1alpha1",
    "podgroups",
    WireCustomResource,
    lambda options: PodGroupTranslator(options.gang_defaults),
    _gangs,
    GangCache.upsert_pod_group,
    lambda gangs, group: gangs.remove_pod_group(group.key),
    read_by=frozenset({PLACEMENT, POD_GROUP, QUOTA}),
    is_required=True,
    is_useful_in_part=True,
    absent_on=(NotFound,),
)
NATIVE_POD_GROUPS: Final = Kind[
    WireNativePodGroup, ObservedPodGroup, Stateless[WireNativePodGroup, ObservedPodGroup]
](
    NATIVE_VERSION,
    "podgroups",
    WireNativePodGroup,
    lambda options: Stateless(lambda wire: translate_native(wire, options.gang_defaults)),
    _gangs,
    GangCache.upsert_pod_group,
    lambda gangs, group: gangs.remove_pod_group(group.key),
    read_by=POD_GROUPS.read_by,
    shares_plural=True,
    absent_on=(NotFound, Forbidden),
)
NAMESPACES: Final = Kind[WireNamespace, Namespace, Stateless[WireNamespace, Namespace]](
    "v1",
    "namespaces",
    WireNamespace,
    lambda _: Stateless(translate_namespace),
    _plugin(InterPod),
    InterPod.upsert_namespace,
    InterPod.remove_namespace,
    read_by=_PLANNER_ONLY,
    is_namespaced=False,
)
CLAIMS: Final = Kind[WireVolumeClaim, VolumeClaim, Stateless[WireVolumeClaim, VolumeClaim]](
    "v1",
    "persistentvolumeclaims",
    WireVolumeClaim,
    lambda _: Stateless(translate_volume_claim),
    _plugin(Volumes),
    Volumes.upsert_claim,
    Volumes.remove_claim,
    read_by=_PLANNER_ONLY,
    is_useful_in_part=True,
)
VOLUMES: Final = Kind[WireVolume, Volume, Stateless[WireVolume, Volume]](
    "v1",
    "persistentvolumes",
    WireVolume,
    lambda _: Stateless(translate_volume),
    _plugin(Volumes),
    Volumes.upsert_volume,
    Volumes.remove_volume,
    read_by=_PLANNER_ONLY,
    is_namespaced=False,
)
STORAGE_CLASSES: Final = Kind[
    WireStorageClass, StorageClass, Stateless[WireStorageClass, StorageClass]
](
    "storage.k8s.io/v1",
    "storageclasses",
    WireStorageClass,
    lambda _: Stateless(translate_storage_class),
    _plugin(Volumes),
    Volumes.upsert_storage_class,
    Volumes.remove_storage_class,
    read_by=_PLANNER_ONLY,
    is_namespaced=False,
)
PRIORITY_CLASSES: Final = Kind[
    WirePriorityClass, PriorityClass, Stateless[WirePriorityClass, PriorityClass]
](
    "scheduling.k8s.io/v1",
    "priorityclasses",
    WirePriorityClass,
    lambda _: Stateless(translate_priority_class),
    _plugin(Reservations),
    Reservations.upsert_priority_class,
    Reservations.remove_priority_class,
    read_by=frozenset({PLACEMENT, RESERVATION}),
    is_namespaced=False,
    # Without the right, which earlier roles lack, reservations take no part in preemption.
    absent_on=(Forbidden,),
)
QUOTAS: Final = Kind[WireCustomResource, QuotaSpec, QuotaTranslator](
    "scheduling.sigs.k8s.io/v1alpha1",
    "elasticquotas",
    WireCustomResource,
    lambda _: QuotaTranslator(),
    _plugin(Quotas),
    Quotas.upsert,
    Quotas.remove,
    read_by=frozenset({PLACEMENT, QUOTA, PROFILE}),
    is_required=True,
    absent_on=(NotFound,),
    kept_seconds=QUOTAS_KEPT_SECONDS,
    note_absence=lambda state, absence: state.quotas.catalog.note_missing(
        is_missing=absence is Absence.UNPROVEN, is_final=absence is Absence.PROVEN
    ),
)
PROFILES: Final = Kind[WireCustomResource, QuotaProfile, ProfileTranslator](
    "quota.koordinator.sh/v1alpha1",
    "elasticquotaprofiles",
    WireCustomResource,
    lambda _: ProfileTranslator(),
    _plugin(Quotas),
    Quotas.upsert_profile,
    Quotas.remove_profile,
    read_by=frozenset({PROFILE}),
    absent_on=(NotFound,),
)


def _upsert_pod(state: ClusterState, pod: Pod) -> None:
    placeholder = read_placeholder(pod)
    if placeholder is None:
        state.upsert_pod(pod)
    else:
        state.plugin(Reservations).note_placeholder(placeholder)


def _remove_pod(state: ClusterState, pod: Pod) -> None:
    placeholder = read_placeholder(pod)
    if placeholder is None:
        state.remove_pod(pod.uid)
    else:
        state.plugin(Reservations).note_placeholder(placeholder, is_gone=True)


PODS: Final = Kind[WirePod, Pod, PodTranslator](
    "v1",
    "pods",
    WirePod,
    lambda options: PodTranslator(options.scheduler_name, options.gang_defaults, options.plans),
    _state,
    _upsert_pod,
    _remove_pod,
    read_by=frozenset({PLACEMENT, POD_GROUP, QUOTA, DEVICE, RESERVATION}),
    is_useful_in_part=True,
)
DEVICES: Final = Kind[WireCustomResource, DeviceReport, DeviceTranslator](
    "scheduling.koordinator.sh/v1alpha1",
    "devices",
    WireCustomResource,
    lambda _: DeviceTranslator(),
    _plugin(Devices),
    Devices.upsert,
    Devices.remove,
    read_by=frozenset({PLACEMENT, DEVICE}),
    is_namespaced=False,
    absent_on=(NotFound,),
)
NODE_TOPOLOGIES: Final = Kind[
    WireNodeTopology, NumaReport, Stateless[WireNodeTopology, NumaReport]
](
    "topology.node.k8s.io/v1alpha1",
    "noderesourcetopologies",
    WireNodeTopology,
    lambda _: Stateless(translate_node_topology),
    _plugin(Numa),
    Numa.upsert,
    Numa.remove,
    read_by=_PLANNER_ONLY,
    is_namespaced=False,
    absent_on=(NotFound,),
)
RESERVATIONS: Final = Kind[WireCustomResource, ReservationInfo, ReservationTranslator](
    "scheduling.koordinator.sh/v1alpha1",
    "reservations",
    WireCustomResource,
    lambda options: ReservationTranslator(PodTranslator(plans=options.plans)),
    _plugin(Reservations),
    Reservations.upsert,
    Reservations.remove,
    read_by=frozenset({PLACEMENT, RESERVATION}),
    is_namespaced=False,
    absent_on=(NotFound,),
)
RESOURCE_CLAIMS: Final = Kind[
    WireResourceClaim, DeviceResourceClaim, Stateless[WireResourceClaim, DeviceResourceClaim]
](
    "resource.k8s.io/v1",
    "resourceclaims",
    WireResourceClaim,
    lambda _: Stateless(translate_resource_claim),
    _plugin(Devices),
    Devices.upsert_claim,
    Devices.remove_claim,
    read_by=DEVICES.read_by,
    is_useful_in_part=True,
    absent_on=(NotFound,),
)
AnyKind: TypeAlias = Kind[Any, Any, Any]

KINDS: Final[tuple[AnyKind, ...]] = (
    PODS,
    NODES,
    POD_GROUPS,
    QUOTAS,
    PROFILES,
    TOPOLOGIES,
    DEVICES,
    NODE_TOPOLOGIES,
    RESERVATIONS,
    RESOURCE_CLAIMS,
    NAMESPACES,
    CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    PRIORITY_CLASSES,
    NATIVE_POD_GROUPS,
)
"""Reflectors start in this order. Whoever applies complete lists goes the other way: pods last."""


def kinds_of(operators: Collection[str]) -> tuple[AnyKind, ...]:
    """Return the kinds that these operators reflect."""
    return tuple(kind for kind in KINDS if not kind.read_by.isdisjoint(operators))
