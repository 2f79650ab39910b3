"""The overlay ``priority-classes``: which classes opted-in pods of a namespace may use."""

import secrets

import pytest
from tests.manifests.attacks import GATE
from tests.manifests.conftest import MANIFESTS
from tests.manifests.someone import Someone, create_account
from tests.manifests.waiting import wait_for

from koord.api.keys import operators

pytestmark = pytest.mark.sandbox

GATED = {"schedulingGates": [{"name": GATE}]}
NAMED = {"schedulerName": "koord-scheduler"}
CRITICAL = "system-cluster-critical"


def make_pod(priority_class, **spec):
    return {
        "metadata": {"generateName": "p-"},
        "spec": {
            "containers": [{"name": "c", "image": "x"}],
            **({"priorityClassName": priority_class} if priority_class else {}),
            **spec,
        },
    }


class Team:
    """A namespace and a user who has the role ``edit`` there."""

    def __init__(self, box, annotation=None):
        self.box, self.namespace = box, f"test-{secrets.token_hex(3)}"
        box.create_namespace(self.namespace)
        if annotation is not None:
            change = f"{operators.PREFIX}priority-classes={annotation}"
            box.kubectl("annotate", "namespace", self.namespace, change)
        create_account(box, self.namespace, "user", ["edit"])
        self.user = Someone(box, self.namespace, "user")

    def create(self, pod):
        return self.user.send("POST", f"{self.user.pods}?dryRun=All", pod)


@pytest.fixture(scope="module")
def limited(guarded):
    guarded.kubectl("apply", "-k", str(MANIFESTS / "overlays/priority-classes"))
    for name in ("batch", "urgent"):
        guarded.kubectl("create", "priorityclass", name, "--value=1000")
    team = Team(guarded)
    wait_for(lambda: team.create(make_pod(CRITICAL, **GATED)).status == 403, "it is in force")
    yield guarded
    guarded.kubectl("delete", "-k", str(MANIFESTS / "overlays/priority-classes"))
    guarded.kubectl("delete", "priorityclass", "batch", "urgent")


@pytest.mark.parametrize("opted_in", [GATED, NAMED], ids=["gate", "scheduler"])
@pytest.mark.parametrize(
    ("annotation", "priority_class", "refused"),
    [
        (None, "", ""),
        (None, "urgent", ""),
        (None, CRITICAL, "which is for the cluster itself"),
        ("batch, other", "batch", ""),
        ("batch, other", "", ""),
        ("batch, other", "urgent", "only batch, other"),
        ("batch, other", CRITICAL, "only batch, other"),
        ("", "batch", "may not use the PriorityClass batch"),
        (CRITICAL, CRITICAL, ""),
    ],
)
def test_opted_in_pods_use_what_their_namespace_lists(
    limited, opted_in, annotation, priority_class, refused
):
    answer = Team(limited, annotation).create(make_pod(priority_class, **opted_in))
    if refused:
        assert answer.status == 403
        assert refused in answer.message
        assert f"annotation {operators.PREFIX}priority-classes" in answer.message
    else:
        assert answer.status == 201, answer


def test_other_pods_are_not_limited(limited):
    assert Team(limited, "batch").create(make_pod("urgent")).status == 201


def test_tenants_cannot_list_more(limited):
    team = Team(limited, "batch")
    body = {"metadata": {"annotations": {f"{operators.PREFIX}priority-classes": CRITICAL}}}
    media = "application/merge-patch+json"
    path = f"/api/v1/namespaces/{team.namespace}"
    assert team.user.send("PATCH", path, body, media).status == 403
