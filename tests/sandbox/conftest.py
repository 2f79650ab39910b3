"""Looks at sandboxes from outside: their processes, ports and files."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from koord_sandbox.record import Process, Record, describe_process

_PATIENCE = 30.0  # seconds until a test gives up on what should happen at once


@dataclass(frozen=True)
class Traces:
    """The processes, ports and directory of a running sandbox."""

    processes: tuple[Process, ...]
    ports: tuple[int, ...]
    directory: Path

    def list_left(self) -> list[str]:
        """Return what still exists."""
        alive = [f"process {process.pid}" for process in self.processes if process.is_alive()]
        listening = [f"port {port}" for port in self.ports if _is_listening(port)]
        return alive + listening + ([str(self.directory)] if self.directory.exists() else [])

    def are_all_there(self) -> bool:
        return len(self.list_left()) == len(self.processes) + len(self.ports) + 1

    def are_gone_soon(self) -> bool:
        """Wait for the end, for sandboxes that end in the background."""
        return _wait_for(lambda: not self.list_left())


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_for(is_reached: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while not is_reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], bool]:
    return _wait_for


@pytest.fixture
def trace() -> Callable[[Record], Traces]:
    """Record the traces of a running sandbox, to check them afterwards."""

    def describe(record: Record) -> Traces:
        return Traces(
            processes=(record.supervisor, *map(describe_process, record.read_pids().values())),
            ports=(record.server_port, record.etcd_port, record.etcd_peer_port),
            directory=record.layout.directory,
        )

    return describe


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Separate the sandboxes of a test from those of the user who runs it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path
