"""The quick start of colocation, from an empty sandbox to batch pods that leave for prod pods."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.docs.conftest import ROOT, copy_checkout
from tests.docs.markdown import parse_page
from tests.operators.conftest import kubernetes_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = "docs/colocation.md"
TRY_IT, IN_YOUR_CLUSTER = "## Try it", "## In your cluster"
OPERATORS = "koord run"
USE = 'eval "$(koord sandbox env)"'


def run(commands: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        log = folder / "operators.log"
        tail = log.read_text()[-3000:] if log.exists() else ""
        pytest.fail(f"{done.stdout}\nended with {done.returncode}\n{tail}", pytrace=False)
    return done.stdout


@contextmanager
def operators_of(
    command: str, folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the operators in another shell."""
    with (folder / "operators.log").open("wb") as log:
        line = f"{USE}\nexec {command}"
        process = subprocess.Popen(
            ["bash", "-euc", line], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.sandbox
@pytest.mark.timeout(400)
def test_quick_start(tmp_path: Path) -> None:
    if kubernetes_version() < (1, 36):
        pytest.skip("profiles need Kubernetes 1.36")
    folder = tmp_path / "checkout"
    copy_checkout(folder)
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    first, end = lines.index(TRY_IT), lines.index(IN_YOUR_CLUSTER)
    blocks = [block for block in parse_page(ROOT / PAGE, PAGE) if first < block.line <= end]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join((str(ROOT / ".venv/bin"), os.environ["PATH"])),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),  # noqa: PTH111 - the real one
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    shown: list[str] = []
    at = next(number for number, block in enumerate(blocks) if OPERATORS in block.text)
    try:
        shown += [step(block, folder, environment, []) for block in blocks[:at]]
        (command,) = blocks[at].commands
        with operators_of(command, folder, environment) as process:
            for block in blocks[at + 1 : -1]:
                shown.append(step(block, folder, environment, [USE]))
                assert process.poll() is None, (folder / "operators.log").read_text()[-3000:]
        shown.append(step(blocks[-1], folder, environment, []))
    finally:
        run(["koord sandbox down --all"], folder, environment)
    text = "".join(shown)
    assert 'kubernetes.io/batch-cpu: "3k"' in text or "kubernetes.io/batch-cpu: 3k" in text
    assert "Waiting" in text


def step(block, folder: Path, environment: dict[str, str], before: list[str]) -> str:
    if block.language == "yaml":
        (folder / block.title).write_text(block.text, encoding="utf-8")
        return ""
    return run([*before, *block.commands], folder, environment)
