"""Ledgers as numbered states, with remembered answers: what one more pod gets, how many fit.

Nodes with equal devices and equal use are in the same state, so a cluster of thousands of nodes has
few states, and most questions have been answered before. Numbers stay valid until :meth:`compact`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count as count_from
from typing import Final, TypeAlias

from koord.core.device.allocate import Settings, allocate
from koord.core.device.causes import NO_DEVICE_OBJECT, Lacking
from koord.core.device.explain import find_largest
from koord.core.device.held import HeldTerms
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import ANYWHERE, DeviceRequest, Inventory, Share, Terms
from koord.core.device.numa_hints import find_hints, limit_to
from koord.core.device.scoring import score_node
from koord.core.device_names import DeviceType
from koord.core.framework.arrays import NO_LIMIT
from koord.core.zone_hints import Hints, NumaNodes

StateId: TypeAlias = int
NO_DEVICES: Final[StateId] = 0
"""The state of nodes that have never had a Device: all that they offer is counted there."""
DEVICE_MISSING: Final[StateId] = 1
"""The state of nodes whose Device is gone: whole cards are counted, parts are given to nobody."""
UNKNOWN_DEVICES: Final[StateId] = 2
"""The same where pods hold parts of GPUs: what the count says to be free may be theirs."""
FIXED_STATES: Final = (NO_DEVICES, DEVICE_MISSING, UNKNOWN_DEVICES)

MOST_STATES: Final = 50_000
MOST_ANSWERS: Final = 200_000
"""When there are more, those that no node is in, and all answers, are forgotten."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A request that pods share; compared by identity."""

    request: DeviceRequest


@dataclass(frozen=True, slots=True)
class Move:
    """What a pod gets, and the state afterwards, with what is still held then."""

    shares: tuple[Share, ...]
    after: StateId
    held: HeldTerms | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """How many pods with a request fit, and why not one more."""

    count: int
    lacking: Lacking


NOTHING_KNOWN: Final = Lacking(NO_DEVICE_OBJECT)
_Question: TypeAlias = tuple[StateId, Asked, NumaNodes | None, HeldTerms | None]


class LedgerStates:
    """All states that nodes are in, or may get into."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._ledgers: list[DeviceLedger] = []
        self._number_of: dict[DeviceLedger, StateId] = {}
        self._inventories: dict[Inventory, Inventory] = {}
        self._moves: dict[_Question, Move | Lacking] = {}
        self._hints: dict[tuple[StateId, Asked, HeldTerms | None], Mapping[DeviceType, Hints]] = {}
        self._fits: dict[tuple[StateId, Asked], Fit] = {}
        self._points: dict[tuple[StateId, Asked], int] = {}
        self._largest: dict[DeviceLedger, int] = {}
        self.compact(())

    def compact(self, used: Iterable[DeviceLedger]) -> None:
        """Forget all states but these, which get new numbers in this order, and all answers."""
        kept = list(used)
        empty = DeviceLedger(Inventory(()), is_exact=self.settings.rules.is_memory_exact)
        self._ledgers, self._number_of, self._inventories = [empty for _ in FIXED_STATES], {}, {}
        answered = (self._moves, self._hints, self._fits, self._points, self._largest)
        for answers in answered:
            answers.clear()
        for ledger in kept:
            self.number(ledger.with_inventory(self.intern(ledger.inventory)))

    @property
    def is_full(self) -> bool:
        return len(self._ledgers) > MOST_STATES or len(self._moves) > MOST_ANSWERS

    def intern(self, inventory: Inventory) -> Inventory:
        """Return the one inventory of all nodes with equal devices."""
        return self._inventories.setdefault(inventory, inventory)

    def number(self, ledger: DeviceLedger) -> StateId:
        known = self._number_of.get(ledger)
        if known is None:
            known = self._number_of[ledger] = len(self._ledgers)
            self._ledgers.append(ledger)
        return known

    def ledger(self, state: StateId) -> DeviceLedger:
        return self._ledgers[state]

    def move(
        self,
        state: StateId,
        asked: Asked,
        numa: NumaNodes | None = None,
        held: HeldTerms | None = None,
    ) -> Move | Lacking:
        """Return what one pod gets, on certain NUMA nodes if the devices are on any.

        ``held``: what it may use of devices that count as used in this state.
        """
        key = (state, asked, numa, held)
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = self._find_move(state, asked, numa, held)
        return found

    def _find_move(
        self, state: StateId, asked: Asked, numa: NumaNodes | None, held: HeldTerms | None
    ) -> Move | Lacking:
        ledger = self._ledgers[state]
        if held is not None:
            ledger = ledger.with_shares(held.left, -1)
        shares: tuple[Share, ...] | Lacking = ()
        for tried in _terms(ledger, asked, held):
            terms = limit_to(ledger, asked.request, numa, tried)
            shares = allocate(ledger, asked.request, terms, self.settings)
            if not isinstance(shares, Lacking):
                break
        if isinstance(shares, Lacking):
            return shares
        after = ledger.with_shares(shares)
        left = held.after(shares) if held is not None else None
        if left is not None:
            after = after.with_shares(left.left)
        return Move(shares, self.number(after), left)

    def hints(
        self, state: StateId, asked: Asked, held: HeldTerms | None = None
    ) -> Mapping[DeviceType, Hints]:
        """Return which NUMA nodes could give a pod its devices; none if the node cannot at all."""
        key = (state, asked, held)
        found = self._hints.get(key)
        if found is None:
            ledger = self._ledgers[state]
            if held is not None:
                ledger = ledger.with_shares(held.left, -1)
            hints: Mapping[DeviceType, Hints] | Lacking = {}
            for terms in _terms(ledger, asked, held):
                hints = find_hints(ledger, asked.request, terms, self.settings)
                if not isinstance(hints, Lacking):
                    break
            found = self._hints[key] = {} if isinstance(hints, Lacking) else hints
        return found

    def fit_held(self, state: StateId, asked: Asked, held: HeldTerms) -> Fit:
        """Return how many pods fit one after the other if they may use held devices."""
        for count in count_from(0):
            move = self.move(state, asked, held=held)
            if isinstance(move, Lacking):
                return Fit(count, move)
            state, held = move.after, move.held or held
        raise AssertionError("unreachable: devices end")

    def fit(self, state: StateId, asked: Asked) -> Fit:
        """Return how many pods fit one after the other."""
        if not knows_devices(state):
            return Fit(0 if self.refuses(state, asked.request) else NO_LIMIT, NOTHING_KNOWN)
        path: list[StateId] = []
        known = self._fits.get((state, asked))
        while known is None:
            move = self.move(state, asked)
            if isinstance(move, Lacking):
                known = self._fits[state, asked] = Fit(0, move)
            else:
                path.append(state)
                state = move.after
                known = self._fits.get((state, asked))
        for steps, before in enumerate(reversed(path), 1):
            self._fits[before, asked] = Fit(known.count + steps, known.lacking)
        return self._fits[path[0], asked] if path else known

    def refuses(self, state: StateId, request: DeviceRequest) -> bool:
        """Whether a node without a Device refuses a request: what is free there is not known."""
        if state == NO_DEVICES or not self.settings.rules.waits_for_device_object:
            return False
        return request.needs_device_object or state == UNKNOWN_DEVICES

    def points(self, state: StateId, asked: Asked) -> int:
        """Return the score of a node in this state."""
        key = (state, asked)
        found = self._points.get(key)
        if found is None:
            scoring = self.settings.scoring
            ledger, rules = self._ledgers[state], self.settings.rules
            found = score_node(ledger, asked.request, scoring, rules) if scoring else 0
            self._points[key] = found
        return found

    def largest(self, ledger: DeviceLedger) -> int:
        """Return the largest number of whole GPUs that one pod can get."""
        if ledger not in self._largest:
            self._largest[ledger] = find_largest(ledger)
        return self._largest[ledger]

    def after(self, state: StateId, shares: Iterable[Share], count: int) -> StateId:
        """Return the state with shares given (1) or taken back (-1)."""
        return self.number(self._ledgers[state].with_shares(shares, count))


def knows_devices(state: StateId) -> bool:
    """Whether there is a Device: certain devices are given out then."""
    return state not in FIXED_STATES


def _terms(lifted: DeviceLedger, asked: Asked, held: HeldTerms | None) -> Iterable[Terms]:
    return (ANYWHERE,) if held is None else held.terms(lifted, asked.request)
