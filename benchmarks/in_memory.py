"""A cluster in memory that is fed with JSON, as the API server sends it, and planned in cycles.

Objects go through the decoders and translators of the operators, and units through their queue and
planner. Nothing is written: placed pods are on their nodes at once.
"""

import json
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from tests.cluster import SCORING, FakeCluster

from koord.controllers.error_isolation import plan_with_holds
from koord.controllers.placement import MOST_PODS_PER_CYCLE
from koord.core.engine.cycle import Cycle
from koord.core.engine.holds import Holds
from koord.core.engine.steps import MOST_PER_CALL, budget_of
from koord.core.model.plan import Plan, Unit
from koord.core.model.reasons import TooExpensive
from koord.domains.device import DEVICES
from koord.domains.numa import NODE_TOPOLOGIES
from koord.domains.placement import NODES
from koord.domains.registry import KINDS, make_translator_options
from koord.domains.topology import TOPOLOGIES
from koord.kube.decode import Decoder
from koord.kube.kind import AnyKind
from koord.kube.store import Deleted, Store
from koord_sandbox.node_reports import make_device, make_report
from koord_sandbox.nodes import load_shape, make_node

Body = dict[str, Any]
LAYERS: Final = (
    {"topologyLayer": "spine", "labelKey": ["network.topology.nvidia.com/spine"]},
    {
        "topologyLayer": "block",
        "parentTopologyLayer": "spine",
        "labelKey": ["network.topology.nvidia.com/block"],
    },
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "block"},
)
SINCE: Final = "2025-01-01T00:00:00Z"
EVENTS: Final = 100
"""Objects that arrive between two cycles."""
_numbers = count()


@dataclass(slots=True)
class Times:
    """Seconds of processor time, each the longest of its kind, and steps of planning."""

    object: float = 0.0
    """Reading one object."""
    cycle: float = 0.0
    """Taking in what has changed, and one plan."""
    total: float = 0.0
    steps: int = 0
    """Of one cycle."""
    budget: int = 0
    """What a cycle may take: its own share, and the budget of the last unit in it."""
    too_expensive: int = 0


class Reader:
    """Reads one kind as its reflector does."""

    def __init__(self, kind: AnyKind) -> None:
        self.kind = kind
        self.rejected = 0
        self._decoder: Decoder[Any] = Decoder(kind.wire)
        self._translator = kind.make_translator(make_translator_options())
        self._store: Store[Any, Any] = Store(self._translator.translate, self._reject)

    def _reject(self, _key: str, _problem: str) -> None:
        self.rejected += 1

    def read(self, cluster: FakeCluster, line: bytes) -> None:
        for _, item in self._decoder.decode_lines(line):
            for change in self._store.upsert(item):
                if isinstance(change, Deleted):
                    self.kind.remove(cluster.state, change.value)
                else:
                    self.kind.upsert(cluster.state, change.value)


@dataclass(slots=True)
class World:
    """The cluster, and what it has cost so far."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    times: Times = field(default_factory=Times)
    plans: list[Plan] = field(default_factory=list)
    bytes_read: int = 0
    _readers: dict[str, Reader] = field(default_factory=lambda: {str(k): Reader(k) for k in KINDS})
    _holds: Holds = field(default_factory=Holds)
    _now: float = 0.0

    def furnish(self, nodes: int, shape: str = "h100x8") -> None:
        """Add nodes with GPUs, NICs, NUMA nodes and a network, and plan once: caches are made."""
        form = load_shape(shape)
        spec = {"networkTopologySpec": list(LAYERS)}
        self._read(TOPOLOGIES, {"metadata": {"name": "default"}, "spec": spec})
        for at in range(nodes):
            node = make_node(form, at)
            name = node["metadata"]["name"]
            self._read(NODES, {**node, "spec": {}})
            self._read(DEVICES, make_device(form, name, name))
            report = make_report(name, form.capacity, form.numa_nodes or 2)
            self._read(NODE_TOPOLOGIES, report)
        self.absorb()
        self.times, self.bytes_read = Times(), 0

    def feed(self, objects: Iterable[tuple[AnyKind, Body]]) -> None:
        """Read objects, and plan now and then as they arrive."""
        left = iter(objects)
        while some := list(islice(left, EVENTS)):
            for kind, body in some:
                self._read(kind, body)
            self.run(1)

    def run(self, cycles: int) -> int:
        """Plan until nothing is due; return the number of cycles, at most so many."""
        for done in range(cycles):
            if not self._cycle():
                return done
        return cycles

    def placed(self, pod: str) -> bool:
        return any(
            one.pod.key == pod
            for plan in self.plans
            for placement in plan.placements
            for one in placement.assignments
        )

    def absorb(self) -> None:
        self.cluster.absorb()

    def _read(self, kind: AnyKind, body: Body) -> None:
        line = json.dumps({"type": "ADDED", "object": _complete(kind, body)}).encode()
        self.bytes_read += len(line)
        began = time.process_time()
        self._readers[str(kind)].read(self.cluster, line)
        self._note(began, "object")

    def _cycle(self) -> bool:
        began = time.process_time()
        self._now += 1.0
        self.absorb()
        taken = self.cluster.queue.take(self._now, MOST_PODS_PER_CYCLE, self.cluster.state)
        units = {unit.key: unit for unit in taken}
        if units:
            self._plan(units)
        self._note(began, "cycle")
        return bool(units)

    def _plan(self, units: Mapping[str, Unit]) -> None:
        cluster, cycles = self.cluster, list[Cycle]()
        cluster.state.refresh()

        def open_cycle() -> Cycle:
            cycle = cluster.state.open_cycle(lambda: cluster.queue.by_time(*units.values()))
            cycle.steps.most = MOST_PER_CALL
            cycle.steps.wasted = cluster.queue.wasted(self._now)
            cycles.append(cycle)
            return cycle

        plan = plan_with_holds(self._holds, open_cycle, tuple(units.values()), SCORING, self._now)
        decided = {one.unit for one in (*plan.placements, *plan.refusals)}
        undecided = [unit for key, unit in units.items() if key not in decided]
        cluster.queue.put_back(undecided)
        cluster.queue.yield_to_others(cycles[-1].steps.spent if undecided else {})
        cluster.state.note_plan(cycles[-1], plan)
        self._measure(cycles[-1], units.values())
        for cycle in cycles:
            cycle.close()
        for refusal in plan.refusals:
            cluster.queue.refuse(units[refusal.unit], refusal)
            if isinstance(refusal.reason, TooExpensive):
                self.times.too_expensive += 1
                cluster.queue.postpone(units[refusal.unit], refusal.reason.steps, self._now)
        cluster.assume(plan)
        self.plans.append(plan)

    def _measure(self, cycle: Cycle, units: Iterable[Unit]) -> None:
        rows = cycle.used.shape[1]
        largest = max(budget_of(rows, len(unit.pods)) for unit in units)
        self.times.steps = max(self.times.steps, cycle.steps.taken)
        self.times.budget = max(self.times.budget, MOST_PER_CALL + largest)

    def _note(self, began: float, what: str) -> None:
        took = time.process_time() - began
        setattr(self.times, what, max(getattr(self.times, what), took))
        self.times.total += took


def _complete(kind: AnyKind, body: Body) -> Body:
    """Add what the API server adds to every object."""
    number = next(_numbers)
    made = {"uid": f"uid-{number}", "resourceVersion": str(number), "creationTimestamp": SINCE}
    return {
        "apiVersion": kind.api_version,
        **body,
        "metadata": {**made, **body["metadata"]},
    }


def rss_mib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)
