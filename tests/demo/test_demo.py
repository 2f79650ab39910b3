"""The whole demo on a real control plane: its claims, its failures, and its cleanup."""

import io
import signal
import sys
import textwrap

import pytest
from rich.console import Console
from typer.testing import CliRunner

import koord_sandbox.demo.show
from koord.cli.main import app
from koord_sandbox.demo import DemoError, NotSeenError, OperatorsError
from koord_sandbox.demo import show as demo
from koord_sandbox.record import list_names

IDLE = textwrap.dedent("""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Ready)
    print(f"Serving HTTP address=127.0.0.1 port={server.server_port}", flush=True)
    server.serve_forever()
""")
"""Operators that are ready at once and never do anything."""


@pytest.mark.sandbox
@pytest.mark.slow
def test_every_claim_is_confirmed_and_nothing_is_left_running(machine):
    done = machine.koord("demo")
    assert done.returncode == 0, done.stderr
    for claim in (
        "3 pods of resnet exist, none of them has a node",
        "PodGroup resnet says QuorumReached=False, reason MissingMembers, and names 3 of 4",
        "each of the 3 pods of resnet says MissingMembers",
        "all 4 pods of resnet are bound, to 4 nodes",
        "no pod of resnet was bound before all 4 existed",
        "resnet was bound within a second after its last pod came",
        "8 pods of llama exist, none of them has a node",
        "each of the 8 pods of llama says InsufficientNodes",
        "all 4 pods of resnet have succeeded",
        "PodGroup llama says Bound=True, reason AllBound",
        "all 8 pods of llama run",
        "no pod of llama was bound before resnet had ended",
        "llama was bound within a second after resnet had ended",
        "all 12 bindings were made by system:serviceaccount:koord-system:koord-operators",
    ):
        assert f"✓ {claim}" in done.stdout
    assert "What would help" in done.stdout
    assert machine.find_leftovers() == []


@pytest.mark.sandbox
@pytest.mark.slow
def test_kept_operators_end_with_the_sandbox(machine):
    done = machine.koord("demo", "--keep")
    assert done.returncode == 0, done.stderr
    assert "export KUBECONFIG=" in done.stdout
    assert any("koord run" in process for process in machine.find_processes())
    again = machine.koord("demo", "--keep")
    assert (again.returncode, "koord sandbox down --name demo" in again.stderr) == (1, True)
    assert machine.koord("sandbox", "down", "--name", "demo").returncode == 0
    assert machine.is_clean_soon(), machine.find_leftovers()


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (signal.SIGINT, 128 + signal.SIGINT),
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
@pytest.mark.parametrize("moment", ["gets 8 fake nodes", "kubectl patch"])
def test_signals_take_everything_down(machine, sent, status, moment):
    with machine.start("demo") as process:
        assert any(moment in line for line in process.stdout)
        assert machine.find_processes()
        process.send_signal(sent)
        assert process.wait() == status
    assert machine.is_clean_soon(), machine.find_leftovers()


@pytest.fixture
def failed(tmp_path, monkeypatch):
    """Run the demo with other operators; return its error, after checking that nothing is left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(demo, "_CLAIM_SECONDS", 3.0)

    def run(operators: str) -> DemoError:
        console = Console(file=io.StringIO())
        with pytest.raises(DemoError) as caught:
            demo.show(console, keep=True, koord=(sys.executable, "-c", operators))
        assert list_names() == []
        return caught.value

    return run


@pytest.mark.sandbox
def test_operators_that_end_fail_the_demo(failed):
    error = failed("print('no rights'); raise SystemExit(3)")
    assert isinstance(error, OperatorsError)
    assert "ended with status 3" in str(error)
    assert "no rights" in error.__notes__[0]


@pytest.mark.sandbox
@pytest.mark.slow
def test_idle_operators_fail_the_demo(failed):
    error = failed(IDLE)
    assert isinstance(error, NotSeenError)
    assert len(error.claims) == 2
    assert all("MissingMembers" in claim for claim in error.claims)
    assert "Serving HTTP" in error.__notes__[0]


def test_a_failure_is_printed_with_the_end_of_the_log(monkeypatch):
    def fail(*_, **__):
        error = NotSeenError(["pigs fly"])
        error.add_note("the operators said last: no")
        raise error

    monkeypatch.setattr(koord_sandbox.demo.show, "show", fail)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 1
    assert "pigs fly" in result.stderr
    assert "said last: no" in result.stderr
