"""Runs ``koord run`` with a configuration file and a kubeconfig."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.forked_koord import find_koord

KOORD = Path(sys.executable).parent / "koord"
"""The installed command."""
_READY_WITHIN = 60.0  # seconds
_STOPPED_WITHIN = 30.0


@dataclass(frozen=True)
class RunningOperators:
    """A process with its HTTP address and log file."""

    process: subprocess.Popen
    port: int
    log: Path

    def get(self, path: str) -> tuple[int, str]:
        """Read one page; return its status and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def read_log(self) -> str:
        return self.log.read_text(encoding="utf-8")


@contextmanager
def run_operators(
    kubeconfig: Path,
    folder: Path,
    *arguments: str,
    settings: str = "",
    gets_ready: bool = True,
    koord: Path | None = None,
) -> Iterator[RunningOperators]:
    """Run ``koord run`` while the context is open; it is ready when the context begins.

    ``settings`` are more lines of its configuration. ``gets_ready``: False if it lacks something.
    ``koord`` is the installed command where the environment says what Python finds: a forked one
    has found it already.
    """
    port = _find_free_port()
    config = folder / "config.yaml"
    config.write_text(
        "apiVersion: operators.koordinator.sh/v1alpha1\n"
        f"kind: OperatorConfiguration\nhttpAddress: 127.0.0.1:{port}\n{settings}",
        encoding="utf-8",
    )
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [koord or find_koord(), "run", "--config", config, *arguments],
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
            stdout=output,
            stderr=output,
        ) as process,
    ):
        running = RunningOperators(process, port, log)
        try:
            if gets_ready:
                wait_until_ready(running)
            yield running
        finally:
            _stop(process)


def wait_until_ready(running: RunningOperators) -> None:
    end = time.monotonic() + _READY_WITHIN
    while not _is_ready(running):
        ended = running.process.poll() is not None
        if ended or time.monotonic() > end:
            raise AssertionError(f"the operators did not get ready:\n{running.read_log()}")
        time.sleep(0.1)


def _is_ready(running: RunningOperators) -> bool:
    try:
        return running.get("/readyz")[0] == 200
    except OSError:
        return False


def _stop(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOPPED_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
