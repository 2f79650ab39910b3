"""Chooses the Lease of a process, and checks that its scheduler name is not in use.

Processes that run the same operators share a Lease, so that one of them at a time plans and writes.
The scheduler name is checked once at start: Koordinator's scheduler has the same name as ours by
default, and both would bind the same pods.
"""

import asyncio
import logging
import socket
from collections.abc import Collection
from typing import Final
from uuid import uuid4

from koord.api.keys import operators
from koord.kube.client import Client
from koord.kube.config import Access
from koord.kube.election import LEASE_SECONDS, RETRY_SECONDS, Fence, Lease
from koord.kube.errors import Forbidden, NotFound
from koord.kube.lease import Elector
from koord.runtime.registry import OPERATORS

log = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final = "koord-system"
"""Namespace of the Lease for processes outside the cluster, the same as in the manifests."""
_KOORDINATOR_LEASE: Final = (
    "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koord-scheduler"
)


class NameTaken(Exception):  # noqa: N818 - what it says is what is wrong
    """Another scheduler of our name runs in the cluster."""


def lease_name(operators: Collection[str]) -> str:
    if set(operators) == set(OPERATORS):
        return "koord-operators"
    return "-".join(["koord", *(name for name in OPERATORS if name in operators)])


def make_elector(
    client: Client, access: Access, operators: Collection[str], fence: Fence
) -> Elector:
    namespace = access.namespace if access.in_pod else DEFAULT_NAMESPACE
    identity = f"{socket.gethostname()}_{uuid4()}"
    return Elector(client, namespace, lease_name(operators), identity, fence)


async def refuse_taken_name(client: Client, scheduler_name: str) -> None:
    """Raise ``NameTaken`` if Koordinator's scheduler runs under our scheduler name.

    It runs if its Lease is held and renewed while we watch; without a held Lease there is no wait.
    """
    if scheduler_name != operators.SCHEDULER_NAME:
        return
    first = await _read_koordinator_lease(client)
    holder = first.spec.holder_identity if first else None
    if not first or not holder:
        return
    log.info("Checking whether Koordinator's scheduler renews its lease", extra={"holder": holder})
    for _ in range(int((first.spec.lease_duration_seconds or LEASE_SECONDS) / RETRY_SECONDS) + 1):
        await asyncio.sleep(RETRY_SECONDS)
        now = await _read_koordinator_lease(client)
        if now and now.spec.holder_identity and now.spec != first.spec:
            raise NameTaken(
                f"Koordinator's own scheduler runs in this cluster ({now.spec.holder_identity} "
                f"renews the Lease koordinator-system/koord-scheduler) and binds the pods of "
                f"schedulerName {scheduler_name}; configure another schedulerName for the "
                "operators, and set it on the pods that they should bind",
            )
    log.info("Koordinator's scheduler is not running")


async def _read_koordinator_lease(client: Client) -> Lease | None:
    try:
        return await client.get(_KOORDINATOR_LEASE, Lease)
    except NotFound:
        return None
    except Forbidden as error:
        log.warning(
            "Cannot check whether Koordinator's scheduler runs", extra={"answer": error.message}
        )
        return None
