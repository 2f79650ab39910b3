"""Looks again and again at what else is in the cluster.

That is the definitions of our custom resources, and Koordinator's scheduler under our name.

Reflectors notice by themselves when a definition is installed, replaced or removed; Kopf and the
writers of statuses have to be told.

Koordinator's scheduler has the same name as ours by default, and both would bind the same pods.
While it renews its Lease, nothing is placed.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from koord.api.keys import operators
from koord.domains.registry import KINDS
from koord.kube.client import Client
from koord.kube.election import LEASE_SECONDS, RETRY_SECONDS, Lease, LeaseSpec, read_clock
from koord.kube.errors import Forbidden, KubeError, NotFound

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""How often to look: what changes is noticed within a minute, even if it has to be seen twice."""
_KOORDINATOR_LEASE: Final = (
    "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koord-scheduler"
)

Warn = Callable[[str, str], None]
"""Takes a reason and a text, for the log and for an event."""


class NotInstalled(Exception):  # noqa: N818 - what it says is what is wrong
    """The operators need custom resources that are not installed in the cluster."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """Custom resources that are served, as ``plural.group``."""

    served: frozenset[str]
    without_status: frozenset[str] = frozenset()
    """Those of them whose definition, which is not ours, has no status subresource."""


def name_of(version: str, plural: str) -> str:
    return f"{plural}.{version.partition('/')[0]}"


async def find_definitions(client: Client, resources: Iterable[tuple[str, str]]) -> Definitions:
    """Look for custom resources, given by API version and plural."""
    names: dict[str, frozenset[str]] = {}
    served, without = set(), set()
    for version, plural in resources:
        if version not in names:
            names[version] = await client.served_resources(version)
        resource = name_of(version, plural)
        if plural in names[version]:
            served.add(resource)
            if f"{plural}/status" not in names[version]:
                without.add(resource)
    return Definitions(frozenset(served), frozenset(without))


def check_installed(definitions: Definitions, resources: Iterable[tuple[str, str]]) -> None:
    """Raise NotInstalled if one that is read by planning is not served; the others may come."""
    required = {(kind.api_version, kind.plural) for kind in KINDS if kind.is_required}
    missing = [name_of(*resource) for resource in resources if resource in required]
    missing = [name for name in missing if name not in definitions.served]
    if missing:
        raise NotInstalled(
            f"the cluster does not serve {', '.join(missing)}; install the CRDs first: "
            "kubectl apply --server-side -f crds/",
        )


async def watch_definitions(
    client: Client, resources: Collection[tuple[str, str]], note: Callable[[Definitions], None]
) -> NoReturn:
    """Call ``note`` after every look, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            note(await find_definitions(client, resources))
        except KubeError as error:
            # The reflectors report a server that does not answer.
            log.debug("Cannot look for custom resources", extra={"problem": str(error)})


class NameGuard:
    """Tells whether our scheduler name is free. Run ``run`` in a task group.

    The name is taken while Koordinator's scheduler renews its Lease. A Lease that is held when we
    look first may be left over: it is watched for as long as it lasts.
    """

    def __init__(self, client: Client, scheduler_name: str, warn: Warn) -> None:
        self.problem = "it is not known whether Koordinator's scheduler runs"
        """Why nothing may be placed; empty when the name is free."""
        self.on_change: Callable[[], None] = lambda: None
        self._client = client
        self._name = scheduler_name
        self._warn = warn
        self._is_known = False
        self._was_taken = False
        self._seen: LeaseSpec | None = None
        """The Lease as last seen; None if nobody held it."""
        self._changed_at = 0.0
        """When it was seen to change: times written by others are never compared with our clock."""

    def is_free(self) -> bool:
        return not self.problem

    async def run(self) -> None:
        if self._name != operators.SCHEDULER_NAME:
            self._decide("")
            return
        while True:
            try:
                self._note(await self._read())
            except Forbidden as error:
                if not self._is_known:
                    log.warning(
                        "Cannot check whether Koordinator's scheduler runs",
                        extra={"answer": error.message},
                    )
                self._decide("")
            except KubeError as error:
                # It is tried again, and nothing can be placed without the server anyway.
                log.debug("Cannot read Koordinator's Lease", extra={"problem": str(error)})
            await asyncio.sleep(LOOK_SECONDS if self._is_known else RETRY_SECONDS)

    async def _read(self) -> LeaseSpec | None:
        try:
            lease = await self._client.get(_KOORDINATOR_LEASE, Lease)
        except NotFound:
            return None
        return lease.spec if lease.spec.holder_identity else None

    def _note(self, spec: LeaseSpec | None) -> None:
        now, before = read_clock(), self._seen
        self._seen = spec
        if spec is None:
            self._decide("")
        elif spec != before:
            self._changed_at = now
            if self._is_known or before is not None:
                self._decide(self._describe(spec))
        elif now - self._changed_at > (spec.lease_duration_seconds or LEASE_SECONDS):
            self._decide("")

    def _describe(self, spec: LeaseSpec) -> str:
        return (
            f"Koordinator's own scheduler runs in this cluster ({spec.holder_identity} renews the "
            "Lease koordinator-system/koord-scheduler) and binds the pods of schedulerName "
            f"{self._name}; configure another schedulerName for the operators, and set it on the "
            "pods that they should bind"
        )

    def _decide(self, problem: str) -> None:
        self._is_known = True
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._warn("SchedulerNameTaken", f"nothing is placed: {problem}")
        elif self._was_taken:
            log.info("The scheduler name is free again; placing continues")
        self._was_taken = bool(problem)
        self.on_change()
