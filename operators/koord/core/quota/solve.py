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
from operator import ne
from typing import Final, NamedTuple, cast

from koord.core.quota.bulkshare import Frame, make_frame, share_frames
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

MOST_CHANGED: Final = 16
"""Demands that are new, above which everything is shared out anew."""
FEWEST_ROWS: Final = 64
"""Quotas below which arrays cost more than they save."""


@dataclass(frozen=True, slots=True)
class ShareInput:
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


class LevelAnswer(NamedTuple):
    """The children of one parent: what was asked, guarantees after scaling, and shares."""

    asked: LevelQuestion
    minimum: Sequence[int]
    share: Sequence[int]


@dataclass(frozen=True, slots=True)
class KeySolution:
    """The answer for one resource, by row. ``share`` is None where nothing is shared out.

    ``minimum`` is the guarantee after scaling, ``share`` the fair share (Koordinator: runtime).
    ``frame`` is the question as arrays, where it was answered in arrays.
    """

    question: KeyQuestion
    requests: Requests
    guarantees: Guarantees | None
    minimum: Sequence[int]
    share: Sequence[int | None]
    frame: Frame | None = None

    def level(self, parent: int) -> LevelAnswer | None:
        """Return what was asked for the children of a row, and the answer; None without any."""
        found = self.question.layout.children_of.get(parent)
        if found is None or not _is_shared(self.question, parent, self.share[parent]):
            return None
        first, end = found
        asked = _ask_level(self, (parent, first, end))
        shares = [share or 0 for share in self.share[first:end]]
        return LevelAnswer(asked, self.minimum[first:end], shares)


@dataclass(frozen=True)
class Solution:
    """The answer for all resources, and for whom it is."""

    snapshot: ShareInput
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


def solve(snapshot: ShareInput, before: Solution | None = None) -> Solution:
    """Return the shares of all quotas; what is the same as in ``before`` is taken over from it."""
    if before is not None and not _is_comparable(before.snapshot, snapshot):
        before = None
    demand = _collect(snapshot, _demand_of(snapshot.rules), before, "demand")
    used = _collect(snapshot, _used, before, "used")
    keys: dict[str, KeySolution] = {}
    others: dict[str, KeySolution] = {}
    """Those of which so much has changed that all of it is answered anew."""
    for key in snapshot.tree.columns:
        question = _ask(snapshot, key, demand[key], used[key])
        known = before.keys.get(key) if before else None
        if known is not None and known.question == question:
            keys[key] = known
            continue
        keys[key] = draft = _draft(question, known)
        if known is None or _changes_most(known.question, question):
            others[key] = draft
        else:
            _share_by_level(draft, known)
    _share_in_arrays(snapshot, others)
    return Solution(snapshot, demand, used, keys)


def _ask(snapshot: ShareInput, key: str, demand: Sequence[int], used: Sequence[int]) -> KeyQuestion:
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


def _draft(question: KeyQuestion, before: KeySolution | None) -> KeySolution:
    """Return what is asked, with nothing shared out yet."""
    layout, column = question.layout, question.column
    requests = _known_requests(question, before)
    if requests is None:
        requests = add_up_requests(layout, column, question.demand, question.lends)
    guarantees = None
    if question.used is not None:
        guarantees = add_up_guarantees(layout, column.minimum, question.used)
    share: list[int | None] = [None] * len(column.minimum)
    share[0] = question.total
    frame = before.frame if before and before.requests is requests and guarantees is None else None
    return KeySolution(question, requests, guarantees, list(column.minimum), share, frame)


def _known_requests(question: KeyQuestion, before: KeySolution | None) -> Requests | None:
    """Return the requests of before, if nothing that they depend on is another object now."""
    if before is None:
        return None
    was = before.question
    is_same = (
        was.column is question.column
        and was.demand is question.demand
        and was.lends is question.lends
    )
    return before.requests if is_same else None


def _changes_most(before: KeyQuestion, now: KeyQuestion) -> bool:
    """Whether so much is new that little can be taken over."""
    if before.total != now.total:
        return True
    if before.demand is now.demand:
        return False
    changed = [*map(ne, before.demand, now.demand)].count(True)
    return changed > MOST_CHANGED


def _share_by_level(draft: KeySolution, before: KeySolution | None) -> None:
    """Share out one resource, top down; take over what is as it was."""
    minimum, share = _columns_of(draft)
    for level in draft.question.layout.levels:
        parent, first, end = level
        if not _is_shared(draft.question, parent, share[parent]):
            continue
        if before is not None and _is_as_before(draft, before, level):
            minimum[first:end] = before.minimum[first:end]
            share[first:end] = before.share[first:end]
        else:
            asked = _ask_level(draft, level)
            minimum[first:end], share[first:end] = _share_out(asked, draft.question.rules)


def _is_as_before(draft: KeySolution, before: KeySolution, level: tuple[int, int, int]) -> bool:
    """Whether nothing is new that the answer for one level depends on."""
    parent, first, end = level
    now, was = draft.question, before.question
    is_same = (
        draft.share[parent] == before.share[parent]
        and now.demand[parent] == was.demand[parent]
        and draft.requests.limited[first:end] == before.requests.limited[first:end]
        and (now.lends is was.lends or now.lends[first:end] == was.lends[first:end])
    )
    if is_same and now.column is not was.column:
        one, other = now.column, was.column
        is_same = (
            one.minimum[first:end] == other.minimum[first:end]
            and one.weight[first:end] == other.weight[first:end]
            and one.named[parent] == other.named[parent]
        )
    if is_same and draft.guarantees is not None and before.guarantees is not None:
        floors, known = draft.guarantees.guaranteed, before.guarantees.guaranteed
        is_same = floors[first:end] == known[first:end]
    return is_same


def _share_in_arrays(snapshot: ShareInput, drafts: Mapping[str, KeySolution]) -> None:
    """Share out several resources at once, in arrays where they are large and that is exact."""
    rules, layout = snapshot.rules, snapshot.tree.layout
    frames: dict[str, Frame] = {}
    if len(layout.names) >= FEWEST_ROWS and not rules.shares_named_only:
        frames = {key: _frame_of(draft) for key, draft in drafts.items()}
        frames = {
            key: one for key, one in frames.items() if one.is_exact(drafts[key].question.total)
        }
    if frames:
        totals = [drafts[key].question.total or 0 for key in frames]
        answer = share_frames(layout, list(frames.values()), totals, scales=rules.scales_min)
        for (key, frame), minimum, share in zip(frames.items(), *answer, strict=True):
            least, shares = _columns_of(drafts[key])
            least[:], shares[1:] = minimum, share[1:]
            object.__setattr__(drafts[key], "frame", frame)
    for key in drafts.keys() - frames.keys():
        _share_by_level(drafts[key], None)


def _frame_of(draft: KeySolution) -> Frame:
    if draft.frame is not None:
        return draft.frame
    question, guarantees = draft.question, draft.guarantees
    return make_frame(
        question.layout,
        minimum=question.column.minimum,
        guaranteed=guarantees.guaranteed if guarantees else None,
        wants=draft.requests.limited,
        weights=question.column.weight,
        lends=question.lends,
        own=question.demand if question.rules.serves_own_pods_first else None,
    )


def _columns_of(draft: KeySolution) -> tuple[list[int], list[int | None]]:
    """Return the columns of an answer that is being made."""
    return cast("list[int]", draft.minimum), cast("list[int | None]", draft.share)


def _is_shared(question: KeyQuestion, parent: int, total: int | None) -> bool:
    """Whether anything is shared out below a row: not of what the parent does not get."""
    if parent and total is None:
        return False
    return not question.rules.shares_named_only or question.column.named[parent]


def _ask_level(answer: KeySolution, level: tuple[int, int, int]) -> LevelQuestion:
    parent, first, end = level
    question, guarantees = answer.question, answer.guarantees
    return LevelQuestion(
        answer.share[parent],
        question.column.minimum[first:end],
        guarantees.guaranteed[first:end] if guarantees else None,
        answer.requests.limited[first:end],
        question.column.weight[first:end],
        question.lends[first:end],
        question.demand[parent] if question.rules.serves_own_pods_first else 0,
    )


def _share_out(level: LevelQuestion, rules: QuotaRules) -> tuple[Sequence[int], Sequence[int]]:
    """Return the guarantees of the children after scaling, and their shares."""
    minimum = level.minimum
    if rules.scales_min and level.total is not None:
        minimum = scale_min(level.total, minimum)
    floors = minimum
    if level.guaranteed is not None:
        floors = [*map(max, minimum, level.guaranteed)]
    claims = Level(floors, level.wants, level.weights, level.lends, level.own)
    return minimum, share_level(level.total or 0, claims)


def _is_comparable(before: ShareInput, now: ShareInput) -> bool:
    return before.rules == now.rules and before.tree.layout is now.tree.layout


def _collect(snapshot: ShareInput, pick: Pick, before: Solution | None, field: str) -> Columns:
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
