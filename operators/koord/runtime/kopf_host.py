"""Runs the Kopf operator in a thread and an event loop of its own, again and again.

Kopf cancels every younger task of its loop when it ends, and it ends as a whole on some answers of
the API server (HTTP 410 among them). In a loop of its own that costs nothing else: it is started
again after a pause, while planning and binding go on. Handlers hand their results over to the main
loop through what the composition root gives them.
"""

import asyncio
import logging
import ssl
import sys
import threading
from typing import TYPE_CHECKING, Any

from koord.api.keys import operators
from koord.kube.config import Credentials
from koord.kube.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    import kopf

log = logging.getLogger(__name__)
_KOPF_LOG = logging.getLogger("kopf")
# A line per event that was handled well is of no use to anybody.
_KOPF_LOG.setLevel(logging.WARNING)
# Signals are the business of the main thread, where Kopf is not.
logging.getLogger("kopf._core.reactor.running").addFilter(
    lambda record: not record.getMessage().startswith("OS signals are ignored")
)

_CLIENT_LIBRARIES = ("kubernetes", "kubernetes_asyncio", "pykube")
_BACKOFF = Backoff(base=0.5, cap=5.0)
_STOP_SECONDS = 1.0


def make_settings() -> "kopf.OperatorSettings":
    """Return settings under which Kopf writes nothing to users' objects and posts no events."""
    import kopf  # noqa: PLC0415 - takes seconds, and is done in the thread of the host

    from koord.runtime.kopf_memory import NoDiffBase  # noqa: PLC0415 - the same

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{operators.PREFIX}finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
        prefix=operators.PREFIX.rstrip("/"),
    )
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.server_timeout = 290
    # The CRDs are there before we start: looking for new kinds would need rights to list CRDs.
    settings.scanning.disabled = True
    # Handlers only hand over what they saw: there is nothing to finish, and nobody to wait for.
    settings.queueing.exit_timeout = 0
    # We are not the main thread: its default would kill the whole process ten minutes later.
    settings.process.ultimate_exiting_timeout = None
    return settings


def make_registry(credentials: Credentials) -> "kopf.OperatorRegistry":
    """Return an empty registry that logs in as the rest of the process does."""
    import kopf  # noqa: PLC0415 - takes seconds, and is done in the thread of the host

    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: object) -> kopf.ConnectionInfo:
        # Loaded anew, because credentials that are shared belong to the main event loop.
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
    """Import Kopf without the client libraries whose objects it would recognise.

    We hand it none, and all their models cost twice the time and the memory of Kopf itself.
    """
    hidden = [name for name in _CLIENT_LIBRARIES if name not in sys.modules]
    # None in place of a module is the documented way to make its import fail.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import kopf  # noqa: F401, PLC0415 - takes a while, and is done in the thread of the host
    finally:
        for name in hidden:
            del sys.modules[name]


class KopfHost:
    """Keeps one Kopf operator with all registered handlers running until :meth:`stop`.

    It is loaded at :meth:`start` and begins at :meth:`operate`: loading takes seconds, which nobody
    should have to wait for who takes over.
    ``make_registry`` is called anew for every start: Kopf keeps state in a registry's handlers.
    """

    def __init__(self, make_registry: "Callable[[], kopf.OperatorRegistry]") -> None:
        self._make_registry = make_registry
        self._stop = threading.Event()
        self._may_operate = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._lock = threading.Lock()
        self._cancel_operator: Callable[[], object] | None = None
        """How to cut Kopf off; only while it runs."""
        self.is_ready = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def operate(self) -> None:
        """Let Kopf begin."""
        self._may_operate.set()

    async def stop(self) -> None:
        """End Kopf and wait for the thread, a bounded time."""
        self._stop.set()
        self._may_operate.set()
        _KOPF_LOG.setLevel(logging.CRITICAL)  # it is cut off in whatever it does
        self._cancel()
        await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    def _cancel(self) -> None:
        """Cancel Kopf, which gives everything several seconds if it is asked politely."""
        with self._lock:
            if self._cancel_operator is not None:
                self._cancel_operator()

    def _take_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report what nobody waits for, unless it comes of being cut off."""
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
                    log.warning("Kopf was cancelled from within, it is started again")
            except Exception:
                # Whatever ended Kopf, its handlers are level-triggered: starting again is safe.
                log.exception("Kopf ended, it is started again")
            finally:
                with self._lock:
                    self._cancel_operator = None
            self.is_ready.clear()
            self._stop.wait(_BACKOFF.delay(attempt))
            attempt += 1

    async def _operate(self) -> None:
        import kopf  # noqa: PLC0415 - takes seconds, and is done in the thread of the host

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        with self._lock:
            if task is None or self._stop.is_set():
                return
            self._cancel_operator = lambda: loop.call_soon_threadsafe(task.cancel)
        loop.set_exception_handler(self._take_exception)
        await kopf.operator(
            registry=self._make_registry(),
            settings=make_settings(),
            clusterwide=True,
            standalone=True,
            ready_flag=self.is_ready,
        )
