"""A TCP proxy between a client and a server, which can be cut.

While it is cut, connections stay open and nothing comes through, as behind a firewall that drops
packets. What was on its way is gone; connections that lived through a cut break when it is mended,
because a kernel would have given them up.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class TcpProxy:
    """Listens on ``port`` on loopback and forwards everything to ``target``."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._loop.call_soon_threadsafe(self._set_cut, True)

    def mend(self) -> None:
        """Accept new connections again."""
        self._loop.call_soon_threadsafe(self._set_cut, False)

    def _set_cut(self, is_cut: bool) -> None:  # noqa: FBT001 - called by the loop
        self._is_cut = is_cut
        if not is_cut:
            for writer in self._writers:
                writer.transport.abort()

    async def _serve(self, started: threading.Event) -> None:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)  # until the loop has seen the connections end

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        both = {writer, back}
        self._writers |= both
        await asyncio.wait(
            [
                asyncio.ensure_future(self._pump(reader, back)),
                asyncio.ensure_future(self._pump(there, writer)),
            ]
        )
        self._writers -= both

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(1 << 16):
                if not self._is_cut:
                    sink.write(chunk)
                    await sink.drain()
        if not self._is_cut:
            sink.close()

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(started))


@contextmanager
def open_line(target: int) -> Iterator[TcpProxy]:
    """Run a proxy in a thread while the context is open."""
    proxy = TcpProxy(target)
    started = threading.Event()
    thread = threading.Thread(target=proxy._run, args=[started], daemon=True)
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(proxy._stop.set)
        thread.join()
