"""Joins devices to the planner: keeps the ledgers of nodes current, opens sessions.

A node without a Device object has no ledger: its devices are plain resources that the kubelet gives
out. Elsewhere a pod that asks for devices gets certain ones, which its annotations record.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from koord.core.changes import Changes
from koord.core.device.allocate import Settings
from koord.core.device.allocation import DeviceAllocation, record
from koord.core.device.causes import INSUFFICIENT, Lacking
from koord.core.device.explain import explain_devices
from koord.core.device.inventory import make_inventory
from koord.core.device.ledger import DeviceLedger
from koord.core.device.model import (
    KOORDINATOR,
    OURS,
    DeviceReport,
    DeviceRequest,
    Scoring,
    Share,
)
from koord.core.device.names import (
    CARDS,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    WHOLE,
)
from koord.core.device.reasons import InvalidDeviceAnnotation, InvalidDeviceRequest
from koord.core.device.request import NO_WISHES, InvalidRequest, Wishes, read_request
from koord.core.device.scoring import DEFAULT_WEIGHTS
from koord.core.device.states import NO_DEVICES, Asked, LedgerStates, Move, StateId
from koord.core.device.vendors import index_templates
from koord.core.framework.arrays import NO_LIMIT, Ints, Rows
from koord.core.framework.cause import Cause
from koord.core.framework.cycle import Cycle
from koord.core.framework.plugin import Draft, Plugin, Reach, Score, Session, Short
from koord.core.nodes import Node
from koord.core.pod_charge import PodCharge
from koord.core.pods import Allocation, Pod, PodShape
from koord.core.reasons import Reason

if TYPE_CHECKING:
    from koord.core.state import ClusterState

NAME: Final = "device"
PACKED: Final = Settings(OURS, index_templates(), Scoring(DEFAULT_WEIGHTS, packs=True))
"""Fuller devices and nodes first: whole devices stay free."""
COMPATIBLE: Final = Settings(KOORDINATOR, index_templates(), Scoring(DEFAULT_WEIGHTS))
"""As Koordinator does."""
_FIRST: Final = np.zeros(1, dtype=np.int64)
_MOST_REQUESTS: Final = 1 << 14


class Devices(Plugin):
    """The devices of a cluster, and what is used of them."""

    name = NAME

    def __init__(self, settings: Settings = PACKED) -> None:
        self.states = LedgerStates(settings)
        self.reports: dict[str, DeviceReport] = {}
        self.state_of: Ints = np.zeros(0, dtype=np.int64)
        """Row -> the state of its devices."""
        self.shares_of: dict[str, tuple[Share, ...]] = {}
        """Pod uid -> its devices; none if nobody knows which ones they are."""
        self._given: dict[str, tuple[Allocation, ...]] = {}
        """Pod uid -> what it was given when it was first seen on its node."""
        self._discharged: set[str] = set()
        """Pods that left their nodes since the last :meth:`absorb`; most of them come back."""
        self._row_of: dict[str, int] = {}
        self._nodes: dict[int, Node] = {}
        self._pods: dict[int, dict[str, PodCharge]] = {}
        """Row -> the pods there that use devices."""
        self._requests: dict[tuple[Hashable, ...], Asked | InvalidRequest | None] = {}

    # --- what is observed ------------------------------------------------------------------------

    def upsert_report(self, report: DeviceReport) -> None:
        self.reports[report.node] = report
        self._rebuild(report.node)

    def remove_report(self, node: str) -> None:
        """Forget the devices of a node; what pods use of them is kept."""
        self.reports.pop(node, None)
        self._rebuild(node)

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        before = self._nodes.get(row)
        self._nodes[row], self._row_of[node.name] = node, row
        if row >= self.state_of.size:
            more = np.full(max(64, 2 * row) - self.state_of.size, NO_DEVICES, dtype=np.int64)
            self.state_of = np.concatenate([self.state_of, more])
        if before is None or before.labels != node.labels:
            self._rebuild(node.name)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._nodes.pop(row, None)
        self._row_of.pop(name, None)
        self._pods.pop(row, None)
        self.state_of[row] = NO_DEVICES

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if not charge.allocations and not _count_gpus(charge.shape):
            return
        if count > 0:
            # What a pod was given does not change: later annotations are not believed.
            given = self._given.setdefault(charge.uid, charge.allocations)
            self._given[charge.uid] = given or charge.allocations
            self.shares_of[charge.uid] = self.numbered(charge.load.node, self._given[charge.uid])
        shares = self.shares_of[charge.uid]
        if row >= 0:
            self._charge_row(row, charge, shares, count)
        if count < 0:
            del self.shares_of[charge.uid]
            self._discharged.add(charge.uid)

    def _charge_row(
        self, row: int, charge: PodCharge, shares: tuple[Share, ...], count: int
    ) -> None:
        pods = self._pods.setdefault(row, {})
        if count > 0:
            pods[charge.uid] = charge
        else:
            pods.pop(charge.uid, None)
        state = int(self.state_of[row])
        if state == NO_DEVICES:
            return
        if shares:
            self.state_of[row] = self.states.after(state, shares, count)
        else:
            ledger = self.states.ledger(state)
            foreign = ledger.foreign + count * _count_gpus(charge.shape)
            self.state_of[row] = self.states.number(ledger.with_foreign(foreign))

    def numbered(self, node: str, allocations: Iterable[Allocation]) -> tuple[Share, ...]:
        """Return the devices of a pod by the numbers that virtual functions have now."""
        report = self.reports.get(node)
        names = report.names if report is not None else {}
        return tuple(
            share
            for one in allocations
            if isinstance(one, DeviceAllocation)
            for share in one.numbered(names)
        )

    def _rebuild(self, name: str) -> None:
        """Make the ledger of a node anew, after its devices or labels have changed."""
        row, report = self._row_of.get(name), self.reports.get(name)
        if row is None:
            return
        if report is None:
            self.state_of[row] = NO_DEVICES
            return
        inventory = self.states.intern(make_inventory(report, self._nodes[row].labels))
        ledger = DeviceLedger(inventory, is_exact=self.states.settings.rules.is_memory_exact)
        for charge in self._pods.get(row, {}).values():
            shares = self.shares_of[charge.uid] = self.numbered(name, self._given[charge.uid])
            ledger = ledger.with_shares(shares)
            if not shares:
                ledger = ledger.with_foreign(ledger.foreign + _count_gpus(charge.shape))
        self.state_of[row] = self.states.number(ledger)

    # --- what is shown ---------------------------------------------------------------------------

    def ledger_of(self, node: str) -> DeviceLedger | None:
        """Return what is used of the devices of a node; None if either is unknown."""
        row = self._row_of.get(node)
        state = NO_DEVICES if row is None else int(self.state_of[row])
        return None if state == NO_DEVICES else self.states.ledger(state)

    def pods_on(self, node: str) -> Mapping[str, tuple[Share, ...]]:
        """Return the pods of a node that use devices; () if nobody knows which ones."""
        pods = self._pods.get(self._row_of.get(node, -1), {})
        return {uid: self.shares_of[uid] for uid in sorted(pods)}

    # --- cycles ----------------------------------------------------------------------------------

    def request_of(self, pod: Pod) -> Asked | InvalidRequest | None:
        """Return what a pod asks for, one value for all pods that ask for the same."""
        wishes = _wishes_of(pod)
        key = (pod.shape.requests, wishes)
        if key not in self._requests:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            rules = self.states.settings.rules
            read = read_request(dict(pod.shape.requests), wishes, rules)
            self._requests[key] = Asked(read) if isinstance(read, DeviceRequest) else read
        return self._requests[key]

    @override
    def open(self, cycle: Cycle) -> "DeviceSession | None":
        if not self.reports:
            return None
        return DeviceSession(self, cycle)

    @override
    def absorb(self, state: "ClusterState", changes: Changes, now: float) -> None:
        """Forget pods that are gone, and states that no node is in when there are too many."""
        for uid in self._discharged - self.shares_of.keys():
            self._given.pop(uid, None)
        self._discharged.clear()
        if not self.states.is_full:
            return
        used = sorted(set(self.state_of.tolist()) - {NO_DEVICES})
        self.states.compact([self.states.ledger(state) for state in used])
        renumbered = {state: number for number, state in enumerate([NO_DEVICES, *used])}
        self.state_of = np.array([renumbered[state] for state in self.state_of.tolist()])

    def record(self, pod: str, node: str, shares: Sequence[Share]) -> DeviceAllocation:
        return record(pod, shares, self.reports[node].names)


class DeviceSession(Session):
    """Devices in one cycle; the states of all nodes are copied before the first change."""

    name = NAME
    reach = Reach.ROW

    def __init__(self, plugin: Devices, cycle: Cycle) -> None:
        self._plugin = plugin
        self._states = plugin.states
        self._cycle = cycle
        self._state_of = plugin.state_of
        self._is_copy = False
        self._given: dict[str, tuple[Share, ...]] = {}
        """Pod uid -> what this cycle has given it; () if it was taken back."""
        self._before: dict[str, StateId] = {}
        """Uid of a pod that was taken from its row -> the state of the row with it."""

    @override
    def ask(self, pod: Pod, shape: PodShape) -> Hashable | None:
        asked = self._plugin.request_of(pod)
        return None if isinstance(asked, InvalidRequest) else asked

    @override
    def obstacles(self, pods: Sequence[Pod]) -> Mapping[str, Reason]:
        found: dict[str, Reason] = {}
        for pod in pods:
            asked, said = self._plugin.request_of(pod), _wishes_of(pod)
            if asked is not None and said.problems:
                found[pod.uid] = InvalidDeviceAnnotation(pod.key, said.problems)
            elif isinstance(asked, InvalidRequest):
                found[pod.uid] = InvalidDeviceRequest(pod.key, asked)
        return found

    @override
    def filter(self, shape: PodShape, rows: Rows) -> Iterable[tuple[Cause, Ints]]:
        asked = shape.asked(NAME)
        if not isinstance(asked, Asked):
            return
        states, at = self._distinct(rows)
        fits = [self._states.fit(state, asked) for state in states]
        counts = np.array(
            [
                NO_LIMIT if state == NO_DEVICES else one.count
                for state, one in zip(states, fits, strict=True)
            ],
            dtype=np.int64,
        )
        causes = [one.lacking.cause for one in fits]
        for cause in dict.fromkeys(causes):
            mine = np.array([one is cause for one in causes])
            limits = np.where(mine, counts, NO_LIMIT)[at]
            if (limits < NO_LIMIT).any():
                yield cause, limits

    @override
    def detail(self, cause: Cause, shape: PodShape, row: int) -> str:
        asked = shape.asked(NAME)
        if not isinstance(asked, Asked):
            return ""
        lacking = self._states.fit(int(self._state_of[row]), asked).lacking
        return lacking.detail or GPU

    @override
    def explain(self, cause: Cause, shape: PodShape, row: int) -> str:
        asked, state = shape.asked(NAME), int(self._state_of[row])
        if not isinstance(asked, Asked) or state == NO_DEVICES:
            return ""
        if self._states.fit(state, asked).lacking.cause is not cause:
            return ""
        return explain_devices(self._states.ledger(state), asked.request)

    @override
    def score(self, shape: PodShape, rows: Ints) -> Iterable[Score]:
        asked = shape.asked(NAME)
        if not isinstance(asked, Asked):
            return
        states, at = self._distinct(rows)
        points = [self._states.points(state, asked) for state in states]
        yield Score(np.array(points, dtype=np.int64)[at])

    @override
    def signature(self, shape: PodShape, rows: Ints) -> Ints:
        return self._state_of[rows]

    @override
    def reserve(self, draft: Draft) -> Allocation | Short | None:
        asked = draft.shape.asked(NAME)
        state = int(self._state_of[draft.row])
        if not isinstance(asked, Asked) or state == NO_DEVICES:
            return None
        move = self._states.move(state, asked)
        if not isinstance(move, Move):
            return Short(move)
        self._set(draft.row, move.after)
        self._note(draft.pod.uid, move.shares)
        return self._record(draft.pod, draft.row, move.shares)

    @override
    def adopt(self, pod: Pod, row: int, allocations: Sequence[Allocation]) -> Short | None:
        shares = self._plugin.numbered(self._cycle.table.node_at(row).name, allocations)
        state = int(self._state_of[row])
        if not shares or state == NO_DEVICES:
            return None
        after = self._states.after(state, shares, 1)
        # What was there before may exceed what devices have: they may have become fewer.
        if after != self._before.get(pod.uid):
            short = _find_overused(self._states.ledger(state), shares)
            if short is not None:
                return short
        self._set(row, after)
        self._note(pod.uid, shares)
        return None

    @override
    def release(self, pod: Pod, row: int) -> Sequence[Allocation]:
        shares = self._given.get(pod.uid, self._plugin.shares_of.get(pod.uid, ()))
        state = int(self._state_of[row])
        if not shares or state == NO_DEVICES:
            return ()
        self._set(row, self._states.after(state, shares, -1))
        self._note(pod.uid, ())
        self._before[pod.uid] = state
        return (self._record(pod, row, shares),)

    def _record(self, pod: Pod, row: int, shares: Sequence[Share]) -> DeviceAllocation:
        return self._plugin.record(pod.uid, self._cycle.table.node_at(row).name, shares)

    def _distinct(self, rows: Rows) -> tuple[list[StateId], Ints]:
        """Return the states that rows are in, and for each row the position of its state."""
        states = self._state_of[rows]
        if states.size == 1:
            return states.tolist(), _FIRST
        found, at = np.unique(states, return_inverse=True)
        return found.tolist(), at

    def _set(self, row: int, state: StateId) -> None:
        if not self._is_copy:
            self._state_of, self._is_copy = self._state_of.copy(), True
        self._cycle.undo.push(self._write, row, int(self._state_of[row]))
        self._write(row, state)

    def _write(self, row: int, state: StateId) -> None:
        self._state_of[row] = state

    def _note(self, uid: str, shares: tuple[Share, ...]) -> None:
        self._cycle.undo.push(self._restore, uid, self._given.get(uid))
        self._given[uid] = shares

    def _restore(self, uid: str, shares: tuple[Share, ...] | None) -> None:
        if shares is None:
            del self._given[uid]
        else:
            self._given[uid] = shares


def _wishes_of(pod: Pod) -> Wishes:
    said = next((said for name, said in pod.said if name == NAME), NO_WISHES)
    return said if isinstance(said, Wishes) else NO_WISHES


def _count_gpus(shape: PodShape) -> int:
    """Return how many GPUs a pod may use if nobody says which: parts count as whole ones."""
    requests = dict(shape.requests)
    cards = sum(requests.get(name, 0) for name in CARDS)
    shares = max(requests.get(name, 0) for name in (KOORD_GPU, GPU_CORE, GPU_MEMORY_RATIO))
    some = 1 if GPU_MEMORY in requests or NPU_CORE in requests else 0
    return max(cards, -(-shares // WHOLE), requests.get(GPU_SHARED, 0), some)


def _find_overused(ledger: DeviceLedger, shares: Sequence[Share]) -> Short | None:
    """Return why exactly these shares cannot be given; devices of before are not asked again."""
    for share in shares:
        free = ledger.free.get((share.kind, share.minor), {})
        use = ledger.use_of(share.kind, share.minor)
        if any(free.get(key, 0) < amount for key, amount in share.part) or (
            not use.functions.isdisjoint(share.functions)
        ):
            return Short(Lacking(INSUFFICIENT, share.kind, share.minor))
    return None
