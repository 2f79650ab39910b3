"""The overlay ``amplification``: what is stored of the reports of a kubelet, whose part we play."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.someone import MERGE, Someone
from tests.manifests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

RATIOS = "node.koordinator.sh/resource-amplification-ratio"
RAW = "node.koordinator.sh/raw-allocatable"
GIB = 1 << 30


class Kubelet:
    """Reports what a node has, as a kubelet does: only where the node shows something else."""

    def __init__(self, box: Sandbox, name: str) -> None:
        self.path = f"/api/v1/nodes/{name}"
        self._client = box.client

    @property
    def node(self) -> Any:
        return self._client.get(self.path)

    def annotate(self, ratios: str | None) -> None:
        self._client.patch(self.path, {"metadata": {"annotations": {RATIOS: ratios}}})

    def report(self, cpu: str, memory: str) -> tuple[str, str]:
        """Report; return what is stored of it."""
        shown = self.node["status"]["allocatable"]
        has = {"cpu": cpu, "memory": memory}
        amounts = {key: amount for key, amount in has.items() if shown[key] != amount}
        status = {"allocatable": amounts, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}
        self._client.patch(f"{self.path}/status", {"status": status})
        after = self.node["status"]["allocatable"]
        return after["cpu"], after["memory"]

    @property
    def raw(self) -> Any:
        text = self.node["metadata"].get("annotations", {}).get(RAW)
        return None if text is None else json.loads(text)


@pytest.fixture(scope="module")
def amplified(guarded: Sandbox) -> Iterator[Sandbox]:
    overlay = str(MANIFESTS / "overlays" / "amplification")
    guarded.kubectl("apply", "-k", overlay)
    (name,) = guarded.add_nodes(1, "cpu16")
    probe = Kubelet(guarded, name)
    probe.annotate('{"cpu":2}')
    wait_for(lambda: probe.report("16", "64Gi")[0] == "32", "the policy is in force")
    guarded.client.delete(probe.path)
    yield guarded
    guarded.kubectl("delete", "-k", overlay)


@pytest.fixture
def kubelet(amplified: Sandbox) -> Iterator[Kubelet]:
    (name,) = amplified.add_nodes(1, "cpu16")
    made = Kubelet(amplified, name)
    yield made
    amplified.client.delete(made.path)


def test_what_is_reported_is_stored_times_the_ratio(kubelet: Kubelet) -> None:
    assert kubelet.report("16", "64Gi") == ("16", "64Gi")
    assert kubelet.raw is None
    kubelet.annotate('{"cpu":1.50,"memory":1.25}')
    assert kubelet.report("16", "64Gi") == ("24", str(80 * GIB))
    assert kubelet.raw == {"cpu": "16", "memory": "64Gi"}
    assert kubelet.report("16", "64Gi") == ("24", str(80 * GIB)), "not twice"
    assert kubelet.report("12", "64Gi") == ("18", str(80 * GIB))
    assert kubelet.raw == {"cpu": "12", "memory": "64Gi"}


def test_fractions_are_rounded_down_without_artefacts(kubelet: Kubelet) -> None:
    kubelet.annotate('{"cpu":1.15}')
    assert kubelet.report("15990m", "64Gi") == ("18388m", "64Gi")
    assert kubelet.report("1", "64Gi") == ("1150m", "64Gi")


def test_writes_of_others_change_nothing_of_it(amplified: Sandbox, kubelet: Kubelet) -> None:
    kubelet.annotate('{"cpu":1.50}')
    kubelet.report("16", "64Gi")
    amounts = {"koordinator.sh/gpu-core": "100"}
    operators = Someone(amplified, "koord-system", "koord-operators")
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    answer = operators.send("PATCH", f"{kubelet.path}/status", body, MERGE)
    assert answer.status == 200, answer
    operators.close()
    amplified.client.patch(f"{kubelet.path}/status", {"status": {"phase": "Running"}})
    shown = kubelet.node["status"]["allocatable"]
    assert (shown["cpu"], shown["koordinator.sh/gpu-core"]) == ("24", "100")
    assert kubelet.raw == {"cpu": "16", "memory": "64Gi"}


def test_without_the_annotation_the_node_offers_what_it_has(kubelet: Kubelet) -> None:
    kubelet.annotate('{"cpu":1.50}')
    kubelet.report("16", "64Gi")
    kubelet.annotate(None)
    assert kubelet.report("16", "64Gi") == ("16", "64Gi")
    assert kubelet.raw is None
    assert kubelet.report("16", "64Gi") == ("16", "64Gi")


@pytest.mark.parametrize(
    "ratios",
    [
        "[",
        "",
        '{"cpu":"1.5"}',
        '{"cpu":0.5}',
        '{"cpu":1e9}',
        '{"cpu":101}',
        '{"cpu":-2}',
        "x" * 999,
    ],
)
def test_bad_ratios_amplify_nothing(kubelet: Kubelet, ratios: str) -> None:
    kubelet.annotate(ratios)
    assert kubelet.report("16", "64Gi") == ("16", "64Gi")
    assert kubelet.report("12", "32Gi") == ("12", "32Gi")


def test_a_broken_record_is_no_obstacle(amplified: Sandbox, kubelet: Kubelet) -> None:
    for record in ("{", '{"cpu":""}', '{"cpu":"1e","memory":"x"}', "0" * 9999):
        body = {"metadata": {"annotations": {RATIOS: '{"cpu":2}', RAW: record}}}
        amplified.client.patch(kubelet.path, body)
        assert kubelet.report("10", "64Gi") == ("20", "64Gi")
