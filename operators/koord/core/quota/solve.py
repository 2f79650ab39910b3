"""What every quota is entitled to now: a pure function of the tree, the capacity and the demand.

Each resource is a problem of its own, so one that did not change keeps its answer. For each:

1. *Requests*, bottom up (``request``): a quota asks for its own pods and its children; not less
   than its min if it does not lend; of its parent not more than its max.
2. *Guarantees*, bottom up, where use is guaranteed: at least what is used.
3. *Shares*, top down (``share``): the capacity is divided among the top quotas, and what each gets
   among its children, with guarantees scaled down (``scale``) where there is less than their sum.

Nothing is remembered from one solution to the next but answers to the same question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from koord.core.quota.capacity import add_up
from koord.core.quota.model import QuotaName, QuotaRules, Usage
from koord.core.quota.request import (
    Columns,
    Guarantees,
    Pick,
    Requests,
    add_up_guarantees,
    add_up_requests,
    collect,
    sum_up,
    update,
)
from koord.core.quota.scale import scale_min
from koord.core.quota.share import Level, share_level
from koord.core.quota.tree import KeyColumn, Layout, QuotaTree
from koord.core.units import Amounts


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a solution depends on. ``total`` is what the root of the tree shares out."""

    tree: QuotaTree
    total: Amounts
    usage: Mapping[QuotaName, Usage]
    rules: QuotaRules


class KeyQuestion(NamedTuple):
    """All that the answer for one resource depends on, by row."""

    layout: Layout
    column: KeyColumn
    lends: Sequence[bool]
    total: int | None
    demand: Sequence[int]
    used: Sequence[int] | None
    """None where use is not guaranteed, and so changes nothing."""
    rules: QuotaRules


class LevelQuestion(NamedTuple):
    """All that the answer for the children of one parent depends on, by child."""

    total: int | None
    """None where the tree does not have the resource: guarantees are not scaled then."""
    minimum: Sequence[int]
    guaranteed: Sequence[int] | None
    wants: Sequence[int]
    weights: Sequence[int]
    lends: Sequence[bool]
    own: int


@dataclass(frozen=True, slots=True)
class KeySolution:
    """The answer for one resource, by row. ``share`` is None where nothing is shared out.

    ``minimum`` is the guarantee after scaling, ``share`` the fair share (Koordinator: runtime).
    ``levels`` keeps what was asked of each level, and the answer.
    """

    question: KeyQuestion
    requests: Requests
    guarantees: Guarantees | None
    minimum: Sequence[int]
    share: Sequence[int | None]
    levels: Mapping[int, tuple[LevelQuestion, Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Solution:
    """The answer for all resources, and for whom it is."""

    snapshot: Snapshot
    demand: Columns
    used: Columns
    keys: Mapping[str, KeySolution]

    @cached_property
    def _row_of(self) -> Mapping[QuotaName, int]:
        return self.snapshot.tree.layout.row_of

    @cached_property
    def used_with_children(self) -> Columns:
        """What each quota uses with all below it, by row."""
        layout = self.snapshot.tree.layout
        return {key: sum_up(layout, own) for key, own in self.used.items()}

    @cached_property
    def fixed_used_with_children(self) -> Mapping[QuotaName, Amounts]:
        """The part of it that must not be evicted, of those that have any."""
        return self._sum_up(lambda usage: usage.fixed_used)

    @cached_property
    def fixed_demand_with_children(self) -> Mapping[QuotaName, Amounts]:
        """What each quota asks with all below it that must not be evicted; not capped by max."""
        return self._sum_up(lambda usage: usage.fixed_demand)

    def _sum_up(self, pick: Pick) -> Mapping[QuotaName, Amounts]:
        tree = self.snapshot.tree
        total: dict[QuotaName, dict[str, int]] = {}
        for name, usage in self.snapshot.usage.items():
            spec, own = tree.spec(name), pick(usage)
            if spec is None or not own:
                continue
            counted = {key: amount for key, amount in own.items() if key in spec.max}
            for above in tree.path(name):
                total[above] = add_up((total.get(above, {}), counted))
        return total

    def share(self, name: QuotaName) -> dict[str, int]:
        """Return the fair share of a quota, of the resources that its max names."""
        row = self._row_of[name]
        columns = self.snapshot.tree.columns
        shares = {
            key: solved.share[row] for key, solved in self.keys.items() if columns[key].named[row]
        }
        return {key: share for key, share in shares.items() if share is not None}

    def minimum(self, name: QuotaName) -> dict[str, int]:
        """Return the guarantee of a quota after scaling, of the resources that its min names."""
        row = self._row_of[name]
        spec = self.snapshot.tree.specs[row]
        return {key: self.keys[key].minimum[row] for key in (spec.min if spec else ())}

    def request(self, name: QuotaName) -> dict[str, int]:
        """Return the demand, with the guarantee where it is not lent; not capped by max."""
        return self._of(name, {key: one.requests.request for key, one in self.keys.items()})

    def child_request(self, name: QuotaName) -> dict[str, int]:
        """Return the bare demand."""
        return self._of(name, {key: one.requests.child_request for key, one in self.keys.items()})

    def limited(self, name: QuotaName) -> dict[str, int]:
        """Return what the quota asks of its parent: its request, capped by max."""
        return self._of(name, {key: one.requests.limited for key, one in self.keys.items()})

    def allocated(self, name: QuotaName) -> dict[str, int]:
        """Return what its own pods use and its children are guaranteed."""
        return self._of(name, {key: one.allocated for key, one in self._guarantees()})

    def guaranteed(self, name: QuotaName) -> dict[str, int]:
        """Return the larger of min and what is allocated."""
        return self._of(name, {key: one.guaranteed for key, one in self._guarantees()})

    def _guarantees(self) -> list[tuple[str, Guarantees]]:
        return [(key, one.guarantees) for key, one in self.keys.items() if one.guarantees]

    def _of(self, name: QuotaName, columns: Mapping[str, Sequence[int]]) -> dict[str, int]:
        row = self._row_of[name]
        return {key: column[row] for key, column in columns.items() if column[row]}


def solve(snapshot: Snapshot, before: Solution | None = None) -> Solution:
    """Return the shares of all quotas; what is the same as in ``before`` is taken over from it."""
    if before is not None and not _is_comparable(before.snapshot, snapshot):
        before = None
    demand = _collect(snapshot, _demand_of(snapshot.rules), before, "demand")
    used = _collect(snapshot, _used, before, "used")
    keys = {}
    for key in snapshot.tree.columns:
        question = _ask(snapshot, key, demand[key], used[key])
        known = before.keys.get(key) if before else None
        keys[key] = known if known and known.question == question else _answer(question, known)
    return Solution(snapshot, demand, used, keys)


def _ask(snapshot: Snapshot, key: str, demand: Sequence[int], used: Sequence[int]) -> KeyQuestion:
    tree, rules = snapshot.tree, snapshot.rules
    return KeyQuestion(
        tree.layout,
        tree.columns[key],
        [False] * len(tree.lends) if rules.guarantees_usage else tree.lends,
        snapshot.total.get(key),
        demand,
        used if rules.guarantees_usage else None,
        rules,
    )


def _answer(question: KeyQuestion, before: KeySolution | None) -> KeySolution:
    """Solve one resource, top down."""
    layout, column, rules = question.layout, question.column, question.rules
    requests = add_up_requests(layout, column, question.demand, question.lends)
    guarantees = None
    if question.used is not None:
        guarantees = add_up_guarantees(layout, column.minimum, question.used)
    minimum = list(column.minimum)
    share: list[int | None] = [None] * len(minimum)
    share[0] = question.total
    known = before.levels if before else {}
    levels = {}
    for parent, first, end in layout.levels:
        total = share[parent]
        if (parent and total is None) or (rules.shares_named_only and not column.named[parent]):
            continue
        level = LevelQuestion(
            total,
            column.minimum[first:end],
            guarantees.guaranteed[first:end] if guarantees else None,
            requests.limited[first:end],
            column.weight[first:end],
            question.lends[first:end],
            question.demand[parent] if rules.serves_own_pods_first else 0,
        )
        asked = known.get(parent)
        if asked is None or asked[0] != level:
            asked = (level, *_share_out(level, scales=rules.scales_min))
        levels[parent] = asked
        _, minimum[first:end], share[first:end] = asked
    return KeySolution(question, requests, guarantees, minimum, share, levels)


def _share_out(level: LevelQuestion, *, scales: bool) -> tuple[Sequence[int], Sequence[int]]:
    """Return the guarantees of the children after scaling, and their shares."""
    minimum = level.minimum
    if scales and level.total is not None:
        minimum = scale_min(level.total, minimum)
    floors = minimum
    if level.guaranteed is not None:
        floors = [*map(max, minimum, level.guaranteed)]
    claims = Level(floors, level.wants, level.weights, level.lends, level.own)
    return minimum, share_level(level.total or 0, claims)


def _is_comparable(before: Snapshot, now: Snapshot) -> bool:
    return before.rules == now.rules and before.tree.layout is now.tree.layout


def _collect(snapshot: Snapshot, pick: Pick, before: Solution | None, field: str) -> Columns:
    tree = snapshot.tree
    if before is None or before.snapshot.tree is not tree:
        return collect(tree, snapshot.usage, pick)
    columns: Columns = getattr(before, field)
    return update(tree, snapshot.usage, pick, columns, before.snapshot.usage)


def _demand_of(rules: QuotaRules) -> Pick:
    return _demand if rules.counts_whole_units_only else _submitted


def _demand(usage: Usage) -> Amounts:
    return usage.demand


def _submitted(usage: Usage) -> Amounts:
    return usage.submitted


def _used(usage: Usage) -> Amounts:
    return usage.used
