"""The replicas as kube-scheduler places them: never on one node if there are two."""

import json
import time
from collections.abc import Iterator

import pytest
from tests.manifests.conftest import MANIFESTS

from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

NAMESPACE = "--namespace=koord-system"
DEPLOYMENT = "deployment/koord-operators"
CRITICAL = 2_000_000_000


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as box:
        box.apply(MANIFESTS.parent / "crds")
        box.kubectl("apply", "-k", str(MANIFESTS / "base"))
        yield box


def roll_out(box: Sandbox) -> list[dict]:
    """Replace all pods; return the specs of the new ones."""
    template = {"metadata": {"annotations": {"changed-at": str(time.monotonic())}}}
    change = json.dumps({"spec": {"template": template}})
    box.kubectl("patch", DEPLOYMENT, NAMESPACE, "--patch", change)
    box.kubectl("rollout", "status", DEPLOYMENT, NAMESPACE, "--timeout=60s")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pods = json.loads(box.kubectl("get", "pods", NAMESPACE, "--output=json"))["items"]
        if len(pods) == 2:
            return [pod["spec"] for pod in pods]
        time.sleep(0.2)
    raise AssertionError(f"the old pods are still there: {pods}")


def test_replicas_are_apart_if_there_are_two_nodes(box: Sandbox) -> None:
    box.add_nodes(1, "cpu16")
    alone = roll_out(box)
    assert len({spec["nodeName"] for spec in alone}) == 1, "a single node takes both"
    assert {spec["priority"] for spec in alone} == {CRITICAL}
    box.add_nodes(1, "cpu16")
    assert len({spec["nodeName"] for spec in roll_out(box)}) == 2
    assert len({spec["nodeName"] for spec in roll_out(box)}) == 2, "a rollout needs no third node"
