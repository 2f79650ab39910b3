"""One process of operators: check the cluster, follow, lead, and shut down gracefully.

Several processes may run the same operators. All of them watch the cluster; one, the leader, plans,
runs Kopf and writes. A process that loses leadership exits immediately, because its assumed state
may be wrong; a new one starts from the API objects. The election and the HTTP server have a thread
each, see ``election`` and ``http_thread``; everything else happens in the main event loop.
"""

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version as version_of
from typing import Final, NoReturn

import msgspec

from koord.controllers.decision_tracer import DecisionTracer
from koord.controllers.placement import PlacementController
from koord.core.autoscaler.options import Signal
from koord.domains.audit_settings import AuditSettings
from koord.domains.autoscaler_settings import AutoscalerSettings
from koord.domains.diagnosis_settings import DiagnosisSettings
from koord.domains.profile_settings import ProfileSettings
from koord.domains.suspend_settings import SuspendSettings
from koord.isolation import FAILURES, Isolation
from koord.kube.client import Client
from koord.kube.config import Credentials
from koord.kube.election import Fence
from koord.kube.leader_report import MAX_ERROR, LeaderReport, encode_report
from koord.kube.plan_keys import PlanKeys, PlanKeySecret
from koord.kube.write_check import EVICT, Write
from koord.operators.names import COLOCATION_PROFILE, PLACEMENT
from koord.runtime.audit import CyclePages, FeedPages
from koord.runtime.collectors import leadership
from koord.runtime.cycle_snapshots import EncodeCycle
from koord.runtime.debug_flags import PAGE, VERBOSITY, DebugFlags
from koord.runtime.descriptions import report_enforcement, report_queue
from koord.runtime.diagnosis import NOT_LEADING, DiagnosisPage, answer
from koord.runtime.discovery import (
    Definitions,
    check_installed,
    find_definitions,
    watch_definitions,
)
from koord.runtime.election import ENDS, LeaseThread, own_namespace
from koord.runtime.http import Sources
from koord.runtime.http_thread import HttpThread
from koord.runtime.kopf_host import KopfHost
from koord.runtime.logs import FailureLines, LastProblem
from koord.runtime.readers import DIAGNOSIS, FEED, FLAGS, METRICS
from koord.runtime.registry import OPERATORS
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts
from koord.runtime.write_rights import PUBLISH_PROFILES, REQUEST_NODES, RESUME, WriteRights

log = logging.getLogger(__name__)

FINISH_SECONDS: Final = 1.5
"""After a signal, running commits get this long to finish."""
REPORT_SECONDS: Final = 1.0
"""How often the leader looks what to say of itself; each renewal of the Lease takes it along."""
METRICS_PATIENCE_SECONDS: Final = 0.2
"""A scrape waits this long for current numbers; during a long plan it gets the previous ones."""
STATE_PATIENCE_SECONDS: Final = 4.0
"""A reader of the debug page, which is a person, can wait longer."""
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Before a loop that goes on failing is run again."""
MAX_DESCRIPTORS: Final = 1 << 16
"""Some systems allow a billion, and then what closes all possible ones takes minutes."""
GC_THRESHOLDS: Final = 50_000, 10, 10
"""A cluster is tens of thousands of long-lived objects. With Python's default thresholds garbage
collection took a tenth of the time."""
GC_THRESHOLDS_LATER: Final = 50_000, 2, 2
"""Once those are excluded, few objects live long, and each pod leaves about 50 in cycles, most of
them Kopf's. What lives while the young ones are collected grows old, and would stay for hours."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run; ``operators`` by name, by default all."""

    credentials: Credentials
    settings: Settings
    operators: Collection[str] = OPERATORS
    encode_cycle: EncodeCycle | None = None
    """Makes a file of what a cycle planned with; None: nobody can have one."""


@dataclass(frozen=True, slots=True)
class _Process:
    """Objects that live as long as the process."""

    parts: Parts
    kopf: KopfHost
    lease: LeaseThread
    http: HttpThread
    secret: PlanKeySecret
    problem: LastProblem
    rights: WriteRights
    flags: DebugFlags | None
    """None if Koordinator's diagnosis API is not served."""
    encode_cycle: EncodeCycle | None = None

    def sources(self) -> Sources:
        """Return what is served, by callables that are called in the thread of the HTTP server."""
        return Sources(
            problem=self.lease.find_problem,
            unsynced=self.unsynced,
            metrics=self.encode_metrics,
            state=lambda: self.http.ask(self.describe, STATE_PATIENCE_SECONDS),
            feed=self.make_feed(),
            cycles=self.make_cycles(),
            diagnosis=None if self.flags is None else _Diagnosis(self, self.flags),
        )

    def make_feed(self) -> FeedPages | None:
        """Return what serves the records of decisions; None if nobody is to read them."""
        audit, elector = self.parts.audit, self.lease.elector
        if audit is None or not self.parts.settings.of(AuditSettings).feed:
            return None
        return FeedPages(audit.ring, elector.election.identity, elector.leading.is_set)

    def make_cycles(self) -> CyclePages | None:
        """Return what serves snapshots of cycles; None where nobody may read the feed."""
        snapshots, elector = self.parts.cycles, self.lease.elector
        if snapshots is None or self.encode_cycle is None:
            return None
        ask = partial(self.http.ask, patience=STATE_PATIENCE_SECONDS)
        return CyclePages(
            snapshots, self.encode_cycle, elector.election.identity, elector.leading.is_set, ask
        )

    def unsynced(self) -> list[str]:
        """Name the parts that are not ready; a follower is ready when it could lead."""
        waiting = self.parts.reader.unsynced()
        if self.parts.reads_pods and not self.secret.is_loaded:
            missing = self.secret.missing
            waiting.append(f"plan key ({missing})" if missing else "plan key")
        elector = self.lease.elector
        if not elector.has_looked:
            waiting.append("lease")
        if elector.leading.is_set() and not self.kopf.is_ready.is_set():
            waiting.append("kopf")
        guard = self.parts.name_guard
        if elector.leading.is_set() and guard is not None and not guard.is_free():
            waiting.append(f"the scheduler name ({guard.problem})")
        return waiting

    def note_definitions(self, definitions: Definitions) -> None:
        has_more = bool(definitions.served - self.parts.definitions.served)
        self.parts.note_definitions(definitions)
        self.kopf.refresh(is_due=has_more)

    async def encode_metrics(self) -> bytes:
        metrics = self.parts.metrics
        with suppress(TimeoutError):
            await self.http.ask(metrics.take, METRICS_PATIENCE_SECONDS)
        return metrics.encode()

    async def report(self) -> NoReturn:
        """Keep what we say of ourselves in the Lease current while we lead."""
        while True:
            self.lease.elector.election.report = self._make_report()
            await asyncio.sleep(REPORT_SECONDS)

    def _make_report(self) -> str:
        queued = {**report_queue(self.parts), **report_enforcement(self.parts)}
        return encode_report(
            LeaderReport(
                version=version_of("koord-operators"),
                not_ready=tuple(self.unsynced()),
                refused=tuple(self._find_refused()),
                last_error=self.problem.text[:MAX_ERROR],
                last_error_at=self.problem.at,
                feed=self._find_feed(),
                **queued,
            )
        )

    def _find_feed(self) -> str:
        """Return where records of decisions are served; empty if they are not."""
        address = self.http.address
        is_served = self.parts.audit is not None and self.parts.settings.of(AuditSettings).feed
        return address.text if is_served and address is not None else ""

    def _find_refused(self) -> Iterator[str]:
        """Yield what we cannot write, and what to do about it."""
        yield from self.rights.describe()
        if self.secret.missing:
            yield self.secret.missing
        yield from self.parts.client.refused.describe()

    def describe(self) -> bytes:
        """Return the state as JSON. It is encoded in the main loop, which would change it."""
        elector = self.lease.elector
        election = elector.election
        described = {"lease": elector.key, "leader": election.holder, "leads": election.leads}
        return msgspec.json.encode({"election": described, **self.parts.describe()})


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    """Koordinator's diagnosis API of a process; only the leader knows more than how to log."""

    process: _Process
    flags: DebugFlags
    page: str = PAGE

    async def diagnose(self, path: str, query: Mapping[str, str]) -> DiagnosisPage:
        if not self._leads:
            return DiagnosisPage(503, NOT_LEADING)
        state, ask = self.process.parts.reader.state, self.process.http.ask
        made = await ask(lambda: answer(state, path, query), STATE_PATIENCE_SECONDS)
        return made.encode()

    def knows_flag(self, name: str) -> bool:
        return self.flags.knows(name)

    def refuse_flag(self, name: str) -> DiagnosisPage | None:
        may_set = self._leads or name == VERBOSITY
        return None if may_set else DiagnosisPage(503, NOT_LEADING)

    def put_flag(self, name: str, text: str, by: str) -> tuple[int, str]:
        return self.flags.put(name, text, by)

    @property
    def _leads(self) -> bool:
        return self.process.lease.elector.leading.is_set()


def _make_flags(parts: Parts, http: HttpThread) -> DebugFlags | None:
    """Return the debug flags, which steer what placement logs; None if they are not served."""
    diagnosis, placement = parts.settings.of(DiagnosisSettings), parts.placement
    if not diagnosis.enabled:
        return None
    flags = DebugFlags(diagnosis.flags_expire_after)
    if placement is not None:
        placement.tracer = DecisionTracer(
            flags, placement.scoring, placement.clock, placement.preempting
        )
    audit = parts.audit
    if audit is not None:
        flags.note = lambda *news: http.tell(partial(audit.flag_set, *news))
    return flags


def _find_protected(settings: Settings) -> list[str]:
    """Return the areas whose readers are asked for a token."""
    areas = [METRICS, FEED] if settings.metrics_authorization else []
    return [*areas, *((DIAGNOSIS, FLAGS) if settings.of(DiagnosisSettings).authorization else ())]


def _find_more_writes(settings: Settings, operators: Collection[str]) -> list[Write]:
    """Return what the settings in use need besides what operators write in any case."""
    places = PLACEMENT in operators
    resumes = settings.of(SuspendSettings).enabled
    asks = settings.of(AutoscalerSettings).options.signal is Signal.PROVISIONING_REQUEST
    publishes = settings.of(ProfileSettings).enabled
    return [
        *([EVICT] if places and settings.evicts else ()),
        *(RESUME if places and resumes else ()),
        *(REQUEST_NODES if places and asks else ()),
        *(PUBLISH_PROFILES if publishes and COLOCATION_PROFILE in operators else ()),
    ]


async def run_operators(options: Options) -> None:
    """Run until SIGTERM or SIGINT, then finish running commits.

    Raises NotInstalled, NoNamespace, WritesDenied, LeadershipLost, and the errors of
    ``koord.kube.errors`` if the cluster cannot be reached.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    raise_descriptor_limit()
    FAILURES.report = FailureLines().report
    fence = Fence()
    async with (
        Client(options.credentials) as own_client,
        Client(options.credentials, permit=fence.check) as client,
    ):
        parts = Parts(client, options.settings, options.operators, keys=(keys := PlanKeys()))
        definitions = await find_definitions(client, parts.resources)
        check_installed(definitions, parts.resources)
        parts.note_definitions(definitions)
        lease = LeaseThread(options.credentials, options.operators, fence)
        http = HttpThread(options.credentials, _find_protected(options.settings))
        parts.lease = lease.ref
        parts.metrics.watch(leadership(lambda: fence.is_open))
        access = await options.credentials.current()
        parts.namespace = namespace = own_namespace(access)
        rights = WriteRights(
            own_client,
            options.operators,
            namespace,
            in_pod=access.in_pod,
            more=_find_more_writes(options.settings, options.operators),
        )
        await rights.check()
        makes_keys = PLACEMENT in options.operators
        secret = PlanKeySecret(own_client, namespace, keys, makes_keys=makes_keys)
        problem = LastProblem()
        logging.getLogger("koord").addHandler(problem)
        kopf = KopfHost(parts.make_registry, options.settings.watch_times)
        flags = _make_flags(parts, http)
        process = _Process(
            parts, kopf, lease, http, secret, problem, rights, flags, options.encode_cycle
        )
        try:
            await _serve(process, options.settings)
        finally:
            logging.getLogger("koord").removeHandler(problem)


async def _serve(process: _Process, settings: Settings) -> None:
    """Run a process until a signal. Raises an error of ``ENDS`` alone, not in a group."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with (
        process.lease.run(),
        process.http.run(settings.http_address, process.sources()) as address,
    ):
        log.info("Serving HTTP", extra={"address": address.host, "port": address.port})
        try:
            await _run(process, stop)
        except BaseExceptionGroup as group:
            ends = group.subgroup(ENDS)
            if ends is None:
                raise
            raise _first_of(ends) from None


def _first_of(group: BaseExceptionGroup) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def _run(process: _Process, stop: asyncio.Event) -> None:
    """Run all parts until ``stop``; an error in one ends all."""
    parts, kopf, lease = process.parts, process.kopf, process.lease
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_read(process), name="reader"),
                group.create_task(lease.wait_failed(), name="election"),
                group.create_task(_run_for_election_when_synced(parts, lease)),
                group.create_task(process.rights.run(), name="rights"),
                group.create_task(
                    watch_definitions(parts.client, parts.resources, process.note_definitions)
                ),
            ]
            lead = group.create_task(_lead(process, stop), name="leader")
            kopf.start()
            await stop.wait()
            log.info("Stopping")
            group.create_task(kopf.stop())
            if not lease.leading.is_set():
                lead.cancel()
            finished, _ = await asyncio.wait([lead], timeout=FINISH_SECONDS)
            for task in (*tasks, lead):
                task.cancel()
        # A cancelled write may still arrive: then the lease must expire by itself.
        if finished:
            await lease.release()
    finally:
        # Also after an error: a running Kopf would keep the process alive.
        await kopf.stop()


async def _read(process: _Process) -> None:
    """Follow the cluster; pods only with the keys by which their plans are judged."""
    parts = process.parts
    if not parts.reads_pods:
        await parts.reader.run()
        return
    await process.secret.load()
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.reader.run())
        group.create_task(process.secret.run(lambda: _follow_keys(process)))


async def _follow_keys(process: _Process) -> None:
    """Judge all plans by changed keys; the leader signs again what the current one did not."""
    if process.parts.placement is not None and process.lease.leading.is_set():
        await process.parts.sign_plans()
    else:
        await process.parts.judge_plans()


async def _run_for_election_when_synced(parts: Parts, lease: LeaseThread) -> None:
    await parts.reader.wait_synced()
    freeze_garbage_collection()
    log.info("Caches are synced", extra=parts.count())
    lease.stand()


def raise_descriptor_limit() -> None:
    """Use as many file descriptors as the system allows: half-open streams need some, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def freeze_garbage_collection() -> None:
    """Exclude all present objects, which live long, from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS_LATER)


async def _lead(process: _Process, stop: asyncio.Event) -> None:
    """Run all that writes, from our election until ``stop``; then finish running commits."""
    election = process.lease.elector.election
    await process.lease.leading.wait()
    if process.parts.placement is not None and election.lease and not election.lease.is_signed:
        await process.parts.adopt_plans()
    election.signs = True
    if process.parts.audit is not None:
        term = (election.lease.spec.lease_transitions or 0) if election.lease else 0
        process.parts.audit.begin_term(term, election.identity)
    if process.flags is not None:
        process.flags.reset("a change of the leader")
    process.kopf.operate()
    async with asyncio.TaskGroup() as group:
        background = (*process.parts.background, process.report)
        writers = [group.create_task(keep_running(run)) for run in background]
        placement = process.parts.placement
        if placement is None:
            log.info("Leading without placement", extra=process.parts.count())
            await stop.wait()
        else:
            planning = group.create_task(_plan(process, placement), name="placement")
            await stop.wait()
            placement.stop()
            await planning
        for writer in writers:
            writer.cancel()


async def keep_running(run: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run a loop, again after an unexpected error: one loop does not end all the others."""
    isolated, name = Isolation("background"), getattr(run, "__qualname__", repr(run))
    while True:
        with isolated.of(name):
            return await run()
        await asyncio.sleep(min(isolated.again_at(name) or 0.0, LONGEST_PAUSE_SECONDS))


async def _plan(process: _Process, placement: PlacementController) -> None:
    """Plan until stopped, once the caches have everything that the last leader wrote."""
    await process.parts.get_ready()
    await process.parts.catch_up(process.lease.elector.election.identity)
    log.info("Ready to plan", extra=process.parts.count())
    await placement.run()
