"""Load-aware placement: what nodes use is a limit of placement like what pods request.

For each resource there is a column with what is used, whose limit is the threshold of the node. A
pod is charged its estimate there from the moment it is planned. Only the age of reports depends on
time.
"""

import operator
from collections.abc import Collection, Mapping
from typing import ClassVar

from typing_extensions import override

from koord.core.engine.cycle import Cycle
from koord.core.engine.plugin import Plugin, Session
from koord.core.engine.state_view import StateView
from koord.core.load.columns import NEVER, LoadColumns
from koord.core.load.estimate import deadline
from koord.core.load.model import NAME, LoadHints, hints_of
from koord.core.load.options import LoadOptions, own_limits_of
from koord.core.load.plugin import Loads
from koord.core.load.reasons import PlacedOverLoad
from koord.core.load.session import LoadSession
from koord.core.load.usage import AssignedPod
from koord.core.model.koordinator_class import KoordinatorClass
from koord.core.model.nodes import Node
from koord.core.model.plan import Plan
from koord.core.model.pod_charge import PodCharge
from koord.core.model.pods import Pod


class LoadAware(Plugin):
    """What all nodes use, as limits and scores."""

    name: ClassVar = NAME

    def __init__(self, options: LoadOptions, *, compat: bool = False) -> None:
        self.options = options
        self._compat = compat
        self._has_times = bool(options.after_scheduled or options.after_initialized)
        self._over: dict[str, PlacedOverLoad] = {}
        self._now = 0.0
        """When the pods in ``_changed`` came."""
        self._changed: dict[str, str] = {}
        """uid -> node, "" for none: pods that came or went, and are not counted yet."""

    @override
    def attach(self, view: StateView) -> None:
        self.view = view
        loads = view.plugin(Loads)
        self.columns = LoadColumns(self.options, view.table, loads, compat=self._compat)
        loads.listeners.append(self._apply_report)

    @override
    def charge(self, row: int, charge: PodCharge, count: int) -> None:
        if not charge.is_held:
            self._changed[charge.uid] = charge.load.node if count > 0 else ""

    @override
    def observe(self, before: Pod | None, pod: Pod) -> None:
        if before is None or before.extensions == pod.extensions or pod.uid in self._changed:
            return
        node = self.columns.pods.node_of(pod.uid)
        if node is not None:
            self._changed[pod.uid] = node

    def _count_changed(self) -> None:
        """Count the pods that came and went, all at once: a gang costs little more than a pod."""
        changed, self._changed = self._changed, {}
        pods, assigned, moved = self.view.pods, self.columns.pods, self.columns.moved
        placed = {} if self._has_times else self._find_placed(changed)
        if placed:
            self.columns.add_placed(placed, [pods[uid] for uid in placed], self._now)
        for uid, node in changed.items() if len(placed) < len(changed) else ():
            if uid in placed:
                continue
            before = assigned.drop(uid)
            if before is not None:
                moved.add(before)
            if node:
                moved.add(node)
                assigned.add(uid, node, self._assign(pods[uid]))

    def _find_placed(self, changed: Mapping[str, str]) -> dict[str, str]:
        """Return the nodes of pods that were placed, and say nothing: most that come together."""
        pods, assigned = self.view.pods, self.columns.pods.uids
        return {
            uid: node
            for uid, node in changed.items()
            if node and uid not in assigned and not pods[uid].extensions
        }

    def _assign(self, pod: Pod) -> AssignedPod:
        hints, options = hints_of(pod), self.options
        scheduled, end, own_end = hints.scheduled or self._now, 0.0, 0.0
        times = options.after_scheduled, options.after_initialized
        if any(times):
            end = deadline(LoadHints(initialized=hints.initialized), scheduled, *times)
        if options.is_customizable:
            own_end = deadline(hints, scheduled, *times)
            # An annotation may cut the time short; what it adds counts for less.
            end = own_end if self._compat else min(end, own_end)
        is_prod = hints.koordinator_class is KoordinatorClass.PROD
        estimate = self.columns.estimate_of(pod.shape, hints)
        requested = self.columns.requested_of(pod.shape, hints)
        return AssignedPod(pod.key, estimate, is_prod, scheduled, end, own_end, requested)

    @override
    def upsert_node(self, row: int, node: Node) -> None:
        self.columns.note_own(node.name, own_limits_of(node))
        self.columns.dirty.add(node.name)

    @override
    def remove_node(self, row: int, name: str) -> None:
        self.columns.forget(name)

    def _apply_report(self, node: str) -> None:
        """Take over another report; units that wait are tried if the node uses less now."""
        self._count_changed()
        self.columns.pods.apply(node, self.columns.loads.of(node))
        row = self.view.table.row_of.get(node)
        if row is None:
            return
        was_expired, before = node in self.columns.expired, self.columns.free_on(row)
        self.columns.write(node, self.view.now)
        after = self.columns.free_on(row)
        if was_expired or any(map(operator.gt, after, before)):
            self.view.note_freed([node])

    @override
    def advance(self, now: float) -> Collection[str]:
        self._count_changed()
        self._now, columns = now, self.columns
        if now < columns.next_end:
            return ()
        ended = [node for node, end in columns.fresh_until.items() if end <= now]
        for node in ended:
            del columns.fresh_until[node]
        columns.next_end = min(columns.fresh_until.values(), default=NEVER)
        columns.dirty.update(ended)
        return ended if self.options.admits_expired else ()

    @override
    def next_due(self) -> float | None:
        return None if self.columns.next_end == NEVER else self.columns.next_end

    @override
    def absorb(self) -> None:
        self._count_changed()
        self.columns.update(self.view.now)

    @override
    def forget(self, uid: str) -> None:
        self._over.pop(uid, None)

    def over_load(self, pod: Pod) -> PlacedOverLoad | None:
        """Return above which thresholds a pod was placed, since the process started."""
        return self._over.get(pod.uid)

    @override
    def note_plan(self, session: Session, plan: Plan) -> None:
        if not isinstance(session, LoadSession) or not session.relieved:
            return
        assignments = (of for placement in plan.placements for of in placement.assignments)
        for pod, node in ((of.pod, of.node) for of in assignments):
            row = self.view.table.row_of.get(node)
            if pod.uid in session.relieved and row is not None:
                excess = session.excess_of(pod, row)
                if excess:
                    self._over[pod.uid] = PlacedOverLoad(pod.key, node, excess)

    @override
    def open(self, cycle: Cycle) -> LoadSession:
        return LoadSession(self.columns, cycle)
