"""Serves HTTP in a thread of its own.

Planning blocks the main event loop, for seconds in bad cases, and answers to probes must not wait
for it. Nor may renewals of the Lease wait for strangers who connect. So the HTTP server has an
event loop, a client and credentials of its own, and shares nothing with the others but the
callables that it is given. If it fails, the process goes on without it; probes do not answer then.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from koord.kube.client import Client
from koord.kube.config import Credentials
from koord.runtime.address import Address
from koord.runtime.authorization import Authorizer
from koord.runtime.http import Sources, serve_http
from koord.runtime.readers import AUDIENCES

log = logging.getLogger(__name__)

T = TypeVar("T")


class HttpThread:
    """The thread. Make it in the event loop that plans, the main loop.

    Who reads the areas that are ``protected`` is asked for a token.
    """

    def __init__(self, credentials: Credentials, protected: Collection[str] = ()) -> None:
        # Loaded again, because the shared credentials belong to the main loop.
        self._credentials = Credentials(credentials.load)
        self._protected = protected
        self._main = asyncio.get_running_loop()
        self._started: asyncio.Future[Address] = self._main.create_future()
        self._own: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event
        self.address: Address | None = None
        """What it listens on, once it does."""

    @asynccontextmanager
    async def run(self, address: Address, sources: Sources) -> AsyncIterator[Address]:
        """Run the thread while the context is open; yields the address that it serves.

        ``sources`` are called in the thread. Raises CannotListen, and ConfigError if the
        credentials cannot be used.
        """
        arguments = (address, sources)
        thread = threading.Thread(target=self._run, args=arguments, name="http", daemon=True)
        thread.start()
        try:
            self.address = await self._started
            yield self.address
        finally:
            if self._own is not None:
                with suppress(RuntimeError):  # its loop is closed if it has failed
                    self._own.call_soon_threadsafe(self._stop.set)
            await asyncio.to_thread(thread.join)

    async def ask(self, question: Callable[[], T], patience: float) -> T:
        """Return what the main loop answers; called in the thread. Raises TimeoutError."""

        async def answer() -> T:
            return question()

        answering = asyncio.run_coroutine_threadsafe(answer(), self._main)
        return await asyncio.wait_for(asyncio.wrap_future(answering), patience)

    def tell(self, news: Callable[[], None]) -> None:
        """Have the main loop call something, some time; called in any thread."""
        self._main.call_soon_threadsafe(news)

    # The methods below run in the thread.

    def _run(self, address: Address, sources: Sources) -> None:
        try:
            asyncio.run(self._serve(address, sources))
        except BaseException as error:  # noqa: BLE001 - the main loop raises it
            self._main.call_soon_threadsafe(self._fail, error)

    async def _serve(self, address: Address, sources: Sources) -> None:
        async with Client(self._credentials) as client:
            await self._credentials.current()
            authorize = {
                area: Authorizer(client, AUDIENCES.get(area, "")).find_reader
                for area in self._protected
            }
            async with serve_http(address, sources, authorize) as actual:
                self._own, self._stop = asyncio.get_running_loop(), asyncio.Event()
                self._main.call_soon_threadsafe(self._started.set_result, actual)
                await self._stop.wait()

    # In the main loop.

    def _fail(self, error: BaseException) -> None:
        if self._started.done():
            log.error("The HTTP server has failed", exc_info=error)
        else:
            self._started.set_exception(error)
