"""Checks every write as it arrives, and keeps the history that the oracle needs at the end.

It sees requests, answers and objects, never the state of the operators. A broken rule becomes a
line in ``violations``. Changes by others are recorded separately from those by the operators.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.model.network import Network, Process
from tests.model.objects import (
    GPU,
    allocatable_of,
    gang_of,
    gates_of,
    gpus_of,
    has_ended,
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
from tests.model.quotas import QuotaRules
from tests.model.server import Answer, Request, parse_path
from tests.model.store import NODES, POD_GROUPS, PODS, RESERVATIONS, Event, Obj, decode

from koord.api.keys import gang, operators, reservation
from koord.kube.client import Media

_ANNOTATIONS = {
    operators.PLAN,
    operators.PLAN_SIGNATURE,
    gang.BIND_GROUP_ID,
    gang.BIND_MEMBER_COUNT,
    gang.BIND_GROUP_ID_DEPRECATED,
    gang.BIND_MEMBER_COUNT_DEPRECATED,
    reservation.ALLOCATED,
}


PASSING = ("(429)", "(503)", "lost on the way")
"""Parts of messages about transient errors, which must not reach users."""
DECIDED_WITHIN = 0.01
"""At most this many seconds pass from a decision to its first write."""


@dataclass(slots=True)
class PodHistory:
    """The history of one pod, by uid."""

    name: str
    gang: str
    had_gate: bool
    is_named: bool
    """Whether ``schedulerName`` is ours."""
    released: bool = False
    bound_by_us: bool = False
    bound_at: int = 0
    """The revision at which it was bound."""
    lost_at: int = 0
    """The revision at which it ended or got a deletion timestamp; 0: neither."""
    planned: set[str] = field(default_factory=set)
    """The nodes that the operators planned for it."""
    forbidden_at: int = 0
    """The revision at which a request about its place was last answered 403."""
    is_preempted: bool = False
    """Whether it is marked as preempted."""
    is_marked: bool = False
    is_evicted: bool = False
    is_protected: bool = False
    """Its status has said that budgets protect it: only then it may be evicted in spite of them."""
    """Whether the operators announced, and began, its eviction."""
    pin_seen: dict[str, int] | None = None
    """Kind -> the last revision that the operators had seen when they pinned it."""
    writes: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    """Number of changes by others."""

    @property
    def is_ours(self) -> bool:
        return self.had_gate or self.is_named

    @property
    def is_of_start(self) -> bool:
        """Whether the operators decided on it: once bound, it shows that its gang has started."""
        return self.released or self.bound_by_us

    @property
    def may_be_bound(self) -> bool:
        """Whether the operators may bind it: ``schedulerName`` is ours, or they have pinned it."""
        return self.is_named or self.released


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Somebody else reduced the free capacity of a node."""

    revision: int
    kind: str
    node: str


class WriteLedger:
    """Listens to the store and to the network."""

    def __init__(self, network: Network) -> None:
        self.violations: list[str] = []
        self.pods: dict[str, PodHistory] = {}
        self.disturbances: list[Disturbance] = []
        self.last_placement = 0.0
        """Time at which the operators last released or bound a pod."""
        self.decided_at: dict[str, int] = {}
        """Gang -> the last revision that the operators had seen when they decided to start it."""
        self.left: list[tuple[str, int]] = []
        """Gangs that a pod has left, with the revision."""
        self.knew_group: dict[str, int] = {}
        """The same, for PodGroups."""
        self.invalid: dict[tuple[str, str], bool] = {}
        """(PodGroup, field manager) -> whether its last status was rejected as invalid."""
        self.minima: dict[str, list[tuple[int, int]]] = {}
        """Gang -> (revision, minimum from that revision on)."""
        self.quotas = QuotaRules(self.blame, network.clock)
        self.groups: dict[str, set[str]] = {}
        """Gang -> the gangs that it lists."""
        self._network = network
        self._nodes: dict[str, Obj] = {}
        self._pods: dict[str, Obj] = {}
        network.on_decide, network.on_send, network.on_write = self.decide, self.send, self.serve
        network.on_forbid = self.forbid
        network.server.store.listeners.append(self._note)

    def blame(self, text: str) -> None:
        """Record that a rule was broken."""
        self.violations.append(text)

    # Requests

    def decide(self, process: Process, request: Request) -> None:
        """Record what the process had seen when it decided on a write."""
        target = parse_path(request.path)
        if target.kind != PODS:
            return
        plan = _plan_in(request, target.subresource)
        if plan is None:
            return
        if (history := self.pods.get(_uid_in(request, target.subresource))) is not None:
            history.planned.add(plan["node"])
        if plan["plan"] not in process.decided:
            process.decided[plan["plan"]] = dict(process.seen)
            known = self._network.clock() - DECIDED_WITHIN
            process.decided_with[plan["plan"]] = process.seen_before(known)
            for kind in [kind for kind, since in process.relist_since.items() if since < known]:
                self.blame(f"planned when {kind} were known to be out of date")

    def forbid(self, request: Request) -> None:
        """Record that a request was answered 403, whatever the server would have said."""
        target = parse_path(request.path)
        if target.kind == PODS and target.subresource != "status":
            for uid, pod in self._pods.items():
                if name_of(pod) == target.name:
                    self.pods[uid].forbidden_at = self._network.server.store.revision

    def send(self, process: Process, request: Request) -> None:
        """Count a write that is sent."""
        target = parse_path(request.path)
        if target.kind != PODS:
            return
        uid, name = (
            _uid_in(request, target.subresource),
            _name_of_write(request, target.subresource),
        )
        if uid in self.pods:
            self.pods[uid].writes[name] += 1
        plan = _plan_in(request, target.subresource)
        if plan is not None and name == "release":
            process.releases.setdefault(plan["plan"], set()).add(uid)
        elif plan is not None:
            self._judge_start(process, plan)

    def _judge_start(self, process: Process, plan: Obj) -> None:
        """Check that nothing is bound when it is already known that the minimum cannot start.

        That is known when releases have failed, and the rest would not do even if every other pod
        that may have been meant to start is there.
        """
        sent = process.releases.get(plan["plan"], set())
        failed = {uid for uid in sent if self._is_held_back(uid)}
        meant = gangs_meant(plan)
        for gang_name in meant & {self.pods[uid].gang for uid in failed} & self.minima.keys():
            if self._has_started(gang_name):
                continue
            rest = [
                uid
                for uid, one in self.pods.items()
                # A pod that has left the gang meanwhile still starts with it.
                if (one.gang == gang_name or (uid in sent and one.gang not in meant))
                and uid not in failed
                and (one.bound_at or not one.had_gate or uid in sent)
            ]
            needed = self._lowest_since(gang_name, process.decided[plan["plan"]].get(POD_GROUPS, 0))
            if len(rest) < needed:
                self.blame(f"{gang_name} starts with {len(rest)} of {needed}: {failed} are gone")

    def _is_held_back(self, uid: str) -> bool:
        """Whether a pod was not released, by nobody, or went before that."""
        pod = self._pods.get(uid)
        return not self.pods[uid].released and (
            pod is None or not is_alive(pod) or bool(gates_of(pod))
        )

    def serve(self, process: Process, request: Request, answer: Answer, before: Obj | None) -> None:
        """Check a write that has been answered."""
        target = parse_path(request.path)
        if target.kind in {"events", RESERVATIONS}:
            return
        if (target.kind, target.subresource) == (POD_GROUPS, "status"):
            self.invalid[request.path, request.params["fieldManager"]] = answer.status == 422
        elif target.kind != PODS or (request.method, target.subresource) not in _ALLOWED:
            self.blame(f"unexpected write: {request.method} {request.path}")
        elif before is not None:
            self._judge_write(request, target.subresource, answer, before)

    def _judge_write(self, request: Request, part: str, answer: Answer, before: Obj) -> None:
        """Check a write to an existing pod."""
        what = f"{request.method} {request.path}"
        is_done = answer.status < 300
        if _uid_in(request, part) != uid_of(before):
            if is_done:
                self.blame(f"written to another pod than was meant: {what}")
            return
        history = self.pods[uid_of(before)]
        name = _name_of_write(request, part)
        if is_done and name in PLACING:
            self.last_placement = self._network.clock()
        if not history.is_ours:
            self.blame(f"write to a pod that is not ours: {what}")
        elif name == "status":
            self._judge_words(before, request.body["status"].get("conditions", ()), history)
        elif is_done and name == "release":
            self._judge_release(before, decode(answer.body))
        elif is_done and name == "mark":
            self._judge_mark(before, decode(answer.body))
        elif name in {"eviction", "removal"}:
            self._judge_end(before, history, name, is_done=is_done)
        elif is_done and not history.may_be_bound:
            self.blame(f"binding of a pod that was not released: {what}")

    def _judge_words(self, before: Obj, conditions: list[Obj], history: PodHistory) -> None:
        name = name_of(before)
        for one in conditions:
            if one["type"] == operators.OVER_ENTITLEMENT:
                history.is_marked = one["status"] == "True"
                history.is_protected |= one["reason"] == operators.PROTECTED_BY_BUDGET
                if history.is_marked:
                    self.quotas.judge_eviction(before, self._find_mates(before))
                else:
                    self.quotas.spare(before)
            if one["type"] == operators.PREEMPTED:
                history.is_preempted = one["status"] == "True"
        if gates_of(before) and any(one["type"] == "PodScheduled" for one in conditions):
            self.blame(f"PodScheduled written on gated {name}")
        for one in conditions:
            if one["reason"] == "BindFailed" and any(map(one["message"].__contains__, PASSING)):
                self.blame(f"{name} is said to be refused: {one['message']}")

    def _judge_mark(self, before: Obj, after: Obj) -> None:
        """A new leader marks a pod to learn when its cache is up to date."""
        if changed_annotations(before, after) - {operators.TAKEN_OVER_BY}:
            self.blame(f"{name_of(before)} was marked like this: {after['metadata']}")

    def _find_mates(self, pod: Obj) -> list[Obj]:
        """Return the pods that are evicted with a pod: its gang, with the gangs of its group."""
        gangs = self.groups.get(gang_of(pod), {gang_of(pod)})
        mates = [one for one in self._pods.values() if gang_of(one) and gang_of(one) in gangs]
        return mates or [pod]

    def _judge_end(self, before: Obj, history: PodHistory, name: str, *, is_done: bool) -> None:
        is_overruled = history.is_marked and history.is_protected
        if name == "removal" and (history.is_preempted or is_overruled):
            history.is_evicted |= is_done
        elif name == "removal":
            self.blame(f"{name_of(before)} was deleted, and no gang of the model restarts")
        elif history.is_marked and is_done:
            history.is_evicted = True

    def _judge_release(self, before: Obj, after: Obj) -> None:
        name = name_of(before)
        if gates_of(before) != [operators.PLACEMENT_GATE]:
            self.blame(f"{name} was released behind {gates_of(before)}")
        for part in ("labels", "ownerReferences", "finalizers"):
            if before["metadata"].get(part) != after["metadata"].get(part):
                self.blame(f"the release of {name} changed its {part}")
        if changed_annotations(before, after) - _ANNOTATIONS:
            self.blame(f"the release of {name} changed annotations of others")
        is_named = before["spec"]["schedulerName"] == operators.SCHEDULER_NAME
        plan = plan_of(after)
        if bool(pinned_to(after)) is is_named:
            self.blame(f"{name}: pods of our scheduler are not pinned, all others are")
        if plan is None or pinned_to(after) not in {"", plan["node"]}:
            self.blame(f"{name} is pinned to {pinned_to(after)!r}, planned for {plan}")

    # Events

    def _note(self, event: Event) -> None:
        self.quotas.note(event)
        if event.kind == PODS:
            self._note_pod(event)
        elif event.kind == NODES:
            self._note_node(event)
        elif event.kind == POD_GROUPS:
            change = event.revision, event.obj["spec"]["minMember"]
            self.minima.setdefault(name_of(event.obj), []).append(change)
            self.groups[name_of(event.obj)] = set(listed_by(event.obj))

    def _note_pod(self, event: Event) -> None:
        pod, uid = event.obj, uid_of(event.obj)
        before = self._pods.pop(uid, None)
        if event.type != "DELETED":
            self._pods[uid] = pod
        if before is None:
            self._open(pod)
        history = self.pods[uid]
        if gang_of(pod) != history.gang:
            self.left.append((history.gang, event.revision))
            history.gang = gang_of(pod)
        if self.serving is None:
            history.changes += 1
        if not history.lost_at and (event.type == "DELETED" or not is_alive(pod)):
            history.lost_at = event.revision
        if before is not None and gates_of(before) != gates_of(pod) and self.serving:
            history.released = True
            if (plan := plan_of(pod)) is not None:
                seen = self.serving.decided[plan["plan"]]
                self._begin(history.gang, plan, seen)
                self.quotas.start(pod, self.serving.decided_with[plan["plan"]])
                history.pin_seen = seen if pinned_to(pod) else None
        if node_of(pod) and not (before and node_of(before)):
            self._note_binding(event, history)

    def _open(self, pod: Obj) -> None:
        self.pods[uid_of(pod)] = PodHistory(
            name=name_of(pod),
            gang=gang_of(pod),
            had_gate=operators.PLACEMENT_GATE in gates_of(pod),
            is_named=pod["spec"]["schedulerName"] == operators.SCHEDULER_NAME,
        )

    def _note_binding(self, event: Event, history: PodHistory) -> None:
        pod, node = event.obj, node_of(event.obj)
        history.bound_at = event.revision
        if self.serving is None:
            if history.released and pinned_to(pod) == node:
                history.bound_by_us = True  # also when kube-scheduler did it: we pinned the pod
                return
            self.disturbances.append(Disturbance(event.revision, PODS, node))
            return
        plan = plan_of(pod)
        if plan is None or plan["node"] != node:
            self.blame(f"{name_of(pod)} is bound to {node}, its plan says {plan}")
            return
        seen = self.serving.decided[plan["plan"]]
        self._begin(history.gang, plan, seen)
        self.quotas.start(pod, self.serving.decided_with[plan["plan"]])
        history.bound_by_us = True
        self._judge_place(pod, history.pin_seen or seen)

    def _judge_place(self, pod: Obj, seen: dict[str, int]) -> None:
        node = node_of(pod)
        found = self._nodes.get(node)
        used = self.used_on(node) + self._promised_on(node)
        if found is not None and is_open(found, zone_of(pod)) and used <= allocatable_of(found):
            return
        taken = (one for one in self.disturbances if one.node == node)
        if any(one.revision > seen.get(one.kind, 0) for one in taken):
            return  # somebody else took it after the decision
        if found is None or not is_open(found, zone_of(pod)):
            self.blame(f"{name_of(pod)} was bound to {node}, which takes no such pods")
        else:
            self.blame(f"{node} is over its capacity: {used} of {allocatable_of(found)} {GPU}")

    def _note_node(self, event: Event) -> None:
        name = name_of(event.obj)
        before = self._nodes.pop(name, None)
        if event.type != "DELETED":
            self._nodes[name] = event.obj
        if before is not None:
            self.disturbances.append(Disturbance(event.revision, NODES, name))

    def _begin(self, gang_name: str, plan: Obj, seen: dict[str, int]) -> None:
        """Record when the start of a gang was decided; plans for later members do not count."""
        if gang_name in gangs_meant(plan) and not self._has_started(gang_name):
            self.decided_at[gang_name] = min(seen.get(PODS, 0), seen.get(NODES, 0))
            self.knew_group[gang_name] = seen.get(POD_GROUPS, 0)

    def _has_started(self, gang_name: str) -> bool:
        """Whether a member that the operators placed is alive: later members join it."""
        return any(
            one.gang == gang_name and one.bound_by_us and one.bound_at and not one.lost_at
            for one in self.pods.values()
        )

    # Reading

    @property
    def serving(self) -> Process | None:
        """The process whose write is being served; None: somebody else's write."""
        return self._network.serving

    def lowest_min(self, gang_name: str) -> int:
        """Return the lowest minimum that a gang had since the decision to start it."""
        return self._lowest_since(gang_name, self.knew_group[gang_name])

    def _lowest_since(self, gang_name: str, knew: int) -> int:
        changes = self.minima[gang_name]
        before = [minimum for revision, minimum in changes if revision <= knew][-1:]
        return min(before + [minimum for revision, minimum in changes if revision > knew])

    def used_on(self, node: str) -> int:
        """Return the GPUs in use on a node."""
        return sum(
            gpus_of(pod)
            for pod in self._pods.values()
            if node_of(pod) == node and not has_ended(pod)
        )

    def _promised_on(self, node: str) -> int:
        """Return the GPUs of a node that released pods need which are pinned to it."""
        return sum(
            gpus_of(pod)
            for uid, pod in self._pods.items()
            if self.pods[uid].released
            and pinned_to(pod) == node
            and not node_of(pod)
            and is_alive(pod)
        )


def gangs_meant(plan: Obj) -> set[str]:
    """Return the gangs that a plan names."""
    return {key.rpartition("/")[2] for key in plan.get("group", "").split(",")} - {""}


def changed_annotations(before: Obj, after: Obj) -> set[str]:
    """Return the keys of the annotations in which two states of an object differ."""
    old, new = (one["metadata"].get("annotations") or {} for one in (before, after))
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


_ALLOWED = {
    ("PATCH", ""),
    ("PATCH", "status"),
    ("POST", "binding"),
    ("POST", "eviction"),
    ("DELETE", ""),
}


PLACING = ("release", "binding")


def _name_of_write(request: Request, subresource: str) -> str:
    if request.method == "DELETE":
        return "removal"
    if not subresource:
        return "release" if request.media == Media.JSON_PATCH else "mark"
    return subresource


def _uid_in(request: Request, subresource: str) -> str:
    """Return the uid of the pod that a write is meant for."""
    body: Any = request.body
    if request.method == "DELETE":
        return body["preconditions"]["uid"]
    if subresource == "eviction":
        return body["deleteOptions"]["preconditions"]["uid"]
    if not subresource and request.media == Media.JSON_PATCH:
        return body[0]["value"]
    if "preconditions" in body:
        return body["preconditions"].get("uid", "")
    return body["metadata"].get("uid", "")


def _plan_in(request: Request, subresource: str) -> Obj | None:
    """Return the plan that a release or a binding records."""
    body: Any = request.body
    if subresource == "binding":
        return decode(body["metadata"]["annotations"][operators.PLAN])
    if subresource or request.media != Media.JSON_PATCH:
        return None
    for one in body:
        if one["op"] == "add" and one["path"] == "/metadata/annotations":
            return decode(one["value"][operators.PLAN])
        if one["op"] == "add" and one["path"].endswith("~1plan"):
            return decode(one["value"])
    return None
