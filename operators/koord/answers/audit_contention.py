"""Who was placed before units that stood ahead, and who held what others waited for.

Both are sums over all that happens, kept so that each event costs a few steps, however many units
wait: records of a day are hundreds of thousands. Integers only.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MOST_KINDS: Final = 64
"""Sets of resources that are told from each other; tenants choose names of resources."""
_BITS: Final = 17
_LAST: Final = (1 << _BITS) - 1
_SCALE: Final = 64
"""Bits behind the point, in what one unit of a resource is to blame for."""


class _Positions:
    """Counts by position, of which a sum over all positions behind one costs few steps."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, position: int) -> None:
        at = _LAST - min(position, _LAST) + 1
        while at <= _LAST + 1:
            self._counts[at] = self._counts.get(at, 0) + 1
            at += at & -at

    def count_behind(self, position: int) -> int:
        at, total = _LAST - min(position, _LAST), 0
        while at > 0:
            total += self._counts.get(at, 0)
            at -= at & -at
        return total


class Rivals(NamedTuple):
    """Units that compete: for some of these resources, in a quota; None: in any."""

    kinds: frozenset[str]
    quota: str | None


@dataclass(slots=True)
class _Overtaken:
    rivals: Rivals
    position: int
    before: int


@dataclass(slots=True)
class Overtaking:
    """Counts, for each unit that waits, how many that stood behind it were placed."""

    _placed: dict[str | None, dict[frozenset[str], _Positions]] = field(default_factory=dict)
    """Quota, or None for all -> resources of those that wait -> positions of what was placed."""
    _waiting: dict[str, _Overtaken] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def wait(self, trace: str, rivals: Rivals, position: int | None) -> None:
        """Note where a unit stands that was refused; its count goes on."""
        self._settle(trace)
        if position is None:
            return
        groups = self._placed.setdefault(rivals.quota, {})
        if rivals.kinds not in groups and len(groups) >= MOST_KINDS:
            return
        positions = groups.setdefault(rivals.kinds, _Positions())
        self._waiting[trace] = _Overtaken(rivals, position, positions.count_behind(position))

    def place(self, trace: str, kinds: frozenset[str], quota: str, position: int | None) -> None:
        """Note that a unit was placed from where it stood."""
        self._settle(trace)
        if position is None:
            return
        for scope in (None, quota):
            for rivals, positions in self._placed.get(scope, {}).items():
                if not rivals.isdisjoint(kinds):
                    positions.add(position)

    def leave(self, trace: str) -> None:
        self._settle(trace)

    def restart(self, trace: str) -> None:
        """Count from 0: the unit begins to wait."""
        self._settle(trace)
        self._counts.pop(trace, None)

    def count(self, trace: str) -> int:
        """Return how often a unit was overtaken since it began to wait."""
        count, waiting = self._counts.get(trace, 0), self._waiting.get(trace)
        return count if waiting is None else count + self._since(waiting)

    def _settle(self, trace: str) -> None:
        waiting = self._waiting.pop(trace, None)
        if waiting is not None and (since := self._since(waiting)):
            self._counts[trace] = self._counts.get(trace, 0) + since

    def _since(self, waiting: _Overtaken) -> int:
        positions = self._placed[waiting.rivals.quota][waiting.rivals.kinds]
        return positions.count_behind(waiting.position) - waiting.before


Pool = tuple[str, str]
"""A resource, and the quota that limits it; empty: the nodes do."""


@dataclass(slots=True)
class _PoolState:
    held: int = 0
    waiting: int = 0
    blame: int = 0
    """Of one that is held, scaled, since the beginning."""
    last: int = 0


@dataclass(slots=True)
class Blame:
    """Splits what is waited for a resource among those that hold it, by what they hold.

    What waits counts in thousandths of GPUs; times are milliseconds and do not run back.
    """

    total: int = 0
    unattributed: int = 0
    _pools: dict[Pool, _PoolState] = field(default_factory=dict)
    _holding: dict[str, list[tuple[Pool, int, int]]] = field(default_factory=dict)
    _waiting: dict[str, tuple[Pool, int]] = field(default_factory=dict)
    _blamed: dict[str, int] = field(default_factory=dict)

    def hold(self, trace: str, amounts: Iterable[tuple[Pool, int]], now: int) -> None:
        """Note what a unit holds from now on; nothing before."""
        self.release(trace, now)
        holding = []
        for pool, amount in amounts:
            if amount > 0:
                state = self._advance(pool, now)
                state.held += amount
                holding.append((pool, amount, state.blame))
        if holding:
            self._holding[trace] = holding

    def release(self, trace: str, now: int) -> None:
        for pool, amount, since in self._holding.pop(trace, ()):
            state = self._advance(pool, now)
            state.held -= amount
            self._blame(trace, amount, state.blame - since)

    def wait(self, trace: str, pool: Pool | None, milli_gpus: int, now: int) -> None:
        """Note what a unit waits for from now on; None: for nothing that others hold."""
        before = self._waiting.pop(trace, None)
        if before is not None:
            self._advance(before[0], now).waiting -= before[1]
        if pool is not None and milli_gpus > 0:
            self._advance(pool, now).waiting += milli_gpus
            self._waiting[trace] = pool, milli_gpus

    def begin(self, now: int) -> None:
        """Count from now on: what was held and waited for goes on."""
        for pool in self._pools:
            self._advance(pool, now)
        self.total = self.unattributed = 0
        self._blamed.clear()
        for trace, holding in self._holding.items():
            self._holding[trace] = [
                (pool, amount, self._pools[pool].blame) for pool, amount, _ in holding
            ]

    def end(self, now: int) -> dict[str, int]:
        """Return thousandths of GPUs times milliseconds, by unit that held."""
        for pool in self._pools:
            self._advance(pool, now)
        for trace in list(self._holding):
            self.release(trace, now)
        return self._blamed

    def _advance(self, pool: Pool, now: int) -> _PoolState:
        state = self._pools.get(pool)
        if state is None:
            state = self._pools[pool] = _PoolState(last=now)
        waited = state.waiting * max(0, now - state.last)
        state.last = max(now, state.last)
        if waited:
            self.total += waited
            if state.held:
                state.blame += (waited << _SCALE) // state.held
            else:
                self.unattributed += waited
        return state

    def _blame(self, trace: str, amount: int, blame: int) -> None:
        share = amount * blame >> _SCALE
        if share:
            self._blamed[trace] = self._blamed.get(trace, 0) + share


def pool_of(resource: Hashable, quota: str = "") -> Pool:
    return str(resource), quota
