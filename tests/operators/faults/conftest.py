"""Two replicas of the operators behind a proxy that misbehaves on demand."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.operators.conftest import LEASE, Cluster, Operators, delete_lease, read_lease
from tests.support.fault_proxy import FaultProxy, ProxyThread, open_fault_proxy
from typing_extensions import override

from koord.kube.config import find_credentials
from koord.sandbox import Component, Sandbox

PATIENCE_SECONDS = 90.0


class Replica(Operators):
    """One of two processes that reach the API server through the proxy."""

    def __init__(self, box: Sandbox, directory: Path, server: str) -> None:
        directory.mkdir()
        shipped = box.kubeconfig_for("koord-system", "koord-operators").read_text()
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(shipped.replace(box.server, server))
        super().__init__(box, directory, kubeconfig)
        self._from = 0

    @override
    def start(self) -> None:
        self._from = self.log.stat().st_size if self.log.exists() else 0
        super().start()

    def said(self) -> str:
        """Return what it has logged since it was started last."""
        with self.log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode()

    @property
    def is_synced(self) -> bool:
        return " synced " in self.said()

    @property
    def leads(self) -> bool:
        """Whether the lease says so."""
        holder = read_lease(self._box).get("holderIdentity", "")
        return bool(holder) and f"identity={holder}" in self.said()


class Pair:
    """Two replicas, the proxy in front of the API server, and the cluster behind it."""

    def __init__(
        self, box: Sandbox, cluster: Cluster, replicas: list[Replica], thread: ProxyThread
    ) -> None:
        self._box = box
        self.cluster = cluster
        self.replicas = replicas
        self.thread = thread

    def find_leader(self) -> tuple[Replica, Replica]:
        """Return the one that leads, and the other one, once both are there."""
        self.wait_for(lambda: all(one.is_synced for one in self.replicas), "both follow")
        self.wait_for(lambda: any(one.leads for one in self.replicas), "one leads")
        first, second = self.replicas
        return (first, second) if first.leads else (second, first)

    def free_lease(self) -> None:
        """Let the other one lead at once, as if the Lease had been handed back."""
        self.cluster.box.client.patch(LEASE, {"spec": {"holderIdentity": ""}})

    def restart(self, component: Component) -> None:
        """Kill a part of the control plane and start it again."""
        self._box.restart(component)

    def leave_it_tidy(self) -> None:
        """Heal everything, also what takes a connection of its own to notice."""
        self.thread.do(FaultProxy.heal)
        self.thread.do(FaultProxy.drop_streams)

    def keep_running(self) -> None:
        """Start again what has ended, as a kubelet does."""
        for one in self.replicas:
            if not one.is_running():
                one.start()

    def wait_for(self, is_true: Callable[[], bool], what: str) -> float:
        """Wait until something holds; return how long it took."""
        began = time.monotonic()
        while not is_true():
            if time.monotonic() > began + PATIENCE_SECONDS:
                logs = (one.log.read_text()[-3000:] for one in self.replicas)
                raise AssertionError("\n\n".join([f"not seen: {what}", *logs]))
            time.sleep(0.05)
        return time.monotonic() - began


@pytest.fixture
def pair(quiet_cluster: Cluster, operators_box: Sandbox, tmp_path: Path) -> Iterator[Pair]:
    """Two replicas at work, with a follower that is ready."""
    credentials = find_credentials(
        str(operators_box.kubeconfig_for("koord-system", "koord-operators"))
    )
    with ExitStack() as stack:
        thread = stack.enter_context(open_fault_proxy(credentials))
        # Those after us need not wait until it is over.
        stack.callback(delete_lease, operators_box)
        replicas = [
            Replica(operators_box, tmp_path / name, thread.proxy.server)
            for name in ("first", "second")
        ]
        for one in replicas:
            stack.callback(one.end)
            one.start()
        pair = Pair(operators_box, quiet_cluster, replicas, thread)
        pair.find_leader()
        yield pair
