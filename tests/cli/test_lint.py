"""`koord lint` finds mistakes in files: in single objects, and in what they say of each other."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koord.api.lint_relations import Known, find_relation_problems
from koord.cli.main import app

SAMPLES = Path(__file__).parents[1] / "api" / "samples"


def run(*arguments: object, text: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["lint", *map(str, arguments)], input=text)
    return result.exit_code, result.output


def test_it_prints_only_the_count_for_valid_files() -> None:
    code, output = run(*sorted(SAMPLES.glob("device-*.yaml")))

    assert code == 0
    assert output.endswith(" checked, 0 problems\n")
    assert output.count("\n") == 1


def test_it_names_file_object_field_value_and_fix() -> None:
    path = SAMPLES / "invalid" / "wrong-api-version.yaml"

    code, output = run(path)

    assert code == 1
    assert output == (
        f'{path}: PodGroup default/pod-group-a: apiVersion: "v1alpha1": '
        "must be scheduling.sigs.k8s.io/v1alpha1 for kind PodGroup\n"
        "1 object checked, 1 problem\n"
    )


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", None])
def test_it_fails_on_unreadable_files(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.yaml"
    if content is not None:
        path.write_bytes(content)

    code, output = run(path)

    assert code == 2
    assert str(path) in output


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("- a\n", "document 1: is not a Kubernetes object"),
        ("kind: Pod\nmetadata: {name: p, labels: {a: 5}}\n", "Pod p: metadata.labels.a: 5: "),
        ("kind: PodGroup\napiVersion: scheduling.volcano.sh/v1beta1\n", "0 problems"),
        ("kind: [1]\nmetadata: 3\n", "metadata: 3: must be a mapping"),
        ("a: 1\n", "0 problems"),
    ],
)
def test_it_accepts_any_document(tmp_path: Path, document: str, expected: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(document)

    assert expected in run(path)[1]


GROUP = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: bert}
spec: {minMember: 4}
---
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: bert}
spec:
  parallelism: PODS
  template:
    metadata:
      labels:
        pod-group.scheduling.sigs.k8s.io: GANG
        quota.scheduling.koordinator.sh/name: team
    spec:
      schedulerName: koord-scheduler
      schedulingGates: [{name: GATE}]
---
"""
QUOTA = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: NAME}
spec: {min: {MINIMUM: 4}, max: {nvidia.com/gpu: 8}}
"""


def make(
    pods: int = 4,
    gang: str = "bert",
    gate: str = "operators.koordinator.sh/placement",
    quota: str = "team",
    minimum: str = "nvidia.com/gpu",
) -> str:
    job = JOB.replace("PODS", str(pods)).replace("GANG", gang).replace("GATE", gate)
    return GROUP + job + QUOTA.replace("NAME", quota).replace("MINIMUM", minimum)


def test_files_that_belong_together_have_no_problem() -> None:
    assert run("-", text=make()) == (0, "3 objects checked, 0 problems\n")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ({"gate": "operators.koordinator.sh/placment"}, "nobody removes this gate. Did you mean"),
        ({"gang": "brt"}, "no such PodGroup in these files. Did you mean bert?"),
        ({"pods": 3}, "only 3 pods of these files join it"),
        ({"quota": "teams"}, "there is no such quota. Did you mean teams?"),
        ({"minimum": "cpu"}, "is in min and not in max"),
    ],
)
def test_mistakes_between_objects_are_found(mistake: dict[str, str], says: str) -> None:
    code, output = run("-", text=make(**mistake))
    assert code == 1
    assert says in output


def test_what_the_cluster_has_is_not_missing() -> None:
    labels = {
        "pod-group.scheduling.sigs.k8s.io": "there",
        "quota.scheduling.koordinator.sh/name": "team",
    }
    pod = {"kind": "Pod", "metadata": {"name": "p", "labels": labels}}
    known = Known(frozenset({("ns", "there")}), frozenset({"team"}), default_namespace="ns")
    assert list(find_relation_problems([pod], known)) == []
    known = Known(frozenset({("other", "there")}), frozenset({"team"}), default_namespace="ns")
    ((_, problem),) = find_relation_problems([pod], known)
    assert "in the cluster" in problem.message


def test_output_for_programs() -> None:
    code, output = run("-", "-o", "json", text=make(pods=3))
    assert (code, json.loads(output)["problems"][0]["object"]) == (1, "PodGroup bert")
