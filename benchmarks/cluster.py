"""The cluster of all measurements: one sandbox, tuned for them.

Only etcd and kube-apiserver run. kwok, in place of kubelets, would write the status of every
bound pod with the measured processors and hide part of the differences; a controller manager would
read every object. Scenarios that need them start them.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.creator import Order
from benchmarks.holders import read_holders
from benchmarks.objects import (
    BACKFILL,
    NAMESPACE,
    QUEUE,
    QUOTAS_PATH,
    RESIDENTS,
    ROOT_QUOTA,
    TOPOLOGIES_PATH,
    groups_path,
    make_namespace,
    make_quotas,
    make_topology,
    pods_path,
)
from benchmarks.pace import Pace
from benchmarks.processes import ROOT, run_module
from benchmarks.usage import read_busy_seconds, read_cpu_seconds
from koord_sandbox import AuditedWrite, Component, Sandbox
from koord_sandbox.binaries import find_binaries
from koord_sandbox.build import ConsoleReporter
from koord_sandbox.components import make_command
from koord_sandbox.errors import SandboxApiError
from koord_sandbox.node_reports import DEVICES, report_devices

SHAPE: Final = "a100x8"
SERVICE_ACCOUNT: Final = ("koord-system", "koord-operators")
RESIDENT_REQUESTS: Final = {"cpu": "500m", "memory": "512Mi"}

_IDLE: Final = 0.15
"""Below this number of processors, the API server and etcd count as idle."""
_IDLE_PATIENCE: Final = 30.0
_LOOK_SECONDS: Final = 0.5
_COLLECT_GARBAGE: Final = "/debug/pprof/heap?gc=1&debug=1"
_EXTRA: Final = (Component.SCHEDULER, Component.KWOK)


class Cluster:
    """A running sandbox with our CRDs and roles, and its contents."""

    def __init__(self, box: Sandbox, pace: Pace) -> None:
        self.box = box
        self.pace = pace
        self.kubeconfig = box.kubeconfig_for(*SERVICE_ACCOUNT)
        self.nodes: list[str] = []
        self.residents = 0
        self._has_quotas = False
        pids = box.record.read_pids()
        self._servers = [pids[Component.APISERVER], pids[Component.ETCD]]
        self._binaries = find_binaries([Component.APISERVER, *_EXTRA], ConsoleReporter())
        for name in (NAMESPACE, RESIDENTS):
            box.client.create("/api/v1/namespaces", make_namespace(name))

    def furnish(self, nodes: int, residents: int) -> None:
        """Create or delete nodes, and pods on them, up to these numbers."""
        if (len(self.nodes), self.residents) == (nodes, residents):
            return
        self.clear(RESIDENTS)
        if len(self.nodes) != nodes:
            self.box.client.delete("/api/v1/nodes")
            self.nodes = self.box.add_nodes(nodes, SHAPE)
        self.residents = residents
        if residents:
            self.create(self._order_residents())

    def have_quotas(self, *, are_there: bool, have_queues: bool) -> None:
        """Create or delete the tree of quotas; the settings of a queue at its root hold for all."""
        if are_there is not self._has_quotas:
            self._has_quotas = are_there
            if are_there:
                for quota in make_quotas():
                    self.box.client.create(QUOTAS_PATH, quota)
            else:
                self.box.client.delete(QUOTAS_PATH)
        if are_there:
            settings = {"metadata": {"annotations": {QUEUE: BACKFILL if have_queues else None}}}
            self.box.client.patch(f"{QUOTAS_PATH}/{ROOT_QUOTA}", settings)

    def create(self, order: Order) -> None:
        """Create pods; return when all exist."""
        run_module("benchmarks.creator", self.write_order("creator", order))

    def write_order(self, name: str, order: msgspec.Struct) -> Path:
        path = self.box.directory / f"{name}.json"
        path.write_bytes(msgspec.json.encode(order))
        return path

    def clear(self, namespace: str = NAMESPACE) -> None:
        """Delete all pods, PodGroups and events of a namespace; return when they are gone."""
        events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        for path in (pods_path(namespace), groups_path(namespace), events):
            while not self._is_empty(path):
                # A large collection is not deleted completely by one request.
                with suppress(SandboxApiError, TimeoutError):
                    self.box.client.delete(f"{path}?gracePeriodSeconds=0")

    def rest(self) -> float:
        """Wait until the API server is idle; return how many processors others use meanwhile.

        It looks for garbage first: that takes it a second of processor time, every other burst or
        so, and whoever was measured then had a third less of it.
        """
        self.box.kubectl("get", "--raw", _COLLECT_GARBAGE)
        deadline = time.monotonic() + _IDLE_PATIENCE
        while True:
            busy, own, began = read_busy_seconds(), self._read_own(), time.monotonic()
            time.sleep(_LOOK_SECONDS)
            passed = time.monotonic() - began
            own = (self._read_own() - own) / passed
            if own < _IDLE or time.monotonic() > deadline:
                return max(0.0, (read_busy_seconds() - busy) / passed - own)

    def forget_writes(self) -> None:
        """Start a new section of the audit log; the API server appends to the file."""
        os.truncate(self.box.audit_log, 0)

    def read_writes(self) -> list[AuditedWrite]:
        """Return the writes since then, without renewals of leases."""
        return [one for one in self.box.writes() if one.resource != "leases"]

    def command_of(self, component: Component, arguments: Sequence[str] = ()) -> list[str]:
        """Return the command line of a component that the sandbox does not start."""
        layout, path = self.box.record.layout, self._binaries.path(component)
        return [*make_command(component, path, layout, ()), *arguments]

    @contextmanager
    def kubelets(self) -> Iterator[None]:
        """Let bound pods run while the context lasts."""
        with (self.box.directory / "kubelets.log").open("ab") as log:
            process = subprocess.Popen(self.command_of(Component.KWOK), stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    @contextmanager
    def devices(self) -> Iterator[None]:
        """Let the nodes report their devices while the context lasts."""
        report_devices(self.box.client)
        try:
            yield
        finally:
            self.box.client.delete(DEVICES)

    def check_holders(self) -> None:
        """Fail if a device, or a part of one, is held twice."""
        client = self.box.client
        read_holders(client.get(DEVICES)["items"], client.get("/api/v1/pods")["items"])

    @contextmanager
    def topology(self) -> Iterator[None]:
        """Install the network topology of the nodes while the context lasts."""
        body = make_topology()
        self.box.client.create(TOPOLOGIES_PATH, body)
        try:
            yield
        finally:
            self.box.client.delete(f"{TOPOLOGIES_PATH}/{body['metadata']['name']}")

    def _is_empty(self, path: str) -> bool:
        items: list[Any] = self.box.client.get(f"{path}?limit=1")["items"]
        return not items

    def _read_own(self) -> float:
        return sum(map(read_cpu_seconds, self._servers))

    def _order_residents(self) -> Order:
        return Order(
            kubeconfig=str(self.box.kubeconfig),
            namespace=RESIDENTS,
            groups=self.residents,
            size=1,
            requests=RESIDENT_REQUESTS,
            scheduler="default-scheduler",
            nodes=tuple(self.nodes),
        )


@contextmanager
def open_cluster() -> Iterator[Cluster]:
    """Start the sandbox; stop it at the end."""
    with Sandbox(components=(), arguments=_ARGUMENTS) as box, Pace(box.directory) as pace:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(ROOT / "manifests" / "base"))
        yield Cluster(box, pace)


_ARGUMENTS: Mapping[Component, Sequence[str]] = {
    # For the cleanup between scenarios: by default pods are deleted one by one.
    Component.APISERVER: ["--delete-collection-workers=8"],
}
