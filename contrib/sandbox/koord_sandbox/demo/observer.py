"""Follows PodGroups and pods on the API server; remembers when each change was seen.

All times are seconds of one monotonic clock. What the observations are used for is not known here.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from koord.api.keys.gang import POD_GROUP
from koord.api.podgroup import PodGroupSpec
from koord.api.shape import Shape
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import PODS
from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord.kube.errors import NotFound
from koord.kube.reflector import Reflector, Source
from koord.kube.store import Change, Deleted
from koord.kube.translate.amounts import parse_requests
from koord.kube.wire import WireCondition, WireCustomResource, WirePod

GPU: Final = "nvidia.com/gpu"
_CHECK_INTERVAL: Final = 0.2  # seconds
_CLOSE_SECONDS: Final = 0.1
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_PROGRESS: Final = ("Placed", "QuorumReached", "Bound")
"""Conditions of a PodGroup; the first of them that is false says why the gang waits."""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod, and when it was first seen bound and ended. It stays after it was deleted."""

    name: str
    gang: str
    gpus: int
    phase: str = ""
    node: str = ""
    conditions: tuple[WireCondition, ...] = ()
    created_at: float = 0.0
    bound_at: float | None = None
    ended_at: float | None = None

    @property
    def is_bound(self) -> bool:
        """Whether it occupies a node."""
        return self.ended_at is None and self.bound_at is not None


class SeenGang(NamedTuple):
    """A PodGroup."""

    name: str
    min_member: int
    conditions: tuple[WireCondition, ...] = ()

    def waiting_condition(self) -> WireCondition | None:
        """Return the condition that says why the gang waits, if one does."""
        failing = {
            condition.type: condition for condition in self.conditions if condition.status != "True"
        }
        return next((failing[kind] for kind in _PROGRESS if kind in failing), None)


class DemoCluster(NamedTuple):
    """Everything seen so far; pods and gangs in the order in which they appeared."""

    gangs: Sequence[SeenGang] = ()
    pods: Sequence[SeenPod] = ()

    def gang(self, name: str) -> SeenGang | None:
        return next((gang for gang in self.gangs if gang.name == name), None)

    def members(self, gang: str) -> list[SeenPod]:
        """Return all pods of a gang, ended ones included."""
        return [pod for pod in self.pods if pod.gang == gang]

    def present(self, gang: str) -> list[SeenPod]:
        """Return the pods of a gang that have not ended."""
        return [pod for pod in self.members(gang) if pod.ended_at is None]


class Observer:
    """Everything seen so far; may be read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._gangs: dict[str, SeenGang] = {}
        self._pods: dict[str, SeenPod] = {}

    def look(self) -> DemoCluster:
        with self._changed:
            return DemoCluster([*self._gangs.values()], [*self._pods.values()])

    def wait(
        self, is_seen: Callable[[DemoCluster], bool], seconds: float, check: Callable[[], None]
    ) -> bool:
        """Return whether it was seen in time; ``check`` is called regularly and may raise."""
        end = self._clock() + seconds
        with self._changed:
            while not is_seen(self.look()):
                left = end - self._clock()
                if left <= 0:
                    return False
                check()
                self._changed.wait(min(left, _CHECK_INTERVAL))
        return True

    @contextmanager
    def watch(self, kubeconfig: Path) -> Iterator[None]:
        """Follow the cluster in a thread while the context lasts."""
        loop, ended = asyncio.new_event_loop(), asyncio.Event()
        follow = self._follow(kubeconfig, ended)
        thread = threading.Thread(target=loop.run_until_complete, args=(follow,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()

    async def _follow(self, kubeconfig: Path, ended: asyncio.Event) -> None:
        async with (
            Client(find_credentials(str(kubeconfig)), user_agent="koord-demo") as client,
            asyncio.TaskGroup() as tasks,
        ):
            reflectors = [Reflector(client, source, self.take) for source in _SOURCES]
            following = [tasks.create_task(reflector.run()) for reflector in reflectors]
            await ended.wait()
            for task in following:
                task.cancel()
        await asyncio.sleep(_CLOSE_SECONDS)  # transports are closed in later iterations

    def take(self, changes: list[Change[tuple[str, Any]]]) -> None:
        """Take changes of objects in, each as its uid and value."""
        with self._changed:
            for change in changes:
                (uid, value), is_deleted = change.value, isinstance(change, Deleted)
                if isinstance(value, SeenPod):
                    self._take_pod(uid, value, has_ended=is_deleted or value.phase in _ENDED)
                elif is_deleted:
                    self._gangs.pop(uid, None)
                else:
                    self._gangs[uid] = value
            self._changed.notify_all()

    def _take_pod(self, uid: str, pod: SeenPod, *, has_ended: bool) -> None:
        now = self._clock()
        seen_pod = self._pods.get(uid) or replace(pod, created_at=now)
        self._pods[uid] = replace(
            pod,
            created_at=seen_pod.created_at,
            bound_at=now if pod.node and seen_pod.bound_at is None else seen_pod.bound_at,
            ended_at=now if has_ended and seen_pod.ended_at is None else seen_pod.ended_at,
        )


_SPEC: Final = Shape(PodGroupSpec, only={PodGroupSpec: ("min_member",)})


class _PodGroupStatus(msgspec.Struct):
    conditions: list[WireCondition] | None = None


def _see_gang(group: WireCustomResource) -> tuple[str, SeenGang]:
    status = msgspec.json.decode(bytes(group.status) or b"{}", type=_PodGroupStatus)
    conditions = tuple(status.conditions or ())
    needed = _SPEC.read(bytes(group.spec)).min_member
    return group.metadata.uid, SeenGang(group.metadata.name, needed, conditions)


def _see_pod(pod: WirePod) -> tuple[str, SeenPod]:
    containers = pod.spec.containers or ()
    return pod.metadata.uid, SeenPod(
        name=pod.metadata.name,
        gang=(pod.metadata.labels or {}).get(POD_GROUP, ""),
        gpus=sum(
            parse_requests(bytes(container.resources)).get(GPU, 0) for container in containers
        ),
        phase=pod.status.phase,
        node=pod.spec.node_name,
        conditions=tuple(pod.status.conditions or ()),
    )


_SOURCES: Final[tuple[Source[Any, tuple[str, Any]], ...]] = (
    Source(POD_GROUPS.path, WireCustomResource, _see_gang, absent_on=(NotFound,)),
    Source(PODS.path, WirePod, _see_pod),
)
