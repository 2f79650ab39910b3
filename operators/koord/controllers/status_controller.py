"""Keeps the status of one kind of object current: the loop that all kinds have in common.

The loop is woken by changes of the cluster and by Kopf's handlers, waits until an object has been
quiet for a moment, and then has its status written; an object whose status cannot be computed does
not stop the others.
Which objects have changed and what their status says is decided by a ``StatusPolicy``, one per
kind. Writers of status compare with what the object shows already, so nothing is written twice.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from koord.controllers.coalescing import Agenda, Pause
from koord.isolation import Isolation
from koord.kube.errors import KubeError
from koord.kube.status import AT_ONCE, LULL_SECONDS, Pace

BURST_SECONDS: Final = 0.05
"""Changes come in bursts: those that arrive within this time are handled together."""
BURST_BUSY_SECONDS: Final = 0.25
"""The same while pods are bound: each kind looks at all that has changed, every time."""
AGAIN_SECONDS: Final = 5.0
"""After a write that the API server did not take."""
_TICK: Final = 0.02
_MISSING: Final = object()

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)


class StatusPolicy(Protocol[K]):
    """What the status of one kind says, and when it is out of date."""

    def changed(self) -> Iterable[K]:
        """Return the objects whose inputs have changed since the last call, or that are gone."""

    def pause_for(self, key: K) -> Pause:
        """Return how long an object must be quiet before its status is written."""

    async def update(self, key: K) -> float | None:
        """Write the status of an object; forget the object if it is gone.

        Return the seconds after which to update it again even if nothing changes.
        """


class ChangedInputs(Generic[K]):
    """Finds the objects whose inputs differ from those of the call before."""

    def __init__(self) -> None:
        self._inputs: dict[K, object] = {}
        self._isolated = Isolation("status-inputs")

    def compare(self, keys: Iterable[K], read: Callable[[K], object]) -> list[K]:
        """Return the keys whose inputs are new, changed, or gone; ``read`` returns inputs."""
        inputs: dict[K, object] = {key: self._isolated.call(key, read, key) for key in keys}
        before, self._inputs = self._inputs, inputs
        gone = [key for key in before if key not in inputs]
        return gone + [key for key, seen in inputs.items() if before.get(key, _MISSING) != seen]


@dataclass(slots=True)
class StatusController(Generic[K]):
    """Runs one policy. Nothing happens unless ``is_synced``; ``clock`` is monotonic.

    While ``is_busy`` updates are put off as ``pace`` says: most would be out of date at once.
    ``settle`` is called after each update that is complete.
    """

    policy: StatusPolicy[K]
    clock: Callable[[], float]
    is_synced: Callable[[], bool] = lambda: True
    is_busy: Callable[[], bool] = lambda: False
    pace: Pace = AT_ONCE
    settle: Callable[[K], None] = lambda _: None
    _due: Agenda[K] = field(default_factory=Agenda)
    _isolated: Isolation = field(default_factory=lambda: Isolation("status"))
    _put_off: dict[K, float] = field(default_factory=dict)
    """Objects that give way -> since when."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Note that the cluster has changed."""
        self._woken.set()

    def enqueue(self, key: K) -> None:
        """Update an object after the pause of its policy."""
        self._due.put_off(key, self.clock(), self.policy.pause_for(key))
        self._woken.set()

    def hurry(self, key: K) -> None:
        """Update an object at once."""
        self._due.look_at(key, self.clock())
        self._woken.set()

    async def run(self) -> None:
        """Keep statuses current until cancelled."""
        is_changed = True
        while True:
            if self.is_synced():
                if is_changed:
                    self.look()
                    is_changed = False
                await self.flush()
            is_changed |= await self._rest()

    def look(self) -> None:
        """Find out what has changed."""
        now = self.clock()
        for key in self.policy.changed():
            with self._isolated.of(key, now):
                self._due.put_off(key, now, self.policy.pause_for(key))

    async def flush(self) -> None:
        """Update the objects that are due."""
        now = self.clock()
        for key in self._due.take(now):
            if self.is_busy() and now < self._put_off.setdefault(key, now) + self.pace.seconds:
                self._due.look_at(key, now + LULL_SECONDS)
                continue
            self._put_off.pop(key, None)
            seconds: float | None = None
            with self._isolated.of(key, now):
                seconds = await self._update(key)
                if seconds is None:
                    self.settle(key)
            again_at = self._isolated.again_at(key)
            if again_at is not None:
                self._due.look_at(key, again_at)
            elif seconds is not None:
                self._due.look_at(key, self.clock() + seconds)

    async def _update(self, key: K) -> float | None:
        try:
            return await self.policy.update(key)
        except KubeError as error:  # no defect: the server answers otherwise later
            log.warning("Cannot write", extra={"object": str(key), "problem": str(error)})
            return AGAIN_SECONDS

    async def _rest(self) -> bool:
        """Sleep until something is due or has changed; return whether something has changed."""
        first = self._due.first() if self.is_synced() else None
        seconds = None if first is None else max(first - self.clock(), _TICK)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        await asyncio.sleep(BURST_BUSY_SECONDS if self.is_busy() else BURST_SECONDS)
        return True
