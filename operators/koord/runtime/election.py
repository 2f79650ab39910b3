"""Which Lease a process stands for, and whether the name of its scheduler is free.

Processes that run the same operators stand for the same Lease, so that one of them at a time plans
and writes. The other question is asked once, at start: Koordinator's own scheduler answers to the
name that ours has by default, and two schedulers would bind the same pods.
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
"""Where the Lease is for processes outside the cluster: where the manifests install the others."""
_TWIN: Final = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koord-scheduler"


class NameTaken(Exception):  # noqa: N818 - what it says is what is wrong
    """Another scheduler of our name runs in the cluster."""


def lease_name(operators: Collection[str]) -> str:
    """Return the name of the Lease for a process that runs these operators."""
    if set(operators) == set(OPERATORS):
        return "koord-operators"
    return "-".join(["koord", *(name for name in OPERATORS if name in operators)])


def make_elector(
    client: Client, access: Access, operators: Collection[str], fence: Fence
) -> Elector:
    """Return the elector of this process; no two processes have the same identity."""
    namespace = access.namespace if access.in_pod else DEFAULT_NAMESPACE
    identity = f"{socket.gethostname()}_{uuid4()}"
    return Elector(client, namespace, lease_name(operators), identity, fence)


async def refuse_taken_name(client: Client, scheduler_name: str) -> None:
    """Raise ``NameTaken`` if Koordinator's scheduler is alive and we bear its name.

    Its Lease tells: held, and renewed before our eyes. Only where there is a held one is time spent
    on looking.
    """
    if scheduler_name != operators.SCHEDULER_NAME:
        return
    first = await _read_twin(client)
    holder = first.spec.holder_identity if first else None
    if not first or not holder:
        return
    log.info("a lease of Koordinator's scheduler is there; is it alive?", extra={"holder": holder})
    for _ in range(int((first.spec.lease_duration_seconds or LEASE_SECONDS) / RETRY_SECONDS) + 1):
        await asyncio.sleep(RETRY_SECONDS)
        now = await _read_twin(client)
        if now and now.spec.holder_identity and now.spec != first.spec:
            raise NameTaken(
                f"Koordinator's own scheduler runs in this cluster ({now.spec.holder_identity} "
                f"renews the Lease koordinator-system/koord-scheduler) and binds the pods of "
                f"schedulerName {scheduler_name}; configure another schedulerName for the "
                "operators, and give it to the pods that they are to bind",
            )
    log.info("Koordinator's scheduler does not run")


async def _read_twin(client: Client) -> Lease | None:
    try:
        return await client.get(_TWIN, Lease)
    except NotFound:
        return None
    except Forbidden as error:
        log.warning(
            "cannot see whether Koordinator's own scheduler runs", extra={"answer": error.message}
        )
        return None
