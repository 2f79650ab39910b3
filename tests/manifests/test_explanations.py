"""The overlay ``explanations``: objects are answered with the shipped rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.waiting import wait_for
from tests.support.operators import run_operators

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

OBJECTS = "/apis/scheduling.koordinator.sh/v1alpha1/namespaces/default/scheduleexplanations"
GATE = "operators.koordinator.sh/placement"


@pytest.fixture(scope="module")
def box(separate: Sandbox) -> Iterator[Sandbox]:
    overlay = str(MANIFESTS / "overlays/explanations")
    separate.kubectl("apply", "-k", overlay)
    wait = ("wait", "--for=condition=Established", "crd", "--timeout=30s")
    separate.kubectl(*wait, "scheduleexplanations.scheduling.koordinator.sh")
    yield separate
    separate.kubectl("delete", "-k", overlay)


def ask(box: Sandbox, name: str, **spec: Any) -> None:
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ScheduleExplanation",
        "metadata": {"name": name},
        "spec": spec,
    }
    box.client.create(OBJECTS, body)


def test_objects_are_answered_and_deleted_after_their_time(box: Sandbox, tmp_path: Path) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "schedulerName": "koord-scheduler",
        "schedulingGates": [{"name": GATE}],
        "containers": [container],
    }
    box.client.create(
        "/api/v1/namespaces/default/pods", {"metadata": {"name": "asked"}, "spec": spec}
    )
    ask(box, "why", questionObjectKey="default/asked")
    ask(box, "elsewhere", questionObjectKey="kube-system/x")
    ask(box, "over", questionObjectKey="default/asked", ttl="1s")

    def status(name: str) -> dict[str, Any]:
        found: dict[str, Any] = box.client.get(f"{OBJECTS}/{name}").get("status", {})
        return found

    def names() -> set[str]:
        return {one["metadata"]["name"] for one in box.client.get(OBJECTS)["items"]}

    kubeconfig = box.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path, settings="explanations: {enabled: true}\n"):
        wait_for(lambda: "lastUpdateTime" in status("why"), "the object is answered")
        wait_for(lambda: "failedMessage" in status("elsewhere"), "so is the other")
        wait_for(lambda: names() == {"why", "elsewhere"}, "that whose time is over is deleted")
    answer = status("why")
    assert answer["schedulable"] is False
    assert answer["detailedExplanation"][0]["failedMessage"] == answer["failedMessage"]
    assert "in the namespace of the object" in status("elsewhere")["failedMessage"]
    box.client.delete("/api/v1/namespaces/default/pods/asked")
