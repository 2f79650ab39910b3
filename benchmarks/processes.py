"""The measured schedulers, each a process of its own: operators, kube-scheduler, the ceiling."""

import http.client
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import msgspec
from typing_extensions import override

from benchmarks.objects import SCHEDULER

ROOT: Final = Path(__file__).parents[1]

_PATIENCE: Final = 60.0
_INTERVAL: Final = 0.05
_TAIL: Final = 3000


class Failed(Exception):  # noqa: N818 - what it says is what happened
    """A measured process failed."""


def run_module(name: str, order: Path) -> None:
    """Run a module of this package to its end."""
    done = subprocess.run(
        [sys.executable, "-m", name, str(order)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(done.stderr[-_TAIL:])


class Contender(ABC):
    """A process that places pods; it runs while it is used as a context."""

    user: str
    """The user name of its writes."""
    scheduler: str
    """The `spec.schedulerName` of the pods that it places."""
    quiet_seconds: float
    """After this time without a write, it has reported everything about its pods."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / f"{type(self).__name__}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    def __enter__(self) -> Self:
        # In a second start, the modules are compiled already.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=ROOT, stdout=log, stderr=log, env=environment
            )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._running()
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wait_ready(self, patience: float = _PATIENCE) -> None:
        """Return when it would react to a new pod."""
        deadline = time.monotonic() + patience
        while not self.is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"not ready: {self.read_log()}")
            time.sleep(_INTERVAL)

    def check(self) -> None:
        """Raise ``Failed`` if it has ended with an error."""
        if self._running().poll():
            raise Failed(f"{type(self).__name__} ended: {self.read_log()}")

    def read_log(self) -> str:
        """Return the end of its log."""
        return self.log.read_text()[-_TAIL:]

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return its command line."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it would react to a new pod."""

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("not started")
        return self._process


class Operators(Contender):
    """`koord run`, as shipped, with the rights of its own service account."""

    user = "system:serviceaccount:koord-system:koord-operators"
    scheduler = SCHEDULER
    quiet_seconds = 4.0  # statuses are collected for up to three

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        super().__init__(directory)
        self._kubeconfig = kubeconfig
        self._config = directory / "operators.yaml"
        self._config.write_text(
            "apiVersion: operators.koordinator.sh/v1alpha1\n"
            "kind: OperatorConfiguration\n"
            "httpAddress: 127.0.0.1:0\n"
        )
        self._port = 0

    @override
    def command(self) -> Sequence[str]:
        options = ["--kubeconfig", str(self._kubeconfig), "--config", str(self._config)]
        return [sys.executable, "-m", "koord", "run", *options]

    @override
    def is_ready(self) -> bool:
        self._port = self._port or self._find_port()
        if not self._port:
            return False
        try:
            return self.read("/readyz") is not None and self._leads()
        except OSError:
            return False

    def _leads(self) -> bool:
        """Whether it has been elected; standbys are ready too, but do not plan."""
        state = msgspec.json.decode(self.read("/debug/state") or b"{}")
        return bool(state.get("election", {}).get("leads"))

    def read(self, page: str) -> bytes | None:
        """Return a page of its HTTP server, or nothing if it is refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", page)
            answer = connection.getresponse()
            return answer.read() if answer.status == http.HTTPStatus.OK else None
        finally:
            connection.close()

    def _find_port(self) -> int:
        """Read from the log which port the system has chosen."""
        for line in self.log.read_text().splitlines():
            if "Serving HTTP" in line and (words := line.rpartition("port=")[2].split()):
                return int(words[0])
        return 0


class KubeScheduler(Contender):
    """The sandbox's kube-scheduler, without its default limits on requests."""

    user = "system:kube-scheduler"
    scheduler = "default-scheduler"
    quiet_seconds = 2.0
    ARGUMENTS: Final = ("--kube-api-qps=5000", "--kube-api-burst=10000", "--v=2")

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        super().__init__(directory)
        self._command = command

    @override
    def command(self) -> Sequence[str]:
        return self._command

    @override
    def is_ready(self) -> bool:
        return "Caches populated" in self.log.read_text()


class Ceiling(Contender):
    """The client without planning."""

    user = Operators.user
    scheduler = SCHEDULER
    quiet_seconds = 0.5

    def __init__(self, directory: Path, order: Path) -> None:
        super().__init__(directory)
        self._order = order

    @override
    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.ceiling", str(self._order)]

    @override
    def is_ready(self) -> bool:
        return "ready" in self.log.read_text()
