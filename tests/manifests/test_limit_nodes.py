"""What the operators' credentials can change of nodes: what devices add, and locks."""

from typing import Any

import pytest
from tests.manifests.someone import MERGE, Someone

pytestmark = pytest.mark.sandbox

OURS = "koordinator.sh/gpu-core"
MARK = "operators.koordinator.sh/device-resources"
BATCH = "kubernetes.io/batch-cpu"
RECORD = "operators.koordinator.sh/over-commit"


@pytest.fixture(scope="module")
def node(guarded):
    (name,) = guarded.add_nodes(1, "cpu16")
    yield f"/api/v1/nodes/{name}/status"
    guarded.client.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="module")
def operators(guarded):
    someone = Someone(guarded, "koord-system", "koord-operators")
    yield someone
    someone.close()


def amounts(**named: str) -> dict[str, Any]:
    return {"status": {"capacity": named, "allocatable": named}}


REFUSED = {
    "cpu": amounts(cpu="1000"),
    "a device plugin's": amounts(**{"nvidia.com/gpu": "8"}),
    "removed": {"status": {"allocatable": {"memory": None}}},
    "label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    "annotation": {"metadata": {"annotations": {"example.com/a": "b"}}},
    "finalizer": {"metadata": {"finalizers": ["example.com/f"]}},
    "condition": {"status": {"conditions": []}},
    "port of the kubelet": {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
    "address": {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_changes_are_refused(operators, node, name) -> None:
    answer = operators.send("PATCH", node, REFUSED[name], MERGE)
    assert answer.status == 403, answer
    assert "koord-limit-nodes" in answer.message


def test_others_are_not_limited(guarded, node) -> None:
    """Shows that each refused change is one that the API server accepts."""
    for name in set(REFUSED) - {"removed", "condition"}:
        guarded.client.patch(f"{node}?dryRun=All", REFUSED[name])


def test_what_devices_add_is_allowed(operators, node) -> None:
    labels = {"node.koordinator.sh/gpu-vendor": "nvidia"}
    marks = {MARK: OURS, "hami.io/mutex.lock": "x", "cambricon.com/dsmlu.lock": "x"}
    body = amounts(**{OURS: "800"}) | {"metadata": {"labels": labels, "annotations": marks}}
    assert operators.send("PATCH", node, body, MERGE).status == 200
    gone = {"metadata": {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(marks)}}
    status = {"status": {"capacity": {OURS: None}, "allocatable": {OURS: None}}}
    assert operators.send("PATCH", node, gone | status, MERGE).status == 200


def test_what_is_offered_to_batch_pods_is_allowed(operators, node) -> None:
    body = amounts(**{BATCH: "800"}) | {"metadata": {"annotations": {RECORD: "{}"}}}
    assert operators.send("PATCH", node, body, MERGE).status == 200
    gone = {"metadata": {"annotations": {RECORD: None}}}
    status = {"status": {"capacity": {BATCH: None}, "allocatable": {BATCH: None}}}
    assert operators.send("PATCH", node, gone | status, MERGE).status == 200
