"""The model of a cluster: server, users, kubelets, kube-scheduler, and the real operators.

The operators are real from the reflectors to the status writers; only HTTP, Kopf and time are
replaced. Time is virtual.
"""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tests.model import quotas
from tests.model.clock import VirtualLoop, virtual_time
from tests.model.ledger import WriteLedger
from tests.model.network import CrashPoint, Fault, ModelClient, Network, NetworkFaults, Process
from tests.model.objects import (
    NAMESPACE,
    PodPlan,
    allocatable_of,
    gates_of,
    gpus_of,
    is_alive,
    is_open,
    is_terminating,
    make_node,
    may_end,
    name_of,
    node_of,
    pinned_to,
    uid_of,
    zone_of,
)
from tests.model.server import Answer, Request, Server
from tests.model.store import NODES, PODS, Event, Obj, decode
from tests.support.plan_keys import make_keys

from koord.answers.quota_audit import find_drift
from koord.api.keys import gang, operators
from koord.kube.client import Media
from koord.operators.handlers import ResourceHandlers
from koord.operators.names import PLACEMENT, POD_GROUP, RESERVATION
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

_GROUPS = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODES = "/api/v1/nodes"
TICK_SECONDS = 0.25
"""Interval of kubelets, kube-scheduler and pod garbage collection."""
_FUTILE_PLANS = "koord_futile_plans_total"
PATIENCE = {"stuckAfter": "4s", "graceLimit": "10s", "softEvictionLimit": "5s"}
"""How long pods that leave are waited for."""
KOPF_SECONDS = 0.1
"""After this time Kopf shows what has changed; here its watches are never interrupted."""
DOWN_SECONDS = 1.0
"""From a crash to the start of the next process."""


class World:
    """Use it through :func:`open_world`; methods are called between steps of the loop."""

    def __init__(self, loop: VirtualLoop, seed: object) -> None:
        self.loop = loop
        self.has_standby = False
        self.settings = Settings.model_validate({"elasticQuota": {"reclaim": False}})
        self.operators = (PLACEMENT, POD_GROUP)
        self.rng = random.Random(f"world {seed}")
        self.server = Server(loop.wall)
        self.network = Network(self.server, random.Random(f"network {seed}"))
        self.ledger = WriteLedger(self.network)
        self.network.on_crash = self._restart_later
        self.processes: list[Process] = []
        self.parts: Parts | None = None
        self.actions = 0
        self.last_change = 0.0
        """Time of the last step or start of the operators."""
        self.next_crash: CrashPoint | None = None
        """Where the next process crashes."""
        self._numbers = count()
        self._standby: Process | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """Process number -> its task."""
        self._others = loop.create_task(self._run_cluster())

    # Time

    def advance(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self._compare_quotas()

    def _compare_quotas(self) -> None:
        """Compare what is kept of quotas with what a process that starts now would add up."""
        state = None if self.parts is None else self.parts.reader.state
        if state is not None and state.quotas.is_in_use:
            for one in find_drift(state):
                self.ledger.blame(f"quotas add up differently after a restart: {one}")

    def settle(self, longest: float = 240.0) -> None:
        """End all faults, and wait until nothing is written any more."""
        self._rest(longest)
        if self.parts is not None:
            # Only this series: others read what the kernel knows of the process.
            series = self.parts.metrics.registry.restricted_registry([_FUTILE_PLANS]).collect()
            futile = sum(sample.value for metric in series for sample in metric.samples)
            if futile:
                self.ledger.blame(f"{futile:.0f} plans had no effect")

    def _rest(self, longest: float) -> None:
        self.network.injected = NetworkFaults()
        self.last_change = self.loop.time()
        deadline = self.loop.time() + longest
        while True:
            before = (self.network.writes, self.server.store.revision, len(self.processes))
            self.advance(12.0)
            if before == (self.network.writes, self.server.store.revision, len(self.processes)):
                return
            if self.loop.time() > deadline:
                self.ledger.blame(f"no rest after {longest:.0f} s")
                return

    # The operators

    def start(self) -> None:
        """Let the standby process lead, or a new one."""
        process = self._stand_by() if self._standby is None else self._standby
        process.crash, self.next_crash = self.next_crash, None
        self.last_change = self.loop.time()
        self.processes.append(process)
        process.elected.set()
        self._standby = self._stand_by() if self.has_standby else None

    def begin_with_standby(self) -> None:
        """Start the operators with a standby process."""
        self.has_standby = True
        self.start()

    def reclaim_over_use(self) -> None:
        """Let processes that start from now on reclaim over-use of quotas."""
        how = {"reclaim": True, "delayEvictTime": quotas.RECLAIM_AFTER}
        self.settings = Settings.model_validate({"elasticQuota": how, "preemption": PATIENCE})

    def be_impatient(self) -> None:
        """Let processes that start from now on wait only some seconds for pods that leave."""
        off = {"reclaim": False}
        self.settings = Settings.model_validate({"elasticQuota": off, "preemption": PATIENCE})

    def keep_reservations(self) -> None:
        """Let processes that start from now on run the operator of reservations."""
        self.operators = (PLACEMENT, POD_GROUP, RESERVATION)

    def crash_at(self, point: CrashPoint) -> None:
        """Let the next process crash at one of its writes."""
        self.next_crash = point

    def cancel_crash(self) -> None:
        """Cancel crashes that have not happened yet."""
        self.next_crash = None
        if self.processes:
            self.processes[-1].crash = None

    def crash(self, writes: int = 0, when: str = "after") -> None:
        """Crash the leader now or some writes later; a new process leads soon after."""
        if self.processes and writes:
            process = self.processes[-1]
            process.crash = CrashPoint(process.writes + writes, is_before=when == "before")
        elif self.processes:
            self.network.kill(self.processes[-1])

    # The network

    def inject_faults(self, faults: tuple[Fault, ...], rate: float, lag: float) -> None:
        self.network.injected = NetworkFaults(faults, rate, lag)

    def break_watch(self, kind: str) -> None:
        self.network.break_watches(kind)

    def expire(self, kind: str) -> None:
        """Break the watches of a kind and compact the log, so that they have to list again."""
        self.server.store.forget()
        self.network.break_watches(kind)

    def wait(self) -> None:
        """Do nothing: the step only lets time pass."""

    def _stand_by(self) -> Process:
        process = Process(next(self._numbers))
        self._spawn(process, self._operate(process))
        return process

    async def _operate(self, process: Process) -> None:
        """Run the parts in the same order as ``koord run``."""
        client = ModelClient(self.network, process)
        parts = Parts(client, self.settings, self.operators, keys=make_keys())
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.reader.run())
            await parts.reader.wait_synced()
            await process.elected.wait()
            self.parts = parts
            for run in parts.background:
                group.create_task(run())
            for handlers in parts.handlers:
                group.create_task(self._show_objects(process, handlers))
            await parts.catch_up(f"process-{process.number}")
            assert parts.placement is not None
            group.create_task(parts.placement.run())

    async def _show_objects(self, process: Process, handlers: ResourceHandlers) -> None:
        """Show the objects of a kind to its handlers, as Kopf does."""
        kind, store, events = handlers.resource.names.plural, self.server.store, list[Event]()
        has_changed = asyncio.Event()

        def hear(event: Event) -> None:
            if event.kind == kind:
                events.append(event)
                has_changed.set()

        store.listeners.append(hear)
        try:
            await handlers.on_startup()
            for obj in store.all(kind):
                await handlers.on_event({"type": None}, obj)
            while not process.is_dead:
                await has_changed.wait()
                await asyncio.sleep(KOPF_SECONDS)
                has_changed.clear()
                shown, events[:] = tuple(events), []
                for event in shown:
                    await handlers.on_event({"type": event.type}, event.obj)
        finally:
            store.listeners.remove(hear)

    def _spawn(self, process: Process, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks[process.number] = task
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.ledger.blame(f"the operators ended unexpectedly: {_describe(error)}")

    def _restart_later(self, process: Process) -> None:
        self.parts = None
        self._tasks.pop(process.number).cancel()
        self.loop.call_later(DOWN_SECONDS, self.start)

    # Users

    def request(self, method: str, path: str, body: Any = None, media: str = Media.JSON) -> Answer:
        """Send a request of somebody else."""
        return self.server.handle(Request(method, path, body, media))

    def add_node(self, name: str, gpus: int = 8, zone: str = "") -> None:
        self.request("POST", _NODES, make_node(name, gpus, zone))

    def remove_node(self, name: str) -> None:
        self.request("DELETE", f"{_NODES}/{name}")

    def resize_node(self, name: str, gpus: int) -> None:
        status = make_node(name, gpus)["status"]
        path = f"{_NODES}/{name}/status"
        self.request("PATCH", path, {"status": status}, Media.STRATEGIC_MERGE_PATCH)

    def cordon(self, name: str) -> None:
        self._close(name, is_closed=True)

    def uncordon(self, name: str) -> None:
        self._close(name, is_closed=None)

    def _close(self, name: str, *, is_closed: bool | None) -> None:
        body = {"spec": {"unschedulable": is_closed}}
        self.request("PATCH", f"{_NODES}/{name}", body, Media.MERGE_PATCH)

    def create_pod(self, plan: PodPlan) -> Answer:
        return self.request("POST", _PODS, plan.render())

    def delete_pod(self, name: str) -> None:
        self.request("DELETE", f"{_PODS}/{name}")

    def end_pod(self, name: str, phase: str) -> None:
        self._set_phase(name, phase)

    def accept_pod(self, name: str) -> None:
        """Have the kubelet of a pod start it now: limits of run times count from then."""
        start = datetime.fromtimestamp(int(self.loop.wall()), UTC)
        body = {"status": {"phase": "Running", "startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}"}}
        self.request("PATCH", f"{_PODS}/{name}/status", body, Media.STRATEGIC_MERGE_PATCH)

    def drop_gate(self, name: str, gate: str) -> None:
        """Remove a gate from a pod."""
        pod = self.server.store.get(PODS, (NAMESPACE, name))
        if pod is None or gate not in gates_of(pod):
            return
        gates = [{"name": one} for one in gates_of(pod) if one != gate]
        body = {"spec": {"schedulingGates": gates or None}}
        self.request("PATCH", f"{_PODS}/{name}", body, Media.MERGE_PATCH)

    def move_pod(self, name: str, gang_name: str) -> None:
        """Change the gang of a pod; empty: none."""
        body = {"metadata": {"labels": {gang.POD_GROUP: gang_name or None}}}
        self.request("PATCH", f"{_PODS}/{name}", body, Media.MERGE_PATCH)

    def drop_finalizers(self, name: str) -> None:
        body = {"metadata": {"finalizers": None}}
        self.request("PATCH", f"{_PODS}/{name}", body, Media.MERGE_PATCH)

    def put_pod_group(self, body: Obj) -> None:
        """Create a PodGroup, or change its minimum."""
        answer = self.request("POST", _GROUPS, body)
        if answer.status == 409:
            patch = {"spec": body["spec"]}
            self.request("PATCH", f"{_GROUPS}/{name_of(body)}", patch, Media.MERGE_PATCH)

    def delete_pod_group(self, name: str) -> None:
        self.request("DELETE", f"{_GROUPS}/{name}")

    def put_budget(self, name: str, app: str, allowed: int, namespace: str = NAMESPACE) -> None:
        """Create a PodDisruptionBudget that lets so many pods of an app go, and no more."""
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        }
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self.request("POST", path, body)

    def put_quota(self, name: str, least: int, most: int) -> None:
        """Create a quota, or change its limits."""
        body = quotas.make_quota_of_tree(name, least, most)
        if self.request("POST", quotas.PATH, body).status == 409:
            patch = {"spec": body["spec"]}
            self.request("PATCH", f"{quotas.PATH}/{name}", patch, Media.MERGE_PATCH)

    def bind_for_others(self, pod: str, node: str) -> Answer:
        """Bind a pod without regard to its scheduler."""
        metadata = {"name": pod, "namespace": NAMESPACE}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        return self.request("POST", f"{_PODS}/{pod}/binding", binding)

    # Kubelets, kube-scheduler, garbage collection

    async def _run_cluster(self) -> None:
        seen_revision, is_ending = 0, False
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if seen_revision == self.server.store.revision and not is_ending:
                continue  # nothing has changed since the last pass, and no grace period ends
            seen_revision = self.server.store.revision
            pods = list(self.server.store.all(PODS))
            is_ending = any(
                is_terminating(pod) and not may_end(pod, self.loop.wall()) for pod in pods
            )
            for pod in pods:
                self._act_on_pod(pod)

    def _act_on_pod(self, pod: Obj) -> None:
        node, name = node_of(pod), name_of(pod)
        if not node:
            if is_alive(pod) and not gates_of(pod):
                self._schedule(pod)
        elif is_terminating(pod) or self.server.store.get(NODES, ("", node)) is None:
            if is_terminating(pod) and not may_end(pod, self.loop.wall()):
                return
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid_of(pod)}}
            self.request("DELETE", f"{_PODS}/{name}", body)
        elif pod["status"]["phase"] == "Pending":
            self._set_phase(name, "Running")

    def _schedule(self, pod: Obj) -> None:
        """Place a pod as kube-scheduler would."""
        if pod["spec"]["schedulerName"] == operators.SCHEDULER_NAME:
            return
        pin = pinned_to(pod)
        for node in self.server.store.all(NODES):
            name = name_of(node)
            if pin not in {"", name} or not is_open(node, zone_of(pod)):
                continue
            if self.ledger.used_on(name) + gpus_of(pod) <= allocatable_of(node):
                self.bind_for_others(name_of(pod), name)
                return

    def _set_phase(self, name: str, phase: str) -> None:
        body = {"status": {"phase": phase}}
        self.request("PATCH", f"{_PODS}/{name}/status", body, Media.STRATEGIC_MERGE_PATCH)

    # Reading

    def pods(self) -> list[Obj]:
        return list(self.server.store.all(PODS))

    def nodes(self) -> list[Obj]:
        return list(self.server.store.all(NODES))

    def close(self) -> None:
        tasks = [*self._tasks.values(), self._others]
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


@contextmanager
def open_world(seed: object = 0) -> Iterator[World]:
    """Make a world with its event loop, and close both at the end."""
    with virtual_time(seed) as loop:
        asyncio.set_event_loop(loop)
        world = World(loop, seed)
        try:
            yield world
        finally:
            world.close()
            asyncio.set_event_loop(None)


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)


def read(answer: Answer) -> Any:
    return decode(answer.body)
