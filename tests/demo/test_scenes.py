"""The scenes match the manifests that they apply, and the nodes."""

import subprocess
from pathlib import Path

import pytest
import yaml

from koord_sandbox import load_shape
from koord_sandbox.demo import DemoError
from koord_sandbox.demo.scenes import BIG, NODES, SHAPE, SMALL, play
from koord_sandbox.demo.show import find_checkout

EXAMPLES = Path(__file__).parents[2] / "examples" / "demo"


def load(name):
    return list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [SMALL, BIG])
def test_a_job_is_as_large_as_its_group(name):
    group, job = load(name)
    pods = job["spec"]["parallelism"]
    assert pods == job["spec"]["completions"] == group["spec"]["minMember"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels == {"pod-group.scheduling.sigs.k8s.io": group["metadata"]["name"]}


def test_the_two_jobs_do_not_fit_together_and_the_big_one_alone_does():
    small, big = (load(name)[1]["spec"]["parallelism"] for name in (SMALL, BIG))
    assert big <= NODES < small + big


@pytest.mark.parametrize("name", [SMALL, BIG])
def test_only_gpus_are_short(name):
    """Otherwise pods would wait for another reason than the demo shows."""
    (container,) = load(name)[1]["spec"]["template"]["spec"]["containers"]
    asked, node = container["resources"]["limits"], load_shape(SHAPE).allocatable
    assert asked["nvidia.com/gpu"] == node["nvidia.com/gpu"]
    assert int(asked["cpu"]) * 2 <= int(node["cpu"])


class FakeStage:
    def __init__(self):
        self.typed, self.claims = [], []

    def narrate(self, story): ...

    def type(self, command):
        self.typed.append(command)

    def expect(self, *claims):
        self.claims += claims

    def quote(self, gang): ...


def test_every_command_is_followed_by_claims():
    stage = FakeStage()
    play(stage, EXAMPLES)
    assert [command.split()[0] for command in stage.typed] == [
        "sed",
        *["kubectl"] * 2,
        "koord",
        "kubectl",
    ]
    assert len({claim.text for claim in stage.claims}) == len(stage.claims) == 17


def test_the_edit_changes_one_line():
    stage = FakeStage()
    play(stage, EXAMPLES)
    command = stage.typed[0].partition("|")[0]
    edited = subprocess.check_output(["sh", "-c", command], text=True).splitlines()
    original = (EXAMPLES / f"{SMALL}.yaml").read_text(encoding="utf-8").splitlines()
    changed = [pair for pair in zip(original, edited, strict=True) if pair[0] != pair[1]]
    assert changed == [("  parallelism: 4", "  parallelism: 3")]


def test_files_are_named_as_one_would_type_them(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parents[1])
    assert find_checkout() / "crds" == Path("crds")


def test_an_installation_without_the_files_says_so(tmp_path):
    with pytest.raises(DemoError, match="checkout"):
        find_checkout(tmp_path)
