"""The overlay of ``koord serve``: it reads what is planned with, and can write nothing."""

from pathlib import Path

from tests.manifests.conftest import MANIFESTS, load_all

from koord.cli.serve_server import SERVICE
from koord.domains.registry import KINDS
from koord.domains.see_settings import SeeSettings
from koord.runtime.settings import load_settings

OVERLAY = MANIFESTS / "overlays" / "serve"
REVIEWS = {"tokenreviews", "subjectaccessreviews"}
"""Questions to the API server: creating one leaves no object."""


def load(name: str) -> list[dict]:
    return load_all((OVERLAY / name).read_text(encoding="utf-8"))


def list_rules() -> list[dict]:
    kinds = {"Role", "ClusterRole"}
    return [rule for each in load("roles.yaml") if each["kind"] in kinds for rule in each["rules"]]


def test_it_has_no_right_to_write() -> None:
    for rule in list_rules():
        verbs, resources = set(rule["verbs"]), set(rule.get("resources", []))
        if verbs == {"create"}:
            assert resources <= REVIEWS
        else:
            assert verbs <= {"get", "list", "watch"}
        assert "*" not in {*verbs, *resources, *rule.get("apiGroups", [])}
        assert not resources & {"secrets", "pods/log", "pods/exec", "users", "groups"}


def test_it_may_read_exactly_what_is_planned_with() -> None:
    followed = {
        (group, resource)
        for rule in list_rules()
        if "watch" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    planned = {(kind.group, kind.plural) for kind in KINDS if not kind.only}
    # Classes of priority are read when a job is tried that does not exist.
    assert followed - {("scheduling.k8s.io", "priorityclasses")} == planned - {
        ("scheduling.k8s.io", "priorityclasses")
    }


def test_nobody_but_it_has_its_role() -> None:
    for binding in load("roles.yaml"):
        for subject in binding.get("subjects", []):
            assert (subject["kind"], subject["name"]) == ("ServiceAccount", "koord-serve")


def test_its_configuration_is_valid_and_speaks_tls() -> None:
    see = load_settings(Path(OVERLAY / "config.yaml")).of(SeeSettings)
    assert see.is_secure
    (deployment,) = load("deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert see.address.rpartition(":")[2] == str(port["containerPort"])
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(Path(file).parent) for file in (see.tls.cert_file, see.tls.key_file)} <= mounts
    assert container["args"][0] == "serve"


def test_its_service_has_the_name_that_it_answers_to() -> None:
    (service,) = load("service.yaml")
    assert service["metadata"]["name"] == SERVICE
    assert service["spec"]["type"] == "ClusterIP"


def test_it_is_not_selected_as_one_of_the_operators() -> None:
    (kustomization,) = load("kustomization.yaml")
    labels = [label["pairs"] for label in kustomization["labels"]]
    assert {"app.kubernetes.io/name": "koord-serve"} in labels
