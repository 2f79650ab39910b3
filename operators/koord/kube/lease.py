"""Runs a leader election over one Lease: reads, claims, renews and releases it.

Every write names the ``resourceVersion`` it is based on, so one of two claims is refused.
``election`` decides; this module does the I/O and opens the fence while the last renewal is valid.
"""

import asyncio
import logging
import random
import time
from typing import Any, Final, NoReturn

import msgspec

from koord.isolation import EndsProcess
from koord.kube.client import Client
from koord.kube.election import (
    RETRY_SECONDS,
    Election,
    Fence,
    LeadershipLost,
    Lease,
    LeaseAction,
    LeaseSpec,
)
from koord.kube.errors import Conflict, Garbled, KubeError, NotFound

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 4.0
"""Short enough to retry on another connection before the deadline."""
RELEASE_SECONDS: Final = 1.0
"""Time for releasing the Lease at exit; otherwise it expires."""
CONFLICT_SECONDS: Final = 0.1
REPEAT_LOG_SECONDS: Final = 60.0
"""How often a persistent problem is logged."""
_JITTER: Final = 0.2


class NoNamespace(EndsProcess):
    """The namespace of the Lease does not exist."""


class Elector:
    """Takes part in the election over the Lease ``namespace/name`` as ``identity``.

    ``client`` should be a separate one, so that renewals do not queue behind other requests.
    ``fence`` is open while we certainly lead.
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
        """Whether the Lease was read, or found missing, at least once."""
        self.leading = asyncio.Event()
        self.election = Election(identity)
        self._metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._client = client
        self._fence = fence
        self._clock = fence.clock
        self._is_candidate = asyncio.Event()
        self._must_read = True
        """Whether the Lease must be read before the next decision."""
        self._logged = ""
        self._logged_at = float("-inf")

    def stand(self) -> None:
        self.election.is_candidate = True
        self._is_candidate.set()

    async def run(self) -> NoReturn:
        """Run until cancelled. Raises ``LeadershipLost`` and ``NoNamespace``."""
        while True:
            pause = await self._step()
            if self._is_candidate.is_set():
                await asyncio.sleep(pause)
                continue
            try:
                async with asyncio.timeout(pause):
                    await self._is_candidate.wait()
            except TimeoutError:
                continue

    async def release(self) -> None:
        """Release the Lease if we hold it, after :meth:`run` and all writes have ended."""
        self._fence.close()
        if not self.leading.is_set():
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                # A renewal may have been cancelled halfway.
                await self._read()
                if self.election.holder == self.election.identity:
                    await self._replace(self.election.surrender(time.time()))
                    log.info("Released the lease", extra={"lease": self.key})
        except (KubeError, TimeoutError) as error:
            log.warning(
                "Could not release the lease; it will expire",
                extra={"lease": self.key, "problem": _text(error)},
            )

    async def _step(self) -> float:
        retry = RETRY_SECONDS
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._must_read or not self.leading.is_set():
                    await self._read()
                    if self.election.leads:
                        self._fence.open_until(self.election.deadline)
                await self._make(self.election.next_action(self._clock()))
            self._logged = ""
        except Conflict:
            # The Lease has changed, perhaps only its annotations.
            self._must_read = True
            return CONFLICT_SECONDS
        except (KubeError, TimeoutError) as error:
            self._must_read = True
            self._log_problem(_text(error))
            retry /= 2
        jittered = retry * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - keeps no secret
        return self.election.pause(self._clock(), jittered)

    async def _make(self, action: LeaseAction) -> None:
        if action is LeaseAction.WAIT:
            return
        if action is LeaseAction.GIVE_UP:
            self._give_up()
        # Strictly before the request: the term counts from here, whenever the server writes it.
        sent_at = self._clock()
        claim = self.election.claim(time.time())
        self.election.send(claim, sent_at)
        write = self._create if action is LeaseAction.CREATE else self._replace
        self.election.grant(await write(claim), sent_at)
        self._fence.open_until(self.election.deadline)
        # The response may have arrived after the deadline.
        if self._fence.is_open and not self.leading.is_set():
            log.info(
                "Became the leader", extra={"lease": self.key, "identity": self.election.identity}
            )
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
        self._must_read = False
        self.has_looked = True
        holder = self.election.holder
        if holder not in {before, self.election.identity}:
            log.info(
                "Following another leader", extra={"lease": self.key, "leader": holder or "nobody"}
            )

    async def _create(self, spec: LeaseSpec) -> Lease:
        try:
            return _decode(
                await self._client.post(self._leases, Lease(self._mark(self._metadata, spec), spec))
            )
        except NotFound as error:
            if self.election.leads:
                raise
            namespace = self._metadata["namespace"]
            raise NoNamespace(
                f"cannot create the Lease {self.key} for leader election: {error.message}; "
                f"create the namespace first: kubectl create namespace {namespace}"
            ) from error

    async def _replace(self, spec: LeaseSpec) -> Lease:
        if self.election.lease is None:
            raise AssertionError("there is nothing to replace")
        body = Lease(self._mark(self.election.lease.metadata, spec), spec)
        path = f"{self._leases}/{self._metadata['name']}"
        return _decode(await self._client.put(path, body))

    def _mark(self, metadata: dict[str, Any], claim: LeaseSpec) -> dict[str, Any]:
        return self.election.mark(metadata, claim, self._clock())

    def _log_problem(self, problem: str) -> None:
        """Log a new problem at once, a persistent one every ``REPEAT_LOG_SECONDS``."""
        now = self._clock()
        if problem == self._logged and now - self._logged_at < REPEAT_LOG_SECONDS:
            return
        log.warning("Cannot read or renew the lease", extra={"lease": self.key, "problem": problem})
        self._logged, self._logged_at = problem, now


def _decode(body: bytes) -> Lease:
    try:
        return msgspec.json.decode(body, type=Lease)
    except msgspec.DecodeError as error:
        raise Garbled(f"cannot decode a lease: {error}") from error


def _text(error: Exception) -> str:
    return str(error) or "no answer"
