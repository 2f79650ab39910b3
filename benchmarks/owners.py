"""What gangs from owners cost: 10,000 owners of 12 kinds with their pods, read into a state.

    python -m benchmarks.owners

Objects are decoded, translated and applied as reflectors do it, with `owners.enabled` and without.
`--named` has the pods name the same gangs by annotations: what gangs cost, whoever finds them.
Times are processor times.
"""

import argparse
import gc
import resource
import time
from typing import Any

import msgspec

from koord.api.keys import gang
from koord.domains.owner_settings import OwnerSettings
from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.placement import PODS
from koord.domains.registry import make_cluster_state, make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WireCustomResource, WirePod

GATE = "operators.koordinator.sh/placement"
TRAINING = "training.kubeflow.org/"


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
        "SparkApplication": {"executor": {"instances": pods, "template": template}},
        "RayCluster": {"workerGroupSpecs": [{"groupName": "g", "replicas": pods}]},
    }
    return specs[kind]


KINDS = (
    "Job", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob",
    "StatefulSet", "LeaderWorkerSet", "SparkApplication", "RayCluster",
)  # fmt: skip


def make_pod(owner: dict[str, Any], at: int, gang: dict[str, str]) -> bytes:
    meta = owner["metadata"]
    above = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"],
        "uid": meta["uid"], "controller": True,
    }  # fmt: skip
    labels = {f"{TRAINING}replica-type": "worker", f"{TRAINING}replica-index": str(at)}
    limits = {"nvidia.com/gpu": "1", "cpu": "4", "memory": "8Gi"}
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"{meta['name']}-{at}", "namespace": meta["namespace"],
                "uid": f"{meta['uid']}-{at}", "labels": labels, "ownerReferences": [above],
                "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": gang,
            },
            "spec": {
                "schedulerName": "koord-scheduler", "schedulingGates": [{"name": GATE}],
                "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}],
            },
            "status": {"phase": "Pending"},
        }
    )  # fmt: skip


def name_gang(owner: dict[str, Any], pods: int) -> dict[str, str]:
    """Return annotations that name the gang of an owner, if it has one."""
    if owner["kind"] == "StatefulSet":
        return {}
    return {gang.NAME: owner["metadata"]["name"], gang.MIN_AVAILABLE: str(pods)}


def measure(
    owners: int, pods: int, *, is_on: bool, is_named: bool = False
) -> tuple[float, float, float]:
    """Return seconds for owners and for pods, and MiB of all that is kept."""
    settings = OwnerSettings(enabled=is_on)
    options = tuple(settings.plan_options())
    state = make_cluster_state(*options)
    translators = make_translator_options(TranslatorOptions(), *options)
    kinds = {
        kind.kind: kind for kind in OwnerKinds.choose().kinds if kind.group != "training.kubedl.io"
    }
    kinds["Job"] = next(k for k in OwnerKinds.choose().kinds if k.api_version == "batch/v1")
    objects = []
    for at in range(owners):
        name = KINDS[at % len(KINDS)]
        kind = kinds[name]
        meta = {"name": f"o{at}", "namespace": f"ns{at % 50}", "uid": f"uid-{at}"}
        body = {"apiVersion": kind.api_version, "kind": name, "metadata": meta}
        objects.append({**body, "spec": make_spec(name, pods, f"o{at}")})
    bodies = [msgspec.json.encode(each) for each in objects]
    pod_bodies = [
        make_pod(each, index, name_gang(each, pods) if is_named else {})
        for each in objects
        for index in range(pods)
    ]
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    if is_on:
        made = {name: make_kind(kind) for name, kind in kinds.items()}
        readers = {name: kind.make_translator(translators) for name, kind in made.items()}
        for at, body in enumerate(bodies):
            name = KINDS[at % len(KINDS)]
            wire = msgspec.json.decode(body, type=WireCustomResource)
            made[name].upsert(state, readers[name].translate(wire))
    for_owners = time.process_time() - began
    translator = PODS.make_translator(translators)
    began = time.process_time()
    for body in pod_bodies:
        PODS.upsert(state, translator.translate(msgspec.json.decode(body, type=WirePod)))
    for_pods = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return for_owners, for_pods, (after - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=8, help="of each owner")
    parser.add_argument("--off", action="store_true", help="without gangs from owners")
    parser.add_argument("--named", action="store_true", help="with gangs that pods name")
    arguments = parser.parse_args()
    is_on = not (arguments.off or arguments.named)
    seconds, pods, size = measure(
        arguments.owners, arguments.pods, is_on=is_on, is_named=arguments.named
    )
    print(f"owners {seconds:.2f} s, pods {pods:.2f} s, {size:.0f} MiB")


if __name__ == "__main__":
    main()
