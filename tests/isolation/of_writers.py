"""Loops of what is read from and written to the API server, and of the process."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.core import GaugeMetricFamily
from tests.builders import GPU, make_pod, make_quota
from tests.cluster import make_cluster
from tests.controllers.test_preemption import Stage as PreemptionStage
from tests.controllers.test_status_controller import Policy
from tests.isolation.plays import NAMES, Patch, is_bad, play
from tests.support.authors import FakeAuthor

from koord.api.podgroup import PodGroup
from koord.controllers.preemption import PreemptionRun
from koord.controllers.quota_status import QuotaStatusPolicy
from koord.controllers.status_author import Validation, Validator
from koord.controllers.status_controller import ChangedInputs, StatusController
from koord.core.engine.state import ClusterState
from koord.core.eviction.model import EvictionPlan
from koord.core.plugins.nominations import Nomination
from koord.domains.placement import PODS
from koord.domains.registry import make_cluster_state
from koord.kube import plan_keys
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef
from koord.kube.status import StatusPatch, StatusWriter, applied_by
from koord.kube.store import Added, Store
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.wire import WireObjectMeta, WirePod
from koord.operators.handlers import ResourceHandlers
from koord.runtime.app import keep_running
from koord.runtime.cluster import ClusterReader
from koord.runtime.collectors import SeriesCollector
from koord.runtime.metrics import Metrics
from koord.runtime.snapshot import ClusterSnapshot


@play("status")
def statuses(_: Patch) -> list[str]:
    policy = Policy({"bad": ZeroDivisionError()})
    controller = StatusController(policy, lambda: 0.0)
    controller.look()
    asyncio.run(controller.flush())
    return policy.updated


@play("validation")
def validated_objects(patch: Patch) -> list[str]:
    judged: list[str] = []

    def judge(_: object, body: Any) -> Validation:
        if is_bad(body["metadata"]["name"]):
            raise ZeroDivisionError
        judged.append(body["metadata"]["name"])
        return Validation()

    patch.setattr(Validator, "judge", judge)
    author = SimpleNamespace(resource=PodGroup, has_verdict=False, show=None)
    handlers = ResourceHandlers(cast("Any", author), lambda *_: None)
    for name in NAMES:
        body = {"metadata": {"name": name, "uid": name}}
        asyncio.run(handlers.on_event({"type": "ADDED"}, body))
    return judged


@play("status-inputs")
def inputs(_: Patch) -> list[str]:
    found = ChangedInputs[str]()

    def read(name: str) -> str:
        return str(1 / 0) if is_bad(name) else name

    assert found.compare(NAMES, read) == list(NAMES), "its update says what is wrong"
    return [name for name in NAMES if found._inputs[name] is not None]


@play("changes")
def observed_changes(patch: Patch) -> list[str]:
    state = make_cluster().state
    reader = ClusterReader(cast("Any", None), (), lambda: state, cast("Any", None))
    refresh = ClusterState._refresh

    def fail(self: ClusterState, uid: str) -> None:
        refresh(self, uid)
        if is_bad(uid):
            raise ZeroDivisionError

    patch.setattr(ClusterState, "_refresh", fail)
    reader.apply(PODS, [Added(make_pod(name).build()) for name in NAMES])
    return sorted(pod.name for pod in state.pods.values())


@play("snapshots")
def values_of_a_snapshot(patch: Patch) -> list[str]:
    refresh = ClusterState._refresh

    def fail(self: ClusterState, uid: str) -> None:
        refresh(self, uid)
        if is_bad(uid):
            raise ZeroDivisionError

    patch.setattr(ClusterState, "_refresh", fail)
    pods = tuple(make_pod(name).build() for name in NAMES)
    state = ClusterSnapshot(make_cluster_state, {PODS: pods}, {}, (), 0.0).build()
    return sorted(pod.name for pod in state.pods.values())


@play("translation")
def translated_objects(_: Patch) -> list[str]:
    rejected: list[str] = []

    def translate(wire: WirePod) -> str:
        return str(1 / 0) if is_bad(wire.metadata) else wire.metadata.name

    store: Store[WirePod, str] = Store(translate, lambda key, _: rejected.append(key))
    served = [
        change.value
        for name in NAMES
        for change in store.upsert(WirePod(WireObjectMeta(name=name, uid=name)))
    ]
    assert rejected == ["/bad"]
    return served


@play("events")
def sent_events(_: Patch) -> list[str]:
    sent: list[str] = []

    async def post(_path: str, body: Any) -> None:
        if is_bad(body["regarding"]["name"]):
            raise ZeroDivisionError
        sent.append(body["regarding"]["name"])

    async def run() -> None:
        recorder = EventRecorder(cast("Any", SimpleNamespace(post=post)), "c", "i")
        for name in NAMES:
            ref = ObjectRef("v1", "Pod", "pods", name, name, "ns")
            recorder.record(ref, EventType.NORMAL, action="A", reason="R", note="n")
        running = asyncio.create_task(recorder.run())
        while len(sent) < 2:  # noqa: ASYNC110 - filled by the task
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(run())
    return sent


@play("plan-signatures")
def signatures(patch: Patch) -> list[str]:
    signed: list[str] = []

    async def sign(_client: Any, _keys: Any, _slots: Any, uid: str, _plan: Any) -> str:
        if is_bad(uid):
            raise ZeroDivisionError
        signed.append(uid)
        return ""

    patch.setattr(plan_keys, "_sign", sign)
    outdated = {name: SimpleNamespace(path=name) for name in NAMES}
    asyncio.run(plan_keys.sign_again(cast("Any", None), cast("Any", None), cast("Any", outdated)))
    return signed


@play("background")
def loops_of_the_process(patch: Patch) -> list[str]:
    patch.setattr("koord.runtime.app.LONGEST_PAUSE_SECONDS", 0.0)
    runs: list[str] = []

    async def run() -> None:
        runs.append("z" if runs else "a")
        if len(runs) == 1:
            raise ZeroDivisionError

    asyncio.run(keep_running(run))
    return runs


@play("status-writes")
def written_statuses(_: Patch) -> list[str]:
    written: list[str] = []

    def present(ref: ObjectRef) -> dict[str, str]:
        return {"x": str(1 / 0)} if is_bad(ref) else {}

    async def patch(path: str, *_: Any) -> None:
        written.append(path.split("/")[-2])

    async def run() -> None:
        writer = StatusWriter(cast("Any", SimpleNamespace(patch=patch)), applied_by("me"), present)
        for name in NAMES:
            ref = ObjectRef("v1", "Pod", "pods", name, name, "ns")
            writer.submit(ref, StatusPatch(fields={"a": "b"}, is_urgent=True))
        running = asyncio.create_task(writer.run())
        while len(written) < 2:  # noqa: ASYNC110 - filled by the task
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(run())
    return written


@play("quotas")
def statuses_of_quotas(patch: Patch) -> list[str]:
    written: list[str] = []
    author = FakeAuthor(lambda quota, *_: written.append(quota.name))
    cluster = make_cluster(1).quotas(*(make_quota(name, max={GPU: 1}) for name in NAMES))
    cluster.state.refresh()
    patch.setattr(QuotaStatusPolicy, "_report", failing_report(QuotaStatusPolicy._report))
    QuotaStatusPolicy(cluster.state, cast("Any", author), QuotaTranslator()).update_all()
    return written


def failing_report(report: Callable[..., None]) -> Callable[..., None]:
    def call(self: Any, key: Any, *more: Any) -> None:
        if "bad" in str(key):
            raise ZeroDivisionError
        report(self, key, *more)

    return call


@play("preemption")
def preemptions(patch: Patch) -> list[str]:
    stage, seen = PreemptionStage(), list[str]()
    controller = stage.controller
    controller.recover()

    def judge(_: Any, run: PreemptionRun) -> None:
        if run.plan.key == "bad":
            raise ZeroDivisionError
        seen.append(run.plan.key)

    patch.setattr(type(controller), "judge", judge)
    for name in NAMES:
        nomination = Nomination("p", name, ())
        plan = EvictionPlan("preemption", name, ())
        stage.evictions.resume(controller, PreemptionRun(plan, 0.0, nomination=nomination))
    asyncio.run(stage.evictions.look(controller))
    return seen


@play("metrics")
def collectors(_: Patch) -> list[str]:
    metrics = Metrics()
    for name in NAMES:

        def read(name: str = name) -> list[tuple[tuple[()], float]]:
            return [((), 1 / 0 if is_bad(name) else 1.0)]

        metrics.watch(SeriesCollector(GaugeMetricFamily, name, "", (), read))
    metrics.take()
    return [line.split()[0] for line in metrics.encode().decode().splitlines() if line[0] in "abz"]
