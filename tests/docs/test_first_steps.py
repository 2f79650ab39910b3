"""The way of the README, from a checkout to the answer why a job waits, in few commands."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.docs.conftest import ROOT, copy_checkout
from tests.docs.markdown import parse_page

MAX_COMMANDS = 5
BLOCKS = parse_page(ROOT / "README.md", "README.md")
COMMANDS = [command for block in BLOCKS for command in block.commands]


def way() -> tuple[list[str], list[str]]:
    """Return the commands up to the first answer, and those that follow on the same page."""
    start = next(at for at, one in enumerate(COMMANDS) if "ARGS=--keep" in one)
    answer = next(at for at, one in enumerate(COMMANDS) if "koord explain" in one)
    end = next(at for at, one in enumerate(COMMANDS) if "get pods -l" in one)
    return COMMANDS[start : answer + 1], COMMANDS[answer + 1 : end + 1]


def test_way_is_short():
    first, _ = way()
    assert 0 < len(first) <= MAX_COMMANDS


@pytest.mark.sandbox
@pytest.mark.timeout(300)
def test_gang_waits_is_explained_and_starts(tmp_path: Path):
    checkout = tmp_path / "checkout"
    copy_checkout(checkout)
    (block,) = (one for one in BLOCKS if one.title == "train.yaml")
    (checkout / block.title).write_text(block.text, encoding="utf-8")
    first, then = way()
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": cache,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    pods = "kubectl get pods -l pod-group.scheduling.sigs.k8s.io=train -o yaml"
    # A reader is slower: the pods have to exist, and their reason has to be written.
    exist = "until [ $(kubectl get pods -o name -l pod-group.scheduling.sigs.k8s.io=train | wc -l)"
    script = [*first[:-1], f"{exist} = 3 ]; do sleep 0.1; done", "sleep 2", first[-1], *then, pods]
    try:
        done = run(script, checkout, environment)
    finally:
        run([".venv/bin/koord sandbox down --all"], checkout, environment)
    assert "all 8 pods of llama are bound" in done  # in the first command
    assert "Room for 0 of 3 pods" in done
    _, _, text = done.rpartition("apiVersion: v1\nitems:")
    made = yaml.safe_load(f"items:{text}")["items"]
    assert [bool(pod["spec"].get("nodeName")) for pod in made] == [True] * 3


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
        pytest.fail(f"{done.stdout}\nended with {done.returncode}", pytrace=False)
    return done.stdout
