"""Runs the processes of one sandbox and makes sure that none of them outlives it.

Runs as a process of its own, started as `python -I -S supervisor.py PLAN`: it must not import
anything of this project, or anything outside the standard library, so that it is up in
milliseconds and has one thread only.

How nothing is left behind, whichever process dies:

* The owner (a test run, the demo) ends in any way, SIGKILL included: the supervisor sees the
  owner's pidfd become readable and stops everything. The end of the pipe from the owner means the
  same; the pidfd is needed too, because a process that the owner forked may hold the pipe open.
* The supervisor itself is killed: the kernel kills its children, by PR_SET_PDEATHSIG.
* A component ends by itself: an incomplete control plane misleads its users, so the others are
  stopped too, and `failure.json` names the component.

The owner sends one command per line: `rest` starts the components that need a ready API server,
`restart:NAME` kills one and starts it again, `detach` makes the sandbox independent of its owner.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, NoReturn

_PR_SET_PDEATHSIG = 1
_PASSED_ON = ("GOGC", "GOMAXPROCS", "GOMEMLIMIT")
"""Variables of the Go runtime: what the components may use of the machine."""
_libc = ctypes.CDLL(None, use_errno=True)


class StopRequested(Exception):  # noqa: N818 - control flow, not an error
    """SIGTERM or its like arrived."""


class Supervisor:
    """Starts the components of the plan, waits for a reason to end, stops them."""

    def __init__(self, directory: Path, owner: int) -> None:
        self._directory = directory
        self._plan: list[dict[str, object]] = json.loads((directory / "plan.json").read_text())
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        self._owner_fd: int | None = os.pidfd_open(owner)
        self._poll.register(self._owner_fd, select.POLLIN)
        self._poll.register(sys.stdin.fileno(), select.POLLIN)

    def run(self) -> int:
        """Return 0 when asked to end, 1 when a component ended by itself."""
        orphaned = failed = False
        try:
            self._start(after_ready=False)
            failed = not self._wait()
            orphaned = not failed
        except StopRequested:
            pass
        finally:
            _ignore_signals()
            self._kill_all()
        if orphaned:
            # Nobody is left to look at the logs or to clean up.
            shutil.rmtree(self._directory, ignore_errors=True)
        return 1 if failed else 0

    def _wait(self) -> bool:
        """Return False when a component ended by itself, True when the owner is gone."""
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            ended = [name for descriptor, name in self._names.items() if descriptor in ready]
            if ended:
                self._report_failure(ended[0])
                return False
            # The pipe strictly before the owner: its last command may be to detach.
            if sys.stdin.fileno() in ready and not self._obey():
                return True
            if self._owner_fd in ready:
                return True

    def _obey(self) -> bool:
        """Execute commands of the owner; return False when the pipe has ended."""
        # os.read, because a buffered line would hide a second command from poll().
        words = os.read(sys.stdin.fileno(), 4096).decode().split()
        for word in words:
            if word == "rest":
                self._start(after_ready=True)
            elif word == "detach":
                self._detach()
            elif word.startswith("restart:"):
                self._restart(word.removeprefix("restart:"))
        return bool(words)

    def _detach(self) -> None:
        self._poll.unregister(sys.stdin.fileno())
        if self._owner_fd is not None:
            self._poll.unregister(self._owner_fd)
            self._owner_fd = None

    def _restart(self, name: str) -> None:
        descriptor = next(fd for fd, other in self._names.items() if other == name)
        self._poll.unregister(descriptor)
        del self._names[descriptor]
        os.close(descriptor)
        self._children[name].kill()
        self._children[name].wait()
        command = next(program["command"] for program in self._plan if program["name"] == name)
        self._spawn(name, command)
        self._write_pids()

    def _start(self, *, after_ready: bool) -> None:
        for component in self._plan:
            if component["after_ready"] is after_ready:
                self._spawn(str(component["name"]), component["command"])
        self._write_pids()

    def _write_pids(self) -> None:
        pids = {name: child.pid for name, child in self._children.items()}
        _write_atomically(self._directory / "pids.json", json.dumps(pids))

    def _spawn(self, name: str, command: object) -> None:
        if not isinstance(command, list):
            raise TypeError(command)
        with (self._directory / f"{name}.log").open("ab") as log:
            child = self._popen([str(word) for word in command], log)
        self._children[name] = child
        descriptor = os.pidfd_open(child.pid)
        self._names[descriptor] = name
        self._poll.register(descriptor, select.POLLIN)

    def _popen(self, command: list[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        # HOME is the sandbox's: kwok, for one, reads a configuration file from the user's.
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment = {"HOME": str(self._directory), "PATH": os.defpath, **passed_on}
        return subprocess.Popen(
            command,
            cwd=self._directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Safe here, and only here: this process has one thread, so no lock can be held by
            # another one at the moment of the fork, and PR_SET_PDEATHSIG, which watches the
            # thread that forked, watches the whole process.
            preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509
        )

    def _report_failure(self, name: str) -> None:
        status = self._children[name].wait()
        text = json.dumps({"component": name, "status": status})
        _write_atomically(self._directory / "failure.json", text)

    def _kill_all(self) -> None:
        # In the order of the plan: the API server first, since it would retry for a minute after
        # losing etcd. No graceful end is needed: the data is deleted.
        doomed = [self._children[name] for name in self._order() if name in self._children]
        for child in doomed:
            child.kill()
        for child in doomed:
            child.wait()

    def _order(self) -> list[str]:
        return [str(component["name"]) for component in self._plan]


def _die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the line above took effect.
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _write_atomically(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def _request_stop(*_: object) -> NoReturn:
    raise StopRequested


def _ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _request_stop)
    directory = Path(sys.argv[1])
    try:
        supervisor = Supervisor(directory, int(sys.argv[2]))
    except ProcessLookupError:
        # The owner is gone already.
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    return supervisor.run()


if __name__ == "__main__":
    raise SystemExit(main())
