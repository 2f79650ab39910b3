"""Rules that must hold once the world has settled, judged from objects and history alone.

The rules of gangs are implemented here a second time, in the simplest form, from
``docs/gang-lifecycle.md``. Liveness is judged conservatively: a pod counts as forgotten only if it
certainly fits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.model.ledger import PodHistory
from tests.model.network import Fault
from tests.model.objects import (
    NAMESPACE,
    allocatable_of,
    condition_of,
    gang_of,
    gates_of,
    gpus_of,
    has_ended,
    has_succeeded,
    is_alive,
    is_open,
    listed_by,
    name_of,
    node_of,
    pinned_to,
    plan_of,
    uid_of,
    zone_of,
)
from tests.model.quotas import chain_of
from tests.model.store import POD_GROUPS, Obj
from tests.model.world import World

from koord.api.keys import gang as keys
from koord.api.keys import operators

SILENCING = {Fault.FORBIDDEN, Fault.CONFLICT}
"""Errors that a status writer does not retry."""


_LARGEST_POD = 8
"""GPUs."""


@dataclass(frozen=True, slots=True)
class _Gang:
    name: str
    minimum: int
    policy: str
    listing: frozenset[str]
    members: tuple[Obj, ...]

    @property
    def plannable(self) -> list[Obj]:
        return [pod for pod in self.members if is_plannable(pod)]

    @property
    def on_nodes(self) -> list[Obj]:
        return [pod for pod in self.members if is_alive(pod) and node_of(pod)]

    def has_released(self, pod: Obj) -> bool:
        """Whether the plan of a pod names this gang: labels can change later."""
        plan = plan_of(pod)
        return plan is not None and f"{NAMESPACE}/{self.name}" in plan.get("group", "").split(",")

    @property
    def done(self) -> int:
        """How many have succeeded on a node, those of an earlier run included."""
        return sum(
            has_succeeded(pod)
            and bool(node_of(pod))
            and (not plan_of(pod) or self.has_released(pod))
            for pod in self.members
        )

    def required(self, *, has_started: bool, done: int = 0) -> int:
        """Return how many must start together if so many are done."""
        if self.policy == "only-waiting":
            return max(0, self.minimum - done)
        if self.policy == "once-satisfied" and has_started:
            return 0
        return max(0, self.minimum - done - len(self.on_nodes))


def is_plannable(pod: Obj) -> bool:
    """Whether a pod is waiting and the operators may place it now."""
    if node_of(pod) or not is_alive(pod):
        return False
    if gates := gates_of(pod):
        return gates == [operators.PLACEMENT_GATE]
    return pod["spec"]["schedulerName"] == operators.SCHEDULER_NAME or _is_released(pod)


def _is_released(pod: Obj) -> bool:
    plan = plan_of(pod)
    return plan is not None and pinned_to(pod) == plan["node"]


class Oracle:
    """Judges a settled world once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pods = world.pods()
        self._nodes = {name_of(node): node for node in world.nodes()}
        self._free = {name: self._room_on(name) for name in self._nodes}
        self._kept = self._count_kept()
        self._gangs = {name_of(one): self._read(one) for one in self._all_groups()}

    def judge(self) -> None:
        """Record every broken rule."""
        if not self._world.processes:
            return
        self._judge_picture()
        self._judge_liveness()
        self._judge_gangs()
        self._judge_reports()
        self._judge_effort()

    # State of the operators

    def _judge_picture(self) -> None:
        parts = self._world.parts
        if parts is None:
            return
        state = parts.reader.state
        if state.assumed:
            self._blame(f"still assumed at rest: {dict(state.assumed)}")
        seen = {uid: pod.node for uid, pod in state.pods.items()}
        if seen != {uid_of(pod): node_of(pod) for pod in self._pods}:
            self._blame("the operators' pods differ from the server's")

    # Liveness

    def _judge_liveness(self) -> None:
        for pod in self._pods:
            if is_plannable(pod) and not gang_of(pod) and self._fits([pod], 1):
                self._blame(f"{name_of(pod)} waits although there is room")
        judged: set[str] = set()
        for name in self._gangs:
            if name not in judged:
                group = self._group_of(name)
                judged |= group
                self._judge_group(sorted(group))

    def _judge_group(self, names: list[str]) -> None:
        """Judge started gangs separately from those that have not started."""
        gangs = [self._gangs[name] for name in names]
        # Once all of a group is done, new members are another run: none of them needs to start.
        done = {g.name: g.done for g in gangs if any(g.done < g.minimum for g in gangs)}
        started = [g for g in gangs if any(g.has_released(pod) for pod in g.on_nodes)]
        self._judge_part(started, done, has_started=True)
        others = [gang for gang in gangs if gang not in started]
        if all(self._is_returned(gang) for gang in others):
            self._judge_part(others, done, has_started=False)

    def _judge_part(
        self, gangs: list[_Gang], done: Mapping[str, int], *, has_started: bool
    ) -> None:
        required = [
            gang.required(has_started=has_started, done=done.get(gang.name, 0)) for gang in gangs
        ]
        waiting = [pod for gang in gangs for pod in gang.plannable]
        if any(len(g.plannable) < need for g, need in zip(gangs, required, strict=True)):
            return
        pods = ", ".join(map(name_of, waiting))
        if sum(required):
            if self._fits(waiting, sum(required)):
                self._blame(f"{pods} wait although there is room for {sum(required)}")
        elif any(self._fits([pod], 1) for pod in waiting):
            self._blame(f"one of {pods} waits although there is room")

    def _fits(self, pods: list[Obj], count: int) -> bool:
        """Whether ``count`` of the pods certainly fit, in any order of placement."""
        rules = self._world.ledger.quotas
        if any(map(chain_of, pods)) and (self._kept or not rules.is_ample()):
            return False
        pinned = [pod for pod in pods if not gates_of(pod) and _is_released(pod)]
        if any(not self._holds(pod) for pod in pinned):
            return False
        others = [pod for pod in pods if pod not in pinned]
        missing = max(0, count - len(pinned))
        if not others or not missing:
            return bool(pinned)
        largest = max(map(gpus_of, others))
        zones = {zone_of(pod) for pod in others}
        slots = sum(
            max(0, self._free[name]) // largest
            for name, node in self._nodes.items()
            if all(is_open(node, zone) for zone in zones)
        )
        # Room kept for replacements is not available; the oracle does not know on which nodes.
        return slots - self._kept * (_LARGEST_POD // largest + 1) >= missing

    def _count_kept(self) -> int:
        """Return the number of pods for which the operators keep room."""
        placement = self._world.parts.placement if self._world.parts else None
        return sum(placement.holds.reserved_pods().values()) if placement else 0

    def _holds(self, pod: Obj) -> bool:
        node = self._nodes.get(pinned_to(pod))
        return node is not None and is_open(node, zone_of(pod)) and self._free[name_of(node)] >= 0

    def _room_on(self, name: str) -> int:
        """Return the free GPUs of a node; pinned pods count on their node."""
        taken = sum(
            gpus_of(pod)
            for pod in self._pods
            if not has_ended(pod)
            and (node_of(pod) or (pinned_to(pod) if _is_released(pod) else "")) == name
        )
        return allocatable_of(self._nodes[name]) - taken

    # All or nothing

    def _judge_gangs(self) -> None:
        ledger = self._world.ledger
        for gang in self._gangs.values():
            group = self._group_of(gang.name)
            histories = [one for one in ledger.pods.values() if one.gang in group]
            placed = (pod for pod in gang.on_nodes if ledger.pods[uid_of(pod)].bound_by_us)
            ours = [pod for pod in placed if gang.has_released(pod)]
            if not ours or gang.name not in ledger.decided_at:
                continue  # members came from another gang
            since = ledger.decided_at[gang.name]
            if any(one.is_of_start and 0 < one.bound_at <= since for one in histories):
                continue  # it joined a started group
            bound, lost = (
                len(gang.on_nodes) + gang.done,
                sum(one.lost_at > since and not one.is_evicted for one in histories),
            )
            lost += sum(name in group and at > since for name, at in ledger.left)
            is_raised = gang.minimum > ledger.lowest_min(gang.name)
            is_short = gang.required(has_started=True) > len(gang.plannable)
            if is_short and (lost or is_raised):
                continue  # members were deleted or more are wanted: the rest waits for them
            hindered = sum(self._is_hindered(pod, since) for pod in gang.plannable)
            if bound + lost + hindered < ledger.lowest_min(gang.name):
                told = f"{lost} lost, {hindered} hindered"
                self._blame(f"{gang.name} is at {bound} of {gang.minimum} ({told})")

    def _is_hindered(self, pod: Obj, since: int) -> bool:
        """Whether the server refused a member, or others took its place, after a decision."""
        history = self._world.ledger.pods[uid_of(pod)]
        taken = (one for one in self._world.ledger.disturbances if one.node in history.planned)
        return history.forbidden_at > since or any(one.revision > since for one in taken)

    # Conditions and statuses

    def _judge_reports(self) -> None:
        if SILENCING & self._world.network.faults_drawn.keys():
            return
        for pod in self._pods:
            condition = condition_of(pod, operators.PLACED)
            if is_plannable(pod) and (condition is None or condition["status"] != "False"):
                self._blame(f"{name_of(pod)} waits and nobody says why")
            if condition and condition["status"] == "False" and is_alive(pod) and node_of(pod):
                self._blame(f"{name_of(pod)} is said to wait and does not")
        for (path, manager), is_invalid in self._world.ledger.invalid.items():
            if is_invalid and path.split("/")[-2] in self._gangs:
                self._blame(f"what {manager} says of {path} was refused as invalid")
        for group in self._all_groups():
            self._judge_group_status(group, self._gangs[name_of(group)])

    def _judge_group_status(self, group: Obj, gang: _Gang) -> None:
        said = group.get("status", {}).get("scheduled")
        bound = sum(bool(node_of(pod)) for pod in gang.members)
        if said != bound:
            self._blame(f"{bound} of {gang.name} are on nodes, its status says {said}")

    # Number of writes

    def _judge_effort(self) -> None:
        processes = len(self._world.processes)
        faults = self._world.network.faults_drawn.total()
        of_pod = self._world.network.faults_of
        told = 2 * processes + self._world.actions + faults + self._world.loop.time() / 10
        for history in self._world.ledger.pods.values():
            most = self._most_writes(history, processes, of_pod[history.name])
            writes = history.writes
            if writes["release"] > most or writes["binding"] > most:
                self._blame(f"{dict(writes)} writes to {history.name}, {most} were enough")
            if writes["status"] > told:
                self._blame(f"{writes['status']} status writes to {history.name}")

    def _most_writes(self, history: PodHistory, processes: int, faults: int) -> int:
        ledger = self._world.ledger
        is_calm = not (self._world.network.faults_drawn or ledger.disturbances or ledger.left)
        mates = [one for one in ledger.pods.values() if is_mate(history, one)]
        if is_calm and not any(mate.lost_at for mate in mates):
            return processes
        lost = sum(bool(mate.lost_at) for mate in mates)
        return 2 * (processes + faults + history.changes + lost)

    # Gangs

    def _all_groups(self) -> Iterable[Obj]:
        return self._world.server.store.all(POD_GROUPS)

    def _read(self, group: Obj) -> _Gang:
        name = name_of(group)
        annotations = group["metadata"].get("annotations") or {}
        return _Gang(
            name=name,
            minimum=group["spec"]["minMember"],
            policy=annotations.get(keys.MATCH_POLICY, "once-satisfied"),
            listing=frozenset(listed_by(group)),
            members=tuple(pod for pod in self._pods if gang_of(pod) == name),
        )

    def _group_of(self, name: str) -> set[str]:
        found, queue = {name}, [name]
        while queue:
            lister = queue.pop()
            for other in self._gangs[lister].listing & self._gangs.keys() - found:
                if lister in self._gangs[other].listing:
                    found.add(other)
                    queue.append(other)
        return found

    def _is_returned(self, gang: _Gang) -> bool:
        return all(
            other in self._gangs and gang.name in self._gangs[other].listing
            for other in gang.listing - {gang.name}
        )

    def _blame(self, text: str) -> None:
        self._world.ledger.blame(text)


def is_mate(history: PodHistory, other: PodHistory) -> bool:
    """Whether two pods are the same or of one gang, and so are placed together."""
    return other is history or bool(history.gang and history.gang == other.gang)
