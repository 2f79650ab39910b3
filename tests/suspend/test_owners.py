"""Another kind of owners is one row: a toy with two roles, suspended by a field below another."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct
from tests.suspend.jobs import KEYS, SPECS, JobCluster, make_job_cluster, path_of

from koord.api.keys import operators
from koord.domains.registry import make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.jobs import JobTranslator, OwnerKind
from koord.kube.wire import WireObjectMeta


class RunPolicy(Struct):
    suspend: bool = False


class Role(Struct):
    replicas: int = 1
    template: Raw = Raw()


class TrainingSpec(Struct, rename="camel"):
    run_policy: RunPolicy = msgspec.field(default_factory=RunPolicy)
    roles: dict[str, Role] = {}


class TrainingStatus(Struct):
    conditions: list[Any] | None = None


class Training(Struct):
    metadata: WireObjectMeta
    spec: TrainingSpec
    status: TrainingStatus = msgspec.field(default_factory=TrainingStatus)


TRAINING = OwnerKind(
    "Training",
    "batch/v1",
    "jobs",
    "training",
    "/spec/runPolicy/suspend",
    Training,
    lambda _: None,
    lambda training: [(role.template, role.replicas) for role in training.spec.roles.values()],
    lambda training: training.spec.run_policy.suspend,
    lambda _: False,
    lambda _: 0,
    lambda _: None,
)


def make_role(replicas: int, gpus: int) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": gpus}}
    container = {"name": "main", "resources": limits}
    return {"replicas": replicas, "template": {"spec": {**SPECS, "containers": [container]}}}


class Trainings(JobCluster):
    def see(self, name: str, namespace: str = "default") -> Any:
        options = make_translator_options(TranslatorOptions(plans=KEYS))
        wire = msgspec.json.decode(json.dumps(self.job(name, namespace)), type=Training)
        training = JobTranslator(TRAINING, options).translate(wire)
        self.plugin.upsert(training)
        return training


def test_roles_of_another_owner_are_one_gang_and_keep_their_places() -> None:
    jobs = Trainings(make_job_cluster(nodes=2, gpus=4).cluster)
    jobs.submit(
        {
            "metadata": {
                "name": "gpt",
                "namespace": "default",
                "uid": "uid-gpt",
                "generation": 1,
                "annotations": {operators.ADMISSION: "suspend"},
            },
            "spec": {
                "runPolicy": {"suspend": True},
                "roles": {"master": make_role(1, 1), "worker": make_role(3, 2)},
            },
        }
    )
    assert jobs.start() == ["default/training/gpt"]
    assert jobs.job("gpt")["spec"]["runPolicy"]["suspend"] is False
    again = Trainings(make_job_cluster(nodes=2, gpus=4).cluster, jobs.store, jobs.now)
    again.see("gpt")
    assert len(again.held) == 4
    (master,) = again.pods_of("gpt", 1, gpus=1)
    workers = again.pods_of("gpt", 3, gpus=2, of=1)
    again.cluster.pods(*workers, master)
    assert len(again.tick()) == 4
    assert again.held == []
    assert path_of(jobs.job("gpt")).endswith("/jobs/gpt")
