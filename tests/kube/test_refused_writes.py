"""Which kinds of writes are refused now."""

import pytest
from tests.manifests.conftest import MANIFESTS, load_all

from koord.kube.client import KEPT_SECONDS, MAX_TEXT, MAX_TEXTS, RefusedWrites, name_write
from koord.kube.errors import Forbidden
from koord.runtime.registry import OPERATORS, writes_of

POD = "/api/v1/namespaces/team/pods/train-0"
DENIED = Forbidden(403, "Forbidden", "a policy denied request")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("PATCH", POD, "patch pods"),
        ("POST", f"{POD}/binding", "create pods/binding"),
        ("PATCH", "/api/v1/nodes/n0/status", "patch nodes/status"),
        ("PATCH", "/api/v1/namespaces/team", "patch namespaces"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/team/events", "create events"),
        ("DELETE", "/apis/a.b/v1/reservations/r", "delete reservations"),
        ("PATCH", "/apis/a.b/v1/namespaces/t/podgroups/g/status", "patch podgroups/status"),
    ],
)
def test_writes_are_named_as_in_roles(method: str, path: str, name: str) -> None:
    assert name_write(method, path) == name


def test_a_kind_is_refused_until_one_of_it_succeeds() -> None:
    refused = RefusedWrites()
    refused.note_refused("PATCH", POD, DENIED)
    refused.note_refused("POST", f"{POD}/binding", DENIED)
    refused.note_allowed("POST", f"{POD}/binding")
    assert refused.describe() == ("patch pods: a policy denied request",)
    refused.note_allowed("PATCH", "/api/v1/namespaces/other/pods/other")
    assert not refused.describe()


def test_what_is_not_tried_any_more_is_forgotten() -> None:
    refused = RefusedWrites(clock := Clock())
    refused.note_refused("PATCH", POD, DENIED)
    clock.now = KEPT_SECONDS + 1
    assert not refused.describe()


def test_a_namespace_that_is_being_deleted_lacks_no_right() -> None:
    text = "unable to create new content in namespace t because it is being terminated"
    refused = RefusedWrites()
    refused.note_refused("POST", POD, Forbidden(403, "Forbidden", text))
    assert not refused.describe()


def test_texts_are_few_and_short() -> None:
    refused = RefusedWrites()
    for number in range(MAX_TEXTS + 3):
        path = f"/api/v1/namespaces/t/kind{number}s/x"
        refused.note_refused("PATCH", path, Forbidden(403, "Forbidden", "x" * 2 * MAX_TEXT))
    assert len(refused.describe()) == MAX_TEXTS
    assert max(map(len, refused.describe())) <= MAX_TEXT


@pytest.mark.parametrize("operator", OPERATORS)
def test_all_that_a_role_lets_an_operator_write_is_checked(operator: str) -> None:
    role = next(
        one
        for one in load_all((MANIFESTS / f"cluster/{operator}.yaml").read_text(encoding="utf-8"))
        if one["kind"] == "ClusterRole"
    )
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert {(one.group, one.resource, one.verb) for one in writes_of([operator])} == granted
