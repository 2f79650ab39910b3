"""An event loop with virtual time: it jumps to the next timer instead of waiting.

A minute of back-off costs nothing, and every run of a program is the same. There are no sockets and
no threads.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

EPOCH = 1_800_000_000.0
"""Wall clock at time 0 of a loop."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of asyncio with virtual time; it is its own selector."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = self

    @override
    def time(self) -> float:
        return self._now

    def wall(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the time instead of waiting for sockets."""
        if timeout is None:
            raise RuntimeError("deadlock: no timer and no ready callback")
        self._now += timeout
        return []

    @override
    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    @override
    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class _Time:
    """Replaces the module ``time``."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = loop.time
        self.time = loop.wall

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def virtual_time(seed: object = 0) -> Iterator[VirtualLoop]:
    """Use the time of a new loop in all modules of the operators, and seed ``random``."""
    loop = VirtualLoop()
    stand_in = _Time(loop)
    patched = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("koord.") and getattr(module, "time", None) is time
    ]
    state = random.getstate()
    random.seed(str(seed))
    for module in patched:
        module.time = stand_in  # type: ignore[attr-defined]
    try:
        yield loop
    finally:
        for module in patched:
            module.time = time  # type: ignore[attr-defined]
        random.setstate(state)
        loop.close()
