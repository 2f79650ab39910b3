"""A Job with a limit of its run time: each pod is given what those before it have left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.operators.conftest import make_pod

if TYPE_CHECKING:
    from tests.operators.conftest import Cluster

MAX_RUN_TIME = "operators.koordinator.sh/max-run-time"


def test_a_replacement_has_the_time_that_is_left(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    start(cluster, "train", {MAX_RUN_TIME: "1h"})
    first = find(cluster, 1)
    assert first["spec"]["activeDeadlineSeconds"] == 3600
    fail(cluster, first["metadata"]["name"], started=600, ended=300)
    second = find(cluster, 2)
    assert second["spec"]["activeDeadlineSeconds"] == 3300

    fail(cluster, second["metadata"]["name"], started=4000, ended=60)
    cluster.expect(lambda: "TimeLimitReached" in reasons(cluster), "the third has no time left")


def start(cluster: Cluster, name: str, annotations: dict[str, str]) -> None:
    pod = make_pod(cluster.namespace, "x")
    template = {"metadata": {"annotations": annotations}, "spec": pod["spec"]}
    template["spec"]["restartPolicy"] = "Never"
    lost = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {"template": template, "podFailurePolicy": {"rules": [lost]}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    cluster.box.client.create(f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs", body)


def find(cluster: Cluster, count: int) -> dict[str, Any]:
    """Return the pod that runs, once the Job has made so many."""

    def running() -> list[dict[str, Any]]:
        pods = cluster.pods().values()
        return [pod for pod in pods if pod["status"]["phase"] == "Running"]

    cluster.expect(lambda: len(cluster.pods()) == count and len(running()) == 1, "one runs")
    return running()[0]


def fail(cluster: Cluster, name: str, started: int, ended: int) -> None:
    """Have a pod fail that ran from and until so many seconds ago."""
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - ended))
    gone = {"status": "False", "lastTransitionTime": at}
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at}
    before = cluster.get_pod(name)["status"]["conditions"]
    kept = [each for each in before if each["type"] in {"PodScheduled", "Initialized"}]
    status = {
        "phase": "Failed",
        "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - started)),
        "conditions": [*kept, {"type": "Ready", **gone}, disrupted],
    }
    cluster.box.client.patch(f"{cluster.pods_path}/{name}/status", {"status": status})


def reasons(cluster: Cluster) -> set[str]:
    return {cluster.pod_reason(name) for name in cluster.pods()}
