"""The root command: overview, completion, and no needless imports."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from koord.cli.main import COMMANDS, app, complete
from koord.runtime.address import Address

HEAVY = ("kopf", "kubernetes_asyncio", "numpy", "aiohttp", "msgspec", "networkx")
BIN = Path(sys.executable).parent


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def squeeze(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_the_summary_of_the_overview(name: str) -> None:
    done = run(name, "--help")
    assert done.exit_code == 0
    assert COMMANDS[name].summary in squeeze(done.stdout)
    assert f"koord {name}" in done.stdout
    assert "--install-completion" not in done.stdout


def test_the_overview_shows_all_commands() -> None:
    shown = squeeze(run("--help").stdout)
    for name, command in COMMANDS.items():
        assert f"{name} {command.summary}" in shown


def test_an_unknown_command_is_a_usage_error_with_a_hint() -> None:
    done = run("explian")
    assert done.exit_code == 2
    assert "'explain'" in done.stderr


def test_nothing_heavy_is_imported_for_help_and_version() -> None:
    code = f"""
import sys
from koord.cli.main import app
for line in ("--help", "explain --help", "version"):
    app(line.split(), standalone_mode=False)
    heavy = [name for name in {HEAVY} if name in sys.modules]
    assert not heavy, (line, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["kubectl_complete-koord", ""], ["koord", "--help"], ["koord", "version"]],
)
def test_output_that_nobody_reads_ends_quietly(arguments: list[str]) -> None:
    program, *options = arguments
    pipe = subprocess.PIPE
    with subprocess.Popen([BIN / program, *options], stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_the_plugin_calls_itself_kubectl_koord() -> None:
    text = subprocess.check_output([BIN / "kubectl-koord", "explain", "--help"], text=True)
    assert "Usage: kubectl koord explain" in text


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["cr"], ["crds"]),
        (["explain", "p"], ["pod", "podgroup", "podmigrationjob"]),
        (["explain", "e"], ["elasticquota"]),
        (["explain", "podg"], ["podgroup"]),
        (["explain", "pod", "--out"], ["--output"]),
        (
            ["explain", "pod", "--output", ""],
            ["text", "wide", "name", "json", "answer", "yaml", "svg"],
        ),
        (["sandbox", "st"], ["status"]),
    ],
)
def test_kubectl_gets_completions(
    typed: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with patch.dict(os.environ), patch.object(sys, "argv", ["kubectl_complete-koord", *typed]):
        complete()
    *lines, directive = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == expected
    assert directive == ":4"


def test_kubectl_finds_the_completions() -> None:
    text = subprocess.check_output([BIN / "kubectl_complete-koord", "cr"], text=True)
    assert [line.split("\t")[0] for line in text.splitlines()] == ["crds", ":4"]


def test_completion_works_without_kubectl() -> None:
    # The shell is named: what runs the tests may have none to be detected.
    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [BIN / "koord", "--show-completion", "bash"]
    assert "_KOORD_COMPLETE" in subprocess.check_output(command, env=named, text=True)


def test_version() -> None:
    lines = [line.split() for line in run("version").stdout.splitlines()]
    assert [line[0] for line in lines] == ["koord", "Python"]
    assert lines[1][1] == ".".join(map(str, sys.version_info[:3]))


def test_version_as_an_option() -> None:
    first = run("version").stdout.splitlines()[0]
    assert run("--version").stdout.split() == first.split()


def test_run_refuses_what_is_no_address() -> None:
    done = run("run", "--http-address", "localhost:80")
    assert done.exit_code == 2
    assert "--http-address" in done.stderr
    assert "localhost" in done.stderr


def test_run_serves_on_the_chosen_address(tmp_path: Path) -> None:
    """Nothing answers at the cluster's address, so only the settings are looked at."""
    seen = []
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a,"
        " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}],"
        " users: [{name: a, user: {token: x}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}]}"
    )
    with (
        patch("koord.cli.run._run", seen.append),
        patch("koord.cli.run.configure_logging"),
    ):
        done = run("run", "--kubeconfig", str(kubeconfig), "--http-address", "127.0.0.1:0")
    assert done.exit_code == 0, done.output
    assert seen[0].settings.http_address == Address("127.0.0.1", 0)
