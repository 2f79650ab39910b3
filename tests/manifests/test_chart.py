"""The Helm chart installs what kustomize installs."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from tests.manifests.conftest import load_all
from tests.support.helm import CHART, ROOT, run_helm

import koord
from koord_sandbox import Component, Sandbox

sys.path.insert(0, str(ROOT / "tools"))
from chart import (
    PARTS,
    SCHEMA,
    build_manifests,
    build_part,
    find_kubectl,
    make_schema,
    make_templates,
)

NAMESPACE = "koord-system"
HASH = re.compile(r"(koord-config-(?:operators|serve|answers)-)\w+")


def render(*values: str, namespace: str = NAMESPACE) -> list[dict]:
    options = [part for value in values for part in ("--set", value)]
    text = run_helm("template", "koord", str(CHART), "--namespace", namespace, *options)
    return load_all(text)


def normalise(document: dict) -> dict:
    """Ignore the hash in the name of the configuration, and how its YAML is written."""
    if document["kind"] == "ConfigMap" and "data" in document:
        document["data"] = {name: yaml.safe_load(one) for name, one in document["data"].items()}
    return json.loads(HASH.sub(r"\1HASH", json.dumps(document)))


def by_name(documents: list[dict]) -> dict[tuple[str, str], dict]:
    named = {(one["kind"], one["metadata"]["name"]): one for one in map(normalise, documents)}
    assert len(named) == len(documents)
    return named


def test_versions_are_those_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert {chart["version"], chart["appVersion"]} == {koord.__version__}


def test_custom_resources_are_those_of_the_package():
    assert (CHART / "crds").resolve() == ROOT / "crds"


def test_every_value_is_in_the_schema():
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values.keys() | {"global"} == schema["properties"].keys()


def test_schema_is_made_from_the_settings():
    assert SCHEMA.read_text(encoding="utf-8") == make_schema(), "run make chart"


def test_namespace_that_is_applied_before_the_chart_is_not_in_it():
    before = load_all((ROOT / "manifests/cluster/namespace.yaml").read_text(encoding="utf-8"))
    assert [one["metadata"]["name"] for one in before] == [NAMESPACE]


@pytest.mark.sandbox
def test_templates_are_made_from_the_manifests():
    made = dict(make_templates(find_kubectl()))
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run make chart"
    assert set(CHART.glob("templates/*.yaml")) == made.keys()


@pytest.mark.sandbox
@pytest.mark.timeout(1800)  # the first time, helm is built
class TestHelm:
    """What helm itself makes of the chart."""

    def test_default_is_the_base(self):
        expected = build_manifests(find_kubectl(), "manifests/base")
        assert by_name(render()) == by_name(expected)

    def test_switches_are_the_overlays(self):
        switches = [f"{part.switch}.enabled=true" for part in PARTS if part.switch]
        kubectl = find_kubectl()
        expected = [one for part in PARTS for one in build_part(kubectl, part)]
        assert by_name(render(*switches)) == by_name(expected)

    def test_dashboards_link_the_page_if_its_address_is_known(self):
        boards = ("monitoring.dashboard.enabled=true", "monitoring.teamDashboard.enabled=true")
        address = "monitoring.pageUrl=https://koord.example.com/"
        rendered = [one for one in render(*boards, address) if one["kind"] == "ConfigMap"]
        texts = [text for one in rendered for name, text in one["data"].items() if ".json" in name]
        assert len(texts) == 2
        for text in texts:
            urls = {link["url"] for link in json.loads(text)["links"]}
            paths = ("queue", "quotas", "health")
            assert urls == {f"https://koord.example.com/page/{path}" for path in paths}

    def test_right_to_evict_can_be_left_out(self):
        assert "pods/eviction" in json.dumps(render())
        roles = [one for one in render("eviction.enabled=false") if one["kind"] == "ClusterRole"]
        assert "pods/eviction" not in json.dumps(roles)

    def test_another_namespace_reaches_roles_and_policies(self):
        assert NAMESPACE not in json.dumps(render(namespace="elsewhere"))

    def test_values_reach_the_pods_and_the_configuration(self):
        documents = by_name(
            render(
                "image.repository=r.example.com/koord",
                "image.tag=1.2.3",
                "image.pullPolicy=Always",
                "imagePullSecrets[0].name=mine",
                "replicas=3",
                "config.compat=koordinator",
            )
        )
        deployment = documents["Deployment", "koord-operators"]["spec"]
        pod = deployment["template"]["spec"]
        assert deployment["replicas"] == 3
        assert pod["imagePullSecrets"] == [{"name": "mine"}]
        assert pod["containers"][0]["image"] == "r.example.com/koord:1.2.3"
        assert pod["containers"][0]["imagePullPolicy"] == "Always"
        config = documents["ConfigMap", "koord-config-operators-HASH"]["data"]["config.yaml"]
        assert config["compat"] == "koordinator"

    def test_the_store_of_answers_gets_a_volume(self):
        store = "serve.see.store=sqlite:/data/see.db"
        documents = by_name(render("serve.enabled=true", store, "serve.volumeClaim=answers"))
        deployment = documents["Deployment", "koord-serve"]["spec"]
        assert deployment["strategy"] == {"type": "Recreate"}
        pod = deployment["template"]["spec"]
        (claim,) = (one for one in pod["volumes"] if "persistentVolumeClaim" in one)
        (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "data")
        assert claim["persistentVolumeClaim"] == {"claimName": "answers"}
        config = documents["ConfigMap", "koord-config-serve-HASH"]["data"]["config.yaml"]
        assert config["see"]["store"].startswith(f"sqlite:{mount['mountPath']}/")

    def test_documented_configuration_is_accepted(self, tmp_path):
        page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
        found = re.search(
            r"```yaml\n(apiVersion: \S+\nkind: OperatorConfiguration\n.*?)```", page, re.DOTALL
        )
        config = yaml.safe_load(found[1])
        del config["apiVersion"], config["kind"]
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
        run_helm("template", "koord", str(CHART), "--values", str(values))

    def test_labels_reach_what_the_prometheus_operator_selects(self):
        switches = [f"monitoring.{one}.enabled=true" for one in ("podMonitor", "alerts")]
        documents = by_name(render(*switches, "monitoring.labels.release=stack"))
        for kind in ("PodMonitor", "PrometheusRule"):
            labels = documents[kind, "koord-operators"]["metadata"]["labels"]
            assert labels == {"app.kubernetes.io/part-of": "koord-operators", "release": "stack"}

    @pytest.mark.parametrize(
        ("value", "named"),
        [
            ("replica=3", "replica"),
            ("image.pullPolicy=Sometimes", "pullPolicy"),
            ("inject.enabled=maybe", "inject"),
            ("config.httpAddress=0.0.0.0:9090", "httpAddress"),
            ("config.prempt.enabled=false", "prempt"),
            ("config.preemption.minRunTime=10m", "minRunTime"),
            ("config.preemption.minRuntime=10", "minRuntime"),
            ("config.elasticQuota.delayEvictTime.seconds=5", "delayEvictTime"),
            ("monitoring.alert.enabled=true", "alert"),
        ],
    )
    def test_wrong_value_is_refused_and_named(self, value, named):
        answer = run_helm("template", "koord", str(CHART), "--set", value, check=False)
        assert "don't meet the specifications of the schema" in answer
        assert named in answer

    def test_chart_is_installed_and_removed(self):
        with Sandbox(components=[Component.CONTROLLER_MANAGER]) as box:
            place = ["--namespace", NAMESPACE]
            install = ["install", "koord", str(CHART), *place, "--create-namespace"]
            run_helm(*install, "--set", "deviceAgent.enabled=true", kubeconfig=box.kubeconfig)
            assert box.kubectl("get", "deployment", "koord-operators", *place)
            run_helm("uninstall", "koord", *place, kubeconfig=box.kubeconfig)
            definitions = box.kubectl("get", "customresourcedefinitions", "--output=name")
            assert len(definitions.split()) == len(list(Path(ROOT / "crds").glob("*.yaml")))
