"""Which members show the mark that autoscalers look for: put on, and taken off, as is due.

What is marked is read from the pods, so it is the same after a restart. A pod that is about to be
bound is left alone: its binding sets the condition.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from koord.core.autoscaler.demand import NodeDemand
from koord.core.model.pods import Pod
from koord.core.model.text import cut
from koord.kube.translate.pod_conditions import SCALE_UP
from koord.kube.turns import in_turn

AGAIN_SECONDS: Final = 60.0
"""How long a pod that lost its mark is not marked again."""
MOST_WRITES: Final = 64
"""At one look."""
MOST_IN_FLIGHT: Final = 8


class Mark(Protocol):
    """What shows that a pod lacks a node: the pod itself, or another that is there for it."""

    @property
    def uid(self) -> str:
        """That of the pod which lacks a node."""

    @property
    def namespace(self) -> str: ...


M = TypeVar("M", bound=Mark)
W_contra = TypeVar("W_contra", bound=Mark, contravariant=True)


class MarkWriter(Protocol[W_contra]):
    """Writes marks; see ``ScaleUpMarks`` and ``ScaleUpPlaceholders``."""

    async def put(self, pod: Pod, message: str) -> bool: ...
    async def take_off(self, mark: W_contra) -> bool: ...


@dataclass(slots=True)
class MarkChannel(Generic[M]):
    """``marked`` are the marks that there are, ``assumed`` the uids of pods being bound."""

    writer: MarkWriter[M]
    marked: Mapping[str, M]
    assumed: Collection[str]
    _taken_off: dict[str, float] = field(default_factory=dict)
    """Uid -> when its mark was taken off."""

    @property
    def is_busy(self) -> bool:
        """Whether there is something to take back."""
        return bool(self.marked)

    def knows(self, demand: NodeDemand) -> bool:
        """Whether a mark tells of it already: of an earlier process, or as another unit."""
        return any(pod.uid in self.marked for pod in demand.pods)

    async def tell(self, demands: Iterable[NodeDemand], now: float) -> None:
        """Have just the pods of these demands marked."""
        texts = {
            pod.uid: (pod, _describe(demand))
            for demand in demands
            if not demand.is_served
            for pod in demand.pods
        }
        self._taken_off = {
            uid: at for uid, at in self._taken_off.items() if at + AGAIN_SECONDS > now
        }
        off = [
            mark
            for uid, mark in self.marked.items()
            if uid not in texts and uid not in self.assumed
        ]
        off = list(in_turn(off, _namespace_of))[:MOST_WRITES]
        put = [
            (pod, text)
            for uid, (pod, text) in texts.items()
            if uid not in self.marked and uid not in self._taken_off
        ]
        # Pods that cannot be written are in the way of their namespace alone.
        put = list(in_turn(put, lambda write: write[0].namespace))
        slots = asyncio.Semaphore(MOST_IN_FLIGHT)

        async def take_off(mark: M) -> None:
            async with slots:
                if await self.writer.take_off(mark):
                    self._taken_off[mark.uid] = now

        async def put_on(pod: Pod, text: str) -> None:
            async with slots:
                await self.writer.put(pod, text)

        async with asyncio.TaskGroup() as group:
            for mark in off:
                group.create_task(take_off(mark))
            for pod, text in put[: MOST_WRITES - len(off)]:
                group.create_task(put_on(pod, text))


def _namespace_of(mark: Mark) -> str:
    return mark.namespace


def _describe(demand: NodeDemand) -> str:
    """Return a text that stays the same while it waits: each other one would be another write."""
    first = demand.pods[0]
    who = f"gang {first.gang.key}" if first.gang is not None else "the pod"
    return f"{SCALE_UP}{cut(who)} lacks nodes with room"
