"""Evicts units: pods that go together or not at all.

All pods of a unit are marked before the first is evicted. A marked pod counts as terminating, so
that no replacement joins its gang; the mark survives a crash, so that the next leader completes the
eviction. Who is evicted, and what is written as the mark, is the caller's.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypeVar

from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.kube.evictor import Eviction

T = TypeVar("T")
Evict: TypeAlias = Callable[[Pod], Awaitable[Eviction]]

MOST_AT_ONCE: Final = 64
"""Requests of one eviction in flight."""


@dataclass(slots=True)
class UnitEvictions:
    """``evict`` ends one pod; ``counts`` has the outcomes so far."""

    state: ClusterState
    evict: Evict
    counts: Counter[Eviction] = field(default_factory=Counter)
    evicted: set[str] = field(default_factory=set)
    """uids of evicted pods until the watch confirms it."""

    def forget_confirmed(self) -> None:
        pods = self.state.pods
        current = ((uid, pods.get(uid)) for uid in self.evicted)
        # A reservation loses its node, and waits for another.
        self.evicted = {uid for uid, pod in current if pod and pod.node and not pod.gone_by}

    async def mark_each(
        self, pods: Iterable[Pod], mark: Callable[[Pod], Awaitable[bool]]
    ) -> list[Pod]:
        """Mark pods; return those that could not be marked."""
        pods = list(pods)
        results = await write_each(mark, pods)
        return [pod for pod, is_marked in zip(pods, results, strict=True) if not is_marked]

    async def evict_all(self, pods: Sequence[Pod], by: Evict | None = None) -> Eviction:
        """Evict marked pods of one unit, unless the first is denied; return its outcome.

        ``by`` ends them in another way than usual. What is left is the caller's.
        """
        end = partial(self._evict, by=by)
        first, *remaining = pods
        outcome = await end(first)
        if not outcome.is_denied:
            await write_each(end, remaining)
        return outcome

    async def evict_each(self, pods: Iterable[Pod]) -> list[Pod]:
        """Evict marked pods of many units; return those that the server refuses to evict."""
        marked = list(pods)
        outcomes = await write_each(self._evict, marked)
        return [pod for pod, outcome in zip(marked, outcomes, strict=True) if outcome.is_denied]

    async def _evict(self, pod: Pod, by: Evict | None = None) -> Eviction:
        outcome = await (by or self.evict)(pod)
        self.counts[outcome] += 1
        if outcome.is_done:
            self.evicted.add(pod.uid)
        return outcome


async def write_each(call: Callable[[Pod], Awaitable[T]], pods: Iterable[Pod]) -> list[T]:
    """Write to pods, a bounded number at once; return the outcomes in order."""
    slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def do(pod: Pod) -> T:
        async with slots:
            return await call(pod)

    return list(await asyncio.gather(*map(do, pods)))
