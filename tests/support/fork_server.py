"""Starts ``koord run`` by forking a process that has imported it: a start costs a second less.

Tests of restarts and failures start the operators more than a hundred times, and most of a start is
the import of modules. What runs afterwards is the same command line in a process of its own.
``tests.support.operators`` starts the command itself.

The server reads one request per line, as JSON, and answers each with one line. It ends with its
standard input.
"""

import atexit
import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

_POLL_SECONDS = 0.02


class ForkServer:
    """The side of the tests; :func:`start_server` returns the one of this process."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        """End the server; what it has started goes on."""
        with self._server as server:
            assert server.stdin is not None
            server.stdin.close()

    def start(self, arguments: Sequence[str], log: Path) -> "ForkedProcess":
        """Run ``koord`` with arguments and the environment of this process."""
        environment = dict(os.environ)
        request = {"start": list(arguments), "log": str(log), "environment": environment}
        return ForkedProcess(self, self._ask(request))

    def poll(self, pid: int) -> int | None:
        """Return the exit code of a process, negative if a signal ended it; None if it runs."""
        code: int | None = self._ask({"poll": pid})
        return code

    def _ask(self, request: Mapping[str, object]) -> Any:
        requests, answers = self._server.stdin, self._server.stdout
        assert requests is not None
        assert answers is not None
        with self._lock:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
            return json.loads(answers.readline())


class ForkedProcess:
    """What the tests use of ``subprocess.Popen``."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._server.poll(self.pid)
        return self._code

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("koord", timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@cache
def start_server() -> ForkServer:
    return ForkServer()


def serve(requests: IO[bytes], answers: IO[bytes]) -> dict[str, Any] | None:
    """Answer requests to the end; return a request to start in the process that is to do it."""
    for line in requests:
        request = json.loads(line)
        if "start" in request:
            answer = os.fork()
            if answer == 0:
                return dict(request)
        else:
            answer = _poll(request["poll"])
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    return None


def _poll(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(request: Mapping[str, Any]) -> None:
    """Make this process what a shell would have started."""
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()
    sys.argv[:] = ["koord", *request["start"]]


if __name__ == "__main__":
    import kopf  # noqa: F401 - Kopf is a part of every start

    import koord.cli.run  # noqa: F401
    from koord.cli.main import main
    from koord.domains import DOMAINS
    from koord.domains.domain import load

    for domain in DOMAINS:
        for module in domain.operators:
            import_module(module)
        if domain.start:
            load(domain.start)
    gc.freeze()
    if (mine := serve(sys.stdin.buffer.raw, sys.stdout.buffer)) is not None:
        become(mine)
        main()
