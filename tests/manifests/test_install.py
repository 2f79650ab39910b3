"""The shipped manifests on a real API server: they apply, run restricted, and grant few rights."""

import json
import time
from pathlib import Path

import pytest
from tests.manifests.test_rights import Rights

import koord
from koord.runtime.registry import OPERATORS
from koord.runtime.settings import load_settings

pytestmark = pytest.mark.sandbox

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "koord-system"
ALL = "koord-operators"


def get(box, *arguments):
    return json.loads(box.kubectl("get", *arguments, "--output=json", f"--namespace={NAMESPACE}"))


def account_name(account):
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def is_allowed(box, user, verb, what, *, namespace="default", name=""):
    """Ask the API server for a right; ``what`` is ``plural.group/subresource``."""
    resource, _, subresource = what.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "resource": plural, "group": group, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "resourceAttributes": attributes | {"namespace": namespace, "name": name},
        },
    }
    answer = box.client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return answer["status"]["allowed"]


def test_the_pod_is_admitted_under_the_restricted_standard(installed):
    enforced = get(installed, "namespace", NAMESPACE)["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"
    installed.kubectl(
        *("wait", "pod", "--for=create", "--timeout=60s", f"--namespace={NAMESPACE}"),
        "--selector=app.kubernetes.io/component=all",
    )


def test_a_privileged_pod_is_not_admitted(installed):
    """Shows that the test above can fail."""
    template = get(installed, "deployment", ALL)["spec"]["template"]
    template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    with pytest.raises(Exception, match='violates PodSecurity "restricted'):
        installed.client.create(path, pod)


def test_the_container_has_requests_and_probes(installed):
    spec = get(installed, "deployment", ALL)["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_configuration_is_valid_and_matches_the_probes(installed):
    settings = load_settings(MANIFESTS / "process" / "config.yaml")
    container = get(installed, "deployment", ALL)["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"] == [
        {"containerPort": settings.http_address.port, "name": "http", "protocol": "TCP"}
    ]


def test_the_image_tag_is_this_version(installed):
    container = get(installed, "deployment", ALL)["spec"]["template"]["spec"]["containers"][0]
    assert container["image"].rpartition(":")[2] == koord.__version__


@pytest.mark.parametrize("again", [("base",), ("overlays", "separate")])
def test_applying_again_changes_nothing(separate, again):
    assert separate.kubectl("diff", "-k", str(MANIFESTS.joinpath(*again))) == ""


@pytest.mark.parametrize(
    ("account", "verb", "resource", "allowed"),
    [
        (ALL, "create", "pods/binding", True),
        (ALL, "patch", "devices.scheduling.koordinator.sh/status", True),
        (ALL, "get", "secrets", False),
        (ALL, "create", "pods", False),
        ("koord-placement", "delete", "pods", True),
        ("koord-podgroup", "delete", "pods", False),
        (ALL, "patch", "nodes", False),
        ("koord-placement", "create", "pods/binding", True),
        ("koord-placement", "patch", "pods", True),
        ("koord-placement", "patch", "nodes/status", True),
        ("koord-placement", "patch", "elasticquotas.scheduling.sigs.k8s.io/status", False),
        ("koord-podgroup", "patch", "podgroups.scheduling.sigs.k8s.io/status", True),
        ("koord-podgroup", "patch", "podgroups.scheduling.sigs.k8s.io", False),
        ("koord-podgroup", "create", "pods/binding", False),
        ("koord-podgroup", "patch", "pods", False),
        ("koord-elasticquota", "create", "elasticquotas.scheduling.sigs.k8s.io", False),
        ("koord-elasticquotaprofile", "create", "elasticquotas.scheduling.sigs.k8s.io", True),
        ("koord-elasticquotaprofile", "delete", "elasticquotas.scheduling.sigs.k8s.io", False),
        ("koord-elasticquotaprofile", "list", "pods", False),
        ("koord-device", "patch", "devices.scheduling.koordinator.sh/status", True),
        ("koord-device", "list", "pods", True),
        ("koord-reservation", "list", "devices.scheduling.koordinator.sh", False),
    ],
)
def test_rights_by_account(separate, account, verb, resource, allowed):
    assert is_allowed(separate, account_name(account), verb, resource) is allowed


@pytest.mark.parametrize(
    ("account", "verb", "lease", "allowed"),
    [
        (ALL, "get", (NAMESPACE, "koord-operators"), True),
        (ALL, "update", (NAMESPACE, "koord-operators"), True),
        (ALL, "create", (NAMESPACE, ""), True),
        (ALL, "update", (NAMESPACE, "koord-placement"), False),
        (ALL, "delete", (NAMESPACE, "koord-operators"), False),
        (ALL, "update", ("kube-system", "koord-operators"), False),
        (ALL, "get", ("koordinator-system", "koord-scheduler"), True),
        (ALL, "update", ("koordinator-system", "koord-scheduler"), False),
        ("koord-device", "update", (NAMESPACE, "koord-device"), True),
        ("koord-device", "update", (NAMESPACE, "koord-operators"), False),
        ("koord-device", "get", ("koordinator-system", "koord-scheduler"), False),
    ],
)
def test_rights_on_leases(separate, account, verb, lease, allowed):
    user, what, (namespace, name) = account_name(account), "leases.coordination.k8s.io", lease
    assert is_allowed(separate, user, verb, what, namespace=namespace, name=name) is allowed


@pytest.mark.parametrize("account", [ALL, *(f"koord-{name}" for name in OPERATORS)])
def test_only_the_key_is_read_and_no_secret_is_made(separate, account):
    """Whoever makes Secrets in a namespace can have tokens of its accounts."""
    user = account_name(account)
    for verb, name in (("create", ""), ("get", ""), ("list", ""), ("update", "other")):
        assert not is_allowed(separate, user, verb, "secrets", namespace=NAMESPACE, name=name)


def test_the_account_of_all_operators_has_what_the_separate_ones_have_together(separate):
    """What each of those is granted, it uses: test_rights.py."""
    rights = Rights(separate)
    assert rights.of(ALL) == {grant for name in OPERATORS for grant in rights.of(f"koord-{name}")}


def test_every_deployment_has_a_standby_and_a_disruption_budget(separate):
    deployments = {one["metadata"]["name"]: one["spec"] for one in get(separate, "deploy")["items"]}
    budgets = {one["metadata"]["name"]: one["spec"] for one in get(separate, "pdb")["items"]}
    assert deployments.keys() == budgets.keys()
    for name, spec in deployments.items():
        assert spec["replicas"] == 2
        assert spec["strategy"]["type"] == "RollingUpdate"
        # An empty selector would be that of every pod in the namespace.
        assert budgets[name]["selector"] == spec["selector"], name
        assert budgets[name]["maxUnavailable"] == 1


def test_separate_processes_run_one_operator_each(separate):
    deployments = get(separate, "deployments")["items"]
    arguments = {
        deployment["metadata"]["name"]: deployment["spec"]["template"]["spec"]["containers"][0][
            "args"
        ][-1]
        for deployment in deployments
        if deployment["metadata"]["name"] != ALL
    }
    assert arguments == {f"koord-{name}": f"--operator={name}" for name in OPERATORS}
    assert {
        deployment["spec"]["template"]["spec"]["serviceAccountName"] for deployment in deployments
    } == {*arguments, ALL}


def test_editors_of_a_namespace_write_pod_groups_but_not_quotas(installed):
    installed.kubectl("create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann")
    # A controller adds our rules to the built-in role, a moment after they appear.
    for _ in range(100):
        if is_allowed(installed, "ann", "create", "podgroups.scheduling.sigs.k8s.io"):
            break
        time.sleep(0.1)
    may = {
        (verb, plural)
        for verb in ("get", "create", "patch", "delete")
        for plural in ("podgroups", "elasticquotas")
        if is_allowed(installed, "ann", verb, f"{plural}.scheduling.sigs.k8s.io")
    }
    assert may == {
        ("get", "elasticquotas"),
        *((verb, "podgroups") for verb in ("get", "create", "patch", "delete")),
    }


def test_bindings_are_of_the_accounts_that_there_are(separate):
    accounts = {one["metadata"]["name"] for one in get(separate, "serviceaccounts")["items"]}
    subjects = {
        subject["name"]
        for binding in get(separate, "rolebindings")["items"]
        for subject in binding["subjects"]
    }
    assert subjects <= accounts
