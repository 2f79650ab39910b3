"""Follows the cluster and serves answers to many: what ``koord serve`` does.

Puts the parts together and runs them; each part says what it does. Not imported for ``--help``.
"""

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, NoReturn, TypeVar

from aiohttp import web

from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.happenings import Subject
from koord.answers.leaders import DEFAULT_NAMESPACE
from koord.answers.reading import KindName
from koord.answers.story import Story, make_story
from koord.answers.usage import SegmentMemory, look_in_steps
from koord.cli.common import ExitCode, fail
from koord.cli.feed_records import find_address
from koord.cli.manifests import fetch_defaults
from koord.cli.serve_aggregation import AggregationPort
from koord.cli.serve_feed import FEED_TOKEN, find_feed, read_feed_token
from koord.cli.serve_memory import ServedMemory
from koord.cli.serve_reader import ServeReader
from koord.cli.serve_store import ServedStore
from koord.cli.story_objects import read_objects
from koord.core.usage.levels import UsageLook
from koord.domains.see_settings import SeeSettings
from koord.isolation import FAILURES
from koord.kube.client import Client
from koord.kube.config import Credentials, find_credentials
from koord.kube.errors import KubeError
from koord.runtime.address import Address, parse_address
from koord.runtime.app import freeze_garbage_collection, raise_descriptor_limit
from koord.runtime.connections import count_descriptors
from koord.runtime.heap import share_heap
from koord.runtime.logs import FailureLines, configure_logging
from koord.runtime.reviews import AccessReviews, TokenReviews
from koord.runtime.settings import (
    InvalidConfiguration,
    Settings,
    load_settings,
)
from koord.see.action_edits import UnitAction
from koord.see.actions import Actions
from koord.see.app import Server
from koord.see.askers import Askers
from koord.see.cluster_routes import PARTS
from koord.see.front_proxy import FrontProxyAccess
from koord.see.limits import Limits
from koord.see.manifests import ServerDefaults
from koord.see.observed import Observed
from koord.see.series import ServeSeries
from koord.see.snapshots import Gaps, OnDemand, Records, Snapshots
from koord.see.tls import CertificateFiles, InvalidCertificate, ServerCertificate
from koord.see.token_access import LOOPBACK, TokenAccess
from koord.see.visitors import IDLE_SECONDS, Visitor, Visitors
from koord.store.errors import StoreError
from koord.store.feed import FeedAddress, FeedError
from koord.store.retention import Keep

T = TypeVar("T")
Kept = ServedStore | ServedMemory
MakeCertificate = Callable[[Collection[str]], ServerCertificate | None]

SERVICE: Final = "koord-serve"
SWITCH_SECONDS: Final = 0.001
"""How long the thread of answers goes on while that of connections waits to be run."""
GC_THRESHOLDS: Final = 1_000, 5, 200
"""Whoever asks waits for a collection of garbage, so they are short. Between two of them far more
is made than this says, as nearly as much is freed. Whole ones are rare: little is in cycles."""
STREAMS_EACH: Final = 3
WAITING_EACH: Final = 4
_NO_LIBRARY: Final = (
    "see.selfSigned needs the library cryptography: install koord-operators[self-signed]"
)
_PATIENCE_SECONDS: Final = 10.0
"""How long what is read on demand may take."""
_NO_RECORDS: Final = AnswerGap("records of decisions", GapCause.NO_FEED, "what was decided")
log = logging.getLogger(__name__)


def serve(config: Path | None, kubeconfig: str, context: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    try:
        settings = load_settings(config) if config else Settings()
        credentials = find_credentials(kubeconfig, context)
        make_certificate = find_certificate(settings.of(SeeSettings))
    except (InvalidConfiguration, KubeError, InvalidCertificate) as error:
        fail(str(error), ExitCode.USAGE)
    configure_logging(settings.log_format)
    gc.enable()
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_descriptor_limit()
    share_heap()
    FAILURES.report = FailureLines().report
    see = settings.of(SeeSettings)
    try:
        asyncio.run(_run(see, credentials, make_certificate))
    except OSError as error:
        fail(f"cannot listen on {see.address}: {error.strerror}", ExitCode.UNREADABLE)
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    sys.stdout.flush()


def find_certificate(see: SeeSettings) -> MakeCertificate:
    """Return what makes the certificate for names of the server. Raises InvalidCertificate."""
    if see.self_signed:
        try:
            # Not there in every installation, and only for tests.
            from koord.see.self_signed import SelfSignedCertificate  # noqa: PLC0415
        except ImportError as error:
            raise InvalidCertificate(_NO_LIBRARY) from error
        return SelfSignedCertificate
    if not see.tls.cert_file:
        return lambda _: None
    files = CertificateFiles(Path(see.tls.cert_file), Path(see.tls.key_file))
    return lambda _: files


async def _run(
    see: SeeSettings, credentials: Credentials, make_certificate: MakeCertificate
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Client(credentials, user_agent=SERVICE) as client:
        access = await credentials.current()
        namespace = access.namespace if access.in_pod else DEFAULT_NAMESPACE
        reader = ServeReader(client, namespace)
        store = _make_store(see)
        on_demand = _OnDemand(client, loop, store)
        snapshots = Snapshots(
            reader.read,
            on_demand=OnDemand(
                on_demand.tell,
                on_demand.list_records,
                on_demand.read_defaults,
                None if store is None else store.analyse,
                tuple if store is None else store.find_trouble,
                None if store is None else store.read_usage,
                see.user_label,
            ),
            has_news=reader.has_news,
            silence=reader.silence,
            parts=PARTS,
        )
        try:
            tasks = [
                asyncio.create_task(reader.run()),
                asyncio.create_task(_keep_current(reader, snapshots)),
                asyncio.create_task(
                    _serve(see, client, snapshots, namespace, make_certificate, store=store)
                ),
            ]
            if store is not None:
                tasks.append(asyncio.create_task(_keep(see, store, reader, snapshots)))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, stopping):
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome
        finally:
            snapshots.close()


async def _keep_current(reader: ServeReader, snapshots: Snapshots) -> NoReturn:
    while not reader.is_read:  # noqa: ASYNC110 - rare, and quick enough
        await asyncio.sleep(0.05)
    _freeze()
    log.info("The cluster is read")
    await snapshots.run()


def _freeze() -> None:
    freeze_garbage_collection()
    gc.set_threshold(*GC_THRESHOLDS)


def _make_store(see: SeeSettings) -> Kept | None:
    if not see.store:
        return None
    if not see.store_file:
        return ServedMemory()
    return ServedStore(Path(see.store_file), Keep(int(see.keep * 1000), see.keep_bytes))


async def _keep(
    see: SeeSettings, store: Kept, reader: ServeReader, snapshots: Snapshots
) -> NoReturn:
    """Write the store from the feed of whoever leads, and from the state."""

    async def find() -> FeedAddress:
        leader = reader.leader
        address = find_address(leader, "")
        if leader is not None and not address and FEED_TOKEN.exists():
            address = await find_feed(reader.client, reader.namespace, leader)
        if leader is None or not address:
            raise FeedError("no feed of the leader can be read: set audit.feed")
        return FeedAddress(address, leader.holder)

    memory, has_looked = SegmentMemory(), False

    async def look() -> UsageLook | None:
        nonlocal has_looked
        if snapshots.why_old or reader.unsynced():
            return None
        seen = await snapshots.compute_in_steps(_look(snapshots, see.user_label, memory))
        if seen is not None and not has_looked:
            has_looked = True
            _freeze()  # what is remembered of thousands of pods lives long, too
        return seen

    await store.run(find, look, read_feed_token)


def _look(
    snapshots: Snapshots, user_label: str, memory: SegmentMemory
) -> Iterator[UsageLook | None]:
    """Return the steps of finding what is held now; none where nodes may not be read."""
    last = snapshots.last
    if last is None or last.reading.extent_of(KindName.NODES) is not None:
        return iter(())
    return look_in_steps(last.reading.state, time.time(), user_label, memory)


async def _serve(
    see: SeeSettings,
    client: Client,
    snapshots: Snapshots,
    namespace: str,
    make_certificate: MakeCertificate,
    *,
    store: Kept | None,
) -> NoReturn:
    own = (SERVICE, f"{SERVICE}.{namespace}", f"{SERVICE}.{namespace}.svc")
    names = frozenset((*LOOPBACK, *own, *see.hosts))
    certificate = make_certificate(names)
    access = TokenAccess(
        TokenReviews(client),
        AccessReviews(client),
        names,
        is_secure=see.is_secure,
        hides_amounts=see.hide_others,
    )
    limits = Limits(streams=see.streams, streams_each=STREAMS_EACH, waiting_each=WAITING_EACH)
    visitors = Visitors().within(count_descriptors())
    server = Server(snapshots, access, limits, visitors=visitors, actions=see.actions)
    port = _make_port(see, client, certificate)
    if port is not None:
        server.find_hindrance = port.find_hindrance
    observed = Observed()
    observed.watch(_make_series(snapshots, server, access))
    if store is not None:
        observed.watch(store.series)
        observed.watch(store.starts)
    server.observe = observed.observe
    app = server.make_app()
    observed.add_to(app, access)
    Actions([UnitAction(name) for name in see.actions], client.credentials, access).add_to(app)
    runners = [_make_runner(app)]
    if port is not None:
        aggregated = Server(
            snapshots,
            FrontProxyAccess(Askers(access.access, hides_amounts=see.hide_others), port.find),
            limits,
            visitors=port.visitors,
            observe=observed.observe,
        )
        runners.append(_make_runner(aggregated.make_aggregated_app()))
    runner = runners[0]
    for each in runners:
        await each.setup()
    serving = None if port is None else asyncio.create_task(port.run(runners[-1]))
    try:
        address = parse_address(see.address)
        context = None if certificate is None else certificate.context
        listening = await listen(runner, server.visitors, address, context)
        host, port, *_ = listening.sockets[0].getsockname()
        log.info("Serving answers", extra={"address": host, "port": port})
        while serving is None or not serving.done():
            await asyncio.sleep(CertificateFiles.LOOK_SECONDS)
            if certificate is not None:
                certificate.read_again()
        await serving
        raise AssertionError("it goes on for ever")
    finally:
        if serving is not None:
            serving.cancel()
        for each in runners:
            await each.cleanup()


def _make_port(
    see: SeeSettings, client: Client, certificate: ServerCertificate | None
) -> AggregationPort | None:
    """Return the port for the API server, if there is to be one."""
    if not see.aggregation_address or certificate is None:
        return None
    address = parse_address(see.aggregation_address)
    visitors = Visitors().within(count_descriptors())
    return AggregationPort(client, certificate, address, listen, visitors)


def _make_runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=1.0,
    )


def _make_series(snapshots: Snapshots, server: Server, access: TokenAccess) -> ServeSeries:
    return ServeSeries(
        snapshots,
        server.streams,
        access.sessions,
        lambda: (("token", access.tokens.counts), ("right", access.access.counts)),
    )


async def listen(
    runner: web.AppRunner, visitors: Visitors, address: Address, context: SSLContext | None
) -> asyncio.Server:
    """Listen until the loop ends. Raises ``OSError``."""
    make = runner.server
    if make is None:
        raise RuntimeError("the runner is not set up")
    return await asyncio.get_running_loop().create_server(
        partial(Visitor, visitors, make),
        address.host,
        address.port,
        ssl=context,
        ssl_handshake_timeout=None if context is None else IDLE_SECONDS,
    )


class _OnDemand:
    """Reads in the event loop what somebody in the thread of answers waits for."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop, store: Kept | None) -> None:
        self._client = client
        self._store = store
        self._loop = loop

    def _wait_for(self, reading: Coroutine[Any, Any, T]) -> T:
        """Return what is read. Raises ``KubeError``, also if it takes too long."""
        future = asyncio.run_coroutine_threadsafe(reading, self._loop)
        try:
            return future.result(_PATIENCE_SECONDS)
        except TimeoutError:
            future.cancel()
            raise KubeError("the API server is slow") from None

    def tell(self, subject: Subject) -> tuple[Story, Gaps]:
        seen = self._wait_for(read_objects(self._client, subject))
        records, gaps = self._read(lambda store: store.read_story(subject))
        return make_story(subject, records, seen, int(time.time() * 1000)), gaps

    def list_records(self) -> tuple[Records, Gaps]:
        return self._read(lambda store: store.list_records())

    def _read(self, read: Callable[[Kept], tuple[Records, Gaps]]) -> tuple[Records, Gaps]:
        """Return records of the store; none, and a gap, where it cannot be read."""
        if self._store is None:
            return (), (_NO_RECORDS,)
        try:
            return read(self._store)
        except StoreError as error:
            log.warning("The store cannot be read", extra={"problem": str(error)})
            return (), (_NO_RECORDS,)

    def read_defaults(self, namespace: str) -> ServerDefaults:
        return self._wait_for(fetch_defaults(namespace, time.time(), self._client))
