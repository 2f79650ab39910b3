"""Profiles on a real API server: pods get exactly what profiles say, whoever creates them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import ROOT, Cluster, Operators, kubernetes_version

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = "profiles: {enabled: true}\n"
OVERLAY = str(ROOT / "manifests/overlays/profiles")
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
AMOUNTS = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}

pytestmark = pytest.mark.skipif(
    kubernetes_version() < (1, 36), reason="MutatingAdmissionPolicies in v1 need Kubernetes 1.36"
)


class Profiles:
    """The profiles of one test, which apply in its namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.box.client
        self.namespace = cluster.namespace
        self._made: list[str] = []
        self._classes: list[str] = []

    def name(self, short: str) -> str:
        return f"{self.namespace}-{short}"

    def create(self, short: str, **spec: Any) -> None:
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        body = {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": self.name(short)},
            "spec": {"namespaceSelector": here, **spec},
        }
        self.client.create(PROFILES, body)
        self._made.append(self.name(short))

    def create_class(self, short: str, value: int, policy: str = "PreemptLowerPriority") -> str:
        name = self.name(short)
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }
        self.client.create(CLASSES, body)
        self._classes.append(name)
        return name

    def delete_class(self, short: str) -> None:
        self.client.delete(f"{CLASSES}/{self.name(short)}")

    def edit(self, short: str, **spec: Any) -> None:
        self.client.patch(f"{PROFILES}/{self.name(short)}", {"spec": spec})

    def delete(self, short: str) -> None:
        self.client.delete(f"{PROFILES}/{self.name(short)}")
        self._made.remove(self.name(short))

    def get(self, short: str) -> dict[str, Any]:
        return self.client.get(f"{PROFILES}/{self.name(short)}")

    def published(self, short: str) -> tuple[str, str, str]:
        return self.cluster.condition(self.get(short), "Published")

    def wait(self, short: str, reason: str) -> str:
        """Wait for the reason of Published; return its message."""
        self.cluster.expect(lambda: self.published(short)[1] == reason, f"{short} is {reason}")
        return self.published(short)[2]

    def wait_for_pods(self, is_true: Any, what: str, **options: Any) -> dict[str, Any]:
        """Wait until a pod of a dry run looks so: the server follows a moment later."""
        self.cluster.expect(lambda: is_true(self.dry_run(**options)), what)
        return self.dry_run(**options)

    def dry_run(self, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        body = {
            "metadata": {"generateName": "p-", "labels": labels or {}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": AMOUNTS}], **spec},
        }
        return self.client.create(f"{self.cluster.pods_path}?dryRun=All", body)

    def dry_run_of_a_node(self, labels: dict[str, str]) -> dict[str, Any]:
        """A kubelet shows a pod that it runs from a file of its node."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "p-", "namespace": self.namespace, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": AMOUNTS}]},
        }
        who = ("--as=system:node:n0", "--as-group=system:nodes", "--as-group=system:masters")
        options = ("--dry-run=server", "--output=json", "--filename=-")
        return json.loads(
            self.cluster.box.kubectl("create", *who, *options, stdin=json.dumps(body))
        )

    def policies(self) -> dict[str, dict[str, Any]]:
        """Return the policies that belong to the profiles of this test."""
        items = self.client.get(POLICIES)["items"]
        prefix = f"koord-profile-{self.namespace}"
        return {
            item["metadata"]["name"]: item
            for item in items
            if item["metadata"]["name"].startswith(prefix)
        }

    def clear(self) -> None:
        for name in self._made:
            with suppress(SandboxApiError):
                self.client.delete(f"{PROFILES}/{name}")
        self.cluster.expect(lambda: not self.policies(), "the policies go with their profiles")
        for name in self._classes:
            with suppress(SandboxApiError):
                self.client.delete(f"{CLASSES}/{name}")


@pytest.fixture
def profiles(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Profiles]:
    box = quiet_cluster.box
    box.kubectl("apply", "-k", OVERLAY)
    running = Operators(box, tmp_path, settings=SETTINGS)
    cluster = Cluster(box, running, quiet_cluster.namespace)
    running.start()
    made = Profiles(cluster)
    try:
        yield made
        made.clear()
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        running.stop()
        box.kubectl("delete", "-k", OVERLAY)


def labels_of(pod: dict[str, Any]) -> dict[str, str]:
    return pod["metadata"].get("labels", {})


def test_pods_get_the_labels_of_a_profile(profiles: Profiles) -> None:
    profiles.create("a", labels={"team": "x"}, selector={"matchLabels": {"app": "y"}})
    message = profiles.wait("a", "Published")
    assert f"koord-profile-{profiles.name('a')}" in message
    profiles.wait_for_pods(
        lambda pod: labels_of(pod) == {"app": "y", "team": "x"}, "the label", labels={"app": "y"}
    )
    assert labels_of(profiles.dry_run(labels={"app": "z"})) == {"app": "z"}
    assert labels_of(profiles.dry_run_of_a_node(labels={"app": "y"})) == {"app": "y"}
    profiles.edit("a", labels={"team": "z"})
    profiles.wait_for_pods(
        lambda pod: labels_of(pod).get("team") == "z", "the new label", labels={"app": "y"}
    )
    profiles.delete("a")
    profiles.wait_for_pods(
        lambda pod: labels_of(pod) == {"app": "y"}, "no label", labels={"app": "y"}
    )


EVERYTHING: dict[str, Any] = {
    "labels": {"team": "data", "koordinator.sh/own": "1"},
    "annotations": {"note": "a \"quote\", a 'quote', \\ and\n${x} é𝄞"},
    "labelKeysMapping": {"app": "example.com/app", "missing": "example.com/missing"},
    "annotationKeysMapping": {"note": "copy"},
    "labelSuffixes": {"app": "-v1"},
    "schedulerName": "somebody",
    "qosClass": "BE",
    "koordinatorPriority": 7,
    "patch": {
        "metadata": {"labels": {"patched": "yes"}, "finalizers": ["x"]},
        "spec": {
            "nodeSelector": {"pool": "batch"},
            "tolerations": [
                {
                    "key": "batch",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 7,
                }
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}]}
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 5,
                            "preference": {
                                "matchExpressions": [{"key": "b", "operator": "Exists"}]
                            },
                        }
                    ],
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "labelSelector": {"matchLabels": {"app": "x"}},
                            "topologyKey": "kubernetes.io/hostname",
                        }
                    ]
                },
            },
        },
    },
}


def check_everything(pod: dict[str, Any], name: str) -> None:
    """Compare a pod that the profile with everything has changed."""
    meta, spec = pod["metadata"], pod["spec"]
    wanted = {
        "app": "y-v1",
        "team": "data",
        "koordinator.sh/own": "1",
        "example.com/app": "y",
        "koordinator.sh/qosClass": "BE",
        "koordinator.sh/priority": "7",
        "patched": "yes",
    }
    assert {key: meta["labels"].get(key) for key in wanted} == wanted
    assert "example.com/missing" not in meta["labels"]
    note = EVERYTHING["annotations"]["note"]
    assert (meta["annotations"]["note"], meta["annotations"]["copy"]) == (note, note)
    assert spec["schedulerName"] == "somebody"
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (
        name,
        5100,
        "Never",
    )
    assert spec["nodeSelector"] == {"pool": "batch"}
    assert EVERYTHING["patch"]["spec"]["tolerations"][0] in spec["tolerations"]
    assert spec["affinity"] == EVERYTHING["patch"]["spec"]["affinity"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        assert container["resources"] == {
            "requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
            "limits": {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"},
        }
    assert pod["status"]["qosClass"] == "BestEffort"


def test_pods_of_everybody_get_all_fields(profiles: Profiles) -> None:
    name = profiles.create_class("patient", 5100, "Never")
    profiles.create(
        "a", selector={"matchLabels": {"app": "y"}}, priorityClassName=name, **EVERYTHING
    )
    profiles.wait("a", "Published")
    complete = profiles.cluster.condition(profiles.get("a"), "Complete")
    assert complete[:2] == ("False", "FieldsLeftOut")
    assert "spec.patch.metadata.finalizers" in complete[2]
    is_changed = lambda pod: labels_of(pod).get("team") == "data"  # noqa: E731
    starting = [{"name": "i", "image": "x", "resources": AMOUNTS}]
    pod = profiles.wait_for_pods(
        is_changed, "the profile in force", labels={"app": "y"}, initContainers=starting
    )
    check_everything(pod, name)
    pod_spec = {
        "containers": [{"name": "c", "image": "x", "resources": AMOUNTS}],
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": {"app": "y"}}, "spec": pod_spec}
    batch, apps = (
        f"/apis/{group}/namespaces/{profiles.namespace}" for group in ("batch/v1", "apps/v1")
    )
    job = {
        "metadata": {"name": "job"},
        "spec": {"template": {**template, "spec": {**pod_spec, "restartPolicy": "Never"}}},
    }
    profiles.client.create(f"{batch}/jobs", job)
    selected = {"matchLabels": {"example.com/deployment": "d"}}
    labels = {"app": "y", "example.com/deployment": "d"}
    deployment = {
        "replicas": 1,
        "selector": selected,
        "template": {**template, "metadata": {"labels": labels}},
    }
    profiles.client.create(f"{apps}/deployments", {"metadata": {"name": "d"}, "spec": deployment})
    profiles.cluster.expect(lambda: len(profiles.cluster.pods()) >= 2, "both have pods")
    for pod in profiles.cluster.pods().values():
        check_everything(pod, name)
    profiles.client.delete(f"{batch}/jobs/job?propagationPolicy=Background")
    profiles.client.delete(f"{apps}/deployments/d?propagationPolicy=Background")


def test_class_that_is_deleted_takes_its_policy_along(profiles: Profiles) -> None:
    name = profiles.create_class("batch", 5000)
    profiles.create("a", priorityClassName=name)
    profiles.create("b", labels={"b": "1"})
    profiles.wait("a", "Published")
    profiles.wait_for_pods(lambda pod: pod["spec"]["priority"] == 5000, "the value")
    profiles.delete_class("batch")
    seen: list[dict[str, str]] = []

    def is_without_class(pod: dict[str, Any]) -> bool:
        seen.append(labels_of(pod))
        return bool(pod["spec"]["priority"] == 0)

    profiles.wait_for_pods(is_without_class, "pods are created without the class")
    assert all(labels == {"b": "1"} for labels in seen), "another profile paused with the class"
    assert name in profiles.wait("a", "PriorityClassMissing")
    profiles.create_class("batch", 5001, "Never")
    pod = profiles.wait_for_pods(lambda pod: pod["spec"]["priority"] == 5001, "the new value")
    assert labels_of(pod) == {"b": "1"}
    assert pod["spec"]["preemptionPolicy"] == "Never"
    profiles.wait("a", "Published")


def test_profiles_for_the_same_pods_are_one_policy_in_the_order_of_names(
    profiles: Profiles,
) -> None:
    exists = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    profiles.create("a", labels={"team": "a", "only": "a"}, selector={"matchLabels": {"app": "y"}})
    profiles.create("b", labels={"team": "b"}, selector=exists)
    profiles.create("c", labels={"chosen": "late"}, selector={"matchLabels": {"team": "b"}})
    profiles.create("d", labels={"app": "never"}, selector={"matchLabels": {"app": "q"}})
    for short in "abcd":
        profiles.wait(short, "Published")
    profiles.cluster.expect(lambda: len(profiles.policies()) == 1, "one policy")
    pod = profiles.wait_for_pods(
        lambda pod: labels_of(pod).get("team") == "b", "the order", labels={"app": "y"}
    )
    assert labels_of(pod) == {"app": "y", "team": "b", "only": "a"}
    profiles.delete("b")
    pod = profiles.wait_for_pods(
        lambda pod: labels_of(pod).get("team") == "a", "without b", labels={"app": "y"}
    )


def test_policy_that_somebody_changed_or_deleted_comes_back(profiles: Profiles) -> None:
    profiles.create("a", labels={"team": "x"})
    profiles.wait("a", "Published")
    (name,) = profiles.policies()
    profiles.client.patch(f"{POLICIES}/{name}", {"spec": {"failurePolicy": "Fail"}})
    profiles.cluster.expect(
        lambda: profiles.policies()[name]["spec"]["failurePolicy"] == "Ignore", "it is reverted"
    )
    profiles.client.delete(f"{POLICIES}/{name}")
    profiles.cluster.expect(lambda: name in profiles.policies(), "it is there again")


@pytest.mark.slow
def test_fifty_profiles(profiles: Profiles) -> None:
    for number in range(50):
        here = {"matchLabels": {"app": f"y{number % 25}"}}
        profiles.create(f"p{number:02}", labels={f"l{number}": "1"}, selector=here)
    profiles.wait("p49", "Published")
    profiles.cluster.expect(lambda: len(profiles.policies()) == 25, "a policy for each group")
    profiles.create("all", labels={"all": "1"})
    profiles.cluster.expect(lambda: len(profiles.policies()) == 1, "one policy for all")
    pod = profiles.wait_for_pods(
        lambda pod: "all" in labels_of(pod), "the policy in force", labels={"app": "y3"}
    )
    assert labels_of(pod) == {"app": "y3", "l3": "1", "l28": "1", "all": "1"}


def test_profiles_that_cannot_be_published_say_why(profiles: Profiles) -> None:
    profiles.create("half", probability=50, labels={"a": "b"})
    assert "probabilityScope" in profiles.wait("half", "ProbabilityNotExpressible")
    prod = profiles.create_class("prod", 9000)
    profiles.create("bad", qosClass="BE", priorityClassName=prod)
    assert "koord-batch" in profiles.wait("bad", "ForbiddenCombination")
    profiles.create("never", probability=0, labels={"a": "b"})
    profiles.wait("never", "NeverApplied")
    assert profiles.policies() == {}
    assert labels_of(profiles.dry_run()) == {}


def test_overhead_of_a_runtime_class_stays(profiles: Profiles) -> None:
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": profiles.name("kata")},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
    }
    profiles.client.create("/apis/node.k8s.io/v1/runtimeclasses", runtime)
    profiles.create("a", labels={"koordinator.sh/priority-class": "koord-batch"})
    profiles.wait("a", "Published")
    pod = profiles.wait_for_pods(
        lambda pod: (
            "kubernetes.io/batch-cpu" in pod["spec"]["containers"][0]["resources"]["limits"]
        ),
        "the translation",
        runtimeClassName=profiles.name("kata"),
    )
    assert pod["spec"]["overhead"] == {"cpu": "250m", "memory": "64Mi"}
    profiles.client.delete(f"/apis/node.k8s.io/v1/runtimeclasses/{profiles.name('kata')}")


def test_switched_off_it_says_so(quiet_cluster: Cluster, tmp_path: Path) -> None:
    running = Operators(quiet_cluster.box, tmp_path)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    made = Profiles(cluster)
    try:
        made.create("a", labels={"team": "x"})
        assert "profiles.enabled" in made.wait("a", "Disabled")
        assert made.policies() == {}
        made.clear()
        assert "rights are missing" not in running.read_log()
    finally:
        running.stop()


def test_without_its_rights_it_says_so(quiet_cluster: Cluster, tmp_path: Path) -> None:
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    made = Profiles(cluster)
    try:
        made.create("a", labels={"team": "x"})
        assert "403" in made.wait("a", "WriteFailed")
        assert "overlays/profiles" in running.read_log()
        made.clear()
    finally:
        running.stop()
