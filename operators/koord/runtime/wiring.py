"""The composition root: puts the parts of one process together from the registrations.

Which operators run decides what is read and what is written, and so which rights are needed.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, TypeVar

from koord.answers.leaders import DEFAULT_NAMESPACE
from koord.api import Compat
from koord.api.gang import GangDefaults
from koord.controllers.history import HistoryRecorder
from koord.controllers.placement_reports import PlacementReports
from koord.controllers.status_author import HasStatus, StatusAuthor
from koord.controllers.status_controller import StatusController, StatusPolicy
from koord.core.model.gang_history import OF_PLACEMENT, OF_POD_GROUPS
from koord.core.quota.hooks import Hooks
from koord.domains import DOMAINS
from koord.domains.domain import load
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import PODS
from koord.domains.registry import find_more_kinds, make_cluster_state, make_translator_options
from koord.domains.reservation import RESERVATIONS
from koord.isolation import FAILURES, Isolation
from koord.kube.binder import Binder
from koord.kube.catchup import catch_up
from koord.kube.client import Client
from koord.kube.events import EventRecorder, EventType
from koord.kube.kind import TranslatorOptions
from koord.kube.plan_keys import PlanKeys, sign_again
from koord.kube.status import (
    AFTER_BINDINGS,
    AT_ONCE,
    Form,
    Former,
    Pace,
    Present,
    StatusWriter,
    applied_by,
)
from koord.kube.translate.statuses import SeenStatuses
from koord.operators.handlers import ResourceHandlers
from koord.operators.names import PLACEMENT, POD_GROUP, QUOTA
from koord.runtime.cluster import ClusterReader
from koord.runtime.collectors import (
    assumed_pods,
    event_outcomes,
    isolated_failures,
    reflector_series,
    status_writes,
)
from koord.runtime.discovery import Definitions, NameGuard, name_of
from koord.runtime.hooks import load_hooks
from koord.runtime.kopf_host import make_registry
from koord.runtime.metrics import Metrics
from koord.runtime.registry import choose_operators, kinds_of, required_resources
from koord.runtime.settings import Settings

if TYPE_CHECKING:
    import kopf

    from koord.controllers.decision_log import DecisionLog
    from koord.controllers.enforcement import Enforcement
    from koord.controllers.eviction import EvictionController
    from koord.controllers.placement import PlacementController
    from koord.controllers.queue_looks import QueueLooks
    from koord.kube.objects import ObjectRef
    from koord.operators.operator import Operator
    from koord.runtime.cycle_snapshots import CycleSnapshots

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=HasStatus)

_WATCHING: Final = "Watching"
"""The action in events about the cluster as a whole."""


class Parts:
    """Everything that one process is made of.

    ``background`` is to be run for as long as the process lives; ``placement`` plans once all is
    synced.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        operators: Collection[str],
        *,
        keys: PlanKeys,
    ) -> None:
        self.client = client
        self.settings = settings
        self.operators = frozenset(operators)
        self.keys = keys
        self.metrics = Metrics()
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.awaited: list[Callable[[], bool]] = []
        """Whether what is no copy of objects is known, without which nothing is to be placed."""
        self.placement: PlacementController | None = None
        self.evictions: EvictionController | None = None
        """That of placement, which all policies of this process share."""
        component = PLACEMENT if PLACEMENT in operators else "-".join(sorted(operators))
        self.events = EventRecorder(
            client, f"koord-{component}", socket.gethostname(), is_busy=self.is_binding
        )
        self.background.append(self.events.run)
        self.audit: DecisionLog | None = None
        """What decisions are recorded in, if they are."""
        self.cycles: CycleSnapshots | None = None
        """What takes snapshots of cycles, where the feed is served."""
        self.queue_looks: QueueLooks | None = None
        """What is seen of the queues, where placement runs in this process."""
        self.name_guard: NameGuard | None = None
        self.enforcement: Enforcement | None = None
        self.namespace = DEFAULT_NAMESPACE
        """Where we run, or are taken to run."""
        self.resources = required_resources(operators)
        """The custom resources that the operators read or validate, by API version and plural."""
        self.definitions = Definitions(frozenset(starmap(name_of, self.resources)))
        """Those that are served, as last seen."""
        self.lease: Callable[[], ObjectRef | None] = lambda: None
        """Returns our Lease while we lead: what events are about that concern no other object."""
        self.writers: list[tuple[str, StatusWriter]] = []
        """Every status writer, with the plural of the resource that it writes."""
        self._loop = asyncio.get_running_loop()
        plan_options = tuple(settings.all_plan_options())
        make_hooks = Hooks if self.operators.isdisjoint({PLACEMENT, QUOTA}) else load_hooks
        self.reader = ClusterReader(
            client,
            (
                *kinds_of(operators),
                *(find_more_kinds(*plan_options) if PLACEMENT in self.operators else ()),
            ),
            lambda: make_cluster_state(
                *plan_options,
                make_hooks(),
                compat=settings.compat is Compat.KOORDINATOR,
            ),
            make_translator_options(
                TranslatorOptions(
                    settings.scheduler_name,
                    GangDefaults(settings.default_wait_seconds, settings.default_match_policy),
                    keys,
                ),
                *plan_options,
            ),
            settings.watch_times,
        )
        forms = self.reader.translator(PODS).form_of
        self.binder = Binder(client, forms, keys, in_flight=settings.bind_concurrency)
        groups = self.reader.translator(POD_GROUPS)
        held = self.reader.translator(RESERVATIONS)
        self.gang_reports = PlacementReports(groups.has)
        self.reservation_reports = PlacementReports(held.has)
        episodes = {PLACEMENT: OF_PLACEMENT, POD_GROUP: OF_POD_GROUPS}
        self.history = HistoryRecorder(
            tuple(own for name, own in episodes.items() if name in self.operators),
            self.events,
            groups.status_of,
            time.time,
        )
        self._isolated = Isolation("verdicts")
        self.handlers: list[ResourceHandlers] = []
        """Kopf's, of the custom resources of all operators."""
        self._start_domains()
        self.metrics.watch(
            event_outcomes(self.events),
            assumed_pods(lambda: len(self.reader.state.assumed)),
            isolated_failures(FAILURES.counts),
            status_writes(self.writers),
            *reflector_series(self.reader.reflectors),
        )

    @property
    def reads_pods(self) -> bool:
        return PODS.name in self.reader.reflectors

    async def get_ready(self) -> None:
        """Open connections for as many writes as may be in flight at once."""
        await self.client.keep_open(self.settings.bind_concurrency)

    async def catch_up(self, identity: str) -> None:
        """Return when the copy of the cluster holds what was written to pods before this call."""
        await catch_up(self.client, self.reader.state, identity, self.judge_plans)

    async def judge_plans(self) -> None:
        """Read all pods and reservations again and judge their plans by the present keys."""
        reflectors = self.reader.reflectors
        if RESERVATIONS.name in reflectors and len(reflectors[RESERVATIONS.name]):
            await reflectors[RESERVATIONS.name].relist()
        await reflectors[PODS.name].relist()

    async def sign_plans(self) -> None:
        """Judge all plans, and sign again those that count without the current signature."""
        await self.judge_plans()
        await sign_again(self.client, self.keys, self.reader.translator(PODS).outdated)
        if RESERVATIONS.name in self.reader.reflectors:
            outdated = self.reader.translator(RESERVATIONS).outdated
            await sign_again(self.client, self.keys, outdated)

    async def adopt_plans(self) -> None:
        """Sign the plans of a leader of an earlier release, which did not sign them."""
        log.info("Signing the plans of the previous leader")
        self.keys.accepts_unsigned = True
        try:
            await self.sign_plans()
        finally:
            self.keys.accepts_unsigned = False

    def make_registry(self) -> "kopf.OperatorRegistry":
        registry = make_registry(self.client.credentials)
        for handlers in self.handlers:
            handlers.register(registry)
        return registry

    def count(self) -> dict[str, int]:
        state = self.reader.state
        return {
            "nodes": len(state.table),
            "pods": len(state.pods),
            "gangs": len(state.gangs.keys()),
        }

    def describe(self) -> dict[str, object]:
        description: dict[str, object] = {
            **self.count(),
            "assumed": self.reader.state.assumed,
            "reflectors": self.reader.describe(),
        }
        for domain in DOMAINS:
            if domain.describe:
                description |= load(domain.describe)(self)
        return description

    def note_definitions(self, definitions: Definitions) -> None:
        """Report definitions that came or went, and write statuses as they ask for."""
        before, self.definitions = self.definitions, definitions
        for name in sorted(before.served - definitions.served):
            self.warn("DefinitionMissing", f"the cluster does not serve {name}; install its CRD")
        for name in sorted(definitions.served - before.served):
            log.info("A custom resource is served now", extra={"resource": name})
        without = {name.partition(".")[0] for name in definitions.without_status}
        for plural, writer in self.writers:
            writer.has_subresource = plural not in without

    def warn(self, reason: str, note: str) -> None:
        """Log a warning that concerns the whole process; the leader also emits an event."""
        log.warning(note, extra={"reason": reason})
        lease = self.lease()
        if lease is not None:
            self.events.forget(lease, _WATCHING)  # it may be about something else
            self.events.record(lease, EventType.WARNING, action=_WATCHING, reason=reason, note=note)

    def is_binding(self) -> bool:
        """Whether pods wait for the answers to other writes, so that statuses have to wait."""
        return self.binder.is_busy

    def make_writer(  # noqa: PLR0913 - half of them are optional
        self,
        resource: str,
        form: Form,
        present: Present,
        *,
        pace: Pace = AT_ONCE,
        present_metadata: Present = lambda _: {},
        observe: Callable[[float], None] = lambda _: None,
    ) -> StatusWriter:
        """Return a running writer of a resource, given by its plural.

        It gives way to bindings as ``pace`` says; ``observe`` gets the seconds of each request.
        """
        writer = StatusWriter(
            self.client,
            form,
            present,
            pace=pace,
            is_busy=self.is_binding,
            present_metadata=present_metadata,
            observe=observe,
        )
        self.writers.append((resource, writer))
        self.background.append(writer.run)
        return writer

    def make_author(  # noqa: PLR0913 - all but three are optional
        self,
        operator: "Operator",
        seen: SeenStatuses,
        key_of: Callable[[Mapping[str, Any]], K],
        ref_of: "Callable[[T], ObjectRef]",
        *,
        former: Collection[Former] = (),
        pace: Pace = AFTER_BINDINGS,
        has_verdict: bool = True,
        present_metadata: Present = lambda _: {},
        observe: Callable[[float], None] = lambda _: None,
    ) -> StatusAuthor[K, T]:
        """Return the author of the status of an operator's custom resource.

        ``seen`` knows the statuses that objects show; ``former`` are managers of earlier releases.
        """
        if operator.resource is None:
            raise AssertionError("it has no custom resource")

        def present(ref: "ObjectRef") -> Mapping[str, Any] | None:
            status = seen.status_of(ref.uid)
            return author.status_of(ref.uid) if status is None else status  # it may be undecodable

        writer = self.make_writer(
            operator.resource.names.plural,
            applied_by(f"koord-{operator.name}", *former),
            present,
            pace=pace,
            present_metadata=present_metadata,
            observe=observe,
        )
        author = StatusAuthor[K, T](
            operator.resource, writer, ref_of, key_of, self.events, has_verdict
        )
        return author

    def keep_status(
        self,
        policy: StatusPolicy[K],
        author: StatusAuthor[K, Any] | None = None,
        *,
        when_synced: bool = True,
        pace: Pace = AT_ONCE,
    ) -> StatusController[K]:
        """Return a running controller that keeps statuses current, by default only when synced.

        With an ``author`` it works while Kopf shows the objects of that author. It gives way to
        bindings as ``pace`` says.
        """

        def may_work() -> bool:
            is_shown = author is None or author.is_open
            return is_shown and (not when_synced or self.reader.is_synced())

        controller = StatusController(policy, time.monotonic, may_work, self.is_binding, pace)
        self.background.append(controller.run)
        self.reader.listeners.append(controller.wake)
        return controller

    def handle(
        self, author: StatusAuthor[K, Any], controller: StatusController[K]
    ) -> StatusController[K]:
        """Have Kopf's handlers of a resource enqueue its objects for a controller."""
        author.enqueue, controller.settle = controller.enqueue, author.settle
        self.handlers.append(ResourceHandlers(author, self._hand_over))
        return controller

    def _start_domains(self) -> None:
        for operator in choose_operators(self.operators):
            operator.start(self)
        for domain in DOMAINS:
            if domain.start:
                load(domain.start)(self)

    def _hand_over(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function in the main event loop; Kopf's handlers live in another one."""
        call_safely = partial(self._isolated.call, call.__qualname__, call)
        self._loop.call_soon_threadsafe(call_safely, *arguments)
