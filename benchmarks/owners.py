"""What gangs from owners cost: 10,000 owners of 12 kinds with their pods, read into a state.

    python -m benchmarks.owners

Objects are decoded, translated and applied as reflectors do it, and made to units that can be
planned: in processes of their own, without gangs, with the same gangs named by annotations of the
pods, and with `owners.enabled`. So the second shows what gangs cost, and the third what it costs to
find them. Times are processor times, memory is that of the process. `--only` measures one of them.
"""

import argparse
import gc
import resource
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from koord.api.keys import gang
from koord.api.owner_kinds import WorkloadKind
from koord.core.engine.queue import find_pending
from koord.domains.owner_settings import OwnerSettings
from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.placement import PODS
from koord.domains.registry import make_cluster_state, make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WireCustomResource, WirePod
from koord.runtime.app import GC_THRESHOLDS

GATE = "operators.koordinator.sh/placement"
TRAINING, JOBSET, LWS = (
    "training.kubeflow.org/", "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/",
)  # fmt: skip
JOB_INDEX = "batch.kubernetes.io/job-completion-index"


def make_template(text: str) -> dict[str, Any]:
    env = [{"name": f"V{at}", "value": f"{text}-{at}"} for at in range(8)]
    container = {"name": "c", "image": "x", "env": env, "command": ["python", text]}
    return {"metadata": {"labels": {"app": text}}, "spec": {"containers": [container]}}


def make_spec(kind: str, pods: int, text: str) -> dict[str, Any]:
    template = make_template(text)
    role = {"Worker": {"replicas": pods, "template": template}}
    job = {"parallelism": pods, "completions": pods, "template": template}
    specs: dict[str, dict[str, Any]] = {
        "Job": {"completionMode": "Indexed", **job},
        "JobSet": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]},
        "PyTorchJob": {"pytorchReplicaSpecs": role},
        "TFJob": {"tfReplicaSpecs": role},
        "XGBoostJob": {"xgbReplicaSpecs": role},
        "PaddleJob": {"paddleReplicaSpecs": role},
        "JAXJob": {"jaxReplicaSpecs": role},
        "MPIJob": {"mpiReplicaSpecs": role},
        "StatefulSet": {"replicas": pods, "template": template},
        "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": pods, "workerTemplate": template}},
        "SparkApplication": {"executor": {"instances": pods - 1, "template": template}},
        "RayCluster": {"workerGroupSpecs": [{"groupName": "g", "replicas": pods - 1}]},
    }
    return specs[kind]


KINDS = (
    "Job", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob",
    "StatefulSet", "LeaderWorkerSet", "SparkApplication", "RayCluster",
)  # fmt: skip


def make_labels(kind: str, at: int) -> dict[str, str]:
    """Return labels as the controller of a kind sets them on the pod with a number."""
    labels = {
        "Job": {JOB_INDEX: str(at)},
        "JobSet": {f"{JOBSET}replicatedjob-name": "w", JOB_INDEX: str(at)},
        "StatefulSet": {"apps.kubernetes.io/pod-index": str(at)},
        "LeaderWorkerSet": {f"{LWS}group-index": "0", f"{LWS}worker-index": str(at)},
        "SparkApplication": {
            "spark-role": "executor" if at else "driver", "spark-exec-id": str(at),
        },
        "RayCluster": {"ray.io/group": "g" if at else "headgroup"},
    }  # fmt: skip
    others = {f"{TRAINING}replica-type": "worker", f"{TRAINING}replica-index": str(at)}
    return labels.get(kind, others)


def refer_to(body: dict[str, Any]) -> dict[str, Any]:
    meta = body["metadata"]
    return {
        "apiVersion": body["apiVersion"], "kind": body["kind"], "name": meta["name"],
        "uid": meta["uid"], "controller": True,
    }  # fmt: skip


def make_pod(owner: dict[str, Any], at: int, pods: int, *, is_named: bool) -> bytes:
    """Return a pod of an owner; drivers and leaders are pods that own the others."""
    meta, kind = owner["metadata"], owner["kind"]
    above = refer_to(owner)
    if at and kind in {"SparkApplication", "LeaderWorkerSet"}:
        first = {"name": f"{meta['name']}-0", "uid": f"{meta['uid']}-0"}
        above = refer_to({"apiVersion": "v1", "kind": "Pod", "metadata": first})
    limits = {"nvidia.com/gpu": "1", "cpu": "4", "memory": "8Gi"}
    is_in_gang = kind != "StatefulSet" and (at or kind != "SparkApplication")
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"{meta['name']}-{at}", "namespace": meta["namespace"],
                "uid": f"{meta['uid']}-{at}", "labels": make_labels(kind, at),
                "ownerReferences": [above], "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": name_gang(owner, pods) if is_named and is_in_gang else {},
            },
            "spec": {
                "schedulerName": "koord-scheduler", "schedulingGates": [{"name": GATE}],
                "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}],
            },
            "status": {"phase": "Pending"},
        }
    )  # fmt: skip


def name_gang(owner: dict[str, Any], pods: int) -> dict[str, str]:
    least = pods - (owner["kind"] == "SparkApplication")
    return {gang.NAME: owner["metadata"]["name"], gang.MIN_AVAILABLE: str(least)}


class Way(StrEnum):
    """How gangs are found."""

    NOT = "not"
    NAMED = "named"
    OWNERS = "owners"


def choose_kinds() -> dict[str, WorkloadKind]:
    kinds = OwnerKinds.choose().kinds
    by_name = {kind.kind: kind for kind in kinds if kind.group != "training.kubedl.io"}
    by_name["Job"] = next(kind for kind in kinds if kind.api_version == "batch/v1")
    return {name: by_name[name] for name in KINDS}


def write_objects(owners: int, pods: int, way: Way, folder: Path) -> None:
    """Write the bodies of all objects, one a line."""
    kinds = choose_kinds()
    with (folder / "owners").open("wb") as of_owners, (folder / "pods").open("wb") as of_pods:
        for at in range(owners):
            name = KINDS[at % len(KINDS)]
            meta = {"name": f"o{at}", "namespace": f"ns{at % 50}", "uid": f"uid-{at}"}
            body = {"apiVersion": kinds[name].api_version, "kind": name, "metadata": meta}
            whole = {**body, "spec": make_spec(name, pods, f"o{at}")}
            of_owners.write(msgspec.json.encode(whole) + b"\n")
            for index in range(pods):
                pod = make_pod(body, index, pods, is_named=way is Way.NAMED)
                of_pods.write(pod + b"\n")


def measure(way: Way, folder: Path) -> None:
    """Read the objects into a state; print seconds for owners and for pods, and MiB."""
    kinds = choose_kinds()
    options = tuple(OwnerSettings(enabled=way is Way.OWNERS).plan_options())
    state = make_cluster_state(*options)
    translators = make_translator_options(TranslatorOptions(), *options)
    made = [make_kind(kinds[name]) for name in KINDS]
    readers = [kind.make_translator(translators) for kind in made]
    translator = PODS.make_translator(translators)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    before = read_memory()
    began = time.process_time()
    if way is Way.OWNERS:
        with (folder / "owners").open("rb") as bodies:
            for at, body in enumerate(bodies):
                wire = msgspec.json.decode(body, type=WireCustomResource)
                made[at % len(KINDS)].upsert(state, readers[at % len(KINDS)].translate(wire))
    for_owners = time.process_time() - began
    with (folder / "pods").open("rb") as bodies:
        for body in bodies:
            PODS.upsert(state, translator.translate(msgspec.json.decode(body, type=WirePod)))
    for_objects = time.process_time() - began
    units = find_pending(state)
    seconds = time.process_time() - began
    gc.collect()
    members = sum(pod.gang is not None for pod in state.pods.values())
    print(
        f"{way:7} {seconds:6.2f} s (owners {for_owners:.2f}, units {seconds - for_objects:.2f}), "
        f"{len(units)} units, {members} members of gangs, "
        f"{read_memory() - before:.0f} of {read_memory():.0f} MiB"
    )


def read_memory() -> float:
    """Return the MiB that the process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=8, help="of each owner")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", type=Way, choices=list(Way), help="in this process")
    parser.add_argument("--objects", type=Path, help="a folder with their bodies")
    arguments = parser.parse_args()
    if arguments.objects and arguments.only:
        measure(arguments.only, arguments.objects)
        return
    with TemporaryDirectory() as folder:
        ways = [arguments.only] if arguments.only else list(Way)
        for way in ways:
            (Path(folder) / way).mkdir()
            write_objects(arguments.owners, arguments.pods, way, Path(folder) / way)
        for way in ways * arguments.rounds:
            objects = f"--objects={folder}/{way}"
            command = [sys.executable, "-m", "benchmarks.owners", f"--only={way}", objects]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
