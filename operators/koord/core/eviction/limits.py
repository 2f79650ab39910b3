"""How much is evicted at once, and what pauses for a while: one set of limits for all policies.

A limit says how many pods, or plans, may go within a minute (or another time) per node, workload,
namespace, quota, or in all; for one policy or for all together. A plan goes while all its counts
are below their limits, and then goes as a whole: so the last one may go beyond a limit.

``Pauses`` are for what failed: it is tried again later, after a longer time each time.

Nothing here knows a clock: all times are seconds of the caller's.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Final, TypeAlias

from koord.core.eviction.model import EvictionPlan
from koord.core.model.pods import Pod

MINUTE: Final = 60.0
_MOST_FAILURES: Final = 16


class LimitScope(StrEnum):
    """What a limit counts together."""

    ALL = auto()
    NODE = auto()
    NAMESPACE = auto()
    WORKLOAD = auto()
    """A gang, or what the controller of a pod without one makes."""
    QUOTA = auto()


@dataclass(frozen=True, slots=True)
class EvictionLimit:
    """``most`` pods within ``seconds``; 0 allows nobody.

    ``policy`` is the one that it is for; empty: all, counted together. ``counts_plans``: plans
    count, whatever becomes of them, and not the pods.
    """

    scope: LimitScope
    most: int
    policy: str = ""
    seconds: float = MINUTE
    counts_plans: bool = False


_Counted: TypeAlias = tuple[EvictionLimit, str]
"""A limit, and the node, workload, namespace or quota for which it counts."""


class EvictionLimits:
    """Counts what goes. It is kept in memory: a restart begins with none."""

    def __init__(self, limits: Iterable[EvictionLimit] = ()) -> None:
        self._limits = tuple(limits)
        self._past: dict[_Counted, deque[tuple[float, int]]] = {}
        """When how many went, the oldest first."""
        self._dropped_at = float("-inf")

    def wait_until(self, plan: EvictionPlan, now: float) -> float:
        """Return until when a plan has to wait; a time that has passed if it may go."""
        return max(
            (self._wait_for(limit, name, now) for limit, name, _ in self._count(plan)), default=now
        )

    def allows(self, plan: EvictionPlan, now: float) -> bool:
        """Whether a plan may go now."""
        return self.wait_until(plan, now) <= now

    def note(self, plan: EvictionPlan, now: float) -> None:
        """Count a plan that goes."""
        self._drop_old(now)
        for limit, name, count in self._count(plan):
            self._past.setdefault((limit, name), deque()).append((now, count))

    def take_back(self, plan: EvictionPlan) -> None:
        """Count the pods of a plan no longer: none of them went."""
        for limit, name, count in self._count(plan):
            past = self._past.get((limit, name))
            if past and not limit.counts_plans:
                last = max((at for at, n in past if n == count), default=None)
                if last is not None:
                    past.remove((last, count))
                if not past:
                    del self._past[limit, name]

    def _wait_for(self, limit: EvictionLimit, name: str, now: float) -> float:
        recent = [
            (at, count)
            for at, count in self._past.get((limit, name), ())
            if at + limit.seconds > now
        ]
        if sum(count for _, count in recent) < limit.most:
            return now
        # Not when the first may go again: many that wait would ask again one by one.
        return (recent[-1][0] if recent else now) + limit.seconds

    def _count(self, plan: EvictionPlan) -> Iterable[tuple[EvictionLimit, str, int]]:
        for limit in self._limits:
            if limit.policy in {"", plan.policy}:
                for name, pods in _NAMES[limit.scope](plan).items():
                    yield limit, name, 1 if limit.counts_plans else pods

    def _drop_old(self, now: float) -> None:
        """Forget what counts no longer, from time to time: names come from tenants."""
        if now < self._dropped_at + MINUTE:
            return
        self._dropped_at = now
        self._past = {
            key: past for key, past in self._past.items() if past[-1][0] + key[0].seconds > now
        }
        for (limit, _), past in self._past.items():
            while past[0][0] + limit.seconds <= now:
                past.popleft()


@dataclass(slots=True)
class EvictionRate:
    """A token bucket: ``per_second`` pods may go in the long run, ``burst`` of them at once.

    A plan goes once there is a token for each of its pods, or the bucket is full.
    """

    per_second: float
    burst: int
    _tokens: float = field(init=False)
    _filled_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)

    def take(self, pods: int, now: float) -> float:
        """Take a token for each pod; return until when they have to wait, ``now`` if they may go.

        A plan of more pods than the bucket holds makes the next ones wait longer.
        """
        if now > self._filled_at:
            gained = (now - self._filled_at) * self.per_second
            self._tokens = min(self._tokens + gained, float(self.burst))
            self._filled_at = now
        missing = min(pods, self.burst) - self._tokens
        if missing > 1e-9:
            return now + missing / self.per_second
        self._tokens -= pods
        return now


def workload_of(pod: Pod) -> str:
    """Return what makes a pod and its like: its gang, its controller, or itself.

    Others may name the same controller in pods of theirs, so it is one of its namespace.
    """
    if pod.gang is not None:
        return pod.gang.key
    owners = (f"{pod.namespace}/{owner.uid}" for owner in pod.owners if owner.is_controller)
    return next(owners, pod.uid)


def _count_by(name_of: Callable[[Pod], str]) -> Callable[[EvictionPlan], Counter[str]]:
    return lambda plan: Counter(map(name_of, plan.pods))


def _by_namespace(plan: EvictionPlan) -> Counter[str]:
    if plan.namespace:
        return Counter({plan.namespace: len(plan.pods)})
    return Counter(pod.namespace for pod in plan.pods)


_NAMES: Final[dict[LimitScope, Callable[[EvictionPlan], Counter[str]]]] = {
    LimitScope.ALL: _count_by(lambda _: ""),
    LimitScope.NODE: _count_by(lambda pod: pod.node),
    LimitScope.NAMESPACE: _by_namespace,
    # Others may name the same controller in their pods.
    LimitScope.WORKLOAD: _count_by(workload_of),
    LimitScope.QUOTA: lambda plan: Counter({plan.quota: len(plan.pods)} if plan.quota else {}),
}


@dataclass(slots=True)
class _Pause:
    failures: int = 0
    until: float = float("-inf")


@dataclass(slots=True)
class Pauses:
    """What failed, by name. The first pause is of ``first`` seconds, each other ``factor`` longer.

    A failure counts for ``remembered`` seconds after the pause: others come first.
    """

    first: float
    longest: float
    factor: float = 2.0
    remembered: float = 0.0
    _pauses: dict[str, _Pause] = field(default_factory=dict)

    def note(self, name: str, now: float, seconds: float | None = None) -> float:
        """Note a failure; return until when it pauses. With ``seconds`` for as long, once."""
        pause = self._pauses.setdefault(name, _Pause())
        length = min(self.first * self.factor**pause.failures, self.longest)
        if seconds is None:
            pause.failures = min(pause.failures + 1, _MOST_FAILURES)
        pause.until = now + (length if seconds is None else seconds)
        return pause.until

    def until(self, name: str) -> float:
        """Return until when something pauses; a time that has passed if it does not."""
        pause = self._pauses.get(name)
        return float("-inf") if pause is None else pause.until

    def failures(self, name: str) -> int:
        """Return how often in a row something failed."""
        pause = self._pauses.get(name)
        return 0 if pause is None else pause.failures

    def active(self, now: float) -> set[str]:
        """Return all that pauses now."""
        return {name for name, pause in self._pauses.items() if pause.until > now}

    def end(self, name: str) -> None:
        """Forget a failure: it went well."""
        self._pauses.pop(name, None)

    def drop_old(self, now: float, keeps: Callable[[str], bool] = lambda _: True) -> None:
        """Forget failures of long ago, and of what is not to be kept."""
        self._pauses = {
            name: pause
            for name, pause in self._pauses.items()
            if pause.until + self.remembered > now and keeps(name)
        }
