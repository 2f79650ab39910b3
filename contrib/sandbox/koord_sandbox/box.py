"""The sandbox as its users see it: a control plane to start, to use and to stop."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from koord_sandbox.audit import AuditedWrite, read_writes
from koord_sandbox.binaries import KUBECTL, find_binaries
from koord_sandbox.build import ConsoleReporter, Reporter
from koord_sandbox.client import AdminClient, wait_until_served
from koord_sandbox.components import ALWAYS, Component
from koord_sandbox.credentials import write_token_kubeconfig
from koord_sandbox.errors import KubectlError
from koord_sandbox.launch import (
    Order,
    describe_cluster,
    has_service_account,
    launch,
    make_name,
)
from koord_sandbox.nodes import add_nodes, load_shape
from koord_sandbox.record import Record, read_running_record, remove

_TOKEN_LIFETIME = 24 * 3600  # seconds
_INTERVAL = 0.02
_CRD_PREFIX = "customresourcedefinition.apiextensions.k8s.io/"


class ControlPlane:
    """A running control plane, whoever started it."""

    def __init__(self, record: Record, end: Callable[[], None]) -> None:
        layout = record.layout
        self.record = record
        self.name: str = record.name
        self.directory: Path = layout.directory
        self.server: str = layout.server
        self.ca_file: Path = Path(layout.pki("ca.crt"))
        self.kubeconfig: Path = layout.kubeconfig("admin")
        self.audit_log: Path = layout.audit_log
        self.client = AdminClient(layout)
        self._end = end
        self._kubectl = [
            record.programs[KUBECTL].path,
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.directory / 'cache'}",
        ]

    @classmethod
    def open(cls, name: str) -> "ControlPlane":
        """Return a running sandbox; raise `UnknownSandboxError` if there is none of that name."""
        record = read_running_record(name)
        return ControlPlane(record, record.supervisor.end)

    def stop(self) -> None:
        self.client.close()
        self._end()
        remove(self.directory)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; return its output, raise `KubectlError`."""
        done = subprocess.run(
            [*self._kubectl, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            # Not the home of the user, whose own configuration must not count.
            env={**os.environ, "HOME": str(self.directory)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, path: Path | str, *, server_side: bool = True) -> None:
        """Apply a manifest, or a directory of them, and wait until new kinds are served."""
        # The files are the source of truth: they win over other field managers.
        mode = ["--server-side", "--force-conflicts"] if server_side else []
        output = self.kubectl("apply", "--recursive", f"--filename={path}", "--output=name", *mode)
        for name in output.split():
            if name.startswith(_CRD_PREFIX):
                wait_until_served(self.client, name.removeprefix(_CRD_PREFIX))

    def add_nodes(self, count: int, shape: str) -> list[str]:
        return add_nodes(self.client, count, load_shape(shape))

    def create_namespace(self, name: str) -> None:
        """Create a namespace and return when pods can be created in it."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.client.create("/api/v1/namespaces", manifest)
        if Component.CONTROLLER_MANAGER in self.record.programs:
            while not has_service_account(self.client, name):
                time.sleep(_INTERVAL)

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """Write a kubeconfig that acts as an existing service account, for a day."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_LIFETIME},
        }
        token = self.client.create(path, request)["status"]["token"]
        # The first dot separates: a namespace's name has none.
        user = f"{namespace}.{service_account}"
        file = self.record.layout.kubeconfig(user)
        write_token_kubeconfig(file, describe_cluster(self.name, self.record.layout), user, token)
        return file

    def writes(self, user: str | None = None) -> list[AuditedWrite]:
        """Return the writes that the API server has answered so far, of one user or of all.

        A service account is the user `system:serviceaccount:NAMESPACE:NAME`.
        """
        return [write for write in read_writes(self.audit_log) if user in {None, write.user}]


class Sandbox(ControlPlane):
    """A new control plane, which ends with this process at the latest.

    As with `subprocess.Popen`, creating the object starts the processes; use it in a `with`
    statement, or call `stop`.

    Parameters
    ----------
    name
        Name for `koord sandbox`; generated by default.
    components
        What runs besides etcd and kube-apiserver, which always do; everything by default.
        Without kube-controller-manager, namespaces get no service account and pods need none.
    arguments
        Additional command line arguments by component; they override the sandbox's own.
    report
        Receives the steps when binaries have to be built first.
    kubernetes
        Minor version, such as 1.33; see `find_binaries`.

    Raises
    ------
    BinariesError
        When the binaries were not found and cannot be built.
    StartError
        When a component ended early, or nothing was ready in time.
    NameTakenError
        When there is a sandbox of that name.

    """

    def __init__(
        self,
        name: str | None = None,
        *,
        components: Iterable[Component] = tuple(Component),
        arguments: Mapping[Component, Sequence[str]] | None = None,
        report: Reporter | None = None,
        kubernetes: str | None = None,
    ) -> None:
        chosen = ALWAYS.union(components)
        binaries = find_binaries(chosen, report or ConsoleReporter(), kubernetes)
        order = Order(make_name() if name is None else name, chosen, binaries, arguments or {})
        self._launched = launch(order)
        super().__init__(self._launched.record, self._launched.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def restart(self, component: Component) -> None:
        """Kill a component and start it again; return when the API server is ready after it."""
        before = self.record.read_pids()[component]
        self._launched.send(f"restart:{component}")
        while self.record.read_pids()[component] == before:
            time.sleep(_INTERVAL)
        self.client.close()  # its connections may lead to the previous process
        while not self.client.is_ready():
            time.sleep(_INTERVAL)

    def detach(self) -> None:
        """Let it outlive this process; `koord sandbox down` stops it."""
        self._launched.detach()
