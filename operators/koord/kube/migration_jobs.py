"""PodMigrationJobs as others order them: which pods have one, and new ones.

A job is named after its pod, so that a pod that was asked for twice, as after a crash, has one job.
Whoever carries jobs out is not known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any, Final

import msgspec
from msgspec import Struct

from koord.api.keys import migration as keys
from koord.api.podmigrationjob import PodMigrationJob
from koord.kube.client import Client
from koord.kube.errors import Conflict
from koord.kube.wire import WireObjectMeta

_JOBS: Final = f"/apis/{PodMigrationJob.names.api_version}/{PodMigrationJob.names.plural}"
DEFAULT_TTL: Final = 600.0
_OVER: Final = frozenset({"Succeeded", "Failed", "Aborted"})


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """A pod to move, by whose order and why. ``target`` "": wherever there is room.

    Without ``reserves_first`` it is evicted at once.
    """

    namespace: str
    name: str
    uid: str
    reason: str
    trigger: str
    creator: str
    target: str = ""
    reserves_first: bool = True
    group: str = ""
    """Of pods that move together: the same for all ``group_size`` of them."""
    group_size: int = 0

    @property
    def job_name(self) -> str:
        digest = blake2s(self.uid.encode(), digest_size=5).hexdigest()
        return f"{self.name[:50].rstrip('-.')}-{digest}"


class _OrderedPod(Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _OrderSpec(Struct, rename="camel"):
    pod_ref: _OrderedPod = msgspec.field(default_factory=_OrderedPod)


class _OrderStatus(Struct):
    phase: str = ""


class _Order(Struct):
    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: _OrderSpec = msgspec.field(default_factory=_OrderSpec)
    status: _OrderStatus = msgspec.field(default_factory=_OrderStatus)

    @property
    def pod(self) -> str:
        """Its uid, or its key."""
        pod = self.spec.pod_ref
        return pod.uid or f"{pod.namespace}/{pod.name}"

    def find(self, key: str) -> str:
        """Return an annotation; "" for none."""
        return (self.metadata.annotations or {}).get(key, "")


class _Orders(Struct):
    items: list[_Order] | None = None


@dataclass(frozen=True, slots=True)
class OrderedMoves:
    """The jobs that are there. ``pods`` have one, also one that is over: by uid, or by key.

    ``moving`` are those of jobs that are not over, with the node that they are to go to, or "".
    """

    pods: frozenset[str] = frozenset()
    running: int = 0
    moving: Mapping[str, str] = field(default_factory=dict)


class MigrationOrders:
    """Reads and creates jobs, which fail after ``ttl`` seconds. Raises KubeError."""

    def __init__(self, client: Client, ttl: float = DEFAULT_TTL) -> None:
        self._client = client
        self._ttl = ttl

    async def list(self, creator: str = "") -> OrderedMoves:
        """Return the pods that have a job, and how many jobs of a creator are not over."""
        listed = msgspec.json.decode(await self._client.list(_JOBS), type=_Orders).items or ()
        active = [order for order in listed if order.status.phase not in _OVER]
        running = sum(order.find(keys.CREATED_BY) == creator for order in active)
        moving = {order.pod: order.find(keys.TARGET_NODE) for order in active}
        return OrderedMoves(frozenset(order.pod for order in listed), running, moving)

    async def create(self, order: MoveOrder) -> bool:
        """Create a job; return whether there was none for the pod."""
        try:
            await self._client.post(_JOBS, make_job(order, self._ttl))
        except Conflict:
            return False
        return True


def make_job(order: MoveOrder, ttl: float = DEFAULT_TTL) -> dict[str, Any]:
    annotations = {
        keys.EVICT_REASON: order.reason,
        keys.EVICT_TRIGGER: order.trigger,
        keys.CREATED_BY: order.creator,
    }
    if order.target and order.reserves_first:
        annotations[keys.TARGET_NODE] = order.target
    metadata: dict[str, Any] = {"name": order.job_name, "annotations": annotations}
    if order.group:
        annotations[keys.GROUP_SIZE] = str(order.group_size)
        metadata["labels"] = {keys.GROUP: order.group}
    names = PodMigrationJob.names
    return {
        "apiVersion": names.api_version,
        "kind": names.kind,
        "metadata": metadata,
        "spec": {
            "ttl": f"{ttl:.0f}s",
            "mode": "ReservationFirst" if order.reserves_first else "EvictDirectly",
            "podRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": order.namespace,
                "name": order.name,
                "uid": order.uid,
            },
        },
    }
