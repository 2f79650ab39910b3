"""How far data runs inside the operators: ``python -m tests.support.trace``.

Plays four ways of the data in memory, and counts the files and functions that are entered, and how
often the next call is in another file. Where that is often, one thing is spread over two files.
``--show gang`` lists the calls of one way, and the files between which most of it runs to and fro.

What every way has in common is left out: reflector, decoder, HTTP client, leader election.
Comprehensions count as the functions that they stand in.
"""

import argparse
import asyncio
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from tests.builders import make_node as make_core_node
from tests.builders import make_pod, make_pod_group
from tests.cli.readings import NOW, ask_gang, make_reading
from tests.model import objects
from tests.model.objects import PodPlan
from tests.support.plan_keys import make_keys

import koord
from koord.answers.devices import view_devices
from koord.api.elasticquota import ElasticQuota
from koord.cli.device_view import draw_node
from koord.cli.explain_view import BEST_NODES, make_parts
from koord.cli.output import print_parts
from koord.controllers.commit import commit
from koord.controllers.error_isolation import plan_with_holds
from koord.controllers.quota_status import ALL_QUOTAS, QuotaStatusPolicy
from koord.controllers.status_author import StatusAuthor
from koord.controllers.status_controller import StatusController
from koord.controllers.writes_in_flight import BindTurns, WritesInFlight
from koord.core.device.plugin import Devices
from koord.core.engine.holds import Holds
from koord.core.engine.queue import Queue
from koord.core.engine.scoring import Scoring
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koord.domains.device import DEVICES
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS
from koord.domains.registry import make_cluster_state, make_translator_options
from koord.kube.binder import Binder
from koord.kube.events import EventRecorder
from koord.kube.kind import AnyKind, TranslatorOptions
from koord.kube.objects import ref_of_quota
from koord.kube.status import StatusWriter, applied_by
from koord.operators.handlers import ResourceHandlers

PACKAGE = f"{Path(koord.__file__).parent}/"
MOST_PAIRS = 15
CALLS_SHOWN = 4
Obj = dict[str, Any]


class Function(NamedTuple):
    file: str
    """Relative to the package."""
    name: str


@dataclass
class Trace:
    """The calls of one way, in parts between which the test itself does something."""

    parts: list[list[Function]] = field(default_factory=list)

    @contextmanager
    def part(self) -> Iterator[None]:
        """Record the calls that this thread makes while the context is open."""
        calls: list[Function] = []

        def note(frame: FrameType, event: str, _: object) -> None:
            code = frame.f_code
            is_ours = event == "call" and code.co_filename.startswith(PACKAGE)
            if is_ours and not code.co_name.startswith("<"):
                calls.append(Function(code.co_filename[len(PACKAGE) :], code.co_qualname))

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.parts.append(calls)

    @property
    def calls(self) -> list[Function]:
        return [call for part in self.parts for call in part]

    def visits(self) -> list[tuple[str, list[str]]]:
        """Return each file that is entered, with the functions called before the next file is."""
        return [
            (file, [call.name for call in calls])
            for part in self.parts
            for file, calls in groupby(part, lambda call: call.file)
        ]

    def pairs(self) -> Counter[tuple[str, str]]:
        """Return how often the way goes from one file of a pair to the other."""
        moves: Counter[tuple[str, str]] = Counter()
        for part in self.parts:
            files = [file for file, _ in groupby(part, lambda call: call.file)]
            moves.update((min(pair), max(pair)) for pair in pairwise(files))
        return moves

    def numbers(self) -> dict[str, int]:
        calls = self.calls
        return {
            "files": len({call.file for call in calls}),
            "functions": len(set(calls)),
            "moves": len(self.visits()),
            "calls": len(calls),
        }


class FakeCluster:
    """The state of a process, filled with objects as the API server sends them."""

    def __init__(self) -> None:
        self.state = make_cluster_state()
        options = make_translator_options(TranslatorOptions(plans=make_keys()))
        kinds = (PODS, NODES, POD_GROUPS, QUOTAS, DEVICES)
        self.translators = {kind: kind.make_translator(options) for kind in kinds}
        self._versions = 0

    def decode(self, kind: AnyKind, body: Obj) -> Any:
        """Return an object as the reflector gets it, with what the API server adds."""
        self._versions += 1
        name = body["metadata"]["name"]
        meta = {"uid": f"uid-{name}", "generation": 1, "resourceVersion": str(self._versions)}
        meta["creationTimestamp"] = "2026-03-01T11:00:00Z"
        body = body | {"metadata": meta | body["metadata"]}
        return msgspec.json.decode(json.dumps(body).encode(), type=kind.wire)

    def apply(self, kind: AnyKind, wire: Any) -> None:
        kind.upsert(self.state, self.translators[kind].translate(wire))

    def add(self, kind: AnyKind, body: Obj) -> None:
        self.apply(kind, self.decode(kind, body))


class FakeClient:
    """Takes every write."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    async def patch(self, path: str, *_: Any, **__: Any) -> bytes:
        self.writes.append(path)
        return b'{"metadata":{"resourceVersion":"1000"}}'

    post = patch


class Observer:
    """Counts nothing."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


def trace_gang() -> Trace:
    """A gated gang of two: from the watch event of its second pod to its bindings."""
    cluster, trace = FakeCluster(), Trace()
    state = cluster.state
    for name in ("n0", "n1"):
        cluster.add(NODES, objects.make_node(name, 8) | {"spec": {}})
    cluster.add(POD_GROUPS, objects.make_pod_group("a", 2))
    first, second = (
        cluster.decode(PODS, PodPlan(f"a-{at}", gpus=8, gang="a").render() | _PENDING)
        for at in range(2)
    )
    cluster.apply(PODS, first)
    queue, holds, feed = Queue(), Holds(), state.feed()
    queue.absorb(feed.drain(), state)
    with trace.part():
        cluster.apply(PODS, second)
    with trace.part():
        changes = feed.drain()
        holds.absorb(changes.gangs, state, 0.0)
        queue.absorb(changes, state)
    units = tuple(queue.take(0.0, 256))
    with trace.part():
        state.refresh()
        plan = plan_with_holds(
            holds,
            lambda: state.open_cycle(lambda: queue.pending(*units)),
            units,
            Scoring(),
            0.0,
        )
    for assignment in plan.placements[0].assignments:
        state.assume(assignment.pod.uid, assignment.node, assignment.allocations)

    async def write() -> int:
        client = FakeClient()
        binder = Binder(client, cluster.translators[PODS].form_of, make_keys())  # type: ignore[arg-type]
        turns = BindTurns(state, client, time.monotonic)  # type: ignore[arg-type]
        flights = WritesInFlight(lambda _, __: None, turns)
        flight = flights.begin(units[0], plan.placements[0])
        with trace.part():
            outcome = await commit(binder, units[0], plan.placements[0], Observer(), flight)
        return len(outcome.bound)

    assert asyncio.run(write()) == 2
    return trace


_PENDING = {"status": {"phase": "Pending"}}


def trace_why() -> Trace:
    """``koord explain`` of a gang without room: from what it has read to its text."""
    group = make_pod_group("default/a", 3).build()
    pods = [
        make_pod(f"w-{at}").gang("default/a").gpu(8).created(NOW - 240).build() for at in range(3)
    ]
    reading = make_reading(make_core_node("n").build(), group, *pods)
    trace, console = Trace(), Console(file=io.StringIO(), width=200)
    with trace.part():
        print_parts(make_parts(ask_gang(reading), NOW, BEST_NODES), console)
    assert "Waiting" in console.file.getvalue()  # type: ignore[attr-defined]
    return trace


def make_quota(least: int) -> Obj:
    return {
        "apiVersion": QUOTAS.api_version,
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default", "uid": "uid-q", "generation": least},
        "spec": {"min": {"nvidia.com/gpu": str(least)}, "max": {"nvidia.com/gpu": "16"}},
    }


def trace_quota() -> Trace:
    """The edit of an ElasticQuota: from the watch event to its status, and its validation."""
    return asyncio.run(_edit_quota())


async def _edit_quota() -> Trace:
    cluster, client, trace = FakeCluster(), FakeClient(), Trace()
    seen = cluster.translators[QUOTAS]
    form = applied_by("koord-elasticquota")
    writer = StatusWriter(
        client,  # type: ignore[arg-type]
        form,
        lambda ref: seen.status_of(ref.uid),
        present_metadata=lambda ref: seen.metadata_of(ref.uid),
    )
    events = EventRecorder(client, "koord", "trace")  # type: ignore[arg-type]
    author = StatusAuthor(ElasticQuota, writer, ref_of_quota, lambda _: ALL_QUOTAS, events)
    handlers = ResourceHandlers(author, lambda call, *values: call(*values))
    policy = QuotaStatusPolicy(cluster.state, author, seen)
    controller = StatusController(policy, time.monotonic)
    for name in ("n0", "n1"):
        cluster.add(NODES, objects.make_node(name, 8) | {"spec": {}})
    cluster.add(QUOTAS, make_quota(4))
    author.enqueue, controller.settle = controller.enqueue, author.settle
    await handlers.on_startup()
    await handlers.on_event({"type": None}, make_quota(4))
    policy.update_all()
    edited = cluster.decode(QUOTAS, make_quota(8))
    with trace.part():
        cluster.apply(QUOTAS, edited)
        await handlers.on_event({"type": "MODIFIED"}, make_quota(8))
        controller.wake()
        controller.look()
        for key in policy.changed():
            await policy.update(key)
    for pending in tuple(writer._pending.values()):
        with trace.part():
            await writer._write_one(pending, asyncio.Semaphore(1))
    assert any(path.endswith("/status") for path in client.writes)
    return trace


def make_device(gpus: int) -> Obj:
    amounts = {GPU_CORE: "100", GPU_MEMORY: "80Gi", GPU_MEMORY_RATIO: "100"}
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "health": True,
            "id": f"GPU-{minor}",
            "resources": amounts,
            "topology": {"socketID": 0, "nodeID": minor // 4, "pcieID": f"p{minor // 2}"},
        }
        for minor in range(gpus)
    ]
    return {"metadata": {"name": "n0"}, "spec": {"devices": devices}}


def trace_devices() -> Trace:
    """``koord devices n0``: from the objects that it has read to its text."""
    cluster, trace = FakeCluster(), Trace()
    node = cluster.decode(NODES, objects.make_node("n0", 8) | {"spec": {}})
    device = cluster.decode(DEVICES, make_device(8))
    console = Console(file=io.StringIO(), width=120)
    with trace.part():
        cluster.apply(NODES, node)
        cluster.apply(DEVICES, device)
        cluster.state.advance(NOW)
        print_parts(draw_node(*view_devices(cluster.state, ["n0"])[0]), console)
    assert cluster.state.plugin(Devices).reports
    assert "n0: " in console.file.getvalue()  # type: ignore[attr-defined]
    return trace


WAYS: dict[str, Callable[[], Trace]] = {
    "gang": trace_gang,
    "why": trace_why,
    "quota": trace_quota,
    "devices": trace_devices,
}


def write_numbers(traces: dict[str, Trace]) -> str:
    lines = [f"{'':8} {'files':>6} {'functions':>10} {'moves':>6} {'calls':>6}"]
    for way, trace in traces.items():
        count = trace.numbers()
        lines.append(
            f"{way:8} {count['files']:6} {count['functions']:10} {count['moves']:6}"
            f" {count['calls']:6}  {WAYS[way].__doc__}"
        )
    return "\n".join(lines)


def write_hops(trace: Trace) -> str:
    lines = []
    for number, (file, names) in enumerate(trace.visits(), 1):
        more = f" … {len(names)} calls" if len(names) > CALLS_SHOWN else ""
        lines.append(f"{number:5} {file:48} {', '.join(names[:CALLS_SHOWN])}{more}")
    lines.append("\nmoves between two files, most first:")
    lines += [f"{n:5} {a} <-> {b}" for (a, b), n in trace.pairs().most_common(MOST_PAIRS)]
    return "\n".join(lines)


def encode(trace: Trace) -> dict[str, Any]:
    pairs = [{"files": pair, "moves": n} for pair, n in trace.pairs().most_common(MOST_PAIRS)]
    return {**trace.numbers(), "pairs": pairs}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.trace", description=__doc__)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--show", choices=WAYS, metavar="PATH", help=f"one of {', '.join(WAYS)}")
    options = parser.parse_args(arguments)
    ways = [options.show] if options.show else list(WAYS)
    traces = {way: WAYS[way]() for way in ways}
    if options.output == "json":
        text = json.dumps({way: encode(trace) for way, trace in traces.items()}, indent=1)
    else:
        text = write_numbers(traces)
        if options.show:
            text = f"{write_hops(traces[options.show])}\n\n{text}"
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
