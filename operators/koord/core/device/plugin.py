"""Joins devices to the planner: keeps the ledgers of nodes current, opens sessions.

A node without a Device object has no ledger: what it offers are plain resources. If its Device is
gone, as what was published of it or given of it shows, its whole cards still are, and it takes no
pods that ask for parts. Elsewhere a pod that asks for devices gets certain ones, which its
annotations record.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from typing_extensions import override

from koord.caches import MIB, BoundedCache, cached_by_text, size_of
from koord.core.device.allocate import AllocationSettings
from koord.core.device.allocation import AllocatedDevices, record
from koord.core.device.choice import DEFAULT_WEIGHTS
from koord.core.device.holds import DeviceHold
from koord.core.device.inventory import (
    NOTHING_NAMED,
    NamedDevices,
    Recoveries,
    Strayed,
    make_inventory,
)
from koord.core.device.ledger import (
    NOTHING_UNRECORDED,
    DeviceLedger,
    UnrecordedUse,
    find_unrecorded,
)
from koord.core.device.model import (
    DEFAULT_OPTIONS,
    KOORDINATOR,
    OURS,
    DeviceOptions,
    DeviceReport,
    DeviceRequest,
    DeviceResourceClaim,
    DeviceScoring,
    DeviceShare,
)
from koord.core.device.node_resources import OldNames
from koord.core.device.request import DeviceAllocationHints, InvalidRequest, read_request
from koord.core.device.session import NAME, DeviceSession, allocation_hints_of
from koord.core.device.states import (
    DEVICE_MISSING,
    FIXED_STATES,
    NO_DEVICES,
    UNKNOWN_DEVICES,
    DeviceDemand,
    LedgerStates,
    StateId,
    knows_devices,
)
from koord.core.device.vendors import index_templates
from koord.core.engine.allocations import NodeAllocations
from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin
from koord.core.model.changes import ChangeLog
from koord.core.model.device_names import (
    CARDS,
    GPU,
    REPORTED,
    TYPE_OF,
    rename,
)
from koord.core.model.nodes import Node
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import Allocation, Pod, PodShape

if TYPE_CHECKING:
    from koord.core.engine.arrays import Ints

PACKED: Final = AllocationSettings(
    OURS, index_templates(), DeviceScoring(DEFAULT_WEIGHTS, packs=True)
)
"""Fuller devices and nodes first: whole devices stay free."""
COMPATIBLE: Final = AllocationSettings(
    KOORDINATOR, index_templates(), DeviceScoring(DEFAULT_WEIGHTS)
)
"""As Koordinator does."""

_Question: TypeAlias = tuple[Hashable, DeviceAllocationHints]
"""Requests and allocation hints: pods that agree in both ask for the same."""


class Devices(Plugin):
    """The devices of a cluster and their use."""

    name = NAME

    def __init__(
        self, settings: AllocationSettings = PACKED, options: DeviceOptions = DEFAULT_OPTIONS
    ) -> None:
        self.states = LedgerStates(settings)
        self.reports: dict[str, DeviceReport] = {}
        """Node -> what it reports; devices that recover count as unhealthy."""
        self.is_known = True
        """False if Devices could not be read: then nothing is said about them."""
        self.options = options
        self.recoveries = Recoveries(options.recovery_seconds)
        self._reported: dict[str, DeviceReport] = {}
        self._named: dict[str, NamedDevices] = {}
        """Node -> its devices by name."""
        self.state_of: Ints = np.zeros(0, dtype=np.int64)
        """Row -> the state of its devices."""
        self.missing: set[int] = set()
        """Rows whose Device is gone."""
        self.old_names = OldNames()
        self.changes_of_nodes = ChangeLog()
        """Nodes with devices or with something published, or whose devices changed."""
        self.changes_of_use = ChangeLog()
        """Nodes with devices whose use changed."""
        self.shares_of: dict[str, tuple[DeviceShare, ...]] = {}
        """Pod uid -> its devices; none without a record of which ones. Of held ones, those
        that no pod uses."""
        self.holds: dict[str, DeviceHold] = {}
        """Pod uid -> the devices that are held under it for other pods."""
        self.allocations = NodeAllocations[tuple[AllocatedDevices, ...]]()
        """Of all pods that use devices; () without a record of which ones."""
        self._row_of: dict[str, int] = {}
        self._nodes: dict[int, Node] = {}
        self._resource_claims: dict[str, DeviceResourceClaim] = {}
        """ResourceClaims by key, of those that have GPUs."""
        self._resource_claims_on: dict[str, set[str]] = {}
        """Node -> the keys of its ResourceClaims."""
        self._requests: BoundedCache[_Question, DeviceDemand | InvalidRequest | None] = (
            BoundedCache(16 * MIB)
        )

    # --- observations ----------------------------------------------------------------------------

    def upsert(self, report: DeviceReport) -> None:
        """Apply the report of a node; units that wait for room there are tried again."""
        self._upsert_report(report)
        self.view.note_freed((report.node,))

    def remove(self, report: DeviceReport) -> None:
        """Forget the devices of a node; what pods use of them is kept."""
        self._remove_report(report.node)
        self.view.note_freed((report.node,))

    def upsert_claim(self, resource_claim: DeviceResourceClaim) -> None:
        """Apply what DRA gave to a ResourceClaim; without GPUs it is forgotten."""
        self.view.note_freed(self._replace_claim(resource_claim))

    def remove_claim(self, resource_claim: DeviceResourceClaim) -> None:
        self.upsert_claim(DeviceResourceClaim(resource_claim.key))

    def _upsert_report(self, report: DeviceReport) -> None:
        if self._reported.get(report.node) == report:
            return  # only its status has changed
        self._reported[report.node] = report
        self._named[report.node] = NamedDevices(report.names)
        self.recoveries.note(report)
        self._use(report.node)

    def _use(self, node: str) -> None:
        self.reports[node] = self.recoveries.mask(self._reported[node])
        self.changes_of_nodes.note(node)
        self._rebuild(node)

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        """Note what a pod requests under old names: nodes publish them."""
        self._note_names(pod.uid, pod.shape if pod.is_alive else None)

    @override
    def forget(self, uid: str) -> None:
        self._note_names(uid, None)

    def _note_names(self, uid: str, shape: PodShape | None) -> None:
        if self.old_names.note(uid, shape):
            for node in self.reports:
                self.changes_of_nodes.note(node)

    @override
    def advance(self, now: float) -> list[str]:
        recovered = self.recoveries.advance(now)
        for node in recovered:
            self._use(node)
        return recovered

    @override
    def next_due(self) -> float | None:
        return self.recoveries.next_due()

    def _remove_report(self, node: str) -> None:
        self.reports.pop(node, None)
        self._reported.pop(node, None)
        self._named.pop(node, None)
        self.recoveries.forget(node)
        if node in self._row_of:
            self.changes_of_nodes.note(node)
        self._rebuild(node)

    def _replace_claim(self, resource_claim: DeviceResourceClaim) -> set[str]:
        """Replace what DRA gave to a ResourceClaim; return the nodes that this changes."""
        before = self._resource_claims.pop(resource_claim.key, None)
        if before is not None:
            self._resource_claims_on[before.node].discard(resource_claim.key)
        if resource_claim.gpus and resource_claim.node:
            self._resource_claims[resource_claim.key] = resource_claim
            self._resource_claims_on.setdefault(resource_claim.node, set()).add(resource_claim.key)
        if before == self._resource_claims.get(resource_claim.key):
            return set()
        nodes = {resource_claim.node} | ({before.node} if before else set())
        for node in nodes:
            self._rebuild(node)
        return nodes

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        before = self._nodes.get(row)
        self._nodes[row], self._row_of[node.name] = node, row
        if row >= self.state_of.size:
            added = np.full(max(64, 2 * row) - self.state_of.size, NO_DEVICES, dtype=np.int64)
            self.state_of = np.concatenate([self.state_of, added])
        if node.published or node.name in self.reports:
            self.changes_of_nodes.note(node.name)
        if before is None or (before.labels, before.published) != (node.labels, node.published):
            self._rebuild(node.name)
        elif before.allocatable != node.allocatable:
            self._note_use(node.name)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self._nodes.pop(row, None)
        self._row_of.pop(name, None)
        self.allocations.remove_row(row)
        self._set_bare(row, NO_DEVICES)
        self.changes_of_nodes.drop(name)
        self._note_use(name)

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        recorded = tuple(
            allocation
            for allocation in charge.allocations
            if isinstance(allocation, AllocatedDevices)
        )
        given = self.allocations.find(charge, recorded) or ()
        if not given and not any(find_unrecorded(charge.shape.requests)):
            return
        self.allocations.charge(row, charge, count, given)
        if count > 0:
            self._number(charge)
        if row >= 0:
            self._charge_row(row, charge, count)
        if count < 0:
            del self.shares_of[charge.uid]
            self.holds.pop(charge.uid, None)

    def _number(self, charge: PodCharge) -> None:
        """Note the devices of a pod by the minors and numbers that they have now."""
        uid, node = charge.uid, charge.load.node
        given = self.allocations.given[uid]
        self.shares_of[uid] = self.numbered(node, given)
        if charge.is_held and given:
            hold = self.holds[uid] = self.make_hold(node, given)
            self.shares_of[uid] = hold.left

    def _charge_row(self, row: int, charge: PodCharge, count: int) -> None:
        self._note_use(charge.load.node)
        state = int(self.state_of[row])
        if not knows_devices(state):
            self._set_bare(row, self._bare_state(row))
        elif self.allocations.given[charge.uid]:
            shares = self.shares_of[charge.uid]
            self.state_of[row] = self.states.after(state, shares, count)
        else:
            use = find_unrecorded(charge.shape.requests)
            ledger = self.states.ledger(state).with_unrecorded(use, count)
            self.state_of[row] = self.states.number(ledger)

    def unrecorded_use_of(self, row: int, uid: str) -> UnrecordedUse:
        """Return what a pod on a row uses of GPUs without a record of which ones."""
        charge = self.allocations.on_row(row).get(uid)
        if charge is None or self.allocations.given.get(uid):
            return NOTHING_UNRECORDED
        return find_unrecorded(charge.shape.requests)

    def numbered(self, node: str, allocations: Iterable[Allocation]) -> tuple[DeviceShare, ...]:
        """Return the devices of a pod by the minors and numbers that they have now."""
        named = self._named.get(node, NOTHING_NAMED)
        return tuple(
            share
            for allocation in allocations
            if isinstance(allocation, AllocatedDevices)
            for share in allocation.numbered(named)
        )

    def strayed_on(self, node: str) -> Mapping[str, tuple[Strayed, ...]]:
        """Return the pods of a node with devices that are not where their records say."""
        named = self._named.get(node, NOTHING_NAMED)
        pods = sorted(self.allocations.on_row(self._row_of.get(node, -1)))
        strayed_of = {
            uid: tuple(
                device
                for allocation in self.allocations.given[uid]
                for device in allocation.strayed(named)
            )
            for uid in pods
        }
        return {uid: strayed for uid, strayed in strayed_of.items() if strayed}

    def holder_of(self, uid: str) -> str:
        """Return the pod whose held room a pod uses; empty for none."""
        return self.allocations.hold_used_by.get(uid, "")

    def given_to(self, uid: str) -> tuple[AllocatedDevices, ...]:
        """Return what a pod on a node was given; later annotations are not believed."""
        return self.allocations.given.get(uid, ())

    def make_hold(self, node: str, allocations: Sequence[Allocation]) -> DeviceHold:
        """Return devices that are held, and what pods use of them."""
        allocated = [
            allocation for allocation in allocations if isinstance(allocation, AllocatedDevices)
        ]
        users = [user for allocation in allocated for user in allocation.users]
        return DeviceHold(self.numbered(node, allocated), self.numbered(node, users))

    def _rebuild(self, name: str) -> None:
        """Rebuild the ledger of a node after its devices or labels have changed."""
        row, report = self._row_of.get(name), self.reports.get(name)
        self._note_use(name)
        if row is None:
            return
        if report is None:
            self._set_bare(row, self._bare_state(row))
            return
        self.missing.discard(row)
        inventory = self.states.intern(make_inventory(report, self._nodes[row].labels))
        ledger = DeviceLedger(inventory, is_exact=self.states.settings.rules.is_memory_exact)
        claimed = sum(resource_claim.gpus for resource_claim in self.resource_claims_on(name))
        ledger = ledger.with_unrecorded(UnrecordedUse(claimed))
        for charge in self.allocations.on_row(row).values():
            self._number(charge)
            ledger = ledger.with_shares(self.shares_of[charge.uid])
            if not self.allocations.given[charge.uid]:
                ledger = ledger.with_unrecorded(find_unrecorded(charge.shape.requests))
        self.state_of[row] = self.states.number(ledger)

    def _bare_state(self, row: int) -> StateId:
        """Return the state of a node without a Device, by objects: a restart changes nothing."""
        pods, node = self.allocations.on_row(row), self._nodes.get(row)
        is_published = node is not None and not REPORTED.isdisjoint(node.published)
        if not (is_published or any(self.allocations.given[uid] for uid in pods)):
            return NO_DEVICES
        holds_parts = any(_holds_parts(pod.shape.requests) for pod in pods.values())
        return UNKNOWN_DEVICES if holds_parts else DEVICE_MISSING

    def _set_bare(self, row: int, state: StateId) -> None:
        self.state_of[row] = state
        (self.missing.discard if state == NO_DEVICES else self.missing.add)(row)

    def _note_use(self, node: str) -> None:
        if node in self.reports:
            self.changes_of_use.note(node)
        else:
            self.changes_of_use.drop(node)

    # --- views -----------------------------------------------------------------------------------

    def ledger_of(self, node: str) -> DeviceLedger | None:
        """Return the ledger of a node; None if the node, or its Device, is unknown."""
        row = self._row_of.get(node)
        state = NO_DEVICES if row is None else int(self.state_of[row])
        return self.states.ledger(state) if knows_devices(state) else None

    def pods_on(self, node: str) -> Mapping[str, tuple[DeviceShare, ...]]:
        """Return the pods of a node that use devices; () without a record of which ones."""
        pods = self.allocations.on_row(self._row_of.get(node, -1))
        shares_of = {uid: self.shares_of[uid] for uid in sorted(pods)}
        return {
            uid: shares
            for uid, shares in shares_of.items()
            if shares or not self.allocations.given[uid]
        }

    def resource_claims_on(self, node: str) -> list[DeviceResourceClaim]:
        """Return the ResourceClaims to which DRA gave GPUs of a node."""
        return [
            self._resource_claims[key] for key in sorted(self._resource_claims_on.get(node, ()))
        ]

    # --- cycles ----------------------------------------------------------------------------------

    def request_of(self, pod: Pod) -> DeviceDemand | InvalidRequest | None:
        """Return what a pod asks for, one value for all pods that ask for the same."""
        allocation_hints = allocation_hints_of(pod)
        key = (pod.shape.requests, allocation_hints)
        if key not in self._requests:
            request = read_request(
                dict(pod.shape.requests), allocation_hints, self.states.settings.rules
            )
            demand = DeviceDemand(request) if isinstance(request, DeviceRequest) else request
            return self._requests.keep(key, demand, 2 * size_of(key))
        return self._requests[key]

    def node(self, name: str) -> Node | None:
        return self._nodes.get(self._row_of.get(name, -1))

    @override
    def open(self, cycle: Cycle) -> "DeviceSession | None":
        if not self.is_known or not (self.reports or self.missing):
            return None
        return DeviceSession(self, cycle)

    @override
    def absorb(self) -> None:
        """Forget pods that are gone, and states that no node is in when there are too many."""
        # Only now, after all changes: a pod that left its node and came back keeps what it was
        # given. And only between cycles: a session keeps numbers of states.
        if self.allocations.discharged:
            self.allocations.forget_gone()
        if not self.states.is_full:
            return
        used = sorted(filter(knows_devices, set(self.state_of.tolist())))
        self.states.compact([self.states.ledger(state) for state in used])
        renumbered = {state: number for number, state in enumerate([*FIXED_STATES, *used])}
        self.state_of = np.array([renumbered[state] for state in self.state_of.tolist()])

    def record(self, pod: Pod, row: int, shares: Sequence[DeviceShare]) -> AllocatedDevices:
        """Return the allocation of shares of a node, with what its device plugin reads."""
        node, inventory = (
            self._nodes[row].name,
            self.states.ledger(int(self.state_of[row])).inventory,
        )
        allocation = record(pod.uid, shares, self.reports[node].names)
        return allocation.handed_to(inventory, allocation_hints_of(pod).isolation, node)


@cached_by_text()
def _holds_parts(requested: tuple[tuple[str, int], ...]) -> bool:
    """Whether a pod uses GPUs that are not counted as cards of their vendor."""
    requests = rename(dict(requested))
    is_counted = any(requests.get(card) for card in CARDS)
    return not is_counted and any(
        amount and name in REPORTED and TYPE_OF[name] == GPU for name, amount in requests.items()
    )
