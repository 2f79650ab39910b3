"""The page about uninstalling, as typed, with pods that wait and a quota in use."""

from collections.abc import Iterator

import pytest
from tests.docs.conftest import ROOT, Reader
from tests.docs.markdown import parse_page
from tests.manifests.waiting import wait_for
from tests.support.operators import run_operators

from koord_sandbox import Sandbox

GATE = "operators.koordinator.sh/placement"
COMMANDS = [
    command
    for block in parse_page(ROOT / "docs/uninstalling.md", "docs/uninstalling.md")
    for command in block.commands
]
QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
QUOTA = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: team}
spec: {max: {nvidia.com/gpu: 16}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: never}
spec: {minMember: 5}
"""


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as box:
        box.add_nodes(1, "a100x8")
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(ROOT / "manifests/base"))
        yield box


def make_pod(
    name: str, *, scheduler: str, gated: bool = True, group: str = ""
) -> dict[str, object]:
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    if group:
        labels["pod-group.scheduling.sigs.k8s.io"] = group
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": scheduler,
            "schedulingGates": [{"name": GATE}] if gated else [],
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        },
    }


@pytest.mark.sandbox
@pytest.mark.timeout(300)
def test_nothing_hangs_after_uninstalling(box: Sandbox, tmp_path) -> None:
    reader = Reader(box, tmp_path)
    there = f"/api/v1/namespaces/{reader.namespace}/pods"
    box.kubectl("apply", "-f-", "-n", reader.namespace, stdin=QUOTA)
    box.client.create(there, make_pod("runs", scheduler="koord-scheduler"))
    box.client.create(there, make_pod("gated", scheduler="default-scheduler", group="never"))
    box.client.create(there, make_pod("ours", scheduler="koord-scheduler", group="never"))
    box.client.create(
        there, make_pod("bare", scheduler="koord-scheduler", group="never", gated=False)
    )
    quota = (
        f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{reader.namespace}/elasticquotas/team"
    )
    (looks, *rest) = COMMANDS
    with run_operators(box.kubeconfig_for("koord-system", "koord-operators"), tmp_path):
        wait_for(lambda: "nodeName" in box.client.get(f"{there}/runs")["spec"], "a pod runs")
        wait_for(lambda: box.client.get(quota)["metadata"].get("finalizers"), "the quota is in use")
        said = reader.run([looks])
        refused = reader.run(["koord release --finalizers --yes || true"])
    assert "leads and would set it again" in refused
    assert f"{reader.namespace}/gated: default-scheduler places it" in said
    for name in ("ours", "bare"):
        assert f"{reader.namespace}/{name}: waits for ever" in said
    assert f"{reader.namespace}/runs:" not in said
    reader.run(rest)
    wait_for(lambda: "nodeName" in box.client.get(f"{there}/gated")["spec"], "the pod is placed")
    definitions = box.kubectl("get", "customresourcedefinitions", "-o", "name")
    assert QUOTAS not in definitions
    assert "schedulingGates" not in box.client.get(f"{there}/ours")["spec"]
