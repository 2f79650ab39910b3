"""Makes the pods of job frameworks as their controllers make them, where these do not run.

Not the controllers themselves: definitions that accept any field, and for each kind the pods or
Jobs that its controller creates, with its names, owners, labels and indices. Jobs, StatefulSets and
Deployments are left to the real kube-controller-manager.
"""

import copy
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from koord_sandbox import Sandbox
from koord_sandbox.errors import SandboxApiError

Object = dict[str, Any]

DEFINITIONS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("kubeflow.org", "v1", "PyTorchJob"),
    ("kubeflow.org", "v1", "TFJob"),
    ("kubeflow.org", "v2beta1", "MPIJob"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"),
    ("ray.io", "v1", "RayCluster"),
    ("ray.io", "v1", "RayJob"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("training.kubedl.io", "v1alpha1", "PyTorchJob"),
)
CHILDREN = {"JobSet": ("batch/v1", "jobs"), "RayJob": ("ray.io/v1", "rayclusters")}
"""What the controller of a kind deletes and makes again when it starts the whole again."""


def plural_of(kind: str) -> str:
    return f"{kind.lower()}s"


def install_definitions(box: Sandbox) -> None:
    """Install definitions of the frameworks' kinds that accept every field."""
    for group, version, kind in DEFINITIONS:
        plural = plural_of(kind)
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
            },
        }
        box.client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    names = [f"crd/{plural_of(kind)}.{group}" for group, _, kind in DEFINITIONS]
    box.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")


class JobControllers:
    """Plays the controllers for the objects of one namespace."""

    def __init__(self, box: Sandbox, namespace: str) -> None:
        self._box = box
        self._namespace = namespace
        self._pods: dict[str, Object] = {}
        self._makers: dict[str, Callable[[Object], None]] = {
            "JobSet": self._make_job_set,
            "kubeflow.org/v1 PyTorchJob": self._make_training_job,
            "TFJob": self._make_training_job,
            "MPIJob": self._make_mpi_job,
            "TrainJob": self._make_train_job,
            "RayCluster": self._make_ray_cluster,
            "RayJob": self._make_ray_job,
            "LeaderWorkerSet": self._make_leader_worker_set,
            "training.kubedl.io/v1alpha1 PyTorchJob": self._make_kubedl_job,
        }

    def create(self, body: Object) -> Object:
        """Create an object, and what its controller makes of it."""
        body = copy.deepcopy(body)
        body["metadata"]["namespace"] = self._namespace
        prefix = "/api" if body["apiVersion"] == "v1" else "/apis"
        path = f"{prefix}/{body['apiVersion']}/namespaces/{self._namespace}"
        made = self._box.client.create(f"{path}/{plural_of(body['kind'])}", body)
        kind = body["kind"]
        maker = self._makers.get(f"{body['apiVersion']} {kind}") or self._makers.get(kind)
        if maker is not None:
            maker(made)
        return made

    def lose(self, name: str) -> None:
        """End a pod as its node would; its controller makes another one."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        pod = self._box.client.get(path)
        if pod["metadata"]["ownerReferences"][0]["kind"] == "Job":
            # A Job may wait until a pod has ended, which nothing reports here after a deletion.
            reason = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
            }
            status = {"phase": "Failed", "conditions": [*pod["status"]["conditions"], reason]}
            self._box.client.patch(f"{path}/status", {"status": status})
            return
        self._box.client.delete(f"{path}?gracePeriodSeconds=0")
        if name in self._pods:
            self._await_end(path, pod["metadata"]["uid"])
            self._create_pod(self._pods[name])

    def _await_running(self, *names: str) -> None:
        """Wait for the pods that others are held back for."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        for name in names:
            for _ in range(600):
                if self._box.client.get(f"{path}/{name}")["status"]["phase"] == "Running":
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"{name} does not run")

    def _await_end(self, path: str, uid: str) -> None:
        with suppress(SandboxApiError):
            for _ in range(200):
                if self._box.client.get(path)["metadata"]["uid"] != uid:
                    break
                time.sleep(0.1)
        time.sleep(0.3)  # kwok deletes by name, shortly after

    def _create_pod(self, body: Object) -> Object:
        body = copy.deepcopy(body)
        stem = body["metadata"].get("generateName")
        if stem:
            body["metadata"]["name"] = f"{stem}{secrets.token_hex(3)[:5]}"
        made = self._box.client.create(f"/api/v1/namespaces/{self._namespace}/pods", body)
        self._pods[made["metadata"]["name"]] = body
        return made

    def _pod(self, owner: Object, template: Object, name: str, labels: Object) -> Object:
        """Create a pod of a template; a name that ends in ``-`` gets a random end."""
        meta = template.get("metadata") or {}
        metadata = {
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [owned_by(owner)],
        }
        metadata |= {"generateName": name} if name.endswith("-") else {"name": name}
        spec = copy.deepcopy(template["spec"])
        return self._create_pod(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    def _make_training_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        for role, index, replica in _replicas(job):
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/operator-name": f"{job['kind'].lower()}-controller",
                "training.kubeflow.org/replica-type": role.lower(),
                "training.kubeflow.org/replica-index": str(index),
            }
            self._pod(job, replica["template"], f"{name}-{role.lower()}-{index}", labels)

    def _make_kubedl_job(self, job: Object) -> None:
        """Make a gang of each role; the pods of a role wait until those of the one before run."""
        name = job["metadata"]["name"]
        for role, replica in _roles(job).items():
            group, size = f"{name}-{role.lower()}", replica.get("replicas", 1)
            self.create(
                {
                    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": group, "ownerReferences": [owned_by(job)]},
                    "spec": {"minMember": size},
                }
            )
            labels = {"group-name": "kubedl.io", "job-name": name, "replica-type": role.lower()}
            key = "pod-group.scheduling.sigs.k8s.io"
            labels |= {key: group, f"{key}/name": group, f"{key}/min-available": str(size)}
            names = [f"{group}-{index}" for index in range(size)]
            for index, pod in enumerate(names):
                self._pod(job, replica["template"], pod, labels | {"replica-index": str(index)})
            self._await_running(*names)

    def _make_mpi_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        labels = {
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/operator-name": "mpi-operator",
        }
        roles = _roles(job)
        workers = [f"{name}-worker-{index}" for index in range(roles["Worker"]["replicas"])]
        for index, pod in enumerate(workers):
            mine = labels | {"training.kubeflow.org/job-role": "worker"}
            mine["training.kubeflow.org/replica-index"] = str(index)
            self._pod(job, roles["Worker"]["template"], pod, mine)
        if job["spec"].get("launcherCreationPolicy") == "WaitForWorkersReady":
            self._await_running(*workers)
        mine = labels | {"training.kubeflow.org/job-role": "launcher"}
        self._job(job, f"{name}-launcher", {"template": roles["Launcher"]["template"]}, mine)

    def _make_job_set(self, job_set: Object) -> None:
        name = job_set["metadata"]["name"]
        for replicated in job_set["spec"]["replicatedJobs"]:
            for at in range(replicated.get("replicas", 1)):
                labels = {
                    "jobset.sigs.k8s.io/jobset-name": name,
                    "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
                    "jobset.sigs.k8s.io/job-index": str(at),
                    "jobset.sigs.k8s.io/restart-attempt": "0",
                }
                spec = {"completionMode": "Indexed", **replicated["template"]["spec"]}
                self._job(job_set, f"{name}-{replicated['name']}-{at}", spec, labels)

    def _make_train_job(self, job: Object) -> None:
        """Make the JobSet of a TrainJob out of its runtime."""
        group = job["apiVersion"]
        runtimes = f"/apis/{group}/namespaces/{self._namespace}/trainingruntimes"
        runtime = self._box.client.get(f"{runtimes}/{job['spec']['runtimeRef']['name']}")
        spec = copy.deepcopy(runtime["spec"]["template"]["spec"])
        for replicated_job in spec["replicatedJobs"]:
            nodes = job["spec"]["trainer"]["numNodes"]
            replicated_job["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
        name = job["metadata"]["name"]
        metadata = {"name": name, "ownerReferences": [owned_by(job)]}
        self.create(
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": metadata,
                "spec": spec,
            }
        )

    def _make_ray_cluster(self, cluster: Object) -> None:
        name, spec = cluster["metadata"]["name"], cluster["spec"]
        labels = {"ray.io/cluster": name, "ray.io/is-ray-node": "yes"}
        head = labels | {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
        self._pod(cluster, spec["headGroupSpec"]["template"], f"{name}-head-", head)
        for group in spec.get("workerGroupSpecs") or ():
            mine = labels | {"ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
            for _ in range(group.get("replicas", 1) * group.get("numOfHosts", 1)):
                stem = f"{name}-{group['groupName']}-worker-"
                self._pod(cluster, group["template"], stem, mine)

    def _make_ray_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        metadata = {
            "name": f"{name}-{secrets.token_hex(3)[:5]}",
            "ownerReferences": [owned_by(job)],
        }
        self.create(
            {
                "apiVersion": job["apiVersion"],
                "kind": "RayCluster",
                "metadata": metadata,
                "spec": job["spec"]["rayClusterSpec"],
            }
        )

    def _make_leader_worker_set(self, owner: Object) -> None:
        """Make the leaders, and the workers below each; the StatefulSets between are left out."""
        for group in range(owner["spec"]["replicas"]):
            self._make_group(owner, group)

    def _make_group(self, owner: Object, group: int) -> None:
        name, templates = owner["metadata"]["name"], owner["spec"]["leaderWorkerTemplate"]
        prefix = "leaderworkerset.sigs.k8s.io"
        parent = owner
        for index in range(templates["size"]):
            worker = templates["workerTemplate"]
            template = worker if index else templates.get("leaderTemplate", worker)
            template = copy.deepcopy(template)
            sizes = {f"{prefix}/size": str(templates["size"])}
            template.setdefault("metadata", {}).setdefault("annotations", {}).update(sizes)
            labels = {
                f"{prefix}/name": name,
                f"{prefix}/group-index": str(group),
                f"{prefix}/worker-index": str(index),
            }
            pod_name = f"{name}-{group}-{index}" if index else f"{name}-{group}"
            made = self._pod(parent, template, pod_name, labels)
            parent = parent if index else made

    def restart_group(self, owner: Object, group: int) -> None:
        """Delete a leader, let its workers be collected, and make the group again."""
        leader = f"{owner['metadata']['name']}-{group}"
        self._box.client.delete(f"/api/v1/namespaces/{self._namespace}/pods/{leader}")
        self._await_gone(leader)
        self._make_group(owner, group)

    def restart(self, owner: Object) -> None:
        """Delete what was made for an object, with the pods, and make it again."""
        group, resource = CHILDREN[owner["kind"]]
        path = f"/apis/{group}/namespaces/{self._namespace}/{resource}"
        for item in self._box.client.get(path)["items"]:
            name = item["metadata"]["name"]
            self._box.client.delete(f"{path}/{name}?propagationPolicy=Background")
        # The garbage collector would notice owners of new kinds only within half a minute.
        self._box.client.delete(f"/api/v1/namespaces/{self._namespace}/pods")
        self._await_gone(owner["metadata"]["name"])
        self._makers[owner["kind"]](owner)

    def _await_gone(self, name: str) -> None:
        """Wait until a pod is gone, and all whose names begin with its name."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        for _ in range(300):
            names = [item["metadata"]["name"] for item in self._box.client.get(path)["items"]]
            if not any(
                other_name == name or other_name.startswith(f"{name}-") for other_name in names
            ):
                break
            time.sleep(0.1)
        time.sleep(0.3)  # kwok deletes by name, shortly after

    def _job(self, owner: Object, name: str, spec: Object, labels: Object) -> None:
        spec = copy.deepcopy(spec)
        keys = spec["template"].setdefault("metadata", {})
        keys["labels"] = {**(keys.get("labels") or {}), **labels}
        metadata = {"name": name, "labels": labels, "ownerReferences": [owned_by(owner)]}
        self.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def owned_by(owner: Object) -> Object:
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "Pod"),
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _roles(job: Object) -> dict[str, Object]:
    """Return the roles of a training job."""
    return next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))


def _replicas(job: Object) -> Iterator[tuple[str, int, Object]]:
    """Yield role, index and spec of every pod of a training job."""
    for role, replica in _roles(job).items():
        for index in range(replica.get("replicas", 1)):
            yield role, index, replica
