"""Runs the examples of the pages on extending as printed: a plugin, and a custom resource."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.docs.markdown import Block, parse_page

from koord.api.crdgen import HEADER

ROOT = Path(__file__).parents[2]
PAGES = ("extending.md", "extending-resource.md", "extending-operator.md")
BLOCKS = {block.title: block for name in PAGES for block in parse_page(ROOT / "docs" / name, name)}
MAX_LINES = 60
MAX_EDITED = 1
CRD = "example.com_nodefreezes.yaml"


def apply_edits(text: str, diff: Block) -> str:
    """Apply a diff without line numbers: imports, then hunks whose context occurs exactly once."""
    _, imports, *hunks = diff.text.split("@@\n")
    added = imports.replace("+from", "from")
    text = text.replace("\nfrom koord.", f"\n{added}from koord.", 1)
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        after = "".join(line[1:] for line in lines if line[0] != "-")
        assert text.count(before) == 1, f"{diff}: occurs {text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    return text


def write_files(blocks: Iterable[Block], folder: Path) -> None:
    for block in blocks:
        (folder / block.title).write_text(block.text, encoding="utf-8")


def run_python(folder: Path, *arguments: str, package: Path = ROOT / "operators") -> str:
    """Run Python in a folder, with the tests and the package on the path."""
    path = os.pathsep.join(map(str, (folder, package, ROOT)))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}\nended with {done.returncode}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the files and edits of the page, and the folder around it."""
    folder = tmp_path_factory.mktemp("checkout")
    # With what is compiled: only what the page edits is compiled again.
    shutil.copytree(ROOT / "operators", folder / "operators")
    for title, block in BLOCKS.items():
        path = folder / title
        if block.language == "diff":
            edited = apply_edits(path.read_text(encoding="utf-8"), block)
            path.write_text(edited, encoding="utf-8")
        elif title:
            assert not path.exists(), f"{title} is not a new file"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_files([block], folder)
    return folder


def test_plugin_has_at_most_60_lines() -> None:
    assert len(BLOCKS["licenses.py"].text.splitlines()) <= MAX_LINES


def test_plugin_filters_scores_and_reserves(tmp_path: Path) -> None:
    write_files([BLOCKS["licenses.py"], BLOCKS["try_licenses.py"]], tmp_path)
    run_python(tmp_path, "try_licenses.py")


def test_a_domain_is_a_package_and_an_entry_of_the_list(extended: Path) -> None:
    files = {path.relative_to(ROOT) for path in (ROOT / "operators").rglob("*.py")}
    edited = [one for one in files if (ROOT / one).read_bytes() != (extended / one).read_bytes()]
    assert 0 < len(edited) <= MAX_EDITED


def test_custom_resource_is_read_planned_with_and_reported(extended: Path) -> None:
    package = extended / "operators"
    assert run_python(extended, "try_freeze.py", package=package) == "rack-7 {'frozen': 1}\n"


def test_custom_resource_gets_a_crd_and_is_checked(extended: Path) -> None:
    package = extended / "operators"
    run_python(extended, "-m", "koord", "crds", "--directory", "crds", package=package)
    written = (extended / "crds" / CRD).read_text(encoding="utf-8")
    assert written.startswith(HEADER)
    run_python(extended, "-m", "koord", "lint", "freeze.yaml", package=package)


def test_custom_resource_has_a_command(extended: Path) -> None:
    answer = run_python(extended, "-m", "koord", "--help", package=extended / "operators")
    assert "Show which nodes are frozen." in answer
    run_python(extended, "-m", "koord", "freezes", "--help", package=extended / "operators")


def test_custom_resource_has_an_operator(extended: Path) -> None:
    code = "from koord.runtime.registry import *; print(required_resources(['nodefreeze']))"
    answer = run_python(extended, "-c", code, package=extended / "operators")
    assert answer == "[('example.com/v1alpha1', 'nodefreezes')]\n"


PARTS = """
import asyncio
from koord.kube.client import Client
from koord.kube.config import Access, Credentials
from koord.kube.plan_keys import PlanKeys
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

async def main():
    async with Client(Credentials(lambda: Access("http://127.0.0.1:9"))) as client:
        parts = Parts(client, Settings(), ["nodefreeze"], keys=PlanKeys())
        print(*sorted(parts.reader.reflectors), *sorted(plural for plural, _ in parts.writers))
        parts.metrics.take()
        assert b"koord_node_freezes 0" in parts.metrics.encode()

asyncio.run(main())
"""


def test_operator_reads_its_kind_and_writes_its_status(extended: Path) -> None:
    answer = run_python(extended, "-c", PARTS, package=extended / "operators")
    assert answer == "nodefreezes nodes nodefreezes\n"
