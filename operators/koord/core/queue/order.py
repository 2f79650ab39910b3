"""The order of turns: a tournament from the users of a queue up to the root of a quota tree.

Everywhere the best offer wins, one unit at a time, and only the winner's path changes, so that
each turn costs a few comparisons. There is no comparison of any two units: what users share means
nothing across quotas, and mixed into one it is not transitive.

Nothing here knows pods, nodes or a clock: amounts and times are integers.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeAlias

from koord.core.queue.settings import Across
from koord.core.queue.usage import Ledger, add

ROOT: Final = ""
"""The parent of quotas without one."""
_LAST: Final = 2**63
"""Stands for no place among the protected."""
_NO_LOAD: Final = (False, Fraction(0))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A unit that waits for its turn."""

    key: str
    queue: str
    """The leaf quota that its pods charge."""
    user: str
    priority: int
    since: float
    """When it became complete, in seconds; a preempted unit keeps it."""
    ask: Ledger
    head_since: int | None = None
    """Since when it is first among equal priority of its user; None: it is not."""
    protected: int | None = None
    """Its place among those whose reservation has refused others."""
    used_at_start: Mapping[str, Ledger] = field(default_factory=dict)
    """Quota -> use at the start that is reserved for it, of which its guarantee is judged."""
    is_repair: bool = False
    """Whether it completes a gang that has started."""
    is_late: bool = False
    """Whether it comes after others as important: those of its namespace took all the time."""


@dataclass(frozen=True, slots=True)
class QueueQuota:
    """What the order depends on of a quota.

    ``used`` may change from outside: before an offer only that of the last winner and above it.
    """

    name: str
    parent: str
    used: Ledger
    min: Ledger
    runtime: Ledger

    def is_over(self, used: Ledger, ask: Ledger) -> bool:
        """Whether it would use more than is guaranteed to it."""
        return any(
            used.get(key, 0) + amount > self.min.get(key, 0)
            for key, amount in ask.items()
            if amount and (key in self.min or key in self.runtime)
        )


@dataclass(frozen=True, slots=True)
class Aging:
    """How turns age: a tier for each step, up to a number of them."""

    step: int
    tiers: int

    def tier_of(self, unit: Waiting, now: int) -> int:
        """Return the tier; only the first of a line ages, not all that its user submits."""
        return 0 if unit.head_since is None else self.tier_at(unit.head_since, now)

    def tier_at(self, since: int, now: int) -> int:
        """Return the tier of a first unit."""
        return max(0, min(self.tiers, (now - since) // self.step))

    def next_step(self, since: int, now: int) -> int | None:
        """Return when its tier is higher; None for never."""
        tier = self.tier_at(since, now)
        return since + (tier + 1) * self.step if tier < self.tiers else None


class Shares(Protocol):
    """What users of a queue have used, if it matters there."""

    def of(self, queue: str, user: str) -> Fraction:
        """Return the share of a user; equal for all where it does not matter."""

    def note_start(self, unit: Waiting) -> None:
        """Count a unit as started."""


Rank: TypeAlias = tuple[Any, ...]
"""What is smaller comes first."""


class Contest(Protocol):
    """Somebody who has units to offer: a user of a queue, a queue, or a quota with children."""

    def offer(self) -> Waiting | None:
        """Return the unit whose turn it would be; None when all had theirs."""

    def take(self) -> Waiting:
        """Remove and return it."""


Lines: TypeAlias = Mapping[str, Mapping[str, Contest]]
"""Queue -> user -> the units that wait."""


@dataclass(slots=True)
class _Line:
    """The units of one user of a queue, in their order."""

    units: list[Waiting]
    """Last first."""

    def offer(self) -> Waiting | None:
        return self.units[-1] if self.units else None

    def take(self) -> Waiting:
        return self.units.pop()


class _Round:
    """Several who offer; keys change only for who has won, so each is in the heap once."""

    def __init__(
        self, members: Mapping[str, Contest], key_of: Callable[[str, Waiting], Rank]
    ) -> None:
        self._members, self._key_of = members, key_of
        offers = [
            (name, unit) for name, member in members.items() if (unit := member.offer()) is not None
        ]
        # Who is alone wins, whatever its key.
        is_alone = len(offers) == 1
        self._heap = [(() if is_alone else key_of(name, unit), name) for name, unit in offers]
        heapify(self._heap)

    def offer(self) -> Waiting | None:
        return self._members[self._heap[0][1]].offer() if self._heap else None

    def take(self) -> Waiting:
        """Remove whose turn it is, and place who has won anew: what it takes counts by now."""
        _, name = heappop(self._heap)
        member = self._members[name]
        taken, following = member.take(), member.offer()
        if following is not None:
            key = self._key_of(name, following) if self._heap else ()
            heappush(self._heap, (key, name))
        return taken


@dataclass(frozen=True, slots=True)
class OrderTerms:
    """What orders turns beside the units themselves."""

    now: int
    aging: Callable[[str], Aging]
    """By queue."""
    shares: Shares
    across: Callable[[str], Across] = lambda _: Across.GUARANTEE
    """How those take turns that have the same parent."""
    never_fits: Callable[[Waiting], bool] = lambda _: False
    """Whether a unit does not even fit when nothing else runs."""

    def rank(self, unit: Waiting) -> Rank:
        """Return where a unit stands in its queue."""
        return rank_in_queue(
            self.standing(unit),
            self.shares.of(unit.queue, unit.user),
            unit.since,
            unit.key,
            is_repair=unit.is_repair,
        )

    def standing(self, unit: Waiting) -> Rank:
        """Return what counts of a unit in its queue and among others alike."""
        tier = self.aging(unit.queue).tier_of(unit, self.now)
        return standing_of(unit.priority, unit.protected, tier, is_late=unit.is_late)


def rank_in_queue(
    standing: Rank, share: Fraction, since: float, key: str, *, is_repair: bool
) -> Rank:
    return (not is_repair, *standing, share, since, key)


def standing_of(priority: int, protected: int | None, tier: int, *, is_late: bool) -> Rank:
    return (-priority, is_late, _LAST if protected is None else protected, -tier)


class Tournament:
    """The turns of all that wait below one root."""

    def __init__(self, quotas: Iterable[QueueQuota], lines: Lines, terms: OrderTerms) -> None:
        self._quotas = {quota.name: quota for quota in quotas}
        self._used = {name: quota.used for name, quota in self._quotas.items()}
        self._terms = terms
        self._children: dict[str, list[str]] = defaultdict(list)
        for quota in self._quotas.values():
            self._children[quota.parent].append(quota.name)
        self._root = self._make_round(ROOT, lines)

    def offer(self) -> Waiting | None:
        """Return the unit whose turn it is; None when all had theirs."""
        return self._root.offer()

    def take(self, *, starts: bool) -> Waiting:
        """Remove it; if it ``starts``, what it asks for counts before the next turn."""
        unit = self._root.offer()
        if unit is None:
            raise LookupError("all had their turns")
        if starts:
            self._start(unit)
        return self._root.take()

    def turns(self, *, starts: bool) -> Iterator[Waiting]:
        """Yield all units in the order of their turns, as if each or none of them started."""
        while self.offer() is not None:
            yield self.take(starts=starts)

    def _make_round(self, name: str, lines: Lines) -> _Round:
        children = {child: self._make_round(child, lines) for child in self._children[name]}
        if name in lines:
            own = _Round(lines[name], lambda _, unit: self._terms.rank(unit))
            if not children:
                return own
            children[name] = own  # units of a quota that has others below
        return _Round(children, partial(self._rank_of_child, self._terms.across(name)))

    def _start(self, unit: Waiting) -> None:
        self._terms.shares.note_start(unit)
        for quota in self._path(unit.queue):
            self._used[quota] = add(self._used[quota], unit.ask)

    def _path(self, queue: str) -> Iterator[str]:
        while queue in self._quotas:
            yield queue
            queue = self._quotas[queue].parent

    def _rank_of_child(self, across: Across, name: str, unit: Waiting) -> Rank:
        """Where a quota stands among its siblings by the unit that it offers.

        Who never fits has its turn at once: that delays nobody, and hides nobody behind it.
        """
        if self._terms.never_fits(unit):
            return (False, -math.inf)
        standing = self._terms.standing(unit)
        if across is Across.TIME:
            return (not unit.is_repair, *standing, unit.since, unit.key)
        by_priority = (-unit.priority,) if across is Across.PRIORITY else ()
        over, load = self.is_over(name, unit), self._load(name)
        return (not unit.is_repair, *by_priority, over, *standing, load, unit.since, name)

    def is_over(self, name: str, unit: Waiting) -> bool:
        """Whether a quota would use more than is guaranteed to it."""
        used = unit.used_at_start.get(name, self._used[name])
        return self._quotas[name].is_over(used, unit.ask)

    def _load(self, name: str) -> tuple[bool, Fraction]:
        """Return the largest part that is used of what the quota may use; infinite: True."""
        runtime = self._quotas[name].runtime
        loads = [
            (limit <= 0, Fraction(0 if limit <= 0 else used, max(limit, 1)))
            for key, used in self._used[name].items()
            if used > 0 and (limit := runtime.get(key)) is not None
        ]
        return max(loads, default=_NO_LOAD)


def lines_of(units: Iterable[Waiting], terms: OrderTerms) -> Lines:
    """Return units, which are all known as values, by queue and user."""
    lines: dict[str, dict[str, list[Waiting]]] = defaultdict(lambda: defaultdict(list))
    for unit in units:
        lines[unit.queue][unit.user].append(unit)
    return {
        queue: {
            user: _Line(sorted(units, key=terms.rank, reverse=True))
            for user, units in users.items()
        }
        for queue, users in lines.items()
    }


def make_tournament(
    quotas: Iterable[QueueQuota], units: Iterable[Waiting], terms: OrderTerms
) -> Tournament:
    """Return the turns of units that are all known as values, in any order."""
    return Tournament(quotas, lines_of(units, terms), terms)


class Heads:
    """Since when units are first among equal priority of their user: only those age.

    Not since they wait: who submits a thousand jobs must not age a thousand of them.
    """

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str, int], tuple[str, int]] = {}

    def note(self, units: Iterable[Waiting], now: int) -> dict[str, int]:
        """Return first unit -> since when."""
        first: dict[tuple[str, str, int], Waiting] = {}
        for unit in units:
            line = (unit.queue, unit.user, unit.priority)
            if line not in first or (unit.since, unit.key) < (first[line].since, first[line].key):
                first[line] = unit
        self._heads = {
            line: (unit.key, self._since(line, unit.key, now)) for line, unit in first.items()
        }
        return dict(self._heads.values())

    def _since(self, line: tuple[str, str, int], key: str, now: int) -> int:
        before, since = self._heads.get(line, ("", now))
        return since if before == key else now
