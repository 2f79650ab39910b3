"""The overlay ``inject``: which pods it opts in, and which it does not change."""

import secrets

import pytest
from tests.manifests.attacks import GATE, OTHER_GATE
from tests.manifests.conftest import MANIFESTS, load_all
from tests.manifests.scene import quoted, read_policy
from tests.manifests.waiting import wait_for

from koord.api.keys import gang, operators, quota

GROUP = {"labels": {gang.POD_GROUP: "a"}}
DEFAULT = "default-scheduler"
REQUIRED = {
    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {}}]
}
SPREAD = [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]
RESTRICTED = {
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 1,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "containers": [
        {
            "name": "c",
            "image": "x",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}


def make_pod(metadata=None, **spec):
    return {
        "metadata": {"name": f"p-{secrets.token_hex(3)}", **(metadata or {})},
        "spec": {"containers": [{"name": "c", "image": "x"}], **spec},
    }


def gates_of(pod):
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


class Namespace:
    def __init__(self, box, name):
        self.box, self.name = box, name
        self._pods = f"/api/v1/namespaces/{name}/pods"

    def create(self, pod):
        """Create a pod by a dry run; return it as admitted."""
        return self.box.client.create(f"{self._pods}?dryRun=All", pod)


def open_namespace(box, value):
    """Return a namespace with this kind of injection, once it is in force."""
    name = f"test-{secrets.token_hex(3)}"
    box.create_namespace(name)
    box.kubectl("label", "namespace", name, f"{operators.INJECT}={value}")
    namespace = Namespace(box, name)
    wait_for(lambda: gates_of(namespace.create(make_pod(GROUP))) == [GATE], "the policy in force")
    return namespace


@pytest.fixture(scope="module")
def injected(guarded):
    return open_namespace(guarded, "enabled")


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "metadata",
    [
        GROUP,
        {"labels": {gang.LEGACY_NAME: "a", gang.LEGACY_MIN_AVAILABLE: "2"}},
        {"annotations": {gang.NAME: "a", gang.MIN_AVAILABLE: "2"}},
        {"labels": {quota.NAME: "a"}},
    ],
    ids=["pod group", "legacy labels", "annotations", "quota"],
)
def test_pods_of_gangs_and_quotas_are_opted_in(injected, metadata):
    pod = injected.create(make_pod(metadata))
    assert gates_of(pod) == [GATE]
    assert pod["spec"]["schedulerName"] == operators.SCHEDULER_NAME


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("metadata", "spec", "scheduler"),
    [
        ({}, {}, DEFAULT),
        ({"labels": {"app": "web"}, "annotations": {"a": "b"}}, {}, DEFAULT),
        (GROUP, {"schedulerName": "volcano"}, "volcano"),
        (GROUP, {"nodeName": "here"}, DEFAULT),
        (
            GROUP,
            {"nodeName": "here", "schedulerName": operators.SCHEDULER_NAME},
            operators.SCHEDULER_NAME,
        ),
    ],
    ids=["nothing said", "other labels", "other scheduler", "has a node", "ours, has a node"],
)
def test_other_pods_are_not_changed(injected, metadata, spec, scheduler):
    pod = injected.create(make_pod(metadata, **spec))
    assert gates_of(pod) == []
    assert pod["spec"]["schedulerName"] == scheduler


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "gates",
    [[], [GATE], [OTHER_GATE], [GATE, OTHER_GATE], [OTHER_GATE, GATE]],
    ids=str,
)
def test_existing_gates_stay_and_ours_is_added_once(injected, gates):
    given = [{"name": gate} for gate in gates]
    spec = {"schedulingGates": given, "schedulerName": operators.SCHEDULER_NAME}
    pod = injected.create(make_pod(GROUP, **spec))
    assert sorted(gates_of(pod)) == sorted({*gates, GATE})
    again = injected.create(make_pod(GROUP, **pod["spec"]))
    assert again["spec"]["schedulingGates"] == pod["spec"]["schedulingGates"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("spec", "stays"),
    [
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, True),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, False),
        ({"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}, True),
        ({"affinity": {"podAffinity": REQUIRED}}, False),
        ({"affinity": {"podAntiAffinity": REQUIRED}}, False),
        ({"affinity": {"nodeAffinity": {}}}, False),
        ({"topologySpreadConstraints": SPREAD}, False),
    ],
    ids=str,
)
def test_pods_that_need_kube_scheduler_stay_with_it(injected, spec, stays):
    pod = injected.create(make_pod(GROUP, **spec))
    assert gates_of(pod) == [GATE]
    assert pod["spec"]["schedulerName"] == (DEFAULT if stays else operators.SCHEDULER_NAME)


@pytest.mark.sandbox
def test_duplicate_list_entries_are_kept(injected):
    """The policy merges lists by key, though names may repeat in them."""
    container = {"name": "c", "image": "x", "env": [{"name": "A", "value": v} for v in "12"]}
    tolerations = [{"key": "a"}, {"key": "a"}]
    pod = injected.create(make_pod(GROUP, containers=[container], tolerations=tolerations))
    assert gates_of(pod) == [GATE]
    assert pod["spec"]["containers"][0]["env"] == container["env"]
    assert pod["spec"]["tolerations"][:2] == tolerations


@pytest.mark.sandbox
def test_a_namespace_without_the_label_is_not_changed(guarded):
    assert gates_of(Namespace(guarded, "default").create(make_pod(GROUP))) == []


@pytest.mark.sandbox
def test_the_namespace_of_the_operators_is_never_changed(guarded, injected):
    label = "operators.koordinator.sh/inject"
    guarded.kubectl("label", "namespace", "koord-system", f"{label}=enabled")
    try:
        pod = Namespace(guarded, "koord-system").create(make_pod(GROUP, **RESTRICTED))
    finally:
        guarded.kubectl("label", "namespace", "koord-system", f"{label}-")
    assert gates_of(pod) == []


def test_the_policy_uses_the_keys_of_the_api():
    policy = read_policy("koord-inject")
    conditions = {one["name"]: one["expression"] for one in policy["matchConditions"]}
    keys = {gang.POD_GROUP, gang.LEGACY_NAME, gang.NAME, quota.NAME}
    assert quoted(conditions["names-a-gang-or-a-quota"]) == keys
    names = quoted(" ".join(one["applyConfiguration"]["expression"] for one in policy["mutations"]))
    assert names == {operators.PLACEMENT_GATE, operators.SCHEDULER_NAME}


def test_the_excluded_namespace_is_that_of_the_operators():
    namespace, *_ = load_all((MANIFESTS / "cluster/namespace.yaml").read_text(encoding="utf-8"))
    text = (MANIFESTS / "overlays/inject/policy.yaml").read_text(encoding="utf-8")
    bindings = [one for one in load_all(text) if one["kind"].endswith("Binding")]
    assert len(bindings) == 3
    for binding in bindings:
        selector = binding["spec"]["matchResources"]["namespaceSelector"]
        (excluded,) = (one for one in selector["matchExpressions"] if one["operator"] == "NotIn")
        assert excluded["key"] == "kubernetes.io/metadata.name"
        assert namespace["metadata"]["name"] in excluded["values"]


@pytest.fixture(scope="module")
def accelerated(guarded):
    """A namespace in which all pods that ask for accelerators are gated."""
    return open_namespace(guarded, "accelerators")


def ask(resource, kind="limits", field="containers"):
    container = {"name": "g", "image": "x", "resources": {kind: {resource: 1}}}
    if kind == "requests":
        container["resources"]["limits"] = {resource: 1}
    others = {} if field == "containers" else {"containers": [{"name": "c", "image": "x"}]}
    return {field: [container], **others}


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("spec", "is_gated"),
    [
        (ask("nvidia.com/gpu"), True),
        (ask("nvidia.com/gpu", "requests"), True),
        (ask("nvidia.com/mig-1g.5gb"), True),
        (ask("koordinator.sh/gpu-core"), True),
        (ask("amd.com/gpu", field="initContainers"), True),
        (ask("cpu"), False),
        ({}, False),
        ({**ask("nvidia.com/gpu"), "schedulerName": "volcano"}, False),
    ],
)
def test_all_pods_that_ask_for_accelerators_are_gated(accelerated, injected, spec, is_gated):
    admitted = accelerated.create(make_pod(**spec))
    assert (gates_of(admitted) == [GATE]) == is_gated
    assert gates_of(injected.create(make_pod(**spec))) == []


def owned_by(kind):
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    return {"ownerReferences": [owner]}


@pytest.fixture(scope="module")
def covered(guarded):
    """A namespace in which all pods opt in."""
    return open_namespace(guarded, "all")


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("metadata", "spec", "is_gated"),
    [
        ({}, {}, True),
        (owned_by("ReplicaSet"), {}, True),
        (owned_by("Job"), {"priorityClassName": ""}, True),
        (GROUP, {}, True),
        (owned_by("DaemonSet"), {}, False),
        ({}, {"priorityClassName": "system-node-critical"}, False),
        ({}, {"nodeName": "here"}, False),
        ({}, {"schedulerName": "volcano"}, False),
    ],
    ids=str,
)
def test_all_pods_of_a_namespace_opt_in_but_those_of_nodes(covered, metadata, spec, is_gated):
    pod = covered.create(make_pod(metadata, **spec))
    assert (gates_of(pod) == [GATE]) == is_gated
    assert (pod["spec"]["schedulerName"] == operators.SCHEDULER_NAME) == is_gated
