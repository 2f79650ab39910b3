"""Writes what is found for nodes: looks at all of them now and then, and writes where it differs.

What is found, and where it is written, is up to a ``NodePolicy``. Nothing is written while
Koordinator's manager runs, which writes the same. A node that makes a policy fail keeps no other
from being looked at.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

from koord.core.engine.state import ClusterState
from koord.core.model.nodes import Node
from koord.isolation import Isolation
from koord.kube.errors import KubeError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
MOST_WRITES: Final = 200
"""Per look: what is left is written at the next ones, so that a change of the settings of
thousands of nodes does not hold up other writes."""
IN_A_ROW: Final = 250
"""Nodes that are looked at before anything else of the process has its turn."""


class NodePolicy(Protocol):
    """What is to be written for nodes."""

    name: str

    def begin(self) -> bool:
        """Begin a look; return whether anything is configured."""

    def find(self, node: Node) -> object:
        """Return what is to be written for a node; None for nothing."""

    async def write(self, node: Node, change: object) -> None:
        """Write it. Raises the errors of ``koord.kube.errors``."""

    async def finish(self) -> None:
        """End a look at all nodes."""


@dataclass(slots=True)
class NodePublisher:
    """Runs while the process leads. ``warn`` takes a reason and a text."""

    state: ClusterState
    policy: NodePolicy
    find_manager: Callable[[], Awaitable[str]]
    """Returns who runs Koordinator's manager; empty for nobody. Raises ``KubeError``."""
    is_synced: Callable[[], bool]
    clock: Callable[[], float]
    warn: Callable[[str, str], None]
    pause: float = LOOK_SECONDS
    left: int = 0
    """Nodes that the last look has not written, though they differ."""
    _holder: str = ""
    """Who runs Koordinator's manager, as was said last."""
    _isolated: Isolation = field(init=False)

    def __post_init__(self) -> None:
        self._isolated = Isolation(self.policy.name)

    async def run(self) -> NoReturn:
        while True:
            if self.is_synced():
                with self._isolated.of("look", self.clock()):
                    await self.look()
            await asyncio.sleep(self.pause)

    async def look(self) -> None:
        """Write for all nodes that differ now, up to a bound."""
        if not self.policy.begin() or await self._is_managed():
            return
        now, self.left, writes = self.clock(), 0, 0
        for at, name in enumerate([name for name, _ in self.state.table.live_rows()], 1):
            if at % IN_A_ROW == 0:
                await asyncio.sleep(0)
            row = self.state.table.row_of.get(name)
            if row is None or self._isolated.rests(name, now):
                continue
            with self._isolated.of(name, now):
                node = self.state.table.node_at(row)
                change = self.policy.find(node)
                if change is None:
                    continue
                writes += 1
                if writes > MOST_WRITES:
                    self.left += 1
                    continue
                await self._write(node, change)
        await self.policy.finish()

    async def _write(self, node: Node, change: object) -> None:
        try:
            await self.policy.write(node, change)
        except KubeError as error:
            extra = {"node": node.name, "policy": self.policy.name, "problem": str(error)}
            log.warning("Cannot write what was found for a node", extra=extra)

    async def _is_managed(self) -> bool:
        """Whether Koordinator's manager runs, or nobody knows; says so when that changes."""
        try:
            holder = await self.find_manager()
        except KubeError as error:
            log.warning(
                "Cannot read the Lease of Koordinator's manager", extra={"problem": str(error)}
            )
            return True
        if holder != self._holder:
            self._holder = holder
            if holder:
                text = f"{self.policy.name}: nothing is written, for Koordinator's manager runs"
                self.warn("ManagedElsewhere", f"{text} ({holder})")
        return bool(holder)
