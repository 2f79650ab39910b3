"""Nothing that a pod says of itself keeps a profile off it: policies that fail are left out."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.cases.test_profile_policies import show
from tests.manifests.someone import Someone, create_account
from tests.manifests.waiting import wait_for
from tests.operators.conftest import kubernetes_version
from tests.profiles.make import CLASSES, EXCLUDED, make_profile

from koord.core.profiles.apply import apply_profiles
from koord.core.profiles.generate import generate
from koord.core.profiles.policy import NAMESPACE_NAME
from koord.kube.admission_policies import BINDING, POLICY, make_binding, make_policy
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord.core.profiles.model import ColocationProfile
    from koord_sandbox import Sandbox

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HUGE = "9223372036854775807"
UID = "11111111-1111-4111-8111-111111111111"

pytestmark = pytest.mark.skipif(
    kubernetes_version() < (1, 36), reason="MutatingAdmissionPolicies in v1 need Kubernetes 1.36"
)


def with_limits(name: str, **limits: str) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": limits}}


def many(count: int) -> list[dict[str, Any]]:
    return [with_limits(f"c{at}", cpu="2", memory="1Gi") for at in range(count)]


def owners(count: int) -> list[dict[str, Any]]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": UID}
    return [{**owner, "name": f"x{at}"} for at in range(count)]


ATTACKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a limit that no machine has": {"containers": [with_limits("c", cpu=HUGE, memory="8E")]},
    "a limit of an init container": {"initContainers": [with_limits("i", cpu=HUGE)]},
    "fractions": {"containers": [with_limits("c", cpu="1000000001n", memory="1100m")]},
    "many containers": {"containers": many(200)},
    "many init containers": {"initContainers": [{**c, "name": "i" + c["name"]} for c in many(300)]},
    "batch resources already": {
        "containers": [with_limits("c", **{"kubernetes.io/batch-cpu": "1", "cpu": "64"})]
    },
    "resources of the whole pod": {"resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}},
    "huge resources of the whole pod": {
        "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": HUGE, "memory": HUGE}}
    },
    "says it is prod": {"labels": {"koordinator.sh/priority-class": "koord-prod"}},
    "says it is free": {"labels": {"koordinator.sh/priority-class": "koord-free"}},
    "says a class that is not there": {"labels": {"koordinator.sh/priority-class": "x"}},
    "says another QoS": {"labels": {"koordinator.sh/qosClass": "LSE"}},
    "many owners": {"ownerReferences": owners(2000)},
    "large annotations": {"annotations": {f"a{at}": "x" * 20000 for at in range(12)}},
    "what the agent is to do": {
        "annotations": {"node.koordinator.sh/extended-resource-spec": '{"containers":{}}'}
    },
    "many labels": {"labels": {f"l{at}": "x" * 60 for at in range(2000)}},
}
META = ("labels", "annotations", "ownerReferences")


PROFILES: list[ColocationProfile] = []
"""Those of the tenant."""


@pytest.fixture(scope="module")
def tenant(operators_box: Sandbox) -> Iterator[Someone]:
    """A tenant of a namespace whose pods are to be batch pods, and have a label by lot."""
    box, namespace = operators_box, f"attack-{secrets.token_hex(3)}"
    with suppress(SandboxApiError):
        body = {"metadata": {"name": "koord-batch"}, "value": 5000}
        box.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    box.create_namespace(namespace)
    create_account(box, namespace, "tenant", ["edit"])
    here = {"matchLabels": {NAMESPACE_NAME: namespace}}
    profiles = [
        make_profile(
            f"{namespace}-a",
            namespaceSelector=here,
            qosClass="BE",
            priorityClassName="koord-batch",
            labels={"team": "x"},
            annotationKeysMapping={"a1": "copy"},
        ),
        make_profile(
            f"{namespace}-b",
            namespaceSelector=here,
            probability=99,
            probabilityScope="Owner",
            labels={"lot": "x"},
        ),
    ]
    PROFILES[:] = profiles
    made = generate(profiles, CLASSES, EXCLUDED)
    names = []
    for policy in made.policies:
        names.append(policy.name)
        for (_, plural), body in ((POLICY, make_policy(policy)), (BINDING, make_binding(policy))):
            body["metadata"].pop("ownerReferences")
            box.client.create(f"{ADMISSION}/{plural}", body)
    account = Someone(box, namespace, "tenant")
    wait_for(lambda: is_batch(create(account, {})), "the policy is in force")
    yield account
    account.close()
    for name in names:
        for _, plural in (BINDING, POLICY):
            box.client.delete(f"{ADMISSION}/{plural}/{name}")


def make_body(attack: dict[str, Any]) -> dict[str, Any]:
    meta = {name: value for name, value in attack.items() if name in META}
    spec = {name: value for name, value in attack.items() if name not in META}
    return {
        "metadata": {"generateName": "p-", **meta},
        "spec": {"containers": [with_limits("c", cpu="2", memory="1Gi")], **spec},
    }


def create(account: Someone, attack: dict[str, Any]) -> dict[str, Any]:
    pod = make_body(attack)
    answer = account.send("POST", f"{account.pods}?dryRun=All", pod)
    assert answer.status == 201, answer.message
    return dict(answer.body)


def is_batch(pod: dict[str, Any]) -> bool:
    """Whether nothing is left of what the profile replaces."""
    labels, spec = pod["metadata"].get("labels", {}), pod["spec"]
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    asked = [amounts for c in containers for amounts in c["resources"].values()]
    asked += (spec.get("resources") or {}).values()
    return (
        labels.get("team") == "x"
        and labels.get("koordinator.sh/qosClass") == "BE"
        and labels.get("koordinator.sh/priority-class") in {None, "koord-batch"}
        and spec["priority"] == 5000
        and pod["status"]["qosClass"] == "BestEffort"
        and not any({"cpu", "memory"} & amounts.keys() for amounts in asked)
        and all("kubernetes.io/batch-cpu" in c["resources"]["requests"] for c in containers)
    )


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda name: name.replace(" ", "-"))
def test_pod_becomes_a_batch_pod(tenant: Someone, attack: str) -> None:
    pod = create(tenant, ATTACKS[attack])
    assert is_batch(pod), (pod["metadata"].get("labels"), pod["spec"]["containers"][0])
    assert not pod["spec"].get("resources")
    body = make_body(ATTACKS[attack])
    namespace = {NAMESPACE_NAME: tenant.namespace}
    applied = apply_profiles(body, namespace, PROFILES, CLASSES)
    assert show(pod) == show(applied.pod)
