"""What Kubernetes itself does with batch resources, and with policies that change pods.

Colocation rests on these facts, so that a release that changes one of them fails here. Everything
is asked of a real API server and a real kube-scheduler; our operators have no part in it.

Nothing here has a kubelet. These facts are taken from its source, and no test can show them:

* A kubelet ignores batch resources: the containers run in the BestEffort cgroup, without limits.
* It copies amounts of names that it does not know from ``capacity`` to ``allocatable``, so both are
  patched. They stay when a node registers again, unlike extended resources, which become zero.
* It refuses a pod that asks for a batch resource which the node lacks, with
  ``OutOfkubernetes.io/batch-cpu``, unlike one that asks for an extended resource. Pods that run are
  only looked at when it restarts.
"""

from __future__ import annotations

import http.client
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import GATE, kubernetes_version
from tests.support.namespaces import empty

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from koord_sandbox import Sandbox

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PATIENCE_SECONDS = 45.0

changes_pods = pytest.mark.usefixtures("policies_are_served")


def wait_for(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"not seen: {what}"
        time.sleep(0.1)


class Server:
    """A namespace of an API server, and the objects of the cluster that were made for a test."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.client = box.client
        self.namespace = f"facts-{secrets.token_hex(3)}"
        self.made: list[str] = []
        box.create_namespace(self.namespace)

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def create(self, plural: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        return self.client.create(self.path(plural), {"metadata": {"name": name}, "spec": spec})

    def create_for_cluster(self, path: str, name: str, body: Mapping[str, Any]) -> None:
        self.client.create(path, {"metadata": {"name": name}, **body})
        self.made.append(f"{path}/{name}")

    def admit(self, pod: dict[str, Any], *, is_dry: bool = False) -> dict[str, Any]:
        """Create a pod; raise what the server refuses it with."""
        return self.client.create(self.path("pods") + ("?dryRun=All" if is_dry else ""), pod)

    def refusal_of(self, pod: dict[str, Any]) -> str:
        """Return why a pod is refused; "" if it would be created."""
        try:
            self.admit(pod, is_dry=True)
        except SandboxApiError as error:
            return str(error)
        return ""

    def pod(
        self,
        name: str,
        requests: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
        *,
        profile: str = "none",
        **spec: Any,
    ) -> dict[str, Any]:
        given = {"requests": requests, "limits": limits}
        resources = {kind: dict(amounts) for kind, amounts in given.items() if amounts is not None}
        return {
            "metadata": {"name": name, "labels": {"profile": f"{self.namespace}-{profile}"}},
            "spec": {
                "nodeSelector": {"test": self.namespace},
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "x", "resources": resources}],
                **spec,
            },
        }

    def policy(self, name: str, expression: str) -> None:
        """Have a policy change the pods of a profile when they are created."""
        is_apply = expression.startswith("Object{")
        kind = "applyConfiguration" if is_apply else "jsonPatch"
        mutation = {"patchType": kind[0].upper() + kind[1:], kind: {"expression": expression}}
        if not is_apply:
            mutation["patchType"] = "JSONPatch"
        full = f"{self.namespace}-{name}"
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
        spec = {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {"profile": full}},
                "resourceRules": [rule],
            },
            "mutations": [mutation],
        }
        self.create_for_cluster(POLICIES, full, {"spec": spec})
        self.create_for_cluster(BINDINGS, full, {"spec": {"policyName": full}})

    def priority_class(self, name: str, value: int, preemption: str) -> str:
        full = f"{self.namespace}-{name}"
        body = {"value": value, "preemptionPolicy": preemption}
        self.create_for_cluster(CLASSES, full, body)
        pod = self.pod("probe", priorityClassName=full)
        wait_for(lambda: not self.refusal_of(pod), "admission knows the PriorityClass")
        return full

    def quota(self, hard: Mapping[str, str]) -> str:
        """Create a ResourceQuota; return its name when the server counts with it."""
        name = f"quota-{secrets.token_hex(3)}"
        self.create("resourcequotas", name, {"hard": hard})
        path = self.path("resourcequotas", name)
        wait_for(
            lambda: self.client.get(path).get("status", {}).get("hard") == hard, "it is counted"
        )
        return name

    def node(self, **amounts: str) -> str:
        """Create a node that offers so much of batch resources, and more than enough of others."""
        name = f"{self.namespace}-{len(self.made)}"
        status = {"cpu": "64", "memory": "256Gi", "pods": "110", **amounts}
        body = {
            "metadata": {
                "name": name,
                "labels": {"test": self.namespace, "kubernetes.io/hostname": name},
            },
            "status": {"capacity": status, "allocatable": status},
        }
        self.client.create("/api/v1/nodes", body)
        self.made.append(f"/api/v1/nodes/{name}")
        path = f"/api/v1/nodes/{name}"
        wait_for(lambda: not self.client.get(path)["spec"].get("taints"), "the node is ready")
        return name

    def node_of(self, pod: str) -> str:
        return str(self.client.get(self.path("pods", pod))["spec"].get("nodeName", ""))

    def scheduling_of(self, pod: str) -> tuple[str, str]:
        """Return reason and message of the condition PodScheduled while it is False."""
        status = self.client.get(self.path("pods", pod)).get("status", {})
        for condition in status.get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition["reason"], condition.get("message", "")
        return "", ""

    def end(self) -> None:
        empty(self.client, self.namespace)
        for plural in ("resourcequotas", "limitranges"):
            self.client.delete(self.path(plural))
        for path in reversed(self.made):
            with suppress(SandboxApiError):
                self.client.delete(path)


@pytest.fixture
def server(operators_box: Sandbox) -> Iterator[Server]:
    made = Server(operators_box)
    yield made
    made.end()


@pytest.fixture
def policies_are_served() -> None:
    if kubernetes_version() < (1, 36):
        pytest.skip("MutatingAdmissionPolicy is served from 1.36 on")


def resources_of(pod: dict[str, Any]) -> dict[str, Any]:
    return dict(pod["spec"]["containers"][0]["resources"])


# --- amounts --------------------------------------------------------------------------------------


def test_a_batch_pod_may_request_less_than_its_limit(server: Server) -> None:
    pod = server.admit(server.pod("a", {BATCH_CPU: "500"}, {BATCH_CPU: "1000"}))
    assert resources_of(pod) == {"requests": {BATCH_CPU: "500"}, "limits": {BATCH_CPU: "1k"}}
    assert pod["status"]["qosClass"] == "BestEffort"


def test_a_limit_alone_becomes_the_request(server: Server) -> None:
    pod = server.admit(server.pod("a", None, {BATCH_CPU: "1500", BATCH_MEMORY: "1Gi"}))
    amounts = {BATCH_CPU: "1500", BATCH_MEMORY: "1Gi"}
    assert resources_of(pod) == {"requests": amounts, "limits": amounts}


def test_a_batch_pod_needs_no_limit_and_may_ask_for_fractions(server: Server) -> None:
    pod = server.admit(server.pod("a", {BATCH_CPU: "500"}))
    assert resources_of(pod) == {"requests": {BATCH_CPU: "500"}}
    pod = server.admit(server.pod("b", {BATCH_CPU: "500m"}, {BATCH_CPU: "500m"}))
    assert resources_of(pod)["requests"] == {BATCH_CPU: "500m"}


def test_names_of_other_domains_are_not_overcommitted(server: Server) -> None:
    """So batch resources keep the domain ``kubernetes.io``."""
    for requests, limits in (({"x": "1"}, {"x": "2"}), ({"x": "1"}, None), ({"x": "500m"},) * 2):
        named = [
            None if one is None else {f"example.com/{key}": value for key, value in one.items()}
            for one in (requests, limits)
        ]
        assert "422" in server.refusal_of(server.pod("a", *named))
    assert not server.refusal_of(server.pod("a", {"example.com/x": "1"}, {"example.com/x": "1"}))


# --- ResourceQuota and LimitRange -----------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["requests.", "limits.", ""])
def test_a_resource_quota_never_charges_batch_resources(server: Server, prefix: str) -> None:
    name = server.quota({f"{prefix}{BATCH_CPU}": "100"})
    server.admit(server.pod("large", {BATCH_CPU: "5000"}, {BATCH_CPU: "5000"}))
    used = server.client.get(server.path("resourcequotas", name))["status"].get("used", {})
    assert used.get(f"{prefix}{BATCH_CPU}", "0") == "0"


def test_a_resource_quota_charges_extended_resources(server: Server) -> None:
    server.quota({"requests.example.com/x": "1"})
    pod = server.pod("large", {"example.com/x": "2"}, {"example.com/x": "2"})
    wait_for(lambda: "exceeded quota" in server.refusal_of(pod), "the quota refuses it")
    assert not server.refusal_of(server.pod("one", {"example.com/x": "1"}, {"example.com/x": "1"}))


def test_a_resource_quota_of_cpus_refuses_batch_pods(server: Server) -> None:
    name = server.quota({"requests.cpu": "10"})
    pod = server.pod("a", {BATCH_CPU: "500"}, {BATCH_CPU: "500"})
    wait_for(lambda: "must specify requests.cpu" in server.refusal_of(pod), "the quota refuses it")
    assert "403" in server.refusal_of(pod)
    server.client.delete(server.path("resourcequotas", name))
    wait_for(lambda: not server.refusal_of(pod), "without it the pod is admitted")


def test_a_limit_range_gives_batch_pods_cpus_again(server: Server) -> None:
    """Such a pod counts twice, and is no BestEffort pod any more."""
    give_defaults(server)
    pod = server.admit(server.pod("a", {BATCH_CPU: "500"}))
    assert resources_of(pod)["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert resources_of(pod)["requests"] == {"cpu": "1", "memory": "1Gi", BATCH_CPU: "500"}
    assert pod["status"]["qosClass"] == "Burstable" or pod["status"]["qosClass"] == "Guaranteed"


def give_defaults(server: Server) -> None:
    default = {"cpu": "1", "memory": "1Gi"}
    limit = {"type": "Container", "default": default, "defaultRequest": default}
    server.create("limitranges", "defaults", {"limits": [limit]})
    pod = server.pod("probe")
    wait_for(
        lambda: bool(resources_of(server.admit(pod, is_dry=True))), "the LimitRange is in force"
    )


# --- kube-scheduler -------------------------------------------------------------------------------


def test_kube_scheduler_counts_requests_of_batch_resources(server: Server) -> None:
    node = server.node(**{BATCH_CPU: "1000"})
    server.admit(server.pod("a", {BATCH_CPU: "600"}, {BATCH_CPU: "2000"}))
    wait_for(lambda: server.node_of("a") == node, "it is bound, although its limit is larger")
    server.admit(server.pod("b", {BATCH_CPU: "600"}))
    wait_for(lambda: server.scheduling_of("b")[0] == "Unschedulable", "there is no room for two")
    assert f"Insufficient {BATCH_CPU}" in server.scheduling_of("b")[1]
    server.admit(server.pod("c", {BATCH_CPU: "400"}))
    wait_for(lambda: server.node_of("c") == node, "what is left is used")


def test_both_amounts_of_a_node_are_patched_in_its_status(server: Server) -> None:
    node = server.node()
    path = f"/api/v1/nodes/{node}/status"
    amounts = {BATCH_CPU: "15000", BATCH_MEMORY: "20Gi"}
    server.client.patch(path, {"status": {"capacity": amounts, "allocatable": amounts}})
    key = "kubernetes.io~1batch-cpu"
    steps: Any = [
        {"op": "test", "path": f"/status/allocatable/{key}", "value": "15k"},
        {"op": "replace", "path": f"/status/allocatable/{key}", "value": "9000"},
        {"op": "replace", "path": f"/status/capacity/{key}", "value": "9000"},
    ]
    server.client.request("PATCH", path, steps, content_type="application/json-patch+json")
    status = server.client.get(f"/api/v1/nodes/{node}")["status"]
    assert status["allocatable"][BATCH_CPU] == status["capacity"][BATCH_CPU] == "9k"
    assert status["allocatable"][BATCH_MEMORY] == "20Gi"
    with pytest.raises(SandboxApiError, match="422"):  # the old amount is another by now
        server.client.request("PATCH", path, steps, content_type="application/json-patch+json")


def test_nobody_is_evicted_when_less_is_offered_than_is_bound(server: Server) -> None:
    node = server.node(**{BATCH_CPU: "1000"})
    server.admit(server.pod("a", {BATCH_CPU: "900"}))
    wait_for(lambda: server.node_of("a") == node, "it is bound")
    less = {BATCH_CPU: "100"}
    server.client.patch(
        f"/api/v1/nodes/{node}/status", {"status": {"capacity": less, "allocatable": less}}
    )
    server.admit(server.pod("b", {BATCH_CPU: "50"}))
    wait_for(lambda: server.scheduling_of("b")[0] == "Unschedulable", "nothing more fits")
    assert "deletionTimestamp" not in server.client.get(server.path("pods", "a"))["metadata"]
    assert server.node_of("a") == node


# --- policies that change pods --------------------------------------------------------------------


@changes_pods
def test_the_name_of_a_priority_class_alone_has_every_pod_refused(server: Server) -> None:
    """Admission has given the pod the priority 0 before, and compares afterwards."""
    batch = server.priority_class("batch", 5000, "PreemptLowerPriority")
    server.policy("name", f'Object{{spec: Object.spec{{priorityClassName: "{batch}"}}}}')
    pod = server.pod("a", profile="name")
    wait_for(lambda: "403" in server.refusal_of(pod), "the pod is refused")
    assert "the integer value of priority (0) must not be provided" in server.refusal_of(pod)


@changes_pods
def test_name_and_value_of_a_priority_class_are_enough_if_it_preempts(server: Server) -> None:
    batch = server.priority_class("batch", 5000, "PreemptLowerPriority")
    values = f'priorityClassName: "{batch}", priority: 5000'
    server.policy("both", f"Object{{spec: Object.spec{{{values}}}}}")
    server.policy(
        "all", f'Object{{spec: Object.spec{{{values}, preemptionPolicy: "PreemptLowerPriority"}}}}'
    )
    for profile in ("both", "all"):
        assert_gets(server, server.pod(profile, profile=profile), priority=5000)


@changes_pods
def test_a_class_that_never_preempts_must_be_copied_whole(server: Server) -> None:
    never = server.priority_class("never", 5100, "Never")
    values = f'priorityClassName: "{never}", priority: 5100'
    server.policy("both", f"Object{{spec: Object.spec{{{values}}}}}")
    server.policy("all", f'Object{{spec: Object.spec{{{values}, preemptionPolicy: "Never"}}}}')
    pod = server.pod("a", profile="both")
    wait_for(lambda: "403" in server.refusal_of(pod), "the pod is refused")
    assert_gets(server, server.pod("b", profile="all"), priority=5100, preemptionPolicy="Never")


def assert_gets(server: Server, pod: dict[str, Any], **wanted: object) -> None:
    """Wait until a policy changes the pod; compare what it has then."""

    def changed() -> dict[str, Any]:
        spec = server.admit(pod, is_dry=True)["spec"]
        return {name: spec.get(name) for name in wanted}

    wait_for(lambda: changed() == wanted, f"the pod gets {wanted}")


@changes_pods
def test_a_gate_is_added_by_a_plain_map(server: Server) -> None:
    server.policy(
        "gate",
        f'[JSONPatch{{op: "add", path: "/spec/schedulingGates", value: [{{"name": "{GATE}"}}]}}]',
    )
    assert_gets(server, server.pod("probe", profile="gate"), schedulingGates=[{"name": GATE}])
    server.admit(server.pod("a", profile="gate"))
    wait_for(lambda: server.scheduling_of("a")[0] == "SchedulingGated", "it is gated")


@changes_pods
def test_a_typed_object_in_a_list_ends_the_request_without_an_answer(server: Server) -> None:
    """The policy is accepted, and the handler of the API server panics with each pod."""
    server.policy(
        "typed",
        '[JSONPatch{op: "add", path: "/spec/schedulingGates", '
        f'value: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}]',
    )
    pod = server.pod("a", profile="typed")

    def is_answered() -> bool:
        try:
            server.admit(pod, is_dry=True)
        except (http.client.HTTPException, OSError):
            return False
        return True

    wait_for(lambda: not is_answered(), "the connection is closed")
    assert server.client.is_ready()  # it ends the request, not the server
    assert not server.refusal_of(server.pod("b"))


TIERS = {
    "cpu": "string(int(quantity(string({x})).asApproximateFloat() * 1000.0 + 0.999999))",
    "memory": "string({x})",
}


def translate() -> str:
    """Return the expression that renames cpu and memory of all containers, cpu in milli."""
    parts = []
    for containers in ("containers", "initContainers"):
        base = f"object.spec.{containers}"
        path = f'"/spec/{containers}/" + string({base}.indexOf(c)) + "/resources/'
        for kind in ("requests", "limits"):
            held = f"c.resources.{kind}"
            for name, amount in TIERS.items():
                value = amount.format(x=f'{held}["{name}"]')
                parts.append(
                    f"(has({base}) ? {base} : []).filter(c, has(c.resources) && has({held}) && "
                    f'"{name}" in {held}).map(c, ['
                    f'JSONPatch{{op: "add", path: {path}{kind}/kubernetes.io~1batch-{name}", '
                    f"value: {value}}}, "
                    f'JSONPatch{{op: "remove", path: {path}{kind}/{name}"}}]).flatten()'
                )
    return " + ".join(parts)


@changes_pods
def test_one_expression_translates_all_containers(server: Server) -> None:
    """What a container limits and does not request has been copied before."""
    server.policy("translate", translate())
    pod = server.pod("a", profile="translate")
    pod["spec"]["containers"] = [
        {
            "name": "c",
            "image": "x",
            "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        },
        {"name": "d", "image": "x", "resources": {"limits": {"cpu": "1500m"}}},
        {"name": "e", "image": "x"},
    ]
    early = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    pod["spec"]["initContainers"] = [{"name": "i", "image": "x", "resources": early}]

    def changed() -> dict[str, Any]:
        return server.admit(pod, is_dry=True)

    wait_for(lambda: BATCH_CPU in str(changed()), "the policy is in force")
    seen = changed()
    both = {BATCH_CPU: "1500"}
    assert [one["resources"] for one in seen["spec"]["containers"]] == [
        {
            "requests": {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"},
            "limits": {BATCH_CPU: "1k", BATCH_MEMORY: "1Gi"},
        },
        {"requests": both, "limits": both},
        {},
    ]
    (early_seen,) = seen["spec"]["initContainers"]
    assert early_seen["resources"] == {"requests": {BATCH_CPU: "100", BATCH_MEMORY: "64Mi"}}
    assert seen["status"]["qosClass"] == "BestEffort"


@changes_pods
def test_what_a_limit_range_gives_is_translated_and_then_refused_by_a_quota(
    server: Server,
) -> None:
    server.policy("translate", translate())
    give_defaults(server)
    pod = server.pod("a", profile="translate")
    amounts = {BATCH_CPU: "1k", BATCH_MEMORY: "1Gi"}
    wait_for(
        lambda: (
            resources_of(server.admit(pod, is_dry=True)) == {"requests": amounts, "limits": amounts}
        ),
        "the defaults are translated",
    )
    server.quota({"requests.cpu": "10"})
    wait_for(lambda: "must specify requests.cpu" in server.refusal_of(pod), "it is refused")


@changes_pods
def test_a_limit_range_with_a_bound_on_cpus_refuses_translated_pods(server: Server) -> None:
    """They were within it before. The same do ``min`` and ``maxLimitRequestRatio``."""
    server.policy("translate", translate())
    pod = server.pod("a", {"cpu": "1"}, {"cpu": "1"}, profile="translate")
    amounts = {BATCH_CPU: "1k"}
    wait_for(
        lambda: resources_of(server.admit(pod, is_dry=True))["requests"] == amounts, "translated"
    )
    server.create("limitranges", "bounds", {"limits": [{"type": "Container", "max": {"cpu": "1"}}]})
    wait_for(lambda: "No limit is specified" in server.refusal_of(pod), "it is refused")


# --- pods that wait behind a gate -----------------------------------------------------------------


def test_labels_of_a_gated_pod_may_change_and_its_resources_may_not(server: Server) -> None:
    """So nobody can translate a pod that is there already."""
    server.admit(server.pod("a", {"cpu": "1"}, schedulingGates=[{"name": GATE}]))
    path = server.path("pods", "a")
    labels = {"koordinator.sh/qosClass": "BE"}
    server.client.patch(path, {"metadata": {"labels": labels, "annotations": {"x.com/y": "z"}}})
    assert server.client.get(path)["metadata"]["labels"].items() >= labels.items()
    container = {"name": "c", "image": "x", "resources": {"requests": {BATCH_CPU: "1000"}}}
    for spec in (
        {"containers": [container]},
        {"schedulerName": "koord-scheduler"},
        {"priority": 5500},
    ):
        with pytest.raises(SandboxApiError, match=r"422|403"):
            server.client.patch(path, {"spec": spec})
