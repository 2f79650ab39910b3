"""The overlay ``priority``: the priority of the operators' requests in the API server."""

from contextlib import closing

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.someone import JSON, MERGE, Someone
from tests.manifests.waiting import wait_for

pytestmark = pytest.mark.sandbox

FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
POD = "/api/v1/namespaces/default/pods/no-such-pod"
GROUP = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups/no-such-group"
DEVICE = "/apis/scheduling.koordinator.sh/v1alpha1/devices/no-such-device"
PROFILE = "/apis/quota.koordinator.sh/v1alpha1/namespaces/default/elasticquotaprofiles/no-such"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/koord-system/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
AHEAD = ("koord-placement", "workload-high")
ELECTION = ("koord-leases", "leader-election")
LATER = ("service-accounts", "workload-low")


class Classifier:
    """Returns the flow schema and priority level of a request."""

    def __init__(self, box) -> None:
        self._names = {
            item["metadata"]["uid"]: item["metadata"]["name"]
            for kind in ("flowschemas", "prioritylevelconfigurations")
            for item in box.client.get(f"{FLOW_CONTROL}/{kind}")["items"]
        }

    def classify(self, someone, method, path, body=None, media=JSON) -> tuple[str, str]:
        headers = someone.send(method, path, body, media).headers
        schema = headers["x-kubernetes-pf-flowschema-uid"]
        level = headers["x-kubernetes-pf-prioritylevel-uid"]
        return self._names[schema], self._names[level]


@pytest.fixture(scope="module")
def classifier(installed):
    installed.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "priority"))
    return Classifier(installed)


@pytest.fixture(scope="module")
def operators(installed, classifier):
    with closing(Someone(installed, "koord-system", "koord-operators")) as someone:
        wait_for(
            lambda: classifier.classify(someone, "PATCH", POD, {}, MERGE) == AHEAD,
            "the API server has taken the schemas in",
        )
        yield someone


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("PATCH", POD, AHEAD),
        ("PATCH", f"{POD}/status", AHEAD),
        ("POST", f"{POD}/binding", AHEAD),
        ("PATCH", f"{GROUP}/status", AHEAD),
        ("PATCH", f"{DEVICE}/status", AHEAD),
        ("POST", f"{POD}/eviction", AHEAD),
        ("PATCH", f"{PROFILE}/status", AHEAD),
        ("GET", f"{LEASES}/koord-operators", ELECTION),
        ("PUT", f"{LEASES}/koord-operators", ELECTION),
        ("POST", LEASES, ELECTION),
        ("GET", "/api/v1/pods?limit=1", LATER),
        ("GET", POD, LATER),
        ("POST", EVENTS, LATER),
    ],
)
def test_requests_with_priority(classifier, operators, method, path, expected):
    assert classifier.classify(operators, method, path, {}, MERGE) == expected


def test_other_accounts_keep_their_priority(classifier, operators, installed):
    with closing(Someone(installed, "default", "default")) as someone:
        assert classifier.classify(someone, "PATCH", POD, {}, MERGE) == LATER
        assert classifier.classify(someone, "GET", f"{LEASES}/koord-operators") == LATER


def test_the_flow_schemas_are_valid(classifier, installed):
    output = installed.kubectl(
        *("wait", "--for=condition=Dangling=False", "--timeout=30s"),
        *("flowschema/koord-placement", "flowschema/koord-leases"),
    )
    assert output.count("condition met") == 2
