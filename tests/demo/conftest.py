"""Runs `koord demo` as a user does, and finds processes and files that it leaves behind."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PATIENCE = 60.0  # seconds


class Machine:
    """A directory for sandboxes; its path is in the environment of all processes of the demo."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.environment = os.environ | {"XDG_STATE_HOME": str(state)}

    def koord(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "koord", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen]:
        """Run a command, and read its output while it runs."""
        with subprocess.Popen(
            [sys.executable, "-m", "koord", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def find_processes(self) -> list[str]:
        """Return the command lines of the running processes."""
        mark = str(self.state).encode()
        found = [path.parent for path in Path("/proc").glob("[0-9]*/environ") if mark in read(path)]
        return [read(process / "cmdline").replace(b"\0", b" ").decode() for process in found]

    def find_leftovers(self) -> list[str]:
        """Return processes and directories that a finished demo should not leave."""
        return self.find_processes() + [str(path) for path in self.state.glob("*/sandboxes/*")]

    def is_clean_soon(self) -> bool:
        """Whether nothing is left, after waiting for detached processes."""
        return wait_for(lambda: not self.find_leftovers())


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine without sandboxes, before and after the test."""
    machine = Machine(tmp_path)
    yield machine
    machine.koord("sandbox", "down", "--all")


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # somebody else's, or gone


def wait_for(is_reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + _PATIENCE
    while not is_reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
