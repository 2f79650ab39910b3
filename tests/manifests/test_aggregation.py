"""The overlay of the aggregation layer: it is off, trusts by certificate, and grants questions."""

from pathlib import Path

from tests.manifests.conftest import MANIFESTS, load_all

from koord.cli.serve_aggregation import CONFIG_MAP
from koord.domains.see_settings import SeeSettings
from koord.runtime.settings import load_settings
from koord.see.discovery import GROUP, VERSION
from koord.see.routes import ROUTES

OVERLAY = MANIFESTS / "overlays" / "aggregation"


def load(name: str) -> list[dict]:
    return load_all((OVERLAY / name).read_text(encoding="utf-8"))


def test_certificates_are_verified_and_the_way_leads_to_the_port() -> None:
    (api_service,) = load("api-service.yaml")
    spec = api_service["spec"]
    assert (spec["group"], spec["version"]) == (GROUP, VERSION)
    assert api_service["metadata"]["name"] == f"{VERSION}.{GROUP}"
    assert not spec.get("insecureSkipTLSVerify")
    service, _ = load("service.yaml")
    (port,) = service["spec"]["ports"]
    assert (spec["service"]["name"], spec["service"]["port"]) == (
        service["metadata"]["name"],
        port["port"],
    )
    (deployment,) = load("deployment.yaml")
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    see = load_settings(Path(OVERLAY / "config.yaml")).of(SeeSettings)
    assert see.aggregation_address.rpartition(":")[2] == ports[port["targetPort"]]
    assert see.address.rpartition(":")[2] == ports["https"]


def test_one_config_map_is_read_and_everybody_may_ask_and_do_nothing_else() -> None:
    role, _, cluster_role, binding = load("roles.yaml")
    assert role["metadata"]["namespace"] == "kube-system"
    (rule,) = role["rules"]
    assert (rule["resources"], rule["verbs"]) == (["configmaps"], ["get"])
    assert rule["resourceNames"] == [CONFIG_MAP.rpartition("/")[2]]
    verbs = {"GET": {"get", "list"}, "POST": {"create"}}
    for rule in cluster_role["rules"]:
        assert rule["apiGroups"] == [GROUP]
        assert set(rule["verbs"]) in verbs.values()
    posted = {route.path for route in ROUTES if route.method == "POST"}
    (creates,) = (rule for rule in cluster_role["rules"] if rule["verbs"] == ["create"])
    assert set(creates["resources"]) == posted
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]
