"""The operator ``podgroup``: keeps the status of every PodGroup in line with its members.

It derives all of it from objects, so it may run alone. Why a complete gang has no place is the one
thing it cannot know: the placement operator writes that into the condition ``Placed``, and this
operator leaves the condition out for as long as there is nothing of its own to say about it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from koord.api.keys import operators
from koord.api.parse import Problem, cut
from koord.api.podgroup import PodGroup as PodGroupResource
from koord.controllers.coalescing import Agenda, Pause
from koord.controllers.kopf_handlers import register_events
from koord.controllers.validation import INVALID, Judge, Verdict
from koord.core.gang.group import make_gang_key
from koord.core.gang.model import BadValue, GangKey, Phase, PodGroup
from koord.core.gang.reasons import InconsistentGroup, InvalidAnnotation, MemberOnFailedNode
from koord.core.gang.status import ConditionType, GangStatus, observe
from koord.core.reasons import Reason
from koord.core.state import ClusterState
from koord.core.topology.reasons import MissingTopology, UnknownLayer
from koord.core.topology.strategy.observed_topology import locate_gang
from koord.core.topology_constraint import TopologyConstraint
from koord.kube.status import ConditionPatch

if TYPE_CHECKING:
    import kopf

QUIET_SECONDS = 0.8
"""A gang that changes is looked at when it has been quiet for this long …"""
LONGEST_SECONDS = 1.5
"""… or this long after its first change, whichever comes first."""
_PAUSE = Pause(QUIET_SECONDS, LONGEST_SECONDS)
_PAUSE_WHILE_EMPTY = Pause(3.0, 4.0)
"""Nobody waits in a new group without pods; mostly they are about to come."""
SAY_AGAIN_AFTER_SECONDS = 10.0
"""What differs in its wording only is written again after this long: where hundreds of gangs start
together, the messages of all of them count the members of all of them."""


class StatusSink(Protocol):
    """Where a status goes; writes only what differs from what is there."""

    def write_status(
        self,
        pod_group: PodGroup,
        fields: Mapping[str, Any],
        conditions: tuple[ConditionPatch, ...],
    ) -> None:
        """Set these fields and conditions of the status, and no others."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What was written about a gang, and when (by the clock that never goes back)."""

    generation: int
    fields: Mapping[str, Any]
    conditions: tuple[ConditionPatch, ...]
    at: float

    def differs_in_wording_only(self, other: "_Said") -> bool:
        """Whether only messages differ, and some do."""
        return (
            self.conditions != other.conditions
            and (self.generation, self.fields) == (other.generation, other.fields)
            and _without_words(self.conditions) == _without_words(other.conditions)
        )


@dataclass(slots=True)
class PodGroupController:
    """Observes gangs that changed, and those whose wait time runs out.

    ``clock`` gives seconds that never go back, ``wall_clock`` seconds since the epoch.
    """

    state: ClusterState
    sink: StatusSink
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    _due: Agenda[GangKey] = field(default_factory=Agenda)
    _timeouts: dict[GangKey, float] = field(default_factory=dict)
    """Gang -> when its wait time runs out, in seconds since the epoch."""
    _said: dict[GangKey, _Said] = field(default_factory=dict)
    _problems: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    """By uid: word of an object that is gone may come after that of the next one of its name."""
    _told: set[str] = field(default_factory=set)
    """By uid: objects of which problems were handed over; of the handler alone, in its thread."""
    _failed: set[str] = field(default_factory=set)
    """Nodes that are not well."""
    _layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topology -> its layers, none if there is no tree."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def register(self, registry: "kopf.OperatorRegistry", hand_over: Callable[..., object]) -> None:
        """Add the handler to a registry; ``hand_over`` calls a function in our event loop."""
        known = Judge(PodGroupResource)
        told = self._told

        async def on_event(event: Mapping[str, Any], body: Mapping[str, Any], **_: Any) -> None:
            meta = body["metadata"]
            key = make_gang_key(meta["namespace"], meta["name"])
            verdict = Verdict()
            if event["type"] == "DELETED":
                known.forget(meta["uid"])
            else:
                verdict = known.judge(body)
            # Most events tell of a status: nothing is wrong, and nothing was.
            is_news = verdict.problems or meta["uid"] in told
            (told.add if verdict.problems else told.discard)(meta["uid"])
            if is_news:
                hand_over(self.note_problems, key, meta["uid"], verdict.problems)

        register_events(registry, PodGroupResource, on_event)

    def note_problems(self, key: GangKey, uid: str, problems: tuple[Problem, ...]) -> None:
        """Learn what is wrong with an object, as far as validation can tell."""
        if self._problems.get(uid, ()) == problems:
            return
        self._problems[uid] = problems
        if not problems:
            del self._problems[uid]
        self._touch({key})
        self.wake()

    def wake(self) -> None:
        """Say that the state has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Observe until cancelled."""
        feed = self.state.feed()
        while True:
            changes = feed.drain()
            self._touch(changes.gangs | self._on_changed_nodes(changes.freed))
            self._touch(self._on_changed_topologies())
            self._flush()
            await self._rest()

    def _touch(self, gangs: set[GangKey]) -> None:
        now = self.clock()
        for gang in gangs:
            pause = _PAUSE_WHILE_EMPTY if self._is_new(gang) else _PAUSE
            self._due.put_off(gang, now, pause)

    def _is_new(self, gang: GangKey) -> bool:
        """Whether no pod has joined and nothing was said: so nothing stands that is not so."""
        pod_group = self.state.book.pod_group(gang)
        is_empty = not self.state.book.members(gang)
        return is_empty and (pod_group is None or pod_group.phase is Phase.UNSET)

    def _flush(self) -> None:
        now = self.clock()
        over = {gang for gang, at in self._timeouts.items() if at <= self.wall_clock()}
        for gang in over:
            del self._timeouts[gang]
        self._touch(over)
        for gang in self._due.take(now):
            if self._is_in_flight(gang):
                self._due.put_off(gang, now, _PAUSE)
            else:
                self._observe(gang)

    def _is_in_flight(self, gang: GangKey) -> bool:
        """Whether members are being bound: the next moment will know better."""
        assumed = self.state.assumed
        return bool(assumed) and any(uid in assumed for uid in self.state.book.members(gang))

    def _observe(self, gang: GangKey) -> None:
        self._timeouts.pop(gang, None)
        pod_group = self.state.book.pod_group(gang)
        if pod_group is None:
            self._said.pop(gang, None)
            return
        now = self.wall_clock()
        status = observe(self.state.book, gang, now)
        if status.timeout_at is not None and status.timeout_at > now:
            self._timeouts[gang] = status.timeout_at
        conditions = _add_doubts(
            _conditions(
                status,
                self._problems.get(pod_group.uid, ()),
                self._find_idle(gang) or self._strays(gang),
            ),
            self._on_failed_nodes(gang),
        )
        fields = _fields(status) | self._placement(gang, status)
        new = _Said(pod_group.generation, fields, conditions, self.clock())
        said = self._said.get(gang)
        if said is not None and new.differs_in_wording_only(said):
            again = said.at + SAY_AGAIN_AFTER_SECONDS
            if again > new.at:
                self._due.look_at(gang, again)
                return
        self._said[gang] = new
        self.sink.write_status(pod_group, new.fields, conditions)

    def _on_changed_nodes(self, nodes: set[str]) -> set[GangKey]:
        """Return the gangs with members on nodes that have failed or come back."""
        failed = set(filter(self._has_failed, nodes))
        changed = (failed - self._failed) | (self._failed & (nodes - failed))
        self._failed = (self._failed - nodes) | failed
        if not changed:
            return set()
        pods = (pod for pod in self.state.pods.values() if pod.node in changed)
        return {pod.gang.key for pod in pods if pod.gang is not None}

    def _on_changed_topologies(self) -> set[GangKey]:
        """Return the gangs that ask something of topologies which have other layers now."""
        book, before = self.state.topologies, self._layers
        trees = ((name, book.tree(name)) for name in book)
        self._layers = {name: () if tree is None else tree.layers for name, tree in trees}
        names = self._layers.keys() | before.keys()
        changed = {name for name in names if self._layers.get(name) != before.get(name)}
        if not changed:
            return set()
        gangs = self.state.book.keys()
        return {gang for gang in gangs if (wish := self._wish(gang)) and wish.topology in changed}

    def _wish(self, gang: GangKey) -> TopologyConstraint | None:
        spec = self.state.book.spec(gang)
        return None if spec is None else spec.topology

    def _has_failed(self, node: str) -> bool:
        row = self.state.table.row_of.get(node)
        return row is not None and self.state.table.node_at(row).has_failed

    def _on_failed_nodes(self, gang: GangKey) -> MemberOnFailedNode | None:
        """Return members that may be lost."""
        if not self._failed:
            return None
        pods = (pod for pod in self.state.book.members(gang).values() if pod.is_alive)
        nodes = [pod.node for pod in pods if self._has_failed(pod.node)]
        return MemberOnFailedNode(len(nodes), tuple(sorted(set(nodes)))) if nodes else None

    def _find_idle(self, gang: GangKey) -> UnknownLayer | MissingTopology | None:
        """Return what the gang asks of the network and does not exist."""
        spec = self.state.book.spec(gang)
        if spec is None or spec.topology is None:
            return None
        named = {one.layer for one in spec.topology.layers}
        if spec.nest is not None:
            named |= {one.layer for one in spec.nest.groups if one.layer}
        name, topologies = spec.topology.topology, self.state.topologies
        tree = topologies.tree(name)
        if not named or (tree is not None and named <= set(tree.layers)):
            return None
        if tree is None:
            return MissingTopology(name, exists=name in topologies)
        return UnknownLayer(name, tuple(sorted(named - set(tree.layers))), tree.layers[1:])

    def _strays(self, gang: GangKey) -> InvalidAnnotation | None:
        """Return sub-groups that members name and the gang does not list."""
        spec = self.state.book.spec(gang)
        listed = spec.nest.by_name if spec is not None and spec.nest is not None else ()
        named = {pod.sub_group for pod in self.state.book.members(gang).values()} - {"", *listed}
        problem = f"is on members, and {operators.SUB_GROUPS} does not list it"
        bad = (
            BadValue(operators.SUB_GROUP, cut(name), "the gang itself", problem) for name in named
        )
        values = tuple(sorted(bad, key=lambda one: one.value))
        return InvalidAnnotation(values) if values else None

    def _placement(self, gang: GangKey, status: GangStatus) -> dict[str, Any]:
        """Return where the members are, named as in the API; nothing if they are nowhere."""
        if not status.nodes:
            return {}
        placement: dict[str, Any] = {"nodes": len(status.nodes)}
        state = self.state
        where = locate_gang(state.book, state.topologies, state.table.row_of, gang)
        if where is not None:
            placement |= {
                "topology": where.topology,
                "layer": where.layer,
                "domain": "/".join(where.domain),
                "domainsPerLayer": dict(where.used),
                "optimal": where.is_optimal,
            }
            if where.gap is not None:
                layer, count = where.gap
                placement["gap"] = f"{layer}: {count} more than may have been needed"
        return {"placement": placement}

    async def _rest(self) -> None:
        due = self._due.first()
        if due is not None:
            until: float | None = due - self.clock()
        else:
            first = min(self._timeouts.values(), default=None)
            until = None if first is None else first - self.wall_clock()
        try:
            async with asyncio.timeout(None if until is None else max(until, 0.02)):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()
        # Members come in bursts: what arrives in the next moment is taken in one go.
        await asyncio.sleep(0.05)


def _without_words(conditions: tuple[ConditionPatch, ...]) -> list[tuple[str, bool, str]]:
    return [(one.type, one.status, one.reason) for one in conditions]


def _fields(status: GangStatus) -> dict[str, Any]:
    """Return the status without its conditions, named as in the API."""
    members = status.members
    fields: dict[str, Any] = {
        "phase": str(status.phase),
        "scheduled": members.bound,
        "running": members.running,
        "succeeded": members.succeeded,
        "failed": members.failed,
        "members": {
            "total": members.total,
            "present": members.present,
            "held": members.held,
            "planned": members.planned,
            "bound": members.bound,
            "running": members.running,
            "succeeded": members.succeeded,
            "failed": members.failed,
            "terminating": members.terminating,
        },
    }
    if status.occupied_by:
        fields["occupiedBy"] = status.occupied_by
    if status.schedule_start is not None:
        start = datetime.fromtimestamp(status.schedule_start, UTC)
        fields["scheduleStartTime"] = start.strftime("%Y-%m-%dT%H:%M:%SZ")
    if status.plan_id:
        fields["planID"] = status.plan_id
        fields["incarnation"] = status.incarnation
    return fields


def _conditions(
    status: GangStatus,
    problems: tuple[Problem, ...],
    fault: UnknownLayer | MissingTopology | InvalidAnnotation | None,
) -> tuple[ConditionPatch, ...]:
    conditions = {
        kind: ConditionPatch(kind, is_true, reason.code, reason.text())
        for kind, is_true, reason in status.conditions
    }
    kind = ConditionType.SPEC_VALID
    if fault is not None and conditions[kind].status:
        conditions[kind] = ConditionPatch(kind, False, fault.code, fault.text())
    is_said = conditions[kind].reason == InvalidAnnotation.code
    if problems and not (is_said and all(map(_is_about_annotation, problems))):
        message = "; ".join(map(str, problems))
        conditions[kind] = ConditionPatch(kind, status=False, reason=INVALID, message=message)
    obstacle = _obstacle(status)
    is_silent = ConditionType.PLACED not in conditions and not status.is_denied
    if is_silent and obstacle is not None:
        kind = ConditionType.PLACED
        conditions[kind] = ConditionPatch(kind, False, obstacle.code, obstacle.text())
    return tuple(conditions.values())


def _add_doubts(
    conditions: tuple[ConditionPatch, ...], doubt: MemberOnFailedNode | None
) -> tuple[ConditionPatch, ...]:
    """Say of a gang that has its minimum that it may soon have it no more."""
    if doubt is None:
        return conditions
    kind = ConditionType.DEGRADED
    degraded = ConditionPatch(kind, status=True, reason=doubt.code, message=doubt.text())
    return tuple(degraded if one.type == kind and not one.status else one for one in conditions)


def _is_about_annotation(problem: Problem) -> bool:
    return problem.field.startswith("metadata.annotations")


def _obstacle(status: GangStatus) -> Reason | None:
    """Return what keeps the gang from being planned at all, if anything does."""
    for kind, is_true, reason in status.conditions:
        if is_true:
            continue
        if kind is ConditionType.QUORUM_REACHED or isinstance(reason, InconsistentGroup):
            return reason
    return None
