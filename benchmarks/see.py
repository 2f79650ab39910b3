"""What answers, records of decisions and the diagnosis API cost, against the bars that they have.

    python -m benchmarks.see [--nodes 5000] [--pods 50000] [--units 10000] [--runs 20]

In memory, in one process: answers as the routes compute them, records as placement makes them, and
the documents that the leader makes in its main loop. What writes cost is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any, Final

from tests.builders import make_node, make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.controllers.scene import Scene
from tests.objects import upsert_pod_group

from koord.answers.encoding import encode
from koord.answers.reading import Reading, Target, TargetKind
from koord.controllers.decision_log import DecisionLog
from koord.controllers.decision_tracer import DecisionTracer
from koord.core.audit.ring import Ring
from koord.core.engine.planner import plan as plan_units
from koord.core.engine.reasons import InsufficientNodes
from koord.core.model.plan import Placement, Unit, Unplaced
from koord.runtime.app import freeze_garbage_collection
from koord.runtime.audit import encode_record
from koord.runtime.diagnosis import answer
from koord.see.route import Ask, Route
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPU: Final = "nvidia.com/gpu"
TEAMS: Final = 40
GANG: Final = 8
"""Pods of the gangs that are recorded."""
GANGS: Final = 250
NOW: Final = 1_790_000_000.0
HERE: Final = Target(TargetKind.POD, "default", "")
WAITING: Final = {"namespace": "default", "kind": "podgroup", "name": "large"}
DRAIN: Final = {"edits": [{"drain": {"nodes": ["n00001"]}}]}
MORE_NODES: Final = {"edits": [{"addNodes": {"like": "n00001", "count": 100}}]}
LESS: Final = {
    "edits": [{"patch": {"ref": "quota/team-01", "merge": {"spec": {"max": {GPU: "1"}}}}}]
}


@dataclass(frozen=True, slots=True)
class Bar:
    """What was measured, in ``unit``, and what it may be at most; None for no bar."""

    what: str
    value: float
    unit: str
    most: float | None = None

    @property
    def line(self) -> str:
        bar = "" if self.most is None else f"≤ {self.most:g} {self.unit}"
        mark = "" if self.most is None or self.value <= self.most else "  MISSED"
        return f"| {self.what} | {self.value:.3g} {self.unit} | {bar}{mark} |"


def make_large(nodes: int, pods: int, units: int) -> FakeCluster:
    """Make nodes of eight GPUs, most of them in use, quotas, and units that wait."""
    cluster = make_cluster()
    teams = [f"team-{at:02}" for at in range(TEAMS)]
    cluster.quotas(*(make_quota(team, min={GPU: 100}, max={GPU: 40_000}) for team in teams))
    cluster.nodes(*(make_node(f"n{at:05}").cpu(128_000).gpu(8) for at in range(nodes)))
    for at in range(pods):
        pod = make_pod(f"runs-{at:06}").quota(teams[at % TEAMS]).requests(cpu=100)
        pod = pod.gpu(1) if at < 7 * nodes else pod
        cluster.pods(pod.running(f"n{at % nodes:05}"))
    cluster.pod_groups(make_pod_group("default/large", 64))
    cluster.pods(*(make_pod(f"large-{at}").gang("default/large").gpu(8) for at in range(64)))
    cluster.pods(
        *(make_pod(f"waits-{at:05}").quota(teams[at % TEAMS]).gpu(8) for at in range(units))
    )
    cluster.state.advance(NOW)
    cluster.state.refresh()
    return cluster


# Answers


def measure_answers(cluster: FakeCluster, runs: int) -> Iterator[Bar]:
    snapshot = Snapshot(Reading(cluster.state), HERE, 1, NOW)
    began, busy = time.perf_counter(), time.process_time()
    rows = len(snapshot.waiting)
    whole, busy = time.perf_counter() - began, time.process_time() - busy
    yield Bar(f"queue of {rows} units, planned once per reading", whole, "s")
    yield Bar("the same, processor time", busy, "s")
    for name, parts, body, most in (
        ("Overview", {}, {}, 50.0),
        ("Queue", {}, {}, 50.0),
        ("Quotas", {}, {}, 50.0),
        ("Explanation", WAITING, {}, 100.0),
        ("Remedies", WAITING, {}, 400.0),
        ("WhatIf", {}, DRAIN, 400.0),
        ("WhatIf", {}, MORE_NODES, 400.0),
        ("WhatIf", {}, LESS, 400.0),
        ("Room", {}, {"shape": "4x8"}, 100.0),
        ("Fragmentation", {}, {}, None),
        ("Nodes", {}, {}, None),
    ):
        route = next(route for route in ROUTES if route.answer == name)
        asked, edits = Ask(parts, body), ", ".join(_edits_of(body))
        title = f"{name} ({edits})" if edits else name
        first = _time(route.compute, snapshot, asked)
        times = sorted(_time(_ask, route, snapshot, asked) for _ in range(runs))
        p95 = times[int(0.95 * (len(times) - 1))]
        yield Bar(f"{title}, p95 as asked", p95, "ms", most)
        yield Bar(f"{title}, computed first", first, "ms")
        if most is not None:
            again = [_measure_cpu(route, snapshot, asked) for _ in range(max(3, runs // 4))]
            what = f"{title}, computed again, processor time"
            yield Bar(f"{what}, median", statistics.median(again), "ms", most)
            yield Bar(f"{what}, spread", max(again) - min(again), "ms")
    yield Bar("memory of all of it, at most", getrusage(RUSAGE_SELF).ru_maxrss / 1024, "MiB", 400.0)


def _edits_of(body: dict[str, Any]) -> Iterator[str]:
    return (key for edit in body.get("edits", ()) for key in edit)


def _ask(route: Route, snapshot: Snapshot, ask: Ask) -> bytes:
    """Answer as the server does: what is the same for all is computed once per reading."""
    value: Any = route.answer_from(snapshot, ask).value
    is_list = isinstance(value, list | tuple)
    page = encode(value[:100]) if is_list else value  # what is no list is encoded already
    return json.dumps(page, ensure_ascii=False).encode()


def _measure_cpu(route: Route, snapshot: Snapshot, asked: Ask) -> float:
    """Return what an answer costs that nobody has asked for, in milliseconds: others may run."""
    snapshot.explained = None
    began = time.process_time()
    route.compute(snapshot, asked)
    return 1000 * (time.process_time() - began)


def _time(call: Callable[..., object], *args: object) -> float:
    began = time.perf_counter()
    call(*args)
    return 1000 * (time.perf_counter() - began)


# Records


def measure_records(runs: int) -> Iterator[Bar]:
    """Measure what one record costs where it is made, and its document where it is read."""
    scene = make_gangs()
    audit = make_audit(scene, Ring(1 << 20, 1 << 30))
    units = list(scene.operator.queue.by_time())
    plan = plan_all(scene, units)
    refusal = InsufficientNodes(8, 3, 100, (), "default/g-0")
    refused = [Unplaced(unit.key, unit.pods, refusal) for unit in units]

    def each(name: str, record: Callable[[Unit, Placement, Unplaced], None], most: float) -> Bar:
        best = min(_time_records(audit, units, plan, refused, record) for _ in range(runs))
        return Bar(f"record: {name}", best, "µs", most)

    yield each("first refusal", lambda unit, _, no: audit.refused(unit, no), 5.0)
    for unit, no in zip(units, refused, strict=True):
        audit.refused(unit, no)
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        for unit, no in zip(units, refused, strict=True):
            audit.refused(unit, no)
        times.append(1e6 * (time.perf_counter() - began) / len(units))
    yield Bar("record: the same refusal again", min(times), "µs", 5.0)
    yield each(f"placement of {GANG} pods", lambda unit, place, _: audit.placed(unit, place), 5.0)
    records = audit.ring.read(0, 1000)
    began = time.perf_counter()
    sizes = [len(encode_record(record)) for record in records]
    took = 1e6 * (time.perf_counter() - began) / len(records)
    yield Bar("document of a record, made by who reads", took, "µs")
    yield Bar("its size", statistics.mean(sizes), "bytes", 1229.0)


def _time_records(
    audit: DecisionLog,
    units: list[Unit],
    plan: dict[str, Placement],
    refused: list[Unplaced],
    record: Callable[[Unit, Placement, Unplaced], None],
) -> float:
    audit.begin_term(1, "a")
    gc.collect()
    began = time.perf_counter()
    for unit, no in zip(units, refused, strict=True):
        record(unit, plan[unit.key], no)
    return 1e6 * (time.perf_counter() - began) / len(units)


def make_gangs() -> Scene:
    scene = Scene()
    for at in range(GANGS):
        scene.state.upsert_node(make_node(f"n{at:03}").gpu(8).build())
        upsert_pod_group(scene.state, make_pod_group(f"default/g{at}", GANG).build())
        for number in range(GANG):
            pod = make_pod(f"g{at}-{number}").gang(f"default/g{at}").gpu(1)
            scene.state.upsert_pod(pod.build())
    scene.operator.queue.absorb(scene.state.everything(), scene.state)
    return scene


def plan_all(scene: Scene, units: list[Unit]) -> dict[str, Placement]:
    scene.state.refresh()
    outcome = plan_units(scene.state.open_cycle(), units, scene.operator.scoring)
    return {placement.unit: placement for placement in outcome.placements}


def make_audit(scene: Scene, ring: Ring) -> DecisionLog:
    audit = DecisionLog(ring, scene.state, scene.operator.queue, time.time, time.monotonic)
    audit.begin_term(1, "a")
    return audit


def measure_placement(runs: int) -> Iterator[Bar]:
    """Place gangs with and without records and debug flags, in turn; writes cost nothing."""
    kinds: dict[str, list[float]] = {"plain": [], "records": [], "flags that are off": []}
    for _ in range(runs):
        for kind, times in kinds.items():
            times.append(asyncio.run(_place_all(kind)))
    plain = statistics.median(kinds["plain"])
    for kind in ("records", "flags that are off"):
        more = 100 * (statistics.median(kinds[kind]) / plain - 1)
        yield Bar(f"placing {GANGS} gangs with {kind}, more processor time", more, "%", 5.0)


class _Off:
    top_scores = 0
    shows_failures = dumps = False


async def _place_all(kind: str) -> float:
    scene = make_gangs()
    operator = scene.operator
    if kind == "records":
        operator.audit = make_audit(scene, Ring(8192, 16 << 20))
    elif kind != "plain":
        operator.tracer = DecisionTracer(_Off(), operator.scoring, time.time)
    gc.collect()
    began = time.process_time()
    async with scene.running():
        await scene.eventually(lambda: len(scene.writer.bound) == GANGS * GANG)
    return time.process_time() - began


# Koordinator's diagnosis API


def measure_diagnosis(cluster: FakeCluster, runs: int) -> Iterator[Bar]:
    quotas = make_cluster().nodes(make_node("n").gpu(8))
    quotas.quotas(*(make_quota(f"q{at:04}", max={GPU: 8}) for at in range(1000)))
    quotas.state.refresh()
    for what, state, path, most in (
        ("1,000 quotas", quotas.state, "/plugins/ElasticQuota/quotas", 5.0),
        ("a node", cluster.state, "/nodes/n00001", 20.0),
        ("NUMA of a node", cluster.state, "/plugins/NodeNUMAResource/nodes/n00001", 20.0),
        ("all gangs", cluster.state, "/plugins/Coscheduling/gangs", 20.0),
        ("all devices", cluster.state, "/plugins/DeviceShare/nodeDeviceSummaries", 20.0),
    ):
        times = [_time(answer, state, path, {}) for _ in range(runs)]
        yield Bar(f"diagnosis, main loop: {what}", statistics.median(times), "ms", most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    print("| What | measured | bar |\n|---|---|---|")
    freeze_garbage_collection()  # as the leader, and koord serve once the cluster is read
    for bar in measure_records(options.runs):
        print(bar.line, flush=True)
    for bar in measure_placement(max(3, options.runs // 4)):
        print(bar.line, flush=True)
    cluster = make_large(options.nodes, options.pods, options.units)
    freeze_garbage_collection()
    for measured in (measure_diagnosis, measure_answers):
        for bar in measured(cluster, options.runs):
            print(bar.line, flush=True)


if __name__ == "__main__":
    main()
