"""Runs the Kopf operator in its own thread and event loop, and restarts it when it ends.

Kopf cancels all later tasks of its loop when it ends, and it ends on some responses of the API
server (HTTP 410, for example). In its own loop that affects nothing else: it is restarted after a
pause, while planning and binding continue. Handlers pass their results to the main loop through
callables from the composition root.
"""

import asyncio
import logging
import ssl
import sys
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
from typing_extensions import override

from koord.api.keys import operators
from koord.kube.config import Credentials
from koord.kube.reflector import WatchTimes
from koord.kube.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import kopf

log = logging.getLogger(__name__)
_KOPF_LOG = logging.getLogger("kopf")
# Kopf logs every successfully handled event at INFO.
_KOPF_LOG.setLevel(logging.WARNING)
# The main thread handles signals, and Kopf runs in another one.
logging.getLogger("kopf._core.reactor.running").addFilter(
    lambda record: not record.getMessage().startswith("OS signals are ignored")
)

_CLIENT_LIBRARIES = ("kubernetes", "kubernetes_asyncio", "pykube")
_BACKOFF = Backoff(base=0.5, cap=5.0)
_STOP_SECONDS = 1.0


def make_settings(times: WatchTimes) -> "kopf.OperatorSettings":
    """Return settings with which Kopf writes nothing to users' objects and posts no events."""
    import kopf  # noqa: PLC0415 - takes seconds, so it is done in Kopf's thread

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{operators.PREFIX}finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
        prefix=operators.PREFIX.rstrip("/"),
    )
    settings.persistence.diffbase_storage = _make_diff_base()
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.server_timeout = times.choose()
    settings.watching.inactivity_timeout = times.silence
    # The CRDs exist before we start; scanning for new kinds would need rights to list CRDs.
    settings.scanning.disabled = True
    # Handlers only pass on objects, so there is nothing to wait for at the end.
    settings.queueing.exit_timeout = 0
    # This is not the main thread: the default would kill the whole process ten minutes later.
    settings.process.ultimate_exiting_timeout = None
    return settings


def _make_diff_base() -> "kopf.DiffBaseStorage":
    """Return a storage of last-seen objects that stores nothing.

    Our handlers do not use Kopf's diffs, whose deep copies took a third of its time.
    """
    import kopf  # noqa: PLC0415 - takes seconds, so it is done in Kopf's thread

    class NoDiffBase(kopf.DiffBaseStorage):
        @override
        def build(
            self, *, body: kopf.Body, extra_fields: "Iterable[kopf.FieldSpec] | None" = None
        ) -> kopf.BodyEssence:
            return kopf.BodyEssence()

        @override
        def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
            return None

        @override
        def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
            pass

    return NoDiffBase()


def make_registry(credentials: Credentials) -> "kopf.OperatorRegistry":
    """Return an empty registry that uses our credentials."""
    import kopf  # noqa: PLC0415 - takes seconds, so it is done in Kopf's thread

    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: object) -> kopf.ConnectionInfo:
        # Loaded again, because the shared credentials belong to the main event loop.
        access = await asyncio.to_thread(credentials.load)
        certificate, key = access.client_files or (None, None)
        is_insecure = access.tls is not None and access.tls.verify_mode is ssl.CERT_NONE
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=None if is_insecure else access.ca_file or None,
            insecure=is_insecure,
            token=access.authorization.removeprefix("Bearer ") or None,
            certificate_path=certificate,
            private_key_path=key,
            proxy_url=access.proxy or None,
            default_namespace=access.namespace,
        )

    return registry


def _load_kopf() -> None:
    """Import Kopf without the optional client libraries.

    Kopf would recognise their objects, which we do not use, and their models take twice the time
    and memory of Kopf itself.
    """
    hidden = [name for name in _CLIENT_LIBRARIES if name not in sys.modules]
    # None in place of a module is the documented way to make its import fail.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import kopf  # noqa: F401, PLC0415 - takes seconds, so it is done in Kopf's thread
    finally:
        for name in hidden:
            del sys.modules[name]


def _is_transient(error: Exception) -> bool:
    """Whether it is the API server's, as while it starts: no connection, 429 or 5xx."""
    status = getattr(error, "status", 0)  # of an APIError, a class that Kopf does not export
    no_connection = isinstance(error, aiohttp.ClientConnectionError | TimeoutError)
    return no_connection or status == 429 or status in range(500, 600)


class KopfHost:
    """Keeps one Kopf operator with all handlers running until :meth:`stop`.

    :meth:`start` imports Kopf, which takes seconds, and :meth:`operate` runs it, so that a new
    leader does not wait for the import. ``make_registry`` is called for every run, because Kopf
    keeps state in the handlers of a registry.
    """

    def __init__(
        self, make_registry: "Callable[[], kopf.OperatorRegistry]", times: WatchTimes
    ) -> None:
        self._make_registry = make_registry
        self._times = times
        self._stop = threading.Event()
        self._may_operate = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._lock = threading.Lock()
        self._cancel_operator: Callable[[], object] | None = None
        """Cancels Kopf while it runs."""
        self._has_failed = False
        """Whether Kopf has ended by itself since the last refresh."""
        self.is_ready = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def operate(self) -> None:
        self._may_operate.set()

    def refresh(self, *, is_due: bool) -> None:
        """Restart Kopf if it is due, because there are more kinds to watch, or if it has failed.

        It looks for definitions only when it starts. One that has been replaced makes it fail, and
        it may have started again before the new one was there.
        """
        if is_due or self._has_failed:
            self._has_failed = False
            self._cancel()

    async def stop(self) -> None:
        """Stop Kopf and wait up to ``_STOP_SECONDS`` for its thread."""
        self._stop.set()
        self._may_operate.set()
        _KOPF_LOG.setLevel(logging.CRITICAL)  # cancellation makes it log errors
        self._cancel()
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    def _cancel(self) -> None:
        """Cancel Kopf; its graceful shutdown takes several seconds."""
        with self._lock:
            if self._cancel_operator is not None:
                self._cancel_operator()

    def _report_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._stop.is_set():
            loop.default_exception_handler(context)

    def _run(self) -> None:
        _load_kopf()
        self._may_operate.wait()
        attempt = 0
        while not self._stop.is_set():
            try:
                asyncio.run(self._operate())
                attempt = 0
            except asyncio.CancelledError:
                if not self._stop.is_set():
                    log.info("Kopf was cancelled; restarting it")
            except Exception as error:
                # Handlers are level-triggered, so a restart is safe after any error.
                self._has_failed = True
                if _is_transient(error):
                    why = {"problem": str(error.args[0]) if error.args else repr(error)}
                    log.info("The API server does not serve Kopf yet; restarting it", extra=why)
                else:
                    log.exception("Kopf failed; restarting it")
            finally:
                with self._lock:
                    self._cancel_operator = None
            self.is_ready.clear()
            self._stop.wait(_BACKOFF.delay(attempt))
            attempt += 1

    async def _operate(self) -> None:
        import kopf  # noqa: PLC0415 - takes seconds, so it is done in Kopf's thread

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        with self._lock:
            if task is None or self._stop.is_set():
                return
            self._cancel_operator = lambda: loop.call_soon_threadsafe(task.cancel)
        loop.set_exception_handler(self._report_exception)
        await kopf.operator(
            registry=self._make_registry(),
            settings=make_settings(self._times),
            clusterwide=True,
            standalone=True,
            ready_flag=self.is_ready,
        )
