"""``koord lint`` on QoS and priority, and what profiles would write."""

import json

import pytest
from typer.testing import CliRunner

from koord.cli.main import app

PROFILES = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: spark}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: analytics, team: x}}
  selector: {matchLabels: {app: spark}}
  qosClass: BE
  priorityClassName: koord-batch
---
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: half}
spec: {probability: 30, labels: {half: "1"}}
---
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: part}
spec: {selector: {matchLabels: {app: none}}, patch: {spec: {containers: []}}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: report, namespace: analytics}
spec:
  template:
    metadata: {labels: {app: spark, koordinator.sh/qosClass: BE}}
    spec:
      restartPolicy: Never
      containers:
        - {name: c, image: x, resources: {requests: {cpu: 500m}, limits: {memory: 1Gi}}}
"""
NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata: {name: analytics, labels: {team: %s}}
"""


@pytest.fixture
def lint(tmp_path):
    def run(texts, *options):
        for name, text in texts.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        files = [str(tmp_path / name) for name in texts if name != "profiles.yaml"]
        if "profiles.yaml" in texts:
            files += ["--profile", str(tmp_path / "profiles.yaml")]
        result = CliRunner().invoke(app, ["lint", *files, *options], catch_exceptions=False)
        return result.exit_code, result.output

    return run


def test_pod_of_a_qos_without_its_class_is_a_problem(lint):
    code, output = lint({"job.yaml": JOB})
    assert code == 1
    assert "spec.template.metadata.labels[koordinator.sh/qosClass]: BE: QoS BE cannot" in output
    assert "koord-batch" in output


def test_profiles_are_applied_before_pods_are_judged(lint):
    code, output = lint({"job.yaml": JOB, "profiles.yaml": PROFILES})
    assert code == 0
    assert "written by spark, if the namespace has the right team:" in output
    assert 'limits.memory: removed, was "1Gi"' in output
    assert 'requests[kubernetes.io/batch-cpu]: "500"' in output
    assert "spec.template.spec.priority: 5000" in output
    assert "half: not published: no policy can change 30%" in output
    assert "part: not written into pods: spec.patch.spec.containers" in output


@pytest.mark.parametrize(("team", "names"), [("x", ["spark"]), ("y", [])])
def test_labels_of_a_namespace_in_the_files_count(lint, team, names):
    texts = {"job.yaml": JOB, "namespace.yaml": NAMESPACE % team, "profiles.yaml": PROFILES}
    _, output = lint(texts, "-o", "json")
    (written,) = json.loads(output)["written"]
    assert written["profiles"] == names
    assert written["assumed"] == []


def test_class_in_the_files_counts_and_an_unknown_one_is_no_problem(lint):
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {koordinator.sh/qosClass: LSR}}
spec:
  priorityClassName: mine
  containers: [{name: c, image: x, resources: {requests: {cpu: "2"}}}]
"""
    mine = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: mine}
value: 5000
"""
    assert lint({"pod.yaml": pod})[0] == 0
    code, output = lint({"pod.yaml": pod, "class.yaml": mine})
    assert code == 1
    assert "LSR cannot be combined with koord-batch" in output


def test_fraction_of_a_cpu_and_batch_resources_without_be(lint):
    pod = """
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {koordinator.sh/qosClass: LSE, koordinator.sh/priority-class: koord-prod}
spec:
  containers:
    - {name: c, image: x, resources: {requests: {cpu: 2500m, kubernetes.io/batch-cpu: "5"}}}
"""
    code, output = lint({"pod.yaml": pod})
    assert code == 1
    assert "spec.containers: LSE: pods of QoS LSE get whole CPUs" in output
    assert "2.5" in output
    assert "kubernetes.io/batch-cpu is for pods of QoS BE only" in output


def test_nonsense_costs_nothing(lint):
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: [1]}
spec: {priority: x, containers: [1, null, {resources: {requests: {cpu: abc}}}], initContainers: 5}
"""
    code, output = lint({"pod.yaml": pod, "profiles.yaml": PROFILES})
    assert code in {0, 1}
    assert "Traceback" not in output
