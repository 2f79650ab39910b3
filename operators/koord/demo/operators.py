"""The operators as a process of their own: ``koord run``, with the rights that are shipped."""

import http.client
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from koord.demo.errors import OperatorsError
from koord.sandbox import ControlPlane, SandboxError
from koord.sandbox.status import read_status

NAMESPACE: Final = "koord-system"
SERVICE_ACCOUNT: Final = "koord-operators"
KOORD: Final = (sys.executable, "-m", "koord")
"""The command ``koord`` of this very installation, wherever its scripts are."""

_LEASH = Path(__file__).parent / "leash.py"
_CONFIG = """\
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
httpAddress: 127.0.0.1:0
"""
_SERVING = re.compile(r"serving HTTP .*\bport=(\d+)")
_READY_WITHIN = 60.0  # seconds; some three on an idle machine
_STOPPED_WITHIN = 10.0
_INTERVAL = 0.05
_LOG_TAIL = 25
_LONGEST_LINE = 400


class Operators:
    """All operators, in one process that ends with the sandbox at the latest."""

    def __init__(self, plane: ControlPlane, command: tuple[str, ...] = KOORD) -> None:
        self._plane = plane
        self.kubeconfig = plane.kubeconfig_for(NAMESPACE, SERVICE_ACCOUNT)
        self.log = plane.directory / "koord.log"
        config = plane.directory / "koord.yaml"
        config.write_text(_CONFIG, encoding="utf-8")
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "run", "--kubeconfig", self.kubeconfig, "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us; we tell it
            )
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", _LEASH, str(plane.record.supervisor.pid), str(self.pid)],
            stdin=subprocess.DEVNULL,
            # Nothing is written; but whoever reads our output waits until everybody has closed it.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Return once everything is read and work can begin."""
        end = time.monotonic() + _READY_WITHIN
        while not self._is_ready():
            self.check()
            if time.monotonic() > end:
                raise OperatorsError(f"the operators were not ready after {_READY_WITHIN:.0f} s")
            time.sleep(_INTERVAL)

    def check(self) -> None:
        """Raise if the process has ended, or the control plane that it works for."""
        # Strictly in this order: the process ends with the control plane.
        status = self._process.poll()
        if not self._plane.record.supervisor.is_alive():
            detail = read_status(self._plane.name).detail
            raise SandboxError(f"the control plane has ended: {detail}")
        if status is not None:
            raise OperatorsError(f"the operators ended with status {status}")

    def tail(self) -> list[str]:
        """Return the last lines of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line[:_LONGEST_LINE] for line in lines[-_LOG_TAIL:]]

    def stop(self) -> None:
        """End the process; return when it is gone."""
        self._process.terminate()
        try:
            self._process.wait(_STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._leash.wait()

    def detach(self) -> None:
        """Let it outlive this process; it then ends with the sandbox."""
        # Otherwise Popen warns that children were left running, which is the point.
        self._process.returncode = self._leash.returncode = 0

    def _is_ready(self) -> bool:
        found = _SERVING.search(self.log.read_text(encoding="utf-8", errors="replace"))
        return found is not None and _answers_ok(int(found[1]), "/readyz")


def _answers_ok(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
