"""The operators as a process of their own: ``koord run``, with the rights that are shipped."""

import http.client
import re
import subprocess
import sys
from contextlib import closing
from typing import Final, Self

from koord_sandbox import ControlPlane, SandboxError
from koord_sandbox.demo import OperatorsError, parent_watch

NAMESPACE: Final = "koord-system"
SERVICE_ACCOUNT: Final = "koord-operators"
KOORD: Final = (sys.executable, "-m", "koord")
"""The command ``koord`` of this installation, wherever its scripts are."""

_CONFIG: Final = """\
apiVersion: operators.koordinator.sh/v1alpha1
kind: OperatorConfiguration
httpAddress: 127.0.0.1:0
"""
_SERVING: Final = re.compile(r"Serving HTTP .*\bport=(\d+)")
_STOP_SECONDS: Final = 10.0
_LOG_TAIL: Final = 25


class Operators:
    """All operators in one process, which ends with the sandbox at the latest."""

    def __init__(self, plane: ControlPlane, command: tuple[str, ...] = KOORD) -> None:
        self._plane = plane
        self.kubeconfig = plane.kubeconfig_for(NAMESPACE, SERVICE_ACCOUNT)
        self.log = plane.directory / "koord.log"
        config = plane.directory / "koord.yaml"
        config.write_text(_CONFIG, encoding="utf-8")
        run = ["run", "--kubeconfig", str(self.kubeconfig), "--config", str(config)]
        with self.log.open("wb") as output:
            self._process = _start([*command, *run], output.fileno())
        pids = [str(plane.record.supervisor.pid), str(self._process.pid)]
        watch = [sys.executable, "-I", "-S", parent_watch.__file__, *pids]
        # It prints nothing, but would keep our output open for whoever reads it.
        self._watch = _start(watch, subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process; return when it is gone."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._watch.wait()

    def check(self) -> None:
        """Raise if the process or its control plane has ended."""
        status = self._process.poll()  # before the next line: it ends with the control plane
        if not self._plane.record.supervisor.is_alive():
            raise SandboxError("the control plane has ended")
        if status is not None:
            raise OperatorsError(f"the operators ended with status {status}")

    def tail(self) -> list[str]:
        """Return the last lines of the log."""
        return self._read_log().splitlines()[-_LOG_TAIL:]

    def detach(self) -> None:
        """Let it outlive this process; it then ends with the sandbox."""
        # Otherwise Popen warns that children were left running, which is intended here.
        self._process.returncode = self._watch.returncode = 0

    def _read_log(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_ready(self) -> bool:
        """Whether everything is read and work can begin."""
        serving = _SERVING.search(self._read_log())
        if serving is None:
            return False
        with closing(http.client.HTTPConnection("127.0.0.1", int(serving[1]), timeout=5)) as server:
            try:
                server.request("GET", "/readyz")
                return server.getresponse().status == http.HTTPStatus.OK
            except (OSError, http.client.HTTPException):
                return False


def _start(command: list[str], output: int) -> "subprocess.Popen[bytes]":
    """Start a process that Ctrl-C does not reach: this one ends it."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=nothing, stdout=output, stderr=output, start_new_session=True
    )
