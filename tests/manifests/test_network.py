"""The overlay ``network``. A sandbox does not enforce it, so only its text is tested."""

import json

import pytest
import yaml
from tests.manifests.conftest import MANIFESTS

from koord.runtime.registry import OPERATORS

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def policy(separate):
    separate.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "network"))
    text = separate.kubectl(
        *("get", "networkpolicy", "koord-operators"),
        *("--namespace=koord-system", "--output=json"),
    )
    return json.loads(text)["spec"]


@pytest.fixture(scope="module")
def templates(separate):
    """The pod templates of all installations."""
    found = separate.client.get("/apis/apps/v1/namespaces/koord-system/deployments")["items"]
    return [deployment["spec"]["template"] for deployment in found]


def test_the_policy_selects_every_pod_of_the_operators(policy, templates):
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    selected = policy["podSelector"]["matchLabels"].items()
    assert selected
    assert len(templates) == len(OPERATORS) + 1, "and that of all operators"
    assert all(selected <= template["metadata"]["labels"].items() for template in templates)


def test_only_the_metrics_port_is_open(policy, templates):
    (rule,) = policy["ingress"]
    (port,) = rule["ports"]
    assert rule["from"] == [{"namespaceSelector": {}}], "pods of this cluster"
    config = yaml.safe_load((MANIFESTS / "process/config.yaml").read_text(encoding="utf-8"))
    for template in templates:
        (container,) = template["spec"]["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert str(ports[port["port"]]) == config["httpAddress"].rpartition(":")[2]


def test_egress_is_limited_to_the_api_server(policy):
    (rule,) = policy["egress"]
    assert rule == {"ports": [{"protocol": "TCP", "port": port} for port in (443, 6443)]}
