"""What a search for victims asks: guarantees of quotas, bounds by amounts, trials on the planner.

What quotas are guaranteed is not preempted by units of other quotas. A unit of another quota is a
victim only as far as its quota, and every quota above that is not above the preemptor too, keeps
its guarantee. Extended resources decide where the preemptor requests them: a little CPU that is
guaranteed keeps no GPUs that are not. Within one quota priority alone decides. With Koordinator's
rules guarantees do not count, and pods of the default quota are spared.

Bounds say how many pods of the waiting unit fit at most without some running units. Only amounts
and rules about nodes are counted, so a bound may be too high, never too low: what it excludes need
not be tried. A trial says whether the unit fits without some running units. It changes nothing: the
cycle is rolled back. Trials are remembered, and counted in steps.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from koord.core.engine.arrays import Ints, Mask
from koord.core.engine.cycle import Cycle
from koord.core.engine.planner import plan
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import Cost, Costs, Price, VictimUnit
from koord.core.eviction.reasons import GuaranteeKept
from koord.core.model.plan import Demand, Placement, Unit
from koord.core.model.pods import Pod, PodShape
from koord.core.model.reasons import Reason
from koord.core.model.units import is_extended
from koord.core.quota.ledger import Ledger, mask
from koord.core.quota.model import DEFAULT, QuotaName
from koord.core.quota.usage import count_devices

Key: TypeAlias = tuple[QuotaName, str]
"""A quota and a resource."""
Charges: TypeAlias = Mapping[Key, int]
_NOTHING: Charges = {}
MOST_NAMED: Final = 3
"""Quotas that are named which keep what they are guaranteed."""


class Guarantees:
    """How much each quota may lose."""

    def __init__(self, state: ClusterState, unit: Unit, *, is_reclaim: bool = False) -> None:
        self._state = state
        self.is_on = is_reclaim or (state.quotas.is_in_use and not state.gangs.compat)
        is_compatible = state.quotas.is_in_use and state.gangs.compat
        self._spares_default = is_compatible and state.quotas.rules.spares_default_quota
        self._ledger: Ledger | None = state.open_ledger() if self.is_on else None
        self._own = {
            name for pod in unit.pods for name in self._path_of(state.quotas.quota_of(pod))
        }
        self._scarce = frozenset() if is_reclaim else _scarce_requests(state, unit)
        self._spare: dict[Key, int] = {}
        self._charges: dict[str, Charges] = {}

    def allows(self, units: Iterable[VictimUnit]) -> bool:
        """Whether all of these units may go together."""
        if not self.is_on:
            return not self._spares_default or not any(map(self._is_default, units))
        lost: Counter[Key] = Counter()
        for unit in units:
            lost.update(self.charges_of(unit))
        return self.covers(lost)

    def covers(self, lost: Charges) -> bool:
        """Whether quotas may lose as much."""
        return all(amount <= self._spare_of(key) for key, amount in lost.items())

    def explain(self, units: Iterable[VictimUnit]) -> tuple[GuaranteeKept, ...]:
        """Return which quotas keep units that may not go even alone, those of most pods first."""
        kept: dict[Key, list[VictimUnit]] = {}
        for unit in units:
            charges = sorted(self.charges_of(unit).items())
            exceeded = (key for key, amount in charges if amount > self._spare_of(key))
            if (key := next(exceeded, None)) is not None:
                kept.setdefault(key, []).append(unit)
        guarantees = [self._make_kept(key, kept_units) for key, kept_units in sorted(kept.items())]
        return tuple(sorted(guarantees, key=lambda guarantee: -guarantee.pods)[:MOST_NAMED])

    def _make_kept(self, key: Key, units: Sequence[VictimUnit]) -> GuaranteeKept:
        (quota, resource), ledger = key, self._ledger
        used = 0 if ledger is None else ledger.account(quota).used.get(resource, 0)
        return GuaranteeKept(
            quota=quota,
            resource=resource,
            used=used,
            guaranteed=used - self._spare_of(key),
            least=min(self.charges_of(unit)[key] for unit in units),
            pods=len({pod.uid for unit in units for pod in unit.pods}),
        )

    def shares_quota(self, unit: VictimUnit) -> bool:
        """Whether evicting a unit relieves a quota of the preemptor."""
        return self.is_on and any(
            name in self._own
            for pod in unit.pods
            for name in self._path_of(self._state.quotas.quota_of(pod))
        )

    def charges_of(self, unit: VictimUnit) -> Charges:
        """Return what a unit uses of each quota that is not the preemptor's, by resource."""
        if self._ledger is None:
            return _NOTHING
        charges = self._charges.get(unit.key)
        if charges is None:
            charges = self._charges[unit.key] = self._add_up(unit, self._ledger)
        return charges

    def _add_up(self, unit: VictimUnit, ledger: Ledger) -> Charges:
        charges: Counter[Key] = Counter()
        quotas = self._state.quotas
        for pod in unit.pods:
            path = [name for name in self._path_of(quotas.quota_of(pod)) if name not in self._own]
            if not path:
                continue
            requests = count_devices(dict(quotas.requests_of(pod)), quotas.rules)
            for key, amount in mask(requests, ledger.account(path[0])).items():
                charges.update({(name, key): amount for name in path})
        charged = {key: amount for key, amount in charges.items() if amount > 0}
        return {key: n for key, n in charged.items() if key[1] in self._scarce} or charged

    def _is_default(self, unit: VictimUnit) -> bool:
        return any(self._state.quotas.quota_of(pod) == DEFAULT for pod in unit.pods)

    def _spare_of(self, key: Key) -> int:
        spare = self._spare.get(key)
        if spare is None and self._ledger is not None:
            name, resource = key
            used = self._ledger.account(name).used.get(resource, 0)
            solution = self._ledger.solution(name)
            kept = (solution.minimum(name), solution.guaranteed(name))
            least = max(amounts.get(resource, 0) for amounts in kept)
            # Without a guarantee everything may go, also what is not counted yet.
            spare = self._spare[key] = used - least if least else 1 << 62
        return spare or 0

    def _path_of(self, name: QuotaName) -> tuple[QuotaName, ...]:
        account = self._ledger.find(name) if self._ledger is not None else None
        return () if account is None else account.path


def _scarce_requests(state: ClusterState, unit: Unit) -> frozenset[str]:
    """Return the extended resources that a unit requests, by all names that quotas count."""
    requests = (dict(state.quotas.requests_of(pod)) for pod in unit.pods)
    counted = (count_devices(request, state.quotas.rules) for request in requests)
    return frozenset(
        key for amounts in counted for key, n in amounts.items() if n and is_extended(key)
    )


Load: TypeAlias = tuple[int, tuple[int, ...]]
"""A row, and what a pod uses of it of each column of ``Room``."""


@dataclass(frozen=True, slots=True)
class Want:
    """``count`` pods such as ``like`` request ``amounts`` of some columns.

    ``columns`` are positions in the columns of ``Room``; none if room may be held for such pods,
    which amounts do not tell. ``limits`` is how many of them the rules about nodes allow per row.
    ``is_plain``: nothing else than these amounts decides on a row.
    """

    count: int
    like: Pod
    shape: PodShape
    columns: tuple[int, ...]
    amounts: tuple[int, ...]
    limits: Ints
    is_plain: bool


class Room:
    """What is free on every row, and what each unit uses there of what the unit wants."""

    def __init__(self, cycle: Cycle, unit: Unit, units: Sequence[VictimUnit]) -> None:
        counts = _count_shapes(cycle, unit)
        vectors = {shape: cycle.vector(shape) for shape in counts}
        columns: Final = sorted(
            {column for vector in vectors.values() for column in vector.columns}
        )
        at = {column: position for position, column in enumerate(columns)}
        self.wants = [
            _make_want(cycle, shape, count, like, at) for shape, (count, like) in counts.items()
        ]
        self.bounds = [*self.wants, *_find_least(self.wants)]
        """What has to fit whatever the shapes: each shape alone, and all pods as the least."""
        self._least: Ints = np.zeros((len(self.bounds), len(columns)), dtype=np.int64)
        for amounts, want in zip(self._least, self.bounds, strict=True):
            amounts[list(want.columns)] = want.amounts
        self.free: Ints = (cycle.table.allocatable - cycle.used)[columns]
        amounts_of: dict[PodShape, tuple[int, ...]] = {}
        self._take([tuple(_loads_of(cycle, unit.pods, at, amounts_of)) for unit in units])

    def only(self, units: Sequence[int]) -> "Room":
        """Return the room with some units alone, in this order."""
        if len(units) == len(self.loads):
            return self
        narrowed = copy(self)
        narrowed._take([self.loads[at] for at in units])  # noqa: SLF001 - of the same class
        return narrowed

    def _take(self, loads: Sequence[tuple[Load, ...]]) -> None:
        self.loads = loads
        flat = [(n, row, amounts) for n, load in enumerate(loads) for row, amounts in load]
        columns, rows = self.free.shape
        pairs = np.array([n * rows + row for n, row, _ in flat], dtype=np.int64)
        each, at = np.unique(pairs, return_inverse=True)
        self._unit_of, self._row_of = np.divmod(each, rows)
        amounts = np.array([load_amounts for _, _, load_amounts in flat], dtype=np.int64)
        self._amounts: Ints = np.zeros((columns, len(each)), dtype=np.int64)
        for column, of_pods in enumerate(amounts.reshape(len(flat), columns).T):
            np.add.at(self._amounts[column], at, of_pods)

    def nothing(self) -> Ints:
        """Return the amounts that are freed if nobody goes."""
        return np.zeros_like(self.free)

    def freed(self, chosen: Sequence[int] | Mask) -> Ints:
        """Return the amounts that some units free, by column and row."""
        mask = np.zeros(len(self.loads), dtype=bool)
        mask[chosen] = True
        entries = mask[self._unit_of]
        freed = self.nothing()
        rows = self._row_of[entries]
        for column, amounts in enumerate(self._amounts):
            np.add.at(freed[column], rows, amounts[entries])
        return freed

    def gains(
        self, want: Want, freed: Ints, units: Sequence[int], rows: Mask | None = None
    ) -> Ints:
        """Return how many more such pods may fit without each of some units, by itself.

        For all of them at once, and on their own rows only: thousands of gangs may be victims.
        """
        position = np.full(len(self.loads), -1, dtype=np.int64)
        position[units] = np.arange(len(units))
        entries = position[self._unit_of] >= 0
        if rows is not None:
            entries &= rows[self._row_of]
        on_rows = self._row_of[entries]
        after = want.limits[on_rows]
        for column, amount in zip(want.columns, want.amounts, strict=True):
            free = (self.free[column] + freed[column])[on_rows]
            after = np.minimum(after, (free + self._amounts[column][entries]) // amount)
        gains = np.zeros(len(units), dtype=np.int64)
        more = np.maximum(after, 0) - self.copies(want, freed)[on_rows]
        np.add.at(gains, position[self._unit_of[entries]], more)
        return gains

    def copies(self, want: Want, freed: Ints) -> Ints:
        """Return at most how many such pods fit on every row."""
        copies = want.limits
        for column, amount in zip(want.columns, want.amounts, strict=True):
            copies = np.minimum(copies, (self.free[column] + freed[column]) // amount)
        return np.maximum(copies, 0)

    def copies_at(self, want: Want, row: int, free: Sequence[int]) -> int:
        """Return :meth:`copies` on one row with so much free of every column."""
        copies = int(want.limits[row])
        for column, amount in zip(want.columns, want.amounts, strict=True):
            copies = min(copies, free[column] // amount)
        return max(copies, 0)

    def bounds_at(self, row: int, free: Ints) -> Ints:
        """Return :meth:`copies_at` of all bounds at once."""
        limits = np.array([want.limits[row] for want in self.bounds], dtype=np.int64)
        for amounts, amount in zip(self._least.T, free.tolist(), strict=True):
            asks = amounts > 0
            limits[asks] = np.minimum(limits[asks], amount // amounts[asks])
        return np.maximum(limits, 0)

    def is_enough(self, freed: Ints, rows: Mask | None = None) -> bool:
        """Whether the unit may fit, on some rows only, if these amounts were freed."""
        return all(self.sum(want, freed, rows) >= want.count for want in self.bounds)

    def sum(self, want: Want, freed: Ints, rows: Mask | None = None) -> int:
        """Return at most how many such pods fit on some rows together."""
        copies = self.copies(want, freed)
        return int((copies if rows is None else copies[rows]).sum())

    def useful_rows(self, freed: Ints) -> Mask:
        """Return the rows that may take more pods of the unit if these amounts were freed."""
        useful = np.zeros(self.free.shape[1], dtype=bool)
        nothing = self.nothing()
        for want in self.wants:
            least = self.copies(want, nothing) if want.is_plain else 0
            useful |= self.copies(want, freed) > least
        return useful


def _make_want(cycle: Cycle, shape: PodShape, count: int, like: Pod, at: dict[int, int]) -> Want:
    vector, limits = cycle.vector(shape), cycle.node_limits(shape)
    if cycle.may_use_held_room(shape):
        return Want(count, like, shape, (), (), limits, is_plain=False)
    is_plain = cycle.is_plain(shape) and not cycle.needs_reserve(shape)
    columns = tuple(at[column] for column in vector.columns)
    return Want(count, like, shape, columns, tuple(vector.amounts), limits, is_plain=is_plain)


def _find_least(wants: Sequence[Want]) -> list[Want]:
    """Return all pods as if each requested what the least of them does, of every column."""
    if len(wants) < 2 or len({want.columns for want in wants}) > 1:
        return []
    amounts = tuple(map(min, zip(*(want.amounts for want in wants), strict=True)))
    count = sum(want.count for want in wants)
    limits = np.sum([np.minimum(want.limits, want.count) for want in wants], axis=0)
    return [replace(wants[0], count=count, amounts=amounts, limits=limits, is_plain=False)]


def _count_shapes(cycle: Cycle, unit: Unit) -> dict[PodShape, tuple[int, Pod]]:
    """Count, by shape, the pods that have to be placed for the unit to start.

    Of gangs with surplus and several shapes it is unknown which; they count as none.
    """
    cycle.expect(unit.pods)
    counts: Counter[PodShape] = Counter()
    likes: dict[PodShape, Pod] = {}
    for demand in unit.demands:
        fresh = [pod for pod in demand.pods if pod.recorded is None]
        shapes = [cycle.shape_of(pod) for pod in fresh]
        for pod, shape in zip(fresh, shapes, strict=True):
            likes.setdefault(shape, pod)
        if len(demand.pods) == demand.required:
            counts.update(shapes)
        elif len(set(shapes)) == 1:
            counts[shapes[0]] += _count_required(demand, len(fresh))
    return {shape: (counts[shape], like) for shape, like in likes.items()}


def _count_required(demand: Demand, fresh: int) -> int:
    return max(0, demand.required - (len(demand.pods) - fresh))


def _loads_of(
    cycle: Cycle,
    pods: Sequence[Pod],
    at: dict[int, int],
    amounts_of: dict[PodShape, tuple[int, ...]],
) -> Iterator[Load]:
    for pod in pods:
        place = cycle.place_of(pod)
        if place is None:
            continue
        amounts = amounts_of.get(pod.shape)
        if amounts is None:
            vector = cycle.vector(pod.shape)
            used = dict(zip(vector.columns, vector.amounts, strict=True))
            amounts = amounts_of[pod.shape] = tuple(used.get(column, 0) for column in at)
        yield place.row, amounts


TRIAL_STEPS: Final = 200
"""Array operations that take as long as a trial on a small cluster."""
REMOVAL_STEPS: Final = 10
"""The same, for taking one pod off its node and putting it back."""


def pods_of(victims: Iterable[VictimUnit]) -> dict[str, Pod]:
    """Return all pods of some units by uid."""
    return {pod.uid: pod for victim in victims for pod in victim.pods}


class Trials:
    """Plans one unit on one cycle, again and again."""

    def __init__(self, cycle: Cycle, unit: Unit, scoring: Scoring, most_steps: int) -> None:
        self.cycle = cycle
        self.unit = unit
        self._scoring = scoring
        self._most = cycle.steps.taken + most_steps
        self._outcomes: dict[frozenset[str], Placement | Reason] = {}

    @property
    def is_over(self) -> bool:
        """Whether the steps are used up."""
        return self.cycle.steps.taken > self._most

    def remove_for_good(self, pods: Iterable[Pod]) -> None:
        """Take pods out of all later trials."""
        self.cycle.remove(pods)
        self._outcomes.clear()

    def fits(self, victims: Collection[VictimUnit]) -> bool:
        """Whether the unit fits without these units."""
        return isinstance(self.plan(victims), Placement)

    def fits_without(self, pods: Collection[Pod]) -> bool:
        """Whether the unit fits without these pods."""
        mark = self.cycle.checkpoint()
        self.cycle.steps.take(0, TRIAL_STEPS + REMOVAL_STEPS * len(pods))
        self.cycle.remove(pods)
        outcome = plan(self.cycle, (self.unit,), self._scoring)
        self.cycle.rollback(mark)
        return bool(outcome.placements)

    def plan(self, victims: Collection[VictimUnit]) -> Placement | Reason:
        """Return where the pods go without these units, or why they do not fit."""
        key = frozenset(victim.key for victim in victims)
        outcome = self._outcomes.get(key)
        if outcome is None:
            mark = self.cycle.checkpoint()
            outcome = self._outcomes[key] = self.place(victims)
            self.cycle.rollback(mark)
        return outcome

    def place(self, victims: Collection[VictimUnit]) -> Placement | Reason:
        """Remove units and place the unit in their stead; the caller rolls back."""
        pods = pods_of(victims)
        self.cycle.steps.take(0, TRIAL_STEPS + REMOVAL_STEPS * len(pods))
        self.cycle.remove(pods.values())
        outcome = plan(self.cycle, (self.unit,), self._scoring)
        return outcome.placements[0] if outcome.placements else outcome.refusals[0].reason


@dataclass(frozen=True, slots=True)
class VictimSet:
    """Units without which the waiting unit fits, where its pods go then, and the cost."""

    victims: tuple[VictimUnit, ...]
    placement: Placement
    cost: Cost
    is_minimal: bool = False


@dataclass(frozen=True, slots=True)
class VictimSearch:
    """Running ``units``, the cheapest first, and what decides about them.

    ``room`` numbers units by their positions in ``units``.
    """

    units: Sequence[VictimUnit]
    trials: Trials
    room: Room
    costs: Costs
    guarantees: Guarantees
    prices: Sequence[Price] = field(init=False)
    """What each unit costs by itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prices", [self.costs.price_of(unit) for unit in self.units])

    def is_legal(self, victims: Collection[VictimUnit]) -> bool:
        """Whether the units may go together: guarantees are kept, and no unit is there twice."""
        whole = {victim.group for victim in victims if victim.gangs}
        is_twice = whole and any(victim.group in whole and not victim.gangs for victim in victims)
        return not is_twice and self.guarantees.allows(victims)

    def solve_with(self, victims: Sequence[VictimUnit]) -> VictimSet | None:
        """Return the solution with these victims; None if it is none."""
        if not self.is_legal(victims):
            return None
        placement = self.trials.plan(victims)
        if not isinstance(placement, Placement):
            return None
        return VictimSet(tuple(victims), placement, self.costs.of(victims))
