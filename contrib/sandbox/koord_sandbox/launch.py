"""Starts a sandbox and waits until its control plane is usable.

Kubeconfig files are written before anything runs, because some components read theirs at once.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from koord_sandbox.binaries import Binaries
from koord_sandbox.client import AdminClient
from koord_sandbox.components import ALWAYS, Component, SandboxLayout, make_command
from koord_sandbox.credentials import (
    USERS,
    ClusterEntry,
    Credential,
    write_certificate_kubeconfig,
    write_pki,
)
from koord_sandbox.errors import SandboxApiError, StartError
from koord_sandbox.record import (
    ProgramRecord,
    Record,
    describe_process,
    now,
    remove,
    take_name,
    write_record,
)

_SUPERVISOR = Path(__file__).parent / "supervisor.py"
_START_SECONDS = 120.0  # about four on an idle machine
_STOP_SECONDS = 10.0
_INTERVAL = 0.05
_LOG_TAIL = 15


@dataclass(frozen=True, slots=True)
class Order:
    """What to start."""

    name: str
    components: frozenset[Component]
    binaries: Binaries
    arguments: Mapping[Component, Sequence[str]]
    """Additional arguments by component; they override ours."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A running sandbox whose supervisor is a child of this process."""

    record: Record
    supervisor: "subprocess.Popen[bytes]"

    def send(self, command: str) -> None:
        pipe = self.supervisor.stdin
        if pipe is not None:
            # If the supervisor is gone, the caller that waits for the effect finds out why.
            with suppress(BrokenPipeError):
                pipe.write(f"{command}\n".encode())

    def end(self) -> None:
        """Take the sandbox down; return when all its processes are gone."""
        self.supervisor.terminate()
        if self.supervisor.stdin is not None:
            self.supervisor.stdin.close()
        try:
            self.supervisor.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()  # the kernel kills its children with it
            self.supervisor.wait()

    def detach(self) -> None:
        self.send("detach")
        if self.supervisor.stdin is not None:
            self.supervisor.stdin.close()
        # Otherwise Popen warns that a child was left running, which is intended here.
        self.supervisor.returncode = 0


def make_name() -> str:
    return f"box-{secrets.token_hex(4)}"


def launch(order: Order) -> Launched:
    """Start a sandbox and wait until it can be used; leave nothing behind on failure."""
    directory = take_name(order.name)
    try:
        credentials = write_pki(directory / "pki")
        with hold_ports(3) as (server, etcd, peer):
            layout = SandboxLayout(directory, server, etcd, peer)
            _write_kubeconfigs(order.name, layout, credentials)
            _write_plan(order, layout)
            return _start(order, layout)
    except BaseException:
        remove(directory)
        raise


def _write_kubeconfigs(
    name: str, layout: SandboxLayout, credentials: Mapping[str, Credential]
) -> None:
    cluster = describe_cluster(name, layout)
    for user in USERS:
        path = layout.kubeconfig(user)
        write_certificate_kubeconfig(path, cluster, user, credentials[user])


def describe_cluster(name: str, layout: SandboxLayout) -> ClusterEntry:
    return ClusterEntry(f"koord-{name}", layout.server, Path(layout.pki("ca.crt")).read_bytes())


def _write_plan(order: Order, layout: SandboxLayout) -> None:
    plan = [
        {
            "name": component,
            "command": [
                *make_command(component, order.binaries.path(component), layout, order.components),
                *order.arguments.get(component, ()),
            ],
            "after_ready": component not in ALWAYS,
        }
        for component in Component
        if component in order.components
    ]
    (layout.directory / "plan.json").write_text(json.dumps(plan))


def _start(order: Order, layout: SandboxLayout) -> Launched:
    supervisor = _spawn_supervisor(layout.directory)
    launched = Launched(_make_record(order, layout, supervisor.pid), supervisor)
    try:
        write_record(launched.record)
        _wait_until_usable(order, launched)
    except BaseException:
        launched.end()
        raise
    return launched


def _spawn_supervisor(directory: Path) -> "subprocess.Popen[bytes]":
    # Isolated and without site-packages: it needs the standard library only, and starts at once.
    command = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(directory), str(os.getpid())]
    with (directory / "supervisor.log").open("wb") as log:
        return subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches this process, which ends the supervisor
        )


def _make_record(order: Order, layout: SandboxLayout, supervisor: int) -> Record:
    return Record(
        name=order.name,
        directory=str(layout.directory),
        server_port=layout.server_port,
        etcd_port=layout.etcd_port,
        etcd_peer_port=layout.etcd_peer_port,
        supervisor=describe_process(supervisor),
        since=now(),
        programs={
            name: ProgramRecord(str(binary.path), binary.version, binary.source)
            for name, binary in order.binaries.by_name.items()
        },
    )


def _wait_until_usable(order: Order, launched: Launched) -> None:
    client = AdminClient(launched.record.layout)
    try:
        _wait_for(client.is_ready, launched)
        if order.components > ALWAYS:
            launched.send("rest")
            _wait_for(lambda: launched.record.read_pids().keys() >= order.components, launched)
        if Component.CONTROLLER_MANAGER in order.components:
            _wait_for(lambda: has_service_account(client, "default"), launched)
    finally:
        client.close()


def has_service_account(client: AdminClient, namespace: str) -> bool:
    """Whether pods can be created: they need the service account named default."""
    try:
        client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except SandboxApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def _wait_for(is_reached: Callable[[], bool], launched: Launched) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_reached():
        if launched.supervisor.poll() is not None:
            raise StartError(_explain_failure(launched.record))
        if time.monotonic() > deadline:
            raise StartError(f"the control plane was not ready after {_START_SECONDS:.0f} s")
        time.sleep(_INTERVAL)


def _explain_failure(record: Record) -> str:
    failure = record.read_failure()
    component = "supervisor" if failure is None else failure.component
    status = "" if failure is None else f" with status {failure.status}"
    log = record.layout.directory / f"{component}.log"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
    return f"{component} ended{status}; the end of its log:\n{tail}"


@contextmanager
def hold_ports(count: int) -> Iterator[list[int]]:
    """Hold free loopback ports while the block runs.

    Binding to port 0 and closing would leave a gap in which another process can take the port. Here
    the sockets stay bound with SO_REUSEPORT, but do not listen; the components bind to the same
    ports in the same way, which the kernel allows to processes of one user. A bound socket that
    does not listen gets no connections.
    """
    with ExitStack() as stack:
        held = [stack.enter_context(_bind()) for _ in range(count)]
        yield [port.getsockname()[1] for port in held]


def _bind() -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held
