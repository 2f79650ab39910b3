"""Has a placeholder for each member that lacks a node: a pod without gate, which nobody binds.

Autoscalers look at it in place of the member, whose own condition stays as the API server has
written it. A placeholder takes no room, so nothing has to make way when the nodes are there. Which
there are is read from the API: after a restart nothing is created again.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from koord.controllers.scale_up_marks import Mark, MarkChannel, MarkWriter
from koord.core.autoscaler.demand import NodeDemand
from koord.core.autoscaler.placeholders import ScaleUpPlaceholder
from koord.core.model.pods import Pod
from koord.kube.errors import KubeError

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 60.0
"""How often those that are there are read, in case somebody has deleted one."""


class ScaleUpPlaceholderApi(MarkWriter[ScaleUpPlaceholder], Protocol):
    """See ``ScaleUpPlaceholders``; ``list`` raises ``KubeError``."""

    async def list(self) -> list[ScaleUpPlaceholder]: ...


@dataclass(slots=True)
class PlaceholderChannel:
    """Makes the placeholders those of the demands; ``assumed`` are the uids of pods being bound."""

    api: ScaleUpPlaceholderApi
    assumed: Collection[str]
    _there: dict[str, ScaleUpPlaceholder] = field(default_factory=dict)
    """Uid of a member -> the placeholder for it."""
    _is_read: bool = False
    _read_next: float = 0.0
    _marks: MarkChannel[ScaleUpPlaceholder] = field(init=False)

    def __post_init__(self) -> None:
        self._marks = MarkChannel(self, self._there, self.assumed)

    @property
    def is_busy(self) -> bool:
        return not self._is_read or self._marks.is_busy

    def knows(self, demand: NodeDemand) -> bool:
        return self._marks.knows(demand)

    async def tell(self, demands: Iterable[NodeDemand], now: float) -> None:
        demands = tuple(demands)
        if now >= self._read_next and (demands or self.is_busy):
            self._read_next, was_read = now + AGAIN_SECONDS, self._is_read
            await self._read()
            if not was_read:
                return  # who is known to lack nodes already, is found at the next look
        if self._is_read:
            await self._marks.tell(demands, now)

    async def _read(self) -> None:
        try:
            listed = await self.api.list()
        except KubeError as error:
            log.warning("Cannot list placeholders", extra={"problem": str(error)})
            return
        self._there.clear()
        self._there.update((placeholder.uid, placeholder) for placeholder in listed)
        self._is_read = True

    async def put(self, pod: Pod, message: str) -> bool:
        """Create the placeholder for a pod."""
        is_done = await self.api.put(pod, message)
        if is_done:
            self._there[pod.uid] = ScaleUpPlaceholder(pod.uid, pod.namespace)
        return is_done

    async def take_off(self, mark: Mark) -> bool:
        """Delete the placeholder for a pod."""
        is_done = await self.api.take_off(ScaleUpPlaceholder(mark.uid, mark.namespace))
        if is_done:
            self._there.pop(mark.uid, None)
        return is_done
