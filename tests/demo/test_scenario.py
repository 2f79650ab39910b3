"""The play fits the manifests that it applies and the nodes that it is played on."""

import shlex
from pathlib import Path

import pytest
import yaml

from koord.demo.errors import MissingFilesError
from koord.demo.files import find_files
from koord.demo.scenario import BIG, NODES, SHAPE, SMALL, Command, Edit, make_scenes
from koord.sandbox import load_shape

EXAMPLES = Path(__file__).parents[2] / "examples" / "demo"
SCENES = make_scenes(EXAMPLES)


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
    """Otherwise the demo would explain something else than it means to."""
    (container,) = load(name)[1]["spec"]["template"]["spec"]["containers"]
    asked, node = container["resources"]["limits"], load_shape(SHAPE).allocatable
    assert asked["nvidia.com/gpu"] == node["nvidia.com/gpu"]
    assert int(asked["cpu"]) * 2 <= int(node["cpu"])


def test_an_edit_changes_one_place():
    edits = [scene.command.edit for scene in SCENES if scene.command.edit]
    assert edits
    for edit in edits:
        before = edit.file.read_text(encoding="utf-8")
        assert before.count(edit.old) == 1
        assert edit.read() == before.replace(edit.old, edit.new)


def test_a_command_is_written_as_a_shell_takes_it():
    command = Command(
        "kubectl",
        ("patch", "-p", '{"a": 1}'),
        edit=Edit(Path("my file"), "a: 1", "a: 2"),
        grep="What would",
    )
    assert shlex.split(str(command)) == [
        *("sed", "s/a: 1/a: 2/", "my file", "|"),
        *("kubectl", "patch", "-p", '{"a": 1}', "|"),
        *("grep", "-A1", "What would"),
    ]


def test_every_scene_claims_something():
    assert all(scene.claims for scene in SCENES)


def test_files_are_named_as_one_would_type_them(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parents[1])
    assert find_files().examples == Path("examples/demo")


def test_an_installation_without_the_files_says_so(tmp_path):
    with pytest.raises(MissingFilesError, match="checkout"):
        find_files(tmp_path)
