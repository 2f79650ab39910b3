"""The API server makes of pods what our own application of profiles makes of them."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.manifests.waiting import wait_for
from tests.operators.conftest import kubernetes_version
from tests.profiles.make import CLASSES, EXCLUDED, PODS, PROFILES, make_profile

from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.profiles.apply import apply_profiles
from koord.core.profiles.generate import generate
from koord.core.profiles.policy import NAMESPACE_NAME
from koord.core.profiles.translation import AGENT_ANNOTATION
from koord.kube.admission_policies import BINDING, POLICY, make_binding, make_policy
from koord.kube.translate.amounts import parse_amount
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from koord.core.profiles.model import ColocationProfile
    from koord_sandbox import Sandbox

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SETS = 12
DEFAULTED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

pytestmark = pytest.mark.skipif(
    kubernetes_version() < (1, 36), reason="MutatingAdmissionPolicies in v1 need Kubernetes 1.36"
)


class Cases(list[Any]):
    """Sets of profiles, each with pods; too much to be shown."""

    def __repr__(self) -> str:
        return "Cases(...)"


CASES = st.lists(
    st.tuples(PROFILES, st.lists(PODS, min_size=3, max_size=3)), min_size=SETS, max_size=SETS
).map(Cases)


@pytest.fixture(scope="module")
def served(operators_box: Sandbox) -> Sandbox:
    """A cluster with the PriorityClasses, and a namespace for each set of profiles."""
    for name, value in CLASSES.items():
        body = {"metadata": {"name": name}, "value": value.value}
        body["preemptionPolicy"] = value.preemption_policy
        with suppress(SandboxApiError):
            operators_box.client.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for number in range(SETS):
        operators_box.create_namespace(f"profiles-{number}")
    return operators_box


def place(profiles: list[ColocationProfile], number: int) -> list[ColocationProfile]:
    """Return profiles with names of their own, for one namespace."""
    here = Requirement(NAMESPACE_NAME, SelectorOperator.IN, (f"profiles-{number}",))
    return [
        replace(profile, name=f"set{number}-{profile.name}", namespace_selector=(here,))
        for profile in profiles
    ]


def create_policies(box: Sandbox, profiles: list[ColocationProfile]) -> list[str]:
    made = generate(profiles, CLASSES, EXCLUDED)
    for policy in made.policies:
        for (_, plural), body in ((POLICY, make_policy(policy)), (BINDING, make_binding(policy))):
            body["metadata"].pop("ownerReferences")
            box.client.create(f"{ADMISSION}/{plural}", body)
    return [policy.name for policy in made.policies]


def show(pod: dict[str, Any]) -> dict[str, Any]:
    """Return what profiles may change, with amounts as numbers."""
    meta, spec = pod["metadata"], pod["spec"]
    return {
        "labels": meta.get("labels") or {},
        "annotations": {
            key: read_amounts(text) if key == AGENT_ANNOTATION else text
            for key, text in (meta.get("annotations") or {}).items()
        },
        "nodeSelector": spec.get("nodeSelector") or {},
        "affinity": spec.get("affinity"),
        "scheduler": spec.get("schedulerName") or "default-scheduler",
        "tolerations": [t for t in spec.get("tolerations") or () if t["key"] not in DEFAULTED],
        "priority": (
            spec.get("priorityClassName"),
            spec.get("priority") or 0,
            spec.get("preemptionPolicy") or "PreemptLowerPriority",
        ),
        "resources": [
            {
                kind: {name: parse_amount(name, amount) for name, amount in amounts.items()}
                for kind, amounts in (container.get("resources") or {}).items()
                if amounts
            }
            for container in (*spec["containers"], *(spec.get("initContainers") or ()))
        ],
    }


def read_amounts(text: str) -> object:
    """Return what the agent is told, with amounts as numbers: the server writes 1000 as 1k."""
    return {
        container: {
            kind: {name: parse_amount(name, amount) for name, amount in amounts.items()}
            for kind, amounts in kinds.items()
        }
        for container, kinds in json.loads(text)["containers"].items()
    }


def check_pod(
    box: Sandbox, namespace: str, profiles: list[ColocationProfile], pod: dict[str, Any]
) -> None:
    """Compare the pod of a dry run with our own; the server follows policies a moment later."""
    applied = apply_profiles(copy.deepcopy(pod), {NAMESPACE_NAME: namespace}, profiles, CLASSES)
    expected, seen = show(applied.pod), list[Any]()

    def is_as_expected() -> bool:
        made = box.client.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
        seen.append(show(made))
        return bool(seen[-1] == expected)

    try:
        wait_for(is_as_expected, "the pod of the server")
    except AssertionError:
        differences = {
            part: (expected[part], seen[-1][part])
            for part in expected
            if expected[part] != seen[-1][part]
        }
        settings_of = [(profile.name, profile.settings) for profile in profiles]
        assert not differences, (differences, pod["metadata"], settings_of)


@given(CASES)
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_policies_do_what_profiles_say(served: Sandbox, cases: Any) -> None:
    sets = [place(profiles, number) for number, (profiles, _) in enumerate(cases)]
    names = [name for profiles in sets for name in create_policies(served, profiles)]
    try:
        for number, (profiles, (_, pods)) in enumerate(zip(sets, cases, strict=True)):
            for pod in pods:
                check_pod(served, f"profiles-{number}", profiles, pod)
    finally:
        for name in names:
            for _, plural in (BINDING, POLICY):
                served.client.delete(f"{ADMISSION}/{plural}/{name}")


def test_reservations_get_labels_and_annotations(served: Sandbox) -> None:
    profiles = [
        make_profile(
            "of-reservations",
            selector={"matchLabels": {"of": "reservations"}},
            labels={"team": "x"},
            annotations={"note": "y"},
            labelKeysMapping={"of": "copy"},
            qosClass="BE",
            priorityClassName="koord-batch",
            schedulerName="somebody",
        ),
        make_profile(
            "of-reservations-here",
            selector={"matchLabels": {"of": "reservations"}},
            namespaceSelector={"matchLabels": {NAMESPACE_NAME: "profiles-0"}},
            labels={"here": "x"},
        ),
    ]
    names = create_policies(served, profiles)
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    body: dict[str, Any] = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "labels": {"of": "reservations"}},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}],
            "template": {"spec": {"containers": [container]}},
        },
    }
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations?dryRun=All"
    seen: list[Any] = []

    def is_labelled() -> bool:
        seen.append(served.client.create(path, body))
        return bool(seen[-1]["metadata"]["labels"].get("team") == "x")

    try:
        wait_for(is_labelled, "the policy is in force")
    finally:
        for name in names:
            for _, plural in (BINDING, POLICY):
                served.client.delete(f"{ADMISSION}/{plural}/{name}")
    meta, template = seen[-1]["metadata"], seen[-1]["spec"]["template"]
    qos = {"koordinator.sh/qosClass": "BE"}
    assert meta["labels"] == {"of": "reservations", "team": "x", "copy": "reservations", **qos}
    assert meta["annotations"] == {"note": "y"}
    assert template["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    other = served.client.create(path, {**body, "metadata": {"name": "r"}})
    assert not other["metadata"].get("labels")
