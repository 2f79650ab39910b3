"""Jobs in memory, played as their owner, their controller and the operators would."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
from tests.builders import make_pod
from tests.cluster import FakeCluster, make_cluster
from tests.framework.object_store import ObjectStore

from koord.api.keys import operators
from koord.controllers.commit import commit
from koord.core.model.nodes import Namespace
from koord.core.model.pods import Handling, OwnerReference, Pod
from koord.core.plugins.inter_pod import InterPod
from koord.core.suspend.plugin import JobAdmissions, SuspendOptions
from koord.domains.registry import make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.outcomes import Done
from koord.kube.plan_keys import PlanKeys
from koord.kube.translate.jobs import JOB, JobTranslator, WireJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.suspend.model import QueuedJob

KEYS = PlanKeys(b"k" * 32)
GATE = {"name": operators.PLACEMENT_GATE}
SPECS: dict[str, Any] = {
    "schedulerName": operators.SCHEDULER_NAME,
    "schedulingGates": [GATE],
}


def make_job(
    name: str,
    count: int,
    *,
    gpus: int = 1,
    namespace: str = "default",
    created: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    asks: bool = True,
    **spec: Any,
) -> dict[str, Any]:
    """Return the manifest of an Indexed Job that waits suspended, as the API server shows it."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:{created // 60:02}:{created % 60:02}Z",
            "annotations": {
                **({operators.ADMISSION: "suspend"} if asks else {}),
                **(annotations or {}),
            },
        },
        "spec": {
            "suspend": True,
            "parallelism": count,
            "completions": count,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"labels": dict(labels or {})},
                "spec": {**SPECS, "containers": [{"name": "main", "resources": resources}]},
            },
            **spec,
        },
    }


@dataclass
class JobCluster:
    """A cluster with Jobs; ``store`` is what the API server has, the state what was observed."""

    cluster: FakeCluster
    store: ObjectStore = field(default_factory=ObjectStore)
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.plugin.sign = KEYS.sign
        self.cluster.state.advance(self.now)
        options = make_translator_options(TranslatorOptions(plans=KEYS))
        self.translator = JobTranslator(JOB, options)

    @property
    def plugin(self) -> JobAdmissions:
        return self.cluster.state.plugin(JobAdmissions)

    def submit(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            self.store.objects[path_of(manifest)] = manifest
            self.see(manifest["metadata"]["name"], manifest["metadata"]["namespace"])

    def job(self, name: str, namespace: str = "default") -> dict[str, Any]:
        manifest: dict[str, Any] = self.store.objects[
            path_of({"metadata": {"name": name, "namespace": namespace}})
        ]
        return manifest

    def see(self, name: str, namespace: str = "default") -> QueuedJob:
        """Have the watch deliver a Job as it is."""
        wire = msgspec.json.decode(json.dumps(self.job(name, namespace)), type=WireJob)
        job = self.translator.translate(wire)
        self.plugin.upsert(job)
        return job

    def label(self, namespace: str, **labels: str) -> None:
        self.cluster.state.plugin(InterPod).upsert_namespace(Namespace(namespace, labels))

    def pods_of(
        self, name: str, count: int, *, gpus: int = 1, of: int = 0, **fields: Any
    ) -> list[Pod]:
        """Return the pods that the controller of a Job makes."""
        owner = OwnerReference(name, "Job", "batch/v1", f"uid-{name}", is_controller=True)
        return [
            replace(
                make_pod(f"{name}-{at}-x{of}").gpu(gpus).created(self.now).build(),
                owners=(owner,),
                **fields,
            )
            for at in range(count)
        ]

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> list[str]:
        """Plan what is due and assume it, writing nothing; return the names of what was placed."""
        self.cluster.state.advance(self.now)
        return sorted(self.cluster.step(self.now))

    def start(self) -> list[str]:
        """Plan, assume and write; return the gangs that were placed and whose writes were done."""
        cluster = self.cluster
        cluster.state.advance(self.now)
        cluster.queue.absorb(cluster.feed.drain(), cluster.state)
        cluster.state.advance(self.now)
        units = {unit.key: unit for unit in cluster.take(self.now, most=10_000)}
        plan = cluster.decide(units.values())
        cluster.assume(plan)
        started = []
        for placement in plan.placements:
            writes = cluster.state.writes_before(placement)
            unit = units[placement.unit]
            planned = replace(placement, writes=writes)
            written = commit(Binder(self.store), unit, planned, Alone(), Alone())  # type: ignore[arg-type]
            done = asyncio.run(written)
            for uid in done.not_bound:
                cluster.state.forget(uid)
            if not done.not_bound:
                started += [demand.gang for demand in unit.demands]
        return sorted(started)

    @property
    def waiting(self) -> list[str]:
        """Return the names of stand-ins without a node."""
        pods = self.cluster.state.pods.values()
        return sorted(p.name for p in pods if p.handling is Handling.STAND_IN and not p.node)

    @property
    def held(self) -> list[str]:
        """Return the nodes on which stand-ins hold room."""
        pods = self.cluster.state.pods.values()
        return sorted(p.node for p in pods if p.handling is Handling.STAND_IN and p.node)


def path_of(manifest: dict[str, Any]) -> str:
    meta = manifest["metadata"]
    return f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{meta['name']}"


def make_job_cluster(nodes: int = 1, *, gpus: int = 4, **options: Any) -> JobCluster:
    return JobCluster(make_cluster(nodes, gpus=gpus, suspend=SuspendOptions(is_on=True), **options))


class Binder:
    """Writes to Jobs; whatever is written to pods takes effect."""

    def __init__(self, store: ObjectStore) -> None:
        self.objects = store.writer

    async def bind(self, *_: Any, **__: Any) -> Any:
        return Done()

    release = read_release = read_bind = bind


class Alone:
    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None

    async def in_turn(self, _: Any, bind: Any) -> Any:
        return await bind()
