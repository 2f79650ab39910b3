"""The overlay ``qos``: which pods it warns of, and which it refuses where it is to."""

import secrets

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.waiting import wait_for

from koord.core.model.koordinator_class import QOS_LABEL
from koord.core.model.qos_rules import describe, find_qos_problems
from koord.kube.translate.amounts import parse_amount
from koord_sandbox.errors import SandboxApiError

VALUES = {"qos-prod": 9500, "qos-mid": 7500, "qos-batch": 5500, "qos-free": 3500}
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/koord-qos"
CASES = [
    ("BE", "qos-batch", {}),
    ("BE", "qos-free", {"cpu": "1"}),
    ("BE", "", {}),
    ("BE", "qos-prod", {}),
    ("LSR", "qos-prod", {"cpu": "2500m"}),
    ("LSR", "qos-prod", {"cpu": "2"}),
    ("LSR", "qos-mid", {"cpu": "2"}),
    ("LSE", "qos-prod", {}),
    ("LSE", "qos-batch", {"cpu": "1"}),
    ("LS", "qos-prod", {"kubernetes.io/batch-cpu": "500"}),
    ("", "qos-batch", {"kubernetes.io/batch-memory": "5"}),
    ("BE", "qos-batch", {"kubernetes.io/batch-cpu": "500"}),
    ("SYSTEM", "", {"cpu": "1"}),
    ("", "", {"cpu": "1"}),
]


def make_pod(qos, priority_class, requests):
    labels = {QOS_LABEL: qos} if qos else {}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}}
    spec = {"containers": [container]}
    if priority_class:
        spec["priorityClassName"] = priority_class
    name = f"p-{secrets.token_hex(3)}"
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture(scope="module")
def judged(installed):
    """A cluster with the policy, which warns, and a namespace in it."""
    installed.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "qos"))
    for name, value in VALUES.items():
        body = {"metadata": {"name": name}, "value": value}
        installed.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    installed.create_namespace("qos")
    yield installed
    installed.kubectl("delete", "-k", str(MANIFESTS / "overlays" / "qos"))


def create(box, pod):
    """Create a pod by a dry run; return what it is refused with."""
    try:
        box.client.create("/api/v1/namespaces/qos/pods?dryRun=All", pod)
    except SandboxApiError as error:
        return str(error)
    return ""


@pytest.mark.sandbox
def test_pods_are_warned_of_and_then_refused_as_the_rules_say(judged):
    bad = make_pod("BE", "qos-prod", {})
    assert create(judged, bad) == "", "it only warns"
    judged.client.patch(BINDING, {"spec": {"validationActions": ["Deny"]}})
    wait_for(lambda: "QoS BE" in create(judged, bad), "it refuses")
    for qos, priority_class, requests in CASES:
        amounts = {name: parse_amount(name, amount) for name, amount in requests.items()}
        labels = {QOS_LABEL: qos} if qos else {}
        problems = list(find_qos_problems(labels, VALUES.get(priority_class, 0), amounts))
        answer = create(judged, make_pod(qos, priority_class, requests))
        if not problems:
            assert answer == "", (qos, priority_class, requests)
            continue
        _, _, way_out = describe(problems[0]).partition(": ")
        assert way_out in answer


@pytest.mark.sandbox
def test_qos_and_class_of_a_pod_are_settled(judged):
    judged.client.patch(BINDING, {"spec": {"validationActions": ["Deny"]}})
    pod = make_pod("BE", "qos-batch", {})
    path = f"/api/v1/namespaces/qos/pods/{pod['metadata']['name']}"
    judged.client.create("/api/v1/namespaces/qos/pods", pod)
    judged.client.patch(path, {"metadata": {"labels": {"app": "x"}}})

    def is_refused():
        try:
            change = {"metadata": {"labels": {QOS_LABEL: "LS"}}}
            judged.client.patch(f"{path}?dryRun=All", change)
        except SandboxApiError as error:
            return "settled when it is created" in str(error)
        return False

    wait_for(is_refused, "the change is refused")
