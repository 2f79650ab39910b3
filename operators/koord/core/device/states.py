"""Ledgers as numbered states, with remembered answers: what one more pod gets, how many fit.

Nodes with equal devices and equal use are in the same state, so a cluster of thousands of nodes has
few states, and most questions have been answered before. Numbers stay valid until :meth:`compact`.

How many equal pods a state suffices for is counted by arithmetic: any number of pods with tiny
requests fits, and a request may be as tiny as its author likes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from koord.core.device.allocate import AllocationSettings, allocate, size
from koord.core.device.causes import INSUFFICIENT, INSUFFICIENT_GPUS, NO_DEVICE_OBJECT, DeviceCause
from koord.core.device.choice import Candidate, find_candidates, score_node
from koord.core.device.gpu_topology import must_honor
from koord.core.device.holds import DeviceHoldTerms
from koord.core.device.ledger import DeviceLedger, complete
from koord.core.device.model import (
    ANYWHERE,
    DeviceRequest,
    DeviceRules,
    DeviceShare,
    DeviceTerms,
    Exclusive,
    Inventory,
    Part,
    TypeRequest,
    make_part,
)
from koord.core.device.numa_hints import count_looks, find_hints, limit_to
from koord.core.device.reasons import find_largest
from koord.core.engine.arrays import NO_LIMIT
from koord.core.engine.steps import Steps
from koord.core.model.device_names import GPU, GPU_MEMORY, GPU_MEMORY_RATIO, DeviceType
from koord.core.model.zone_hints import Hints, NumaNodes


def count_most(
    ledger: DeviceLedger, request: DeviceRequest, settings: AllocationSettings
) -> tuple[int, bool]:
    """Return an upper bound of the pods that fit one after the other, and whether it is exact.

    At least one must fit.
    """
    most, is_exact = NO_LIMIT, len(request.types) == 1
    for type_ in request.types:
        sized = size(ledger.inventory, type_)
        if isinstance(sized, DeviceCause):
            return 0, True
        candidates = find_candidates(ledger, sized, ANYWHERE, settings.rules, None)
        part = _least(sized.parts)
        counts = [
            _count_on(ledger, sized, part, candidate, settings.rules) for candidate in candidates
        ]
        most = min(most, _count_groups(counts, len(sized.parts)))
        is_exact = is_exact and _is_simple(ledger, request, sized, counts)
    return most, is_exact


def cause_after(request: DeviceRequest) -> DeviceCause:
    """Return why one more pod does not fit once as many as fit have their devices."""
    first = request.types[0]
    cause = INSUFFICIENT_GPUS if first.kind == GPU else INSUFFICIENT
    return DeviceCause(cause, first.kind, len(first.parts))


def _least(parts: Sequence[Part]) -> Part:
    """Return what every device gives at least."""
    first, *following = parts
    if all(other == first for other in following):
        return first
    amounts = [dict(part) for part in parts]
    return make_part({key: min(amount.get(key, 0) for amount in amounts) for key, _ in first})


def _count_on(
    ledger: DeviceLedger, request: TypeRequest, part: Part, candidate: Candidate, rules: DeviceRules
) -> int:
    """Return how often a device can give a part."""
    hint = request.hint
    if rules.keeps_exclusive and hint.exclusive is Exclusive.DEVICE:
        return int(candidate.fits(part))
    amounts, most = dict(part), NO_LIMIT
    if hint.function_selector is not None:
        most = len(candidate.functions)
    for key, amount in part:
        if amount > 0 and not (ledger.is_exact and key == GPU_MEMORY_RATIO):
            most = min(most, candidate.free.get(key, 0) // amount)
    if ledger.is_exact and amounts.get(GPU_MEMORY_RATIO, 0) > 0:
        most = min(most, _count_by_ratio(ledger, request, part, candidate))
    return most


def _count_by_ratio(
    ledger: DeviceLedger, request: TypeRequest, part: Part, candidate: Candidate
) -> int:
    """Return how often the ratio fits: by the remaining ratio, and by bytes (rounded down)."""
    total, ratio = dict(candidate.device.total), dict(part)[GPU_MEMORY_RATIO]
    use = ledger.use_of(request.kind, candidate.device.minor)
    whole = total.get(GPU_MEMORY_RATIO, 0)
    most = max(0, whole - dict(use.amounts).get(GPU_MEMORY_RATIO, 0)) // ratio
    memory, free = total.get(GPU_MEMORY, 0), candidate.free.get(GPU_MEMORY, 0)
    taken = dict(complete(part, total)).get(GPU_MEMORY, 0)
    if not memory or free * whole < ratio * memory:
        return most if not memory else 0
    return min(most, (free * whole - ratio * memory) // (taken * whole) + 1) if taken else most


def _count_groups(counts: Sequence[int], size: int) -> int:
    """Return how many groups of ``size`` different devices there are, at most."""
    groups = sum(counts) // size
    while groups and (fewer := sum(min(count, groups) for count in counts) // size) < groups:
        groups = fewer
    return min(groups, NO_LIMIT)


def _is_simple(
    ledger: DeviceLedger, request: DeviceRequest, sized: TypeRequest, counts: Sequence[int]
) -> bool:
    """Whether any choice of devices leaves as many for the next pods, and nothing else counts."""
    hint = sized.hint
    if hint.scope is not None or hint.exclusive is not None or not sized.is_uniform:
        return False
    if ledger.inventory.vendor in request.plugins:
        return False
    if (
        sized.kind == GPU
        and not sized.is_shared
        and (ledger.foreign or must_honor(ledger, request))
    ):
        return False
    return len(sized.parts) == 1 or max(counts, default=0) <= 1


StateId: TypeAlias = int
NO_DEVICES: Final[StateId] = 0
"""The state of nodes that have never had a Device: all that they offer is counted there."""
DEVICE_MISSING: Final[StateId] = 1
"""The state of nodes whose Device is gone: whole cards are counted, parts are not given out."""
UNKNOWN_DEVICES: Final[StateId] = 2
"""The same where pods hold parts of GPUs: what the count says to be free may be theirs."""
FIXED_STATES: Final = (NO_DEVICES, DEVICE_MISSING, UNKNOWN_DEVICES)

MOST_STATES: Final = 20_000
MOST_ANSWERS: Final = 50_000
"""When there are more, those that no node is in, and all answers, are forgotten."""
MOST_PLACED: Final = 8
"""Pods that are given devices to see how many fit; beyond them an upper bound is enough."""
PER_ALLOCATION: Final = 20
PER_DEVICE: Final = 4
"""Operations, in the unit of :class:`Steps`, of looking for devices on one node once."""
JOINT_WAYS: Final = 2
"""Devices of several types are chosen together in several ways."""


@dataclass(frozen=True, eq=False)
class DeviceDemand:
    """A request that pods share; compared by identity."""

    request: DeviceRequest


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The shares of a pod, the state afterwards, and what then remains of the hold."""

    shares: tuple[DeviceShare, ...]
    after: StateId
    hold_terms: DeviceHoldTerms | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """How many pods with a request fit, and why not one more."""

    count: int
    device_cause: DeviceCause


NOTHING_KNOWN: Final = DeviceCause(NO_DEVICE_OBJECT)
_Question: TypeAlias = tuple[StateId, DeviceDemand, NumaNodes | None, DeviceHoldTerms | None]


class LedgerStates:
    """All states that nodes are in, or may get into."""

    def __init__(self, settings: AllocationSettings) -> None:
        self.settings = settings
        self._ledgers: list[DeviceLedger] = []
        self._number_of: dict[DeviceLedger, StateId] = {}
        self._inventories: dict[Inventory, Inventory] = {}
        self._choices: dict[_Question, DeviceChoice | DeviceCause] = {}
        self._hints: dict[
            tuple[StateId, DeviceDemand, DeviceHoldTerms | None], Mapping[DeviceType, Hints]
        ] = {}
        self._fits: dict[tuple[StateId, DeviceDemand, DeviceHoldTerms | None], Fit] = {}
        self._points: dict[tuple[StateId, DeviceDemand], int] = {}
        self._largest: dict[DeviceLedger, int] = {}
        self.steps = Steps()
        """Where answers that are not remembered are counted, before they are found."""
        self.compact(())

    def compact(self, used: Iterable[DeviceLedger]) -> None:
        """Forget all states but these, which get new numbers in this order, and all answers."""
        used_ledgers = list(used)
        empty = DeviceLedger(Inventory(()), is_exact=self.settings.rules.is_memory_exact)
        self._ledgers, self._number_of, self._inventories = [empty for _ in FIXED_STATES], {}, {}
        answered = (self._choices, self._hints, self._fits, self._points, self._largest)
        for answers in answered:
            answers.clear()
        for ledger in used_ledgers:
            self.number(ledger.with_inventory(self.intern(ledger.inventory)))

    @property
    def is_full(self) -> bool:
        answers = len(self._choices) + len(self._hints) + len(self._fits) + len(self._points)
        return len(self._ledgers) > MOST_STATES or answers > MOST_ANSWERS

    def intern(self, inventory: Inventory) -> Inventory:
        """Return the one inventory of all nodes with equal devices."""
        return self._inventories.setdefault(inventory, inventory)

    @property
    def count(self) -> int:
        """How many states are known."""
        return len(self._ledgers)

    def number(self, ledger: DeviceLedger) -> StateId:
        state_id = self._number_of.get(ledger)
        if state_id is None:
            state_id = self._number_of[ledger] = len(self._ledgers)
            self._ledgers.append(ledger)
        return state_id

    def ledger(self, state: StateId) -> DeviceLedger:
        return self._ledgers[state]

    def choose(
        self,
        state: StateId,
        demand: DeviceDemand,
        numa: NumaNodes | None = None,
        hold_terms: DeviceHoldTerms | None = None,
    ) -> DeviceChoice | DeviceCause:
        """Return what one pod gets, on certain NUMA nodes if the devices are on any.

        ``hold_terms``: what it may use of devices that count as used in this state.
        """
        key = (state, demand, numa, hold_terms)
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = self._find_choice(state, demand, numa, hold_terms)
        return choice

    def _find_choice(
        self,
        state: StateId,
        demand: DeviceDemand,
        numa: NumaNodes | None,
        hold_terms: DeviceHoldTerms | None,
    ) -> DeviceChoice | DeviceCause:
        ledger = self._ledgers[state]
        if hold_terms is not None:
            ledger = ledger.with_shares(hold_terms.left, -1)
        shares: tuple[DeviceShare, ...] | DeviceCause = ()
        for tried in _terms(ledger, demand, hold_terms):
            self._take(ledger, demand.request)
            terms = limit_to(ledger, demand.request, numa, tried)
            shares = allocate(ledger, demand.request, terms, self.settings)
            if not isinstance(shares, DeviceCause):
                break
        if isinstance(shares, DeviceCause):
            return shares
        after = ledger.with_shares(shares)
        left = hold_terms.after(shares) if hold_terms is not None else None
        if left is not None:
            after = after.with_shares(left.left)
        return DeviceChoice(shares, self.number(after), left)

    def hints(
        self, state: StateId, demand: DeviceDemand, hold_terms: DeviceHoldTerms | None = None
    ) -> Mapping[DeviceType, Hints]:
        """Return which NUMA nodes could give a pod its devices; none if the node cannot at all."""
        key = (state, demand, hold_terms)
        answer = self._hints.get(key)
        if answer is None:
            ledger = self._ledgers[state]
            if hold_terms is not None:
                ledger = ledger.with_shares(hold_terms.left, -1)
            hints: Mapping[DeviceType, Hints] | DeviceCause = {}
            for terms in _terms(ledger, demand, hold_terms):
                self._take(ledger, demand.request, count_looks(ledger, demand.request))
                hints = find_hints(ledger, demand.request, terms, self.settings)
                if not isinstance(hints, DeviceCause):
                    break
            answer = self._hints[key] = {} if isinstance(hints, DeviceCause) else hints
        return answer

    def fit(
        self, state: StateId, demand: DeviceDemand, hold_terms: DeviceHoldTerms | None = None
    ) -> Fit:
        """Return how many pods fit one after the other, if they may use held devices too.

        An upper bound where more fit than are given out to see how far the devices go.
        """
        if not knows_devices(state):
            return Fit(0 if self.refuses(state, demand.request) else NO_LIMIT, NOTHING_KNOWN)
        key = (state, demand, hold_terms)
        fit = self._fits.get(key)
        if fit is None:
            fit = self._fits[key] = self._find_fit(state, demand, hold_terms)
        return fit

    def _find_fit(
        self, state: StateId, demand: DeviceDemand, hold_terms: DeviceHoldTerms | None
    ) -> Fit:
        most, is_exact = 0, False
        for placed in range(MOST_PLACED):
            choice = self.choose(state, demand, hold_terms=hold_terms)
            if isinstance(choice, DeviceCause):
                return Fit(placed, choice)
            if not placed or placed + 1 == MOST_PLACED:
                most, is_exact = self._count_most(state, demand, hold_terms)
            if is_exact:
                break
            state, hold_terms = choice.after, choice.hold_terms or hold_terms
        return Fit(min(placed + most, NO_LIMIT), cause_after(demand.request))

    def _count_most(
        self, state: StateId, demand: DeviceDemand, hold_terms: DeviceHoldTerms | None
    ) -> tuple[int, bool]:
        ledger, request = self._ledgers[state], demand.request
        self._take(ledger, request)
        if hold_terms is None:
            return count_most(ledger, request, self.settings)
        lifted = ledger.with_shares(hold_terms.left, -1)
        return count_most(lifted, request, self.settings)[0], False

    def _take(self, ledger: DeviceLedger, request: DeviceRequest, times: int = 1) -> None:
        """Count the work of allocating devices on one node, which is about to begin."""
        devices = sum(len(ledger.inventory.of(type_.kind)) for type_ in request.types)
        ways = 1 if request.joint is None else JOINT_WAYS
        self.steps.spend(0, times * ways * (PER_ALLOCATION + PER_DEVICE * devices))

    def refuses(self, state: StateId, request: DeviceRequest) -> bool:
        """Whether a node without a Device refuses a request: free devices are unknown there."""
        if state == NO_DEVICES or not self.settings.rules.waits_for_device_object:
            return False
        return request.needs_device_object or state == UNKNOWN_DEVICES

    def points(self, state: StateId, demand: DeviceDemand) -> int:
        """Return the score of a node in this state."""
        key = (state, demand)
        points = self._points.get(key)
        if points is None:
            scoring = self.settings.scoring
            ledger, rules = self._ledgers[state], self.settings.rules
            points = score_node(ledger, demand.request, scoring, rules) if scoring else 0
            self._points[key] = points
        return points

    def largest(self, ledger: DeviceLedger) -> int:
        """Return the largest number of whole GPUs that one pod can get."""
        if ledger not in self._largest:
            self._largest[ledger] = find_largest(ledger)
        return self._largest[ledger]

    def after(self, state: StateId, shares: Iterable[DeviceShare], count: int) -> StateId:
        """Return the state with shares given (1) or taken back (-1)."""
        return self.number(self._ledgers[state].with_shares(shares, count))


def knows_devices(state: StateId) -> bool:
    """Whether there is a Device: certain devices are given out then."""
    return state not in FIXED_STATES


def _terms(
    lifted: DeviceLedger, demand: DeviceDemand, hold_terms: DeviceHoldTerms | None
) -> Iterable[DeviceTerms]:
    return (ANYWHERE,) if hold_terms is None else hold_terms.terms(lifted, demand.request)
