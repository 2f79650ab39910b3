"""`koord migrate` reads files and standard input, and changes files only when asked."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koord.api.manifest_text import read_documents
from koord.cli.main import app

PLAIN = "# a comment\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\n"
GROUP = """\
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: g}
spec: {minMember: 2}
"""
REWRITTEN = """\
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: g
spec:
  minMember: 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text(f"{PLAIN}---\n{GROUP}", encoding="utf-8")
    return path


def run(*arguments: object, text: str = ""):
    return CliRunner().invoke(app, ["migrate", *map(str, arguments)], input=text)


def test_files_are_printed_and_stay_as_they_are(file):
    before = file.read_text()
    done = run(file, file)
    assert done.exit_code == 0
    assert done.stdout == "---\n".join([PLAIN, REWRITTEN] * 2)
    assert done.stderr == "4 objects read, 2 rewritten, 0 remarks above\n"
    assert file.read_text() == before


def test_standard_input_is_read():
    assert run("-", text=GROUP).stdout == REWRITTEN


def test_file_is_changed_only_when_asked(file):
    done = run("--in-place", file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert file.read_text() == f"{PLAIN}---\n{REWRITTEN}"


def test_standard_input_cannot_be_changed():
    assert run("--in-place", "-").exit_code == 2


def test_what_is_lost_is_named_and_the_exit_code_says_so():
    done = run("-", text=GROUP.replace("minMember: 2", "minMember: 2, other: 1"))
    assert done.exit_code == 1
    assert done.stdout == REWRITTEN
    assert done.stderr.startswith(
        "-: PodGroup/g: spec.other: unknown: check that you can do without it, or set it by hand\n"
    )


def test_broken_yaml_names_file_and_line(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_text(f"{PLAIN}---\na: [\n", encoding="utf-8")
    done = run(path)
    assert done.exit_code == 2
    assert "f.yaml: line 7" in done.stderr
    assert done.stdout == ""


def test_texts_that_look_like_numbers_stay_texts():
    labels = {"a": "1e3", "b": "012", "c": "yes", "d": "0x1"}
    made = run("-", text=GROUP.replace("{name: g}", json.dumps({"name": "g", "labels": labels})))
    (group,) = read_documents(made.stdout)
    assert group["metadata"]["labels"] == labels


def test_way_back_takes_off_the_gate():
    pod = "{kind: Pod, apiVersion: v1, metadata: {name: p}, spec: {schedulingGates: [{name: X}]}}"
    made = run(
        "--to", "koordinator", "-", text=pod.replace("X", "operators.koordinator.sh/placement")
    )
    assert "schedulingGates" not in made.stdout
    assert "schedulerName: koord-scheduler" in made.stdout
