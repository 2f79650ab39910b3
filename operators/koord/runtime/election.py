"""Takes part in the election, in a thread of its own.

Planning blocks the main event loop, for seconds in bad cases. Renewals of the Lease must not wait
for it, so they have an event loop, a client and credentials of their own. In pure Python threads
take turns every few milliseconds, and numpy lets others run.

The threads share little. The deadline of the ``Fence`` is one attribute, which CPython replaces
atomically: a writer sees the old one or the new one. The state of the election is only read by the
main loop. Everything else is handed over as a call to the other loop.

A process whose main loop does not answer must not lead for ever, nor may one that has lost the lead
go on with what it assumed. In both cases the process ends, from here if the main loop cannot.
"""

import asyncio
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final, NoReturn
from uuid import uuid4

from koord.answers.leaders import DEFAULT_NAMESPACE
from koord.kube.client import Client
from koord.kube.config import Access, Credentials
from koord.kube.election import Fence, LeadershipLost
from koord.kube.lease import Elector, NoNamespace
from koord.kube.objects import ObjectRef
from koord.runtime.registry import OPERATORS

log = logging.getLogger(__name__)

EXIT_LOST: Final = 3
"""Exit code when the cluster or the leadership is lost; a restart helps."""
TICK_SECONDS: Final = 1.0
"""How often the main loop is asked for a sign of life."""
SILENT_SECONDS = 60.0
"""A main loop that has not answered for this long never will: the longest plans take seconds."""
END_SECONDS: Final = 5.0
"""After the election has failed the main loop gets this long to end the process. It writes nothing
meanwhile: the fence is closed, or closes when nobody extends its deadline."""
ENDS: Final = (LeadershipLost, NoNamespace)
"""Errors of the election, which end the process."""


def lease_name(operators: Collection[str]) -> str:
    if set(operators) == set(OPERATORS):
        return "koord-operators"
    return "-".join(["koord", *(name for name in OPERATORS if name in operators)])


def own_namespace(access: Access) -> str:
    """Return the namespace of the Lease and of the keys that sign plans."""
    return access.namespace if access.in_pod else DEFAULT_NAMESPACE


def make_elector(
    client: Client, access: Access, operators: Collection[str], fence: Fence
) -> Elector:
    namespace = own_namespace(access)
    identity = f"{socket.gethostname()}_{uuid4()}"
    return Elector(client, namespace, lease_name(operators), identity, fence)


class LeaseThread:
    """The thread. Make it in the event loop that plans, the main loop."""

    elector: Elector
    """Made by the thread when it starts; the main loop only reads it."""

    def __init__(
        self,
        credentials: Credentials,
        operators: Collection[str],
        fence: Fence,
    ) -> None:
        # Loaded again, because the shared credentials belong to the main loop.
        self._credentials = Credentials(credentials.load)
        self._operators = operators
        self._fence = fence
        self.leading = asyncio.Event()
        """Set in the main loop once we lead."""
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._started: asyncio.Future[None] = self._main.create_future()
        self._failed: asyncio.Future[NoReturn] = self._main.create_future()
        self._is_over = threading.Event()
        """Set when the main loop ends the process."""
        self._own: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._election: asyncio.Task[None]
        self._is_running = False
        self._has_answered = True
        self._silent_for = 0.0
        """Seconds, counted in ticks: a process that was suspended has not been silent."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the thread while the context is open.

        Raises ConfigError if the credentials cannot be used.
        """
        thread = threading.Thread(target=self._run, name="lease", daemon=True)
        thread.start()
        try:
            await self._started
            yield
        finally:
            self._is_over.set()
            if self._is_running:
                with suppress(RuntimeError):  # its loop is closed if it has failed
                    self._own.call_soon_threadsafe(self._stop.set)
            await asyncio.to_thread(thread.join)

    async def wait_failed(self) -> NoReturn:
        """Wait for an error of the thread, one of ``ENDS`` or a bug, and raise it."""
        await self._failed

    def stand(self) -> None:
        self._own.call_soon_threadsafe(self.elector.stand)

    def ref(self) -> ObjectRef | None:
        """Return the Lease while we lead."""
        lease = self.elector.election.lease
        if lease is None or not self._fence.is_open:
            return None
        namespace, _, name = self.elector.key.partition("/")
        uid = lease.metadata.get("uid", "")
        return ObjectRef("coordination.k8s.io/v1", "Lease", "leases", name, uid, namespace)

    async def release(self) -> None:
        """Release the Lease if we hold it, after all writes have ended."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._release(), self._own))

    def find_problem(self) -> str:
        """Return what is wrong with the process; empty if it is healthy."""
        if self._silent_for < SILENT_SECONDS / 2:
            return ""
        return f"the main loop has not answered for {self._silent_for:.0f} s"

    # The methods below run in the thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._take_part())
        except BaseException as error:  # noqa: BLE001 - the main loop raises it
            self._tell(self._fail, error)
            if self._is_running and not self._is_over.wait(END_SECONDS):
                self._end("The main loop did not end the process after an error of the election")

    async def _take_part(self) -> None:
        self._own, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Client(self._credentials) as client:
            access = await self._credentials.current()
            self.elector = make_elector(client, access, self._operators, self._fence)
            async with asyncio.TaskGroup() as group:
                self._is_running = True
                self._tell(self._started.set_result, None)
                self._election = group.create_task(self._elect())
                helpers = [group.create_task(job()) for job in (self._announce, self._watch)]
                await self._stop.wait()
                for task in (self._election, *helpers):
                    task.cancel()

    async def _elect(self) -> None:
        try:
            await self.elector.run()
        except ENDS as error:
            self._tell(self._fail, error)  # at once, not when all connections are closed
            raise

    async def _release(self) -> None:
        self._election.cancel()
        await asyncio.wait([self._election])
        await self.elector.release()

    async def _announce(self) -> None:
        await self.elector.leading.wait()
        self._tell(self.leading.set)

    async def _watch(self) -> None:
        """End the process when the main loop has been silent for too long."""
        while self._silent_for < SILENT_SECONDS:
            self._has_answered = False
            self._tell(self._answer)
            await asyncio.sleep(TICK_SECONDS)
            self._silent_for = 0.0 if self._has_answered else self._silent_for + TICK_SECONDS
        self._end(f"The main loop has not answered for {SILENT_SECONDS:.0f} s")

    def _end(self, why: str) -> NoReturn:
        """End the process. The Lease expires by itself: a write may still be on its way."""
        self._fence.close()
        stack = traceback.format_stack(sys._current_frames().get(self._main_thread))  # noqa: SLF001 - the documented way to see another thread
        log.critical(why, extra={"stack": "".join(stack)})
        logging.shutdown()
        os._exit(EXIT_LOST)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function in the main loop."""
        self._main.call_soon_threadsafe(call, *arguments)

    # These two run in the main loop.

    def _answer(self) -> None:
        self._has_answered = True

    def _fail(self, error: BaseException) -> None:
        for future in (self._started, self._failed):
            if not future.done():
                future.set_exception(error)
                return
