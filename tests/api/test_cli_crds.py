"""`koord crds` generates crds/ from the models."""

from pathlib import Path

from typer.testing import CliRunner

from koord.api.crdgen import file_name
from koord.api.device import Device
from koord.api.podgroup import PodGroup
from koord.cli.main import app

CRDS = Path(__file__).parents[2] / "crds"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["crds", *map(str, arguments)])
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
