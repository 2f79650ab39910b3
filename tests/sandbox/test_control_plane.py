"""A sandbox behaves like a cluster."""

import pytest

from koord_sandbox.errors import KubectlError, SandboxApiError
from koord_sandbox.nodes import load_shape


def _make_pod(node, **annotations):
    return {
        "metadata": {"name": "worker", "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }


@pytest.fixture
def node(sandbox):
    (name,) = sandbox.add_nodes(1, "cpu16")
    yield name
    sandbox.client.delete(f"/api/v1/nodes/{name}")


def test_a_new_node_is_ready_and_schedulable(sandbox, node):
    found = sandbox.client.get(f"/api/v1/nodes/{node}")
    assert "taints" not in found["spec"]
    assert found["status"]["allocatable"] == load_shape("cpu16").allocatable
    assert [(each["type"], each["status"]) for each in found["status"]["conditions"]] == [
        ("Ready", "True")
    ]


def test_new_nodes_continue_the_numbering(sandbox, node):
    (following,) = sandbox.add_nodes(1, "cpu16")
    number = int(node.removeprefix("cpu16-"))
    assert following == f"cpu16-{number + 1:04d}"
    sandbox.client.delete(f"/api/v1/nodes/{following}")


def test_a_manually_created_node_becomes_ready(sandbox, wait_for):
    sandbox.client.create("/api/v1/nodes", {"metadata": {"name": "by-hand"}})

    def is_untainted():
        return not sandbox.client.get("/api/v1/nodes/by-hand")["spec"].get("taints")

    assert wait_for(is_untainted)
    sandbox.client.delete("/api/v1/nodes/by-hand")


def test_a_bound_pod_runs_until_deleted(sandbox, namespace, node, wait_for):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    sandbox.client.create(pods, _make_pod(node))

    assert wait_for(lambda: sandbox.client.get(f"{pods}/worker")["status"]["phase"] == "Running")
    ready = sandbox.client.get(f"{pods}/worker")["status"]["containerStatuses"][0]["ready"]
    assert ready is True

    sandbox.client.delete(f"{pods}/worker")
    assert wait_for(lambda: not sandbox.client.get(pods)["items"])


def test_a_pod_with_a_run_time_succeeds(sandbox, namespace, node, wait_for):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    run_time = {"operators.koordinator.sh/demo-run-seconds": "0.5"}
    sandbox.client.create(pods, _make_pod(node, **run_time))

    assert wait_for(lambda: sandbox.client.get(f"{pods}/worker")["status"]["phase"] == "Succeeded")


POLICY = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
}


@pytest.mark.parametrize("policy", [{}, {"podFailurePolicy": POLICY}], ids=["plain", "policy"])
def test_a_deleted_pod_of_a_job_is_replaced(sandbox, namespace, node, wait_for, policy):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"restartPolicy": "Never", "nodeName": node}
    spec["containers"] = [{"name": "main", "image": "none"}]
    body = {"metadata": {"name": "job"}, "spec": {"template": {"spec": spec}, **policy}}
    sandbox.client.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", body)

    def list_running():
        items = sandbox.client.get(pods)["items"]
        return [one["metadata"]["name"] for one in items if one["status"]["phase"] == "Running"]

    assert wait_for(list_running)
    (first,) = list_running()
    sandbox.client.delete(f"{pods}/{first}")
    assert wait_for(lambda: list_running() not in ([], [first]))
    assert wait_for(lambda: first not in str(sandbox.client.get(pods)))


def test_the_scheduler_binds_a_pod(sandbox, namespace, node, wait_for):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    sandbox.client.create(pods, _make_pod(None))
    assert wait_for(lambda: sandbox.client.get(f"{pods}/worker")["spec"].get("nodeName"))


def test_writes_of_a_service_account_are_counted(sandbox, namespace):
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    sandbox.client.create(accounts, {"metadata": {"name": "writer"}})
    sandbox.kubectl(
        *("create", "rolebinding", "writer", "--clusterrole=edit"),
        *(f"--serviceaccount={namespace}:writer", f"--namespace={namespace}"),
    )
    kubeconfig = sandbox.kubeconfig_for(namespace, "writer")
    as_writer = f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"

    sandbox.kubectl("create", "configmap", "map", *as_writer)
    sandbox.kubectl("get", "configmaps", *as_writer)
    with pytest.raises(KubectlError, match="forbidden"):
        sandbox.kubectl("create", "namespace", "more", *as_writer)

    writes = sandbox.writes(f"system:serviceaccount:{namespace}:writer")
    assert [(write.verb, write.resource, write.code) for write in writes] == [
        ("create", "configmaps", 201),
        ("create", "namespaces", 403),
    ]


def test_new_kinds_are_served_when_apply_returns(sandbox, tmp_path):
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "probes", "kind": "Probe"}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.test.koordinator.sh"},
        "spec": {
            "group": "test.koordinator.sh",
            "scope": "Cluster",
            "names": names,
            "versions": [version],
        },
    }
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "crd.yaml").write_text(str(manifest))

    sandbox.apply(tmp_path)

    assert sandbox.client.get("/apis/test.koordinator.sh/v1/probes")["items"] == []
    sandbox.kubectl("delete", "crd", "probes.test.koordinator.sh")


def test_server_errors_are_raised(sandbox):
    with pytest.raises(SandboxApiError, match=r"404.*nowhere") as caught:
        sandbox.client.get("/api/v1/namespaces/nowhere")
    assert caught.value.status == 404


def test_only_the_owner_can_read_secrets(sandbox):
    assert sandbox.directory.stat().st_mode & 0o077 == 0
    secret = [sandbox.kubeconfig, *sandbox.directory.glob("pki/*.key")]
    assert len(secret) > 5
    assert {path.stat().st_mode & 0o077 for path in secret} == {0}
