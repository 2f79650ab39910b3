"""The wheels of all packages, in an environment of their own; it fetches what they need."""

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.image.context import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

UV = ROOT / ".tools/venv/bin/uv"
CONTRIB = ("koord-migrate", "koord-sandbox")
JOB = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {schedulerName: kai-scheduler}}"


def run(*command: object, **options: object) -> "subprocess.CompletedProcess[str]":
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode in {0, 2}, done.stderr
    return done


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    run(UV, "build", "--all-packages", "--wheel", "--out-dir", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """An environment with koord alone, of the versions in uv.lock."""
    folder = tmp_path_factory.mktemp("environment")
    run(UV, "venv", "--python", sys.executable, folder)
    locked = folder / "locked.txt"
    export = [UV, "export", "--frozen", "--all-packages", "--no-dev", "--no-emit-workspace"]
    run(*export, "--output-file", locked, cwd=ROOT)
    install(folder, "--require-hashes", "--requirement", locked)
    install(folder, "--no-deps", find(wheels, "koord-operators"))
    return folder


def find(wheels: Path, package: str) -> Path:
    (wheel,) = wheels.glob(f"{package.replace('-', '_')}-*.whl")
    return wheel


def install(environment: Path, *what: object) -> None:
    run(UV, "pip", "install", "--python", environment / "bin/python", *what)


def test_each_wheel_adds_its_commands(environment: Path, wheels: Path) -> None:
    koord = environment / "bin/koord"
    missing = run(koord, "migrate", "-", input=JOB, cwd=environment)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "pip install ./contrib/migrate" in missing.stderr
    assert "sandbox" not in run(koord, "--help", cwd=environment).stdout

    install(environment, "--no-deps", *(find(wheels, package) for package in CONTRIB))
    migrated = run(koord, "migrate", "-", input=JOB, cwd=environment)
    assert (migrated.returncode, "kai-scheduler" in migrated.stdout) == (0, False)
    shapes = run(koord, "sandbox", "up", "--help", cwd=environment).stdout
    assert "a100x8" in shapes
    status = run(koord, "sandbox", "status", "--output=json", cwd=environment).stdout
    assert isinstance(json.loads(status), list)
    assert "--keep" in run(koord, "demo", "--help", cwd=environment).stdout


def test_wheels_have_one_version_and_are_typed(wheels: Path) -> None:
    paths = sorted(wheels.glob("*.whl"))
    names = [path.name.split("-")[:2] for path in paths]
    assert [name for name, _ in names] == ["koord_migrate", "koord_operators", "koord_sandbox"]
    assert len({version for _, version in names}) == 1
    for path in paths:
        files = {Path(name).name for name in ZipFile(path).namelist()}
        assert {"py.typed", "entry_points.txt", "LICENSE"} <= files
