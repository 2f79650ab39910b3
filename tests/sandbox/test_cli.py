"""The commands, as a user types them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koord.cli.main import app
from koord_sandbox.cli import print_next_steps
from koord_sandbox.record import list_names, read_record

_ROOT = Path(__file__).parents[2]
_KOORD = [sys.executable, "-c", "from koord.cli.main import main; main()"]

pytestmark = pytest.mark.usefixtures("state_home")


def _run(*arguments):
    return CliRunner().invoke(app, ["sandbox", *arguments])


@pytest.mark.sandbox
def test_a_sandbox_outlives_up_and_ends_with_down(trace):
    up = subprocess.run(
        [*_KOORD, "sandbox", "up", "--nodes=2", "--shape=cpu16", "--component=kwok"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 nodes cpu16" in up.stdout
    traces = trace(read_record("default"))
    assert traces.are_all_there()

    again = _run("up")
    assert (again.exit_code, "already" in again.stderr) == (1, True)
    assert traces.are_all_there()

    (status,) = json.loads(_run("status", "--output=json").stdout)
    assert (status["name"], status["state"], status["nodes"]) == ("default", "running", 2)
    assert status["pids"].keys() == {"etcd", "kube-apiserver", "kwok"}
    assert "kwok" in _run("status").stdout

    shell = 'eval "$1"; kubectl get nodes --output=name'
    nodes = subprocess.run(
        ["sh", "-c", shell, "sh", _run("env").stdout], capture_output=True, text=True, check=True
    )
    assert nodes.stdout.split() == ["node/cpu16-0000", "node/cpu16-0001"]

    assert _run("down").exit_code == 0
    assert traces.list_left() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["down"], "no sandbox 'default' is running; `koord sandbox up`"),
        (["env", "--name=x"], "no sandbox 'x' is running; `koord sandbox up --name x` starts one"),
        (["up", "--shape=x"], "no node shape 'x'"),
        (["up", "--name=X"], "is not a valid name"),
        (["up", "--kubernetes=1.29"], "no Kubernetes '1.29' to build; there are 1.30, 1.33, 1.36"),
    ],
)
def test_errors_are_one_sentence(arguments, message, monkeypatch):
    """Each is found before anything is built, which takes minutes the first time."""
    monkeypatch.setattr("koord_sandbox.binaries.build_missing", None)
    result = _run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert list_names() == []


def test_how_to_start_one_is_told_where_others_run(monkeypatch):
    monkeypatch.setattr("koord_sandbox.record.list_names", lambda: ["other"])
    result = _run("env")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there are: other; `koord sandbox up` starts one" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("name", "option"), [("default", ""), ("small", " --name small")], ids=["default", "named"]
)
def test_next_steps_name_the_sandbox(capsys, name, option):
    print_next_steps(name)
    told = capsys.readouterr().out
    assert f'eval "$(koord sandbox env{option})"' in told
    assert f"  koord sandbox down{option}\n" in told
    assert all(len(line) < 80 for line in told.splitlines())
    files = re.findall(r"-f (\S+)", told)
    assert files
    assert all((_ROOT / file).exists() for file in files)


def test_status_without_sandboxes_says_how_to_start_one():
    assert "koord sandbox up" in _run("status").stdout
    assert json.loads(_run("status", "--output=json").stdout) == []
    assert _run("down", "--all").exit_code == 0
