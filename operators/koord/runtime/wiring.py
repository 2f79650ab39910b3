"""Makes the operators of one process and hands them what they need: the composition root.

Which operators run decides what is read and what is written, and so which rights are needed. Parts
know each other only through what is handed to them here.
"""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from koord.api.compat import Compat
from koord.api.elasticquota import ElasticQuota
from koord.api.gang import GangDefaults
from koord.api.podgroup import PodGroup
from koord.api.resource import Names
from koord.controllers.network_topology import TopologyController
from koord.controllers.placement import PlacementController
from koord.controllers.pod_group import PodGroupController
from koord.controllers.quota_audit import QuotaAudit
from koord.controllers.quota_profile import ProfileController
from koord.controllers.quota_status import QuotaStatusController
from koord.controllers.reclaim import RevokeController, RevokeOptions
from koord.controllers.restart import GangRestarts
from koord.controllers.status_publishing import (
    AcceptedAnnouncer,
    PlacementAnnouncer,
    PodGroupAnnouncer,
    ProfileAnnouncer,
    QuotaAnnouncer,
    RevokeAnnouncer,
    TopologyAnnouncer,
)
from koord.controllers.validation import RESOURCE_OF_OPERATOR, AcceptedController
from koord.controllers.wait_reports import WaitReports
from koord.core.quota.hooks import Hooks
from koord.core.state import ClusterState
from koord.kube.binder import Binder
from koord.kube.catchup import catch_up
from koord.kube.client import Client
from koord.kube.events import EventRecorder
from koord.kube.evictor import Evictor
from koord.kube.objects import ObjectRef
from koord.kube.reflector import Reflector
from koord.kube.root_quota import RootQuotaWriter
from koord.kube.status import MERGED, Form, Present, StatusWriter, annotated_by, applied_by
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.profiles import ProfileTranslator
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.translate.topologies import TopologyTranslator
from koord.runtime.cluster import (
    ALL_KINDS,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    PROFILES,
    QUOTAS,
    TOPOLOGIES,
    ClusterReader,
    Translators,
)
from koord.runtime.debug_page import describe_quotas
from koord.runtime.hooks import load_hooks
from koord.runtime.kopf_host import make_registry
from koord.runtime.metrics import Metrics
from koord.runtime.settings import Settings

if TYPE_CHECKING:
    import kopf

PLACEMENT: Final = "placement"
POD_GROUP: Final = "podgroup"
QUOTA: Final = "elasticquota"
PROFILE: Final = "elasticquotaprofile"
TOPOLOGY: Final = "networktopology"
OPERATORS: Final = (PLACEMENT, POD_GROUP, *RESOURCE_OF_OPERATOR)
_READ_BY: Final[Mapping[str, tuple[str, ...]]] = {
    PLACEMENT: tuple(kind for kind in ALL_KINDS if kind != PROFILES),
    POD_GROUP: (PODS, NODES, POD_GROUPS, TOPOLOGIES),
    QUOTA: (PODS, NODES, POD_GROUPS, QUOTAS),
    PROFILE: (NODES, QUOTAS, PROFILES),
    TOPOLOGY: (NODES, TOPOLOGIES),
}
"""What each operator reflects; the others read their own resource by Kopf alone."""


def kinds_of(operators: Collection[str], *, has_native: bool = False) -> tuple[str, ...]:
    """Return what is reflected for these operators."""
    read = {kind for name in operators for kind in _READ_BY.get(name, ())}
    kinds = tuple(kind for kind in ALL_KINDS if kind in read)
    return (*kinds, NATIVE_POD_GROUPS) if has_native and POD_GROUPS in read else kinds


def resources_of(operators: Collection[str]) -> list[Names]:
    """Return the custom resources that must be installed for these operators."""
    names = [one.names for name, one in RESOURCE_OF_OPERATOR.items() if name in operators]
    kinds = kinds_of(operators)
    read = [one.names for one in (PodGroup, ElasticQuota) if one.names.plural in kinds]
    return [*read, *(one for one in names if one not in read)]


class Parts:
    """Everything that one process is made of.

    ``background`` is to be run for as long as the process lives; ``placement`` plans once all is
    synced. ``without_subresource`` names custom resources whose definition, which is not ours, has
    no status subresource; ``has_native`` tells whether Kubernetes' own are served.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        operators: Collection[str],
        *,
        without_subresource: Collection[str] = (),
        has_native: bool = False,
    ) -> None:
        defaults = GangDefaults(settings.default_wait_seconds, settings.default_match_policy)
        self.metrics = Metrics()
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._writers: list[tuple[str, StatusWriter]] = []
        """Every status writer, with the plural of the resource that it writes."""
        self._client = client
        self._settings = settings
        self._without_subresource = without_subresource
        self._loop = asyncio.get_running_loop()
        self._pods = PodTranslator(settings.scheduler_name, defaults)
        self._groups = PodGroupTranslator(defaults)
        self._quotas = QuotaTranslator()
        self._topologies = TopologyTranslator()
        self._profiles = ProfileTranslator()
        hooks = load_hooks() if {PLACEMENT, QUOTA} & set(operators) else Hooks()
        self.reader = ClusterReader(
            client,
            Translators(self._pods, self._groups, self._quotas, self._topologies, self._profiles),
            kinds_of(operators, has_native=has_native),
            ClusterState(
                compat=settings.compat is Compat.KOORDINATOR,
                limits_by_share=settings.elastic_quota.enable_runtime_quota,
                hooks=hooks,
            ),
        )
        self.metrics.watch_hooks(hooks)
        self.metrics.watch_quota_operations(self.reader.state.quotas)
        self._binder = Binder(client, self._pods.form_of, in_flight=settings.bind_concurrency)
        self.placement = self._make_placement() if PLACEMENT in operators else None
        self._pod_group = self._make_pod_group() if POD_GROUP in operators else None
        if QUOTA in operators:
            self._make_quota_status()
        if PROFILE in operators:
            self._make_profiles()
        if PLACEMENT in operators or QUOTA in operators:
            self._make_audit()
        if TOPOLOGY in operators:
            self._make_topology()
        self._accepted = [
            self._make_accepted(name) for name in RESOURCE_OF_OPERATOR if name in operators
        ]
        self.metrics.watch_assumed(lambda: len(self.reader.state.assumed))
        self.metrics.watch_reflectors(self.reader.reflectors)
        self.metrics.watch_status_writers(self._writers)

    async def get_ready(self) -> None:
        """Have connections open for all writes that may be under way at once."""
        await self._client.keep_open(self._settings.bind_concurrency)

    async def catch_up(self, identity: str) -> None:
        """Return when the copy of the cluster holds what was written to pods before this call."""
        await catch_up(self._client, self.reader.state, identity)

    def make_registry(self) -> "kopf.OperatorRegistry":
        """Return a new Kopf registry with the handlers of all operators."""
        registry = make_registry(self._client.credentials)
        if self._pod_group is not None:
            self._pod_group.register(registry, self._hand_over)
        for controller in self._accepted:
            controller.register(registry)
        return registry

    def count(self) -> dict[str, int]:
        """Count what is known of the cluster."""
        state = self.reader.state
        return {
            "nodes": len(state.table),
            "pods": len(state.pods),
            "gangs": len(state.book.keys()),
        }

    def describe(self) -> dict[str, object]:
        """Return the inner state for the debug page."""
        state = self.reader.state
        description: dict[str, object] = {
            **self.count(),
            "assumed": state.assumed,
            "reflectors": {
                kind: _describe_reflector(one) for kind, one in self.reader.reflectors.items()
            },
        }
        if self.placement is not None:
            queue = self.placement.queue
            description["ready"] = len(queue)
            description["blocked"] = {key: one.reason.code for key, one in queue.blocked.items()}
            description["waiting"] = {key: reason.code for key, reason in queue.waiting.items()}
            description["kept"] = self.placement.holds.kept_for()
            description["held_up"] = {
                uid: reason.text() for uid, reason in self.placement.flights.doubts().items()
            }
        if state.quotas.is_in_use:
            description["quotas"] = describe_quotas(state)
        return description

    def _hand_over(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function in the main event loop; Kopf's handlers live in another one."""
        self._loop.call_soon_threadsafe(call, *arguments)

    def _make_placement(self) -> PlacementController:
        events = EventRecorder(
            self._client, "koord-placement", socket.gethostname(), is_busy=self._is_binding
        )
        announcer = PlacementAnnouncer(
            pods=self._make_writer(PODS, MERGED, self._status_of_pod),
            pod_groups=self._make_group_writer("koord-placement"),
            events=events,
        )
        state, clock = self.reader.state, time.monotonic
        reports = WaitReports(state=state, announcer=announcer, clock=clock)
        placement = PlacementController(
            state=self.reader.state,
            binder=self._binder,
            scoring=self._settings.make_scoring(),
            observer=self.metrics,
            reporter=reports,
            restarts=GangRestarts(state, Evictor(self._client, time.time), announcer, clock),
            is_synced=lambda: not self.reader.unsynced(),
            clock=time.monotonic,
            wall_clock=time.time,
        )
        self.metrics.watch_events(events)
        self.metrics.watch_rejections(lambda: self.reader.rejections)
        self.background += [events.run, lambda: reports.run(placement)]
        self.reader.listeners.append(placement.wake)
        self.metrics.watch_pending(lambda: _count_by_reason(placement))
        self._make_revoke(placement, events)
        return placement

    def _make_revoke(self, placement: PlacementController, events: EventRecorder) -> None:
        settings = self._settings.elastic_quota
        controller = RevokeController(
            state=self.reader.state,
            evictor=Evictor(self._client, time.time),
            reporter=RevokeAnnouncer(events),
            blocked=lambda: list(placement.queue.blocked.values()),
            is_synced=lambda: not self.reader.unsynced(),
            clock=time.monotonic,
            options=RevokeOptions(
                is_on=settings.revokes,
                delay=settings.delay_evict_time,
                interval=settings.revoke_pod_interval,
            ),
        )
        self.background.append(controller.run)
        self.metrics.watch_evictions(lambda: controller.counts)

    def _make_pod_group(self) -> PodGroupController:
        controller = PodGroupController(
            state=self.reader.state,
            sink=PodGroupAnnouncer(self._make_group_writer("koord-podgroup", yields=True)),
            clock=time.monotonic,
            wall_clock=time.time,
        )
        self.background.append(controller.run)
        self.reader.listeners.append(controller.wake)
        return controller

    def _make_quota_status(self) -> None:
        settings = self._settings.elastic_quota
        status = self._make_writer(
            QUOTAS,
            applied_by("koord-quota"),
            lambda ref: self._quotas.status_of(ref.uid),
            yields=True,
            observe=self.metrics.observe_quota_write,
        )
        annotations = self._make_writer(
            QUOTAS,
            annotated_by("koord-quota-annotations"),
            lambda ref: self._quotas.recorded_on(ref.uid),
            yields=True,
            observe=self.metrics.observe_quota_write,
        )
        controller = QuotaStatusController(
            state=self.reader.state,
            sink=QuotaAnnouncer(status, annotations, self._quotas),
            is_synced=lambda: not self.reader.unsynced(),
            is_busy=self._is_binding,
            revoke_delay=settings.delay_evict_time if settings.revokes else None,
        )
        self.background.append(controller.run)
        self.reader.listeners.append(controller.wake)
        self.metrics.watch_quotas(lambda: controller.summaries)

    def _make_profiles(self) -> None:
        writer = self._make_writer(
            PROFILES,
            applied_by("koord-elasticquotaprofile-tree"),
            lambda ref: self._profiles.status_of(ref.uid),
            yields=True,
        )
        controller = ProfileController(
            state=self.reader.state,
            sink=ProfileAnnouncer(writer, RootQuotaWriter(self._client), self._quotas),
            is_synced=lambda: not self.reader.unsynced(),
            clock=time.monotonic,
        )
        self.background.append(controller.run)
        self.reader.listeners.append(controller.wake)

    def _make_audit(self) -> None:
        audit = QuotaAudit(
            self.reader.state,
            is_synced=lambda: not self.reader.unsynced(),
            is_busy=self._is_binding,
        )
        self.background.append(audit.run)
        self.metrics.watch_quota_audit(audit)

    def _make_topology(self) -> None:
        writer = self._make_writer(
            TOPOLOGIES,
            applied_by("koord-networktopology-tree"),
            lambda ref: self._topologies.status_of(ref.uid),
            yields=True,
        )
        controller = TopologyController(
            state=self.reader.state, sink=TopologyAnnouncer(writer), clock=time.monotonic
        )
        self.background.append(controller.run)
        self.reader.listeners.append(controller.wake)

    def _make_accepted(self, name: str) -> AcceptedController:
        seen: dict[str, Mapping[str, Any]] = {}
        form = applied_by(f"koord-{name}")
        resource = RESOURCE_OF_OPERATOR[name]
        writer = self._make_writer(resource.names.plural, form, lambda ref: seen.get(ref.uid, {}))
        sink = AcceptedAnnouncer(writer, seen)
        return AcceptedController(resource, sink, self._hand_over)

    def _status_of_pod(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        """Return what a pod says of its waiting, nothing if it does not wait, None if it is gone.

        The translator remembers pods that wait, so it cannot tell the last two from each other.
        """
        is_known = ref.uid in self.reader.state.pods
        return self._pods.status_of(ref.uid) if is_known else None

    def _is_binding(self) -> bool:
        """Whether pods wait for the answers to other writes: what is only told can wait."""
        return self._binder.is_busy

    def _make_group_writer(self, manager: str, *, yields: bool = False) -> StatusWriter:
        return self._make_writer(
            POD_GROUPS,
            applied_by(manager),
            lambda ref: self._groups.status_of(ref.uid),
            yields=yields,
        )

    def _make_writer(
        self,
        resource: str,
        form: Form,
        present: Present,
        *,
        yields: bool = False,
        observe: Callable[[float], None] = lambda _: None,
    ) -> StatusWriter:
        writer = StatusWriter(
            self._client,
            form,
            present,
            has_subresource=resource not in self._without_subresource,
            is_busy=self._is_binding if yields else _is_never_busy,
            observe=observe,
        )
        self._writers.append((resource, writer))
        self.background.append(writer.run)
        return writer


def _is_never_busy() -> bool:
    return False


def _describe_reflector(reflector: Reflector[Any, Any]) -> dict[str, object]:
    stats = asdict(reflector.stats)
    del stats["last_contact"]  # of a clock that means nothing to others
    return {
        "synced": reflector.synced.is_set(),
        "objects": len(reflector),
        "silence_seconds": round(reflector.stats.silence, 1),
        **stats,
    }


def _count_by_reason(placement: PlacementController) -> dict[str, int]:
    queue = placement.queue
    counts = Counter(str(blocked.reason.code) for blocked in queue.blocked.values())
    counts.update(str(reason.code) for reason in queue.waiting.values())
    return dict(counts)
