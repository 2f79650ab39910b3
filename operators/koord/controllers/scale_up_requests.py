"""Keeps one ProvisioningRequest for each gang that lacks nodes, and tells what becomes of it.

All is read from the API at each look: after a restart nothing is asked for again.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from koord.core.autoscaler.demand import NodeDemand
from koord.core.autoscaler.requests import NodeRequest, find_changes, unit_of
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.core.model.text import cut
from koord.isolation import Isolation
from koord.kube.errors import KubeError
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef, ref_of_pod, ref_of_pod_group
from koord.kube.turns import in_turn

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 60.0
"""After the API server did not take a request, or does not know the kind."""
KEPT_SECONDS: Final = 60.0
"""How long a request is kept whose unit lacks no nodes by now: it may again in a moment."""
MOST_WRITES: Final = 16
"""Requests that are created at one look, and others that are deleted."""
SCALING: Final = "ScalingUp"
"""The action in events about new nodes."""
_MOST_SAID: Final = 512


class NodeRequestApi(Protocol):
    """Lists and writes requests; see ``ProvisioningRequests``."""

    async def list(self, namespaces: Collection[str]) -> list[NodeRequest]: ...
    async def create(self, demand: NodeDemand, attempt: int, owner: Mapping[str, str]) -> None: ...
    async def delete(self, request: NodeRequest) -> None: ...


@dataclass(slots=True)
class RequestChannel:
    """Makes the requests those of the demands; nothing is taken back while it is not in use."""

    api: NodeRequestApi
    state: ClusterState
    events: EventRecorder
    _units: frozenset[tuple[str, str]] | None = None
    """The units with requests, as of the last look; None before the first."""
    _asked: frozenset[tuple[str, str]] = frozenset()
    """Those that have lacked nodes, as long as they have requests."""
    _unwanted_since: dict[str, float] = field(default_factory=dict)
    """Uid of a request -> since when its unit has lacked no nodes."""
    _look_at: float = 0.0
    _isolated: Isolation = field(default_factory=lambda: Isolation("provisioning-requests"))

    @property
    def is_busy(self) -> bool:
        return self._units is None or bool(self._units)

    def knows(self, demand: NodeDemand) -> bool:
        return unit_of(demand) in (self._units or ())

    async def tell(self, demands: Iterable[NodeDemand], now: float) -> None:
        demands = tuple(demands)
        if now < self._look_at or not (demands or self.is_busy):
            return
        self._look_at = now + LOOK_SECONDS
        try:
            await self._tell(demands, now)
        except KubeError as error:
            self._look_at = now + AGAIN_SECONDS
            log.warning("Cannot ask for nodes; trying again", extra={"problem": str(error)})

    async def _tell(self, demands: Sequence[NodeDemand], now: float) -> None:
        wanted = {unit_of(demand) for demand in demands}
        namespaces = {namespace for namespace, _ in self._asked | wanted}
        seen, is_first = await self.api.list(namespaces), self._units is None
        if is_first:
            # Who lacks nodes is known a moment later than what was asked for before.
            self._units = frozenset(request.unit for request in seen)
            return
        changes = find_changes(seen, demands, now)
        self._asked = (self._asked & {request.unit for request in seen}) | wanted
        self._unwanted_since = {
            request.uid: self._unwanted_since.get(request.uid, now)
            for request in changes.delete
            if request.unit not in wanted
        }
        old = (
            request
            for request in changes.delete
            if now - self._unwanted_since.get(request.uid, 0.0) >= KEPT_SECONDS
        )
        for request in islice(in_turn(old, _namespace_of), MOST_WRITES):
            await self.api.delete(request)
        for demand, attempt in changes.create[:MOST_WRITES]:
            with self._isolated.of(demand.unit, now):
                await self.api.create(demand, attempt, self._find_owner(demand.pods[0]))
                self._announce(demand.pods[0], EventType.NORMAL, "NodesRequested", "")
        refusals = {request.unit: request.refusal for request in seen}
        for demand in demands:
            refusal = refusals.get(unit_of(demand))
            if refusal is not None:
                why = f"{refusal.reason}: {cut(refusal.message, _MOST_SAID)}"
                self._announce(demand.pods[0], EventType.WARNING, "NodesRefused", why)
        created = {unit_of(demand) for demand, _ in changes.create}
        self._units = frozenset({request.unit for request in seen} | created)

    def _find_owner(self, pod: Pod) -> dict[str, str]:
        """Return what a request goes with: the PodGroup of a gang, or the pod."""
        ref = self._ref_of(pod)
        fields = (ref.api_version, ref.kind, ref.name, ref.uid)
        return dict(zip(("apiVersion", "kind", "name", "uid"), fields, strict=True))

    def _ref_of(self, pod: Pod) -> ObjectRef:
        group = None if pod.gang is None else self.state.gangs.pod_group(pod.gang.key)
        return ref_of_pod(pod) if group is None else ref_of_pod_group(group)

    def _announce(self, pod: Pod, kind: EventType, reason: str, why: str) -> None:
        text = why or "new nodes were asked for by a ProvisioningRequest"
        self.events.record(self._ref_of(pod), kind, action=SCALING, reason=reason, note=text)


def _namespace_of(request: NodeRequest) -> str:
    return request.namespace
