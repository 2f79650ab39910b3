"""NodeSLOs and ratios of nodes are written with the shipped rights, under the shipped policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.waiting import wait_for
from tests.support.operators import run_operators

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
CONFIG = "/api/v1/namespaces/koordinator-system/configmaps"
SETTINGS = "nodeSlo: {render: true}\nnodeRatios: {publish: true}\n"
RATIOS = "node.koordinator.sh/resource-amplification-ratio"
THRESHOLDS = {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60}}
OFFERS = {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}


@pytest.fixture(scope="module")
def box(guarded: Sandbox) -> Iterator[Sandbox]:
    guarded.create_namespace("koordinator-system")
    for overlay in ("slo-config", "node-slo"):
        guarded.kubectl("apply", "-k", str(MANIFESTS / "overlays" / overlay))
    yield guarded
    for overlay in ("slo-config", "node-slo"):
        guarded.kubectl("delete", "-k", str(MANIFESTS / "overlays" / overlay))


def find(box: Sandbox, path: str) -> Any:
    try:
        return box.client.get(path)
    except SandboxApiError:
        return None


def test_they_follow_the_config_map(box: Sandbox, tmp_path: Path) -> None:
    (name,) = box.add_nodes(1, "cpu16")
    data = {
        "resource-threshold-config": json.dumps(THRESHOLDS),
        "resource-amplification-config": json.dumps(OFFERS),
        "system-config": "{",
    }
    body = {"metadata": {"name": "slo-controller-config"}, "data": data}
    box.client.create(CONFIG, body)

    def annotation() -> str | None:
        node = box.client.get(f"/api/v1/nodes/{name}")
        text: str | None = node["metadata"].get("annotations", {}).get(RATIOS)
        return text

    def threshold() -> Any:
        slo = find(box, f"{SLOS}/{name}")
        return slo and slo["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]

    kubeconfig = box.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path, settings=SETTINGS) as operators:
        wait_for(lambda: annotation() == '{"cpu":1.50}', "the ratio is on the node")
        wait_for(lambda: threshold() == 60, "the NodeSLO is rendered")
        assert find(box, f"{SLOS}/{name}")["metadata"]["ownerReferences"][0]["name"] == name
        change = {"data": {"resource-threshold-config": "{}", "resource-amplification-config": "{"}}
        box.client.patch(f"{CONFIG}/slo-controller-config", change)
        wait_for(lambda: threshold() == 65, "the NodeSLO follows")
        assert annotation() == '{"cpu":1.50}', "the last valid ratio stays"
        change = {"data": {"resource-amplification-config": '{"enable": false}'}}
        box.client.patch(f"{CONFIG}/slo-controller-config", change)
        wait_for(lambda: annotation() is None, "the ratio is taken off")
        status, series = operators.get("/metrics")
        assert status == 200
        assert 'koord_node_slo_nodes{state="no_agent"}' in series
    box.client.delete(f"{CONFIG}/slo-controller-config")
    box.client.delete(f"/api/v1/nodes/{name}")
