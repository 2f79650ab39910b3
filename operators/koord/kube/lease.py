"""Carries out an election over one Lease of the API server: reads, claims, renews, hands back.

Every write names the ``resourceVersion`` that it goes from, so of two claims one is refused. What
to do is decided by ``election``; this module does it, and opens the fence for as long as the last
renewal lasts.
"""

import asyncio
import logging
import random
import time
from typing import Any, Final, NoReturn

import msgspec

from koord.kube.client import Client
from koord.kube.election import (
    RETRY_SECONDS,
    Election,
    Fence,
    LeadershipLost,
    Lease,
    LeaseSpec,
    Move,
)
from koord.kube.errors import Conflict, Garbled, KubeError, NotFound

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 4.0
"""A connection that does not answer is given up soon enough to try another one in time."""
HAND_BACK_SECONDS: Final = 1.0
"""Nobody waits longer for the end of a process; a Lease that is not handed back runs out."""
CONFLICT_SECONDS: Final = 0.1
COMPLAIN_SECONDS: Final = 60.0
"""How often a problem that stays is told again."""
_JITTER: Final = 0.2


class NoNamespace(Exception):  # noqa: N818 - what it says is what is wrong
    """The namespace of the Lease does not exist, and waiting does not make it."""


class Elector:
    """Takes part in the election over the Lease ``namespace/name`` as ``identity``.

    ``client`` should be its own, so that renewals never queue behind other requests. ``fence`` is
    open while we lead for sure.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        fence: Fence,
    ) -> None:
        self.key = f"{namespace}/{name}"
        self.has_looked = False
        """Whether the Lease could be read, or was found missing, at least once."""
        self.leading = asyncio.Event()
        self.election = Election(identity)
        self._metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._client = client
        self._fence = fence
        self._clock = fence.clock
        self._standing = asyncio.Event()
        self._is_doubtful = True
        """Whether the Lease has to be read before anything is decided."""
        self._said = ""
        self._said_at = float("-inf")

    def stand(self) -> None:
        """Say that this process is ready to lead."""
        self.election.is_candidate = True
        self._standing.set()

    async def run(self) -> NoReturn:
        """Take part until cancelled.

        Raises ``LeadershipLost`` when we led and do no longer, ``NoNamespace`` when nobody can.
        """
        while True:
            pause = await self._step()
            if self._standing.is_set():
                await asyncio.sleep(pause)
                continue
            try:
                async with asyncio.timeout(pause):
                    await self._standing.wait()
            except TimeoutError:
                continue

    async def release(self) -> None:
        """Hand the Lease back if it is ours; :meth:`run` must have ended, and every write."""
        self._fence.close()
        if not self.leading.is_set():
            return
        try:
            async with asyncio.timeout(HAND_BACK_SECONDS):
                # It may have been cut off in the middle of a renewal.
                await self._read()
                if self.election.holder == self.election.identity:
                    await self._replace(self.election.surrender(time.time()))
                    log.info("the lease is handed back", extra={"lease": self.key})
        except (KubeError, TimeoutError) as error:
            log.warning(
                "the lease could not be handed back; it runs out by itself",
                extra={"lease": self.key, "problem": _text(error)},
            )

    async def _step(self) -> float:
        """Look if need be, make one move, and return how long to pause."""
        retry = RETRY_SECONDS
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._is_doubtful or not self.leading.is_set():
                    await self._read()
                    if self.election.leads:
                        self._fence.open_until(self.election.deadline)
                await self._make(self.election.next_move(self._clock()))
            self._said = ""
        except Conflict:
            # Somebody else wrote; it may only have been an annotation.
            self._is_doubtful = True
            return CONFLICT_SECONDS
        except (KubeError, TimeoutError) as error:
            self._is_doubtful = True
            self._complain(_text(error))
            retry /= 2
        jittered = retry * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - keeps no secret
        return self.election.pause(self._clock(), jittered)

    async def _make(self, move: Move) -> None:
        if move is Move.WAIT:
            return
        if move is Move.GIVE_UP:
            self._give_up()
        sent_at = self._clock()
        claim = self.election.claim(time.time())
        self.election.send(claim, sent_at)
        write = self._create if move is Move.CREATE else self._replace
        self.election.grant(await write(claim), sent_at)
        self._fence.open_until(self.election.deadline)
        # The answer may have come so late that it is worth nothing.
        if self._fence.is_open and not self.leading.is_set():
            log.info("leading", extra={"lease": self.key, "identity": self.election.identity})
            self.leading.set()

    def _give_up(self) -> NoReturn:
        self._fence.close()
        holder = self.election.holder or "nobody"
        raise LeadershipLost(f"the lease {self.key} is held by {holder}")

    async def _read(self) -> None:
        before = self.election.holder
        try:
            lease = await self._client.get(f"{self._leases}/{self._metadata['name']}", Lease)
        except NotFound:
            lease = None
        self.election.observe(lease, self._clock())
        self._is_doubtful = False
        self.has_looked = True
        holder = self.election.holder
        if holder not in {before, self.election.identity}:
            log.info("following", extra={"lease": self.key, "leader": holder or "nobody"})

    async def _create(self, spec: LeaseSpec) -> Lease:
        try:
            return _decode(
                await self._client.post(self._leases, Lease(self._mark(self._metadata), spec))
            )
        except NotFound as error:
            if self.election.leads:
                raise
            namespace = self._metadata["namespace"]
            raise NoNamespace(
                f"the Lease {self.key}, by which one of several processes is elected, cannot be "
                f"created: {error.message}; create the namespace first: "
                f"kubectl create namespace {namespace}"
            ) from error

    async def _replace(self, spec: LeaseSpec) -> Lease:
        if self.election.lease is None:
            raise AssertionError("there is nothing to replace")
        body = Lease(self._mark(self.election.lease.metadata), spec)
        path = f"{self._leases}/{self._metadata['name']}"
        return _decode(await self._client.put(path, body))

    def _mark(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return self.election.mark(metadata, self._clock())

    def _complain(self, problem: str) -> None:
        """Log a problem when it is new, then from time to time, not at every attempt."""
        now = self._clock()
        if problem == self._said and now - self._said_at < COMPLAIN_SECONDS:
            return
        log.warning("the lease cannot be used", extra={"lease": self.key, "problem": problem})
        self._said, self._said_at = problem, now


def _decode(body: bytes) -> Lease:
    try:
        return msgspec.json.decode(body, type=Lease)
    except msgspec.DecodeError as error:
        raise Garbled(f"cannot decode a lease: {error}") from error


def _text(error: Exception) -> str:
    return str(error) or "no answer"
