"""What the cluster serves: custom resources, and Koordinator's scheduler under our name.

Koordinator's scheduler has the same name as ours by default, and both would bind the same pods.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from koord.api.keys import operators
from koord.kube.client import Client
from koord.kube.election import LEASE_SECONDS, RETRY_SECONDS, Lease
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kinds import KINDS, AnyKind
from koord.runtime.registry import required_resources

log = logging.getLogger(__name__)

_KOORDINATOR_LEASE: Final = (
    "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koord-scheduler"
)


class NotInstalled(Exception):  # noqa: N818 - what it says is what is wrong
    """The operators need custom resources that are not installed in the cluster."""


class NameTaken(Exception):  # noqa: N818 - what it says is what is wrong
    """Another scheduler of our name runs in the cluster."""


async def check_installed(client: Client, operators: Collection[str]) -> frozenset[str]:
    """Return all resources served in the groups of ours. Raises NotInstalled."""
    served: frozenset[str] = frozenset()
    missing = []
    for api_version, plural in required_resources(operators):
        resources = await client.served_resources(api_version)
        served |= resources
        if plural not in resources:
            missing.append(f"{plural}.{api_version.partition('/')[0]}")
    if missing:
        raise NotInstalled(
            f"the cluster does not serve {', '.join(missing)}; install the CRDs first: "
            "kubectl apply --server-side -f crds/",
        )
    return served


async def find_served(client: Client) -> list[AnyKind]:
    optional = [kind for kind in KINDS if kind.is_optional]
    return [
        kind for kind in optional if kind.plural in await client.served_resources(kind.api_version)
    ]


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
