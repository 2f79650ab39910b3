"""Processes that are forked: they are those that a shell would have started."""

import os
import signal
from pathlib import Path

from tests.support.fork_server import start_server

from koord.runtime.election import EXIT_LOST


def test_command_runs_with_its_arguments_environment_and_exit_code(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    process = start_server().start(["run"], tmp_path / "log")
    assert process.wait(60) == EXIT_LOST
    assert str(tmp_path / "missing") in (tmp_path / "log").read_text()
    assert process.poll() == EXIT_LOST


def test_process_is_ended_by_a_signal(tmp_path: Path) -> None:
    os.mkfifo(config := tmp_path / "config")
    process = start_server().start(["run", "--config", str(config)], tmp_path / "log")
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    process.send_signal(signal.SIGKILL)  # nobody is hit
