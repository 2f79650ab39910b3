"""`koord crds` generates crds/ from the models and validates users' files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from koord.api.crdgen import file_name
from koord.api.device import Device
from koord.api.podgroup import PodGroup
from koord.cli.crds import crds as app

CRDS = Path(__file__).parents[2] / "crds"
SAMPLES = Path(__file__).parent / "samples"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_generated_crds_equal_the_committed_ones(tmp_path: Path) -> None:
    code, _ = run("--directory", tmp_path / "new")

    assert code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {
        path.name: path.read_bytes() for path in CRDS.iterdir()
    }


def test_check_passes_silently_when_crds_are_current(tmp_path: Path) -> None:
    run("--directory", tmp_path)

    assert run("--directory", tmp_path, "--check") == (0, "")


def test_check_shows_the_difference_and_writes_nothing(tmp_path: Path) -> None:
    run("--directory", tmp_path)
    changed, missing = (tmp_path / file_name(resource) for resource in (PodGroup, Device))
    changed.write_text(changed.read_text().replace("- pg\n", "- pgs\n"))
    missing.unlink()

    code, output = run("--directory", tmp_path, "--check")

    assert code == 1
    assert "-    - pgs\n+    - pg\n" in output
    assert missing.name in output
    assert not missing.exists()


def test_lint_prints_only_the_count_for_valid_files() -> None:
    code, output = run("lint", *sorted(SAMPLES.glob("*.yaml")))

    assert code == 0
    assert output.endswith(" objects checked, 0 problems\n")
    assert output.count("\n") == 1


def test_lint_names_file_object_field_value_and_fix() -> None:
    path = SAMPLES / "invalid" / "wrong-api-version.yaml"

    code, output = run("lint", path)

    assert code == 1
    assert output == (
        f'{path}: PodGroup default/pod-group-a: apiVersion: "v1alpha1": '
        "must be scheduling.sigs.k8s.io/v1alpha1 for kind PodGroup\n"
        "1 object checked, 1 problem\n"
    )


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", None])
def test_lint_fails_on_unreadable_files(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.yaml"
    if content is not None:
        path.write_bytes(content)

    code, output = run("lint", path)

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
def test_lint_accepts_any_document(tmp_path: Path, document: str, expected: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(document)

    assert expected in run("lint", path)[1]
