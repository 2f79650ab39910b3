"""Follows the cluster for ``koord serve``, and makes readings of it.

Reflectors live in the event loop; the state lives in the thread of answers. So what reflectors
deliver is only queued, and applied by whoever reads next: no answer sees half a change, and nobody
waits for a lock. How the operators plan, they say in their Lease; where that changes the cluster is
followed anew, while the last state goes on serving.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from typing_extensions import override

from koord.answers.leaders import DEFAULT_NAMESPACE, Leader
from koord.answers.reading import Extent, Gap, Reading, Target, TargetKind
from koord.cli.cluster import (
    are_hooked,
    find_migration_options,
    find_owner_kinds,
    find_preemption_settings,
    find_quota_options,
    find_reclaim,
)
from koord.cli.leases import read_leader
from koord.cli.object_notes import KINDS as NOTED
from koord.cli.object_notes import ObjectNotes
from koord.core.engine.state import ClusterState
from koord.core.eviction.preemption import find_nominations
from koord.core.suspend.plugin import SuspendOptions
from koord.domains.autoscaler_settings import read_reported as read_reported_autoscaler
from koord.domains.load_settings import read_reported as read_reported_load
from koord.domains.owner_settings import read_reported as read_owner_settings
from koord.domains.placement import PODS
from koord.domains.quota import QUOTAS
from koord.domains.registry import (
    KINDS,
    find_more_kinds,
    make_cluster_state,
    make_translator_options,
)
from koord.isolation import Isolation
from koord.kube.client import Client
from koord.kube.errors import Forbidden, KubeError
from koord.kube.kind import AnyKind, Kind, TranslatorOptions
from koord.kube.plan_keys import AnySignature
from koord.kube.reflector import Absence, Source
from koord.kube.store import Change, Deleted, HasMeta
from koord.kube.wire import Identified, ObjectList
from koord.runtime.cluster import ClusterReader
from koord.runtime.hooks import load_hooks

if TYPE_CHECKING:
    from koord.kube.leader_report import LeaderReport

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")

QUIET_SECONDS: Final = 30.0
"""For so long a kind may be silent."""
LEASE_SECONDS: Final = 5.0
"""How often the Lease of the leader is read."""
TARGET: Final = Target(TargetKind.POD, "default", "")
"""About nothing: manifests that are tried without a namespace are in this one."""
log = logging.getLogger(__name__)


class NotRead(KubeError):  # noqa: N818 - what it says is what is wrong
    """The cluster is not read yet, or what was read is old."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How the operators plan, as far as their leader says so."""

    basis: tuple[object, ...]
    """What is the same while nothing changes."""
    compat: bool
    options: tuple[object, ...]
    """What plugins look up."""
    kinds: tuple[AnyKind, ...]


def _find_basis(leader: Leader | None) -> tuple[object, ...]:
    report = cast("LeaderReport | None", leader.report) if leader is not None else None
    if report is None:
        return ()
    settings = report.quota, report.load, report.autoscaler, report.suspend, report.owners
    return report.compat, *settings


async def find_plan_settings(client: Client, leader: Leader | None) -> PlanSettings:
    """Return the settings of a leader; without one those by default. May raise ``KubeError``."""
    report = cast("LeaderReport | None", leader.report) if leader is not None else None
    load = read_reported_load(report.load if report is not None else None)
    owners = read_owner_settings(report.owners if report is not None else None)
    suspend = SuspendOptions(report is not None and report.suspend)
    options = (
        find_quota_options(report, ()),
        load.options,
        read_reported_autoscaler(report.autoscaler if report is not None else None),
        suspend,
        *owners.plan_options(),
    )
    kinds = (
        *KINDS,
        *find_more_kinds(suspend),
        *(await find_owner_kinds(client, owners) if owners.enabled else ()),
    )
    is_compat = report is not None and report.compat
    return PlanSettings(_find_basis(leader), is_compat, options, kinds)


class QueuedReader(ClusterReader):
    """Reflectors whose changes wait until ``catch_up`` is called, in the thread of the state."""

    def __init__(
        self,
        client: Client,
        kinds: Collection[AnyKind],
        make_state: Callable[[], ClusterState],
        options: TranslatorOptions,
    ) -> None:
        self.notes = ObjectNotes()
        self._queue: deque[Callable[[], None]] = deque()
        self._isolated_work = Isolation("serve")
        super().__init__(client, kinds, make_state, options)

    @property
    def has_news(self) -> bool:
        return bool(self._queue)

    def catch_up(self) -> None:
        """Apply what has arrived."""
        while self._queue:
            work = self._queue.popleft()
            # One object that nobody thought of keeps no other from being seen.
            self._isolated_work.call("work", work)

    @override
    def source_of(self, kind: Kind[W, T, Any], reject: Callable[[str, str], None]) -> Source[W, T]:
        source = super().source_of(kind, reject)
        name = next((name for name, noted in NOTED.items() if noted is kind), "")
        if not name:
            return source

        def translate(item: W) -> T:
            value = source.translate(item)
            self._queue.append(partial(self._note, name, item, value))
            return value

        return replace(source, translate=translate)

    def _note(self, name: str, item: Any, value: Any) -> None:
        self.notes.forget(name, value)  # what it said before
        self.notes.see(name, item)
        self.notes.note(item, value)

    @override
    def apply(self, kind: Kind[W, T, Any], changes: list[Change[T]]) -> None:
        self._queue.append(partial(self._apply_now, kind, changes))

    def _apply_now(self, kind: Kind[W, T, Any], changes: list[Change[T]]) -> None:
        super().apply(kind, changes)
        name = next((name for name, noted in NOTED.items() if noted is kind), "")
        gone = {change.value for change in changes if isinstance(change, Deleted)} if name else ()
        for value in gone:
            # One of the same name that came in its place has its own notes.
            if self.reflectors[kind.name].get(*_split(value)) is None:
                self.notes.forget(name, cast("Any", value))

    @override
    def apply_absence(self, kind: AnyKind, absence: Absence) -> None:
        self._queue.append(partial(super().apply_absence, kind, absence))


def _split(value: Any) -> tuple[str, str]:
    namespace, _, name = str(getattr(value, "key", "") or f"/{value.name}").partition("/")
    return namespace, name


class ServeReader:
    """The cluster as it is followed now. ``run`` it in the event loop; ``read`` in one thread."""

    def __init__(self, client: Client, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.problem = "the cluster is being read"
        self.leader: Leader | None = None
        self.client = client
        self.namespace = namespace
        self._reader: QueuedReader | None = None
        self._gaps: tuple[Gap, ...] = ()
        self._next: QueuedReader | None = None
        self._is_led_anew = True

    def has_news(self) -> bool:
        """Whether ``read`` would return something else than before."""
        return self._is_led_anew or (self._reader is not None and self._reader.has_news)

    def silence(self) -> float:
        """Return for how many seconds some kind has said less than it should; mostly 0.

        A watch that is well says something at least every quarter of a minute.
        """
        reader = self._reader
        if reader is None:
            return 0.0
        longest = max(each.stats.silence for each in (*reader.reflectors.values(),))
        return longest if longest > QUIET_SECONDS else 0.0

    @property
    def is_read(self) -> bool:
        """Whether there is a state to read from."""
        return self._reader is not None

    def unsynced(self) -> list[str]:
        """Name the kinds that are not read, or not any more."""
        reader = self._reader or self._next
        return ["settings of the operators"] if reader is None else reader.unsynced()

    async def run(self) -> NoReturn:
        """Follow until cancelled."""
        while True:
            try:
                self.leader = await read_leader(self.client, self.namespace)
                settings = await find_plan_settings(self.client, self.leader)
                await self._follow(settings)
            except KubeError as error:
                self.problem = str(error)
                log.warning("Cannot read the cluster", extra={"problem": self.problem})
                await asyncio.sleep(LEASE_SECONDS)

    async def _follow(self, settings: PlanSettings) -> None:
        """Follow with these settings until they change."""
        kinds, gaps = await self._find_readable(settings.kinds)
        reader = self._next = self._make_reader(settings, kinds)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(reader.run())
            switching = tasks.create_task(self._switch(reader, gaps))
            while not self._is_led_otherwise(settings):
                await asyncio.sleep(LEASE_SECONDS)
                with suppress(KubeError):
                    await self._look_at_leader()
            log.info("The operators plan by other settings: the cluster is read again")
            switching.cancel()
            # The last state goes on serving, as it was, until the next one is read.
            following.cancel()

    def _is_led_otherwise(self, settings: PlanSettings) -> bool:
        """Whether a leader plans by other settings; while nobody leads the last ones count."""
        is_led = self.leader is not None and self.leader.report is not None
        return is_led and _find_basis(self.leader) != settings.basis

    async def _look_at_leader(self) -> None:
        leader = await read_leader(self.client, self.namespace)
        if leader is not None:
            before = self.leader
            is_same = before is not None and replace(leader, renewed=before.renewed) == before
            self.leader, self._is_led_anew = leader, self._is_led_anew or not is_same

    async def _switch(self, reader: QueuedReader, gaps: tuple[Gap, ...]) -> None:
        await reader.wait_synced()
        self._reader, self._gaps, self._next = reader, gaps, None
        self._is_led_anew = True

    async def _find_readable(
        self, kinds: Collection[AnyKind]
    ) -> tuple[list[AnyKind], tuple[Gap, ...]]:
        """Return the kinds that may be listed, and the others as gaps. May raise ``NotRead``."""
        answers = await asyncio.gather(*map(self._may_list, kinds))
        readable = [kind for kind, may in zip(kinds, answers, strict=True) if may]
        if PODS not in readable:
            raise NotRead("the service may not list pods: apply manifests/overlays/serve")
        gaps = (Gap(kind, Extent.NOTHING) for kind in kinds if kind not in readable)
        return readable, tuple(gaps)

    async def _may_list(self, kind: AnyKind) -> bool:
        try:
            await self.client.get(kind.path, ObjectList[Identified], {"limit": "1"})
        except Forbidden:
            return False
        except KubeError:
            return True  # one that is not served, too: reflectors know what that means
        return True

    def _make_reader(self, settings: PlanSettings, kinds: Collection[AnyKind]) -> QueuedReader:
        # Its key is not known here, so any plan counts that looks like one of the operators.
        options = TranslatorOptions(plans=AnySignature())
        return QueuedReader(
            self.client,
            kinds,
            lambda: make_cluster_state(*settings.options, load_hooks(), compat=settings.compat),
            make_translator_options(options, *settings.options),
        )

    def read(self) -> tuple[Reading, Target]:
        """Apply what has arrived and return it, in the thread of answers. Raises ``NotRead``."""
        reader = self._reader
        if reader is None:
            missing = ", ".join(self.unsynced())
            raise NotRead(f"{self.problem}: {missing}" if missing else self.problem)
        self._is_led_anew = False
        reader.catch_up()
        state = reader.state
        state.advance(time.time())
        _renew_nominations(state)
        state.refresh()
        return self._make_reading(reader), TARGET

    def _make_reading(self, reader: QueuedReader) -> Reading:
        leader, notes = self.leader, reader.notes
        report = cast("LeaderReport | None", leader.report) if leader is not None else None
        statuses = _read_quota_statuses(reader)
        absent = (
            Gap(kind, Extent.NOT_SERVED)
            for kind in (*NOTED.values(), QUOTAS)
            if kind.name in reader.reflectors and reader.reflectors[kind.name].is_absent
        )
        return Reading(
            reader.state,
            None,
            (*self._gaps, *absent),
            {},
            find_reclaim(report, statuses),
            find_preemption_settings(report),
            find_migration_options(report),
            are_hooked(statuses.values()),
            tuple(reader.translator(PODS).ignored.values()),
            leader,
            notes.reports,
            notes.finalizers,
            notes.places,
            notes.standings,
            all_details=notes.details,
            is_followed=True,
        )


def _renew_nominations(state: ClusterState) -> None:
    """Keep room for those that pods record now, and for no others."""
    for nomination in state.nominations:
        state.nominations.end(nomination.unit)
    for nomination in find_nominations(state):
        state.nominations.begin(nomination)


def _read_quota_statuses(reader: QueuedReader) -> Mapping[str, Mapping[str, Any]]:
    if QUOTAS.name not in reader.reflectors:
        return {}
    quotas = reader.translator(QUOTAS)
    specs = reader.state.quotas.catalog.registry.specs
    return {name: quotas.status_of(spec.uid) or {} for name, spec in specs.items()}
