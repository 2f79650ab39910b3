"""Names without a kind, and Jobs that are held, as users type and see them."""

import json
from typing import Any

from tests.operators.conftest import GATE, GROUP_LABEL, Cluster
from tests.operators.test_everyday import ask, koord

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
VERSION = "scheduling.sigs.k8s.io/v1alpha1"
JOB_LABEL = "batch.kubernetes.io/job-name"


def make_job(name: str, *, suspended: bool, gates: bool = True) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": 8}}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "x"} | {"resources": limits}],
    }
    if gates:
        spec["schedulingGates"] = [{"name": GATE}]
    template = {"metadata": {"labels": {GROUP_LABEL: name}}, "spec": spec}
    job = {"suspend": suspended, "parallelism": 2, "completions": 2, "template": template}
    return {"metadata": {"name": name}, "spec": job}


def test_a_name_finds_its_object(cluster: Cluster) -> None:
    where = ("-n", cluster.namespace)
    cluster.add_nodes(1)
    cluster.pod_group("train", 3)
    cluster.box.client.create(JOBS.format(cluster.namespace), make_job("train", suspended=True))
    cluster.pod("train-0", group="train", labels={JOB_LABEL: "train"})
    answer = ask(cluster, "explain", "train", *where)
    assert (answer["kind"], answer["name"]) == ("PodGroup", "train")
    assert ask(cluster, "explain", f"{cluster.namespace}/train-0")["kind"] == "Pod"
    node = next(iter(cluster.box.client.get("/api/v1/nodes")["items"]))["metadata"]["name"]
    assert koord(cluster, "explain", node).exit_code == 0
    typo = koord(cluster, "explain", "tarin", *where)
    assert (typo.exit_code, "did you mean train" in typo.stderr) == (2, True)
    kind = koord(cluster, "explain", "nodes/nothing-of-that-name")
    assert kind.exit_code == 2


def test_a_name_of_several_things_lists_what_to_write(cluster: Cluster) -> None:
    cluster.pod_group("both", 2)
    cluster.pod("both")
    done = koord(cluster, "explain", "both", "-n", cluster.namespace)
    assert done.exit_code == 2
    for kind in ("podgroup", "pod"):
        assert f"koord explain {kind}/{cluster.namespace}/both" in done.stderr
    for kind in ("podgroup", "pod"):
        assert koord(cluster, "explain", f"{kind}/{cluster.namespace}/both").exit_code == 0


def test_held_jobs_are_in_the_queue(cluster: Cluster) -> None:
    create = JOBS.format(cluster.namespace)
    cluster.pod_group("later", 2)
    cluster.box.client.create(create, make_job("later", suspended=True))
    cluster.box.client.create(create, make_job("others", suspended=True, gates=False))
    shown = ask(cluster, "queue", "-n", cluster.namespace)["waiting"]
    (held,) = (one for one in shown if one["kind"] == "job")
    assert held["names"] == [f"{cluster.namespace}/later"]
    assert (held["position"], held["reason"], held["gpus"]) == (None, "Suspended", 16)
    resumed = koord(cluster, "explain", "later", "-n", cluster.namespace)
    assert "kubectl patch job" in resumed.stdout


def test_quotas_are_found_by_their_name_alone(cluster: Cluster) -> None:
    name = f"only-{cluster.namespace}"
    quota = {
        "apiVersion": VERSION,
        "kind": "ElasticQuota",
        "metadata": {"name": name},
        "spec": {"max": {"nvidia.com/gpu": 8}},
    }
    path = f"/apis/{VERSION}/namespaces/{{}}/elasticquotas"
    cluster.box.client.create(path.format(cluster.namespace), quota)
    done = koord(cluster, "explain", name, "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["name"] == name
    cluster.box.client.delete(f"{path.format(cluster.namespace)}/{name}")
