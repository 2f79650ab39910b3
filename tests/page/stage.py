"""A server of answers in a thread of its own, about a cluster that tests change."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import EVERYTHING, Sight
from koord.kube.errors import KubeError
from koord.see.access import KeyAccess
from koord.see.app import Server
from koord.see.snapshots import OnDemand, Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster import FakeCluster

    from koord.see.token_access import TokenAccess

KEY = "the-key"


class Stage:
    """A server in a thread of its own; the cluster is changed between readings."""

    def __init__(
        self,
        cluster: FakeCluster,
        sight: Sight,
        on_demand: OnDemand | None,
        access: TokenAccess | None = None,
        look: Callable[[FakeCluster], Reading] | None = None,
    ) -> None:
        self.cluster = cluster
        self.sight = sight
        self._look = look
        self.problem = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._snapshots = Snapshots(self._read, on_demand=on_demand)
        self._key = KeyAccess(KEY)
        self._server = Server(self._snapshots, access or self._key)
        self._runner: web.AppRunner | None = None
        self.root = self._call(self._start())

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    async def _start(self) -> str:
        self._runner = web.AppRunner(self._server.make_app(), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._key.port = int(self._runner.addresses[0][1])
        await self._snapshots.read_once()
        assert self._snapshots.last is not None
        await self._snapshots._prepare(self._snapshots.last)
        return f"http://127.0.0.1:{self._key.port}"

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._server.streams)

    def _read(self) -> tuple[Reading, Target]:
        if self.problem:
            raise KubeError(self.problem)
        self.cluster.state.advance(time.time())  # as every reading does
        look, target = self._look, Target(TargetKind.POD, "default", "")
        if look is not None:
            return look(self.cluster), target
        return Reading(self.cluster.state, sight=self.sight), target

    def change(self, change: Callable[[], object]) -> None:
        """Change the cluster while no answer is computed from it, and read it again."""
        self._call(self._snapshots.answer(change))
        self.read_again()

    def read_again(self) -> None:
        self._call(self._snapshots.read_once())

    def close(self) -> None:
        assert self._runner is not None
        self._snapshots.close()
        self._call(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


@contextmanager
def open_stage(
    cluster: FakeCluster,
    sight: Sight = EVERYTHING,
    on_demand: OnDemand | None = None,
    access: TokenAccess | None = None,
    look: Callable[[FakeCluster], Reading] | None = None,
) -> Iterator[Stage]:
    """Serve a cluster to whoever has the key, or to those whom ``access`` lets in.

    What ``look`` returns is what is known of it, by default all without reports of operators.
    """
    stage = Stage(cluster, sight, on_demand, access, look)
    try:
        yield stage
    finally:
        stage.close()
