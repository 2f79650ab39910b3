"""Two replicas of the operators behind a proxy that injects faults."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.operators.conftest import LEASE, Cluster, delete_lease
from tests.operators.replicas import Pair, Replica
from tests.support.fault_proxy import ProxyThread, open_fault_proxy

from koord.kube.config import find_credentials
from koord_sandbox import Component, Sandbox


class ProxiedPair(Pair[Replica]):
    """Two replicas behind one proxy, so that faults hit both."""

    def __init__(
        self, box: Sandbox, cluster: Cluster, replicas: list[Replica], thread: ProxyThread
    ) -> None:
        super().__init__(cluster, replicas)
        self._box = box
        self.thread = thread

    def free_lease(self) -> None:
        """Release the Lease, so that the other replica leads immediately."""
        self.cluster.box.client.patch(LEASE, {"spec": {"holderIdentity": ""}})

    def restart(self, component: Component) -> None:
        """Restart a component of the control plane."""
        self._box.restart(component)

    def keep_running(self) -> None:
        """Restart processes that have ended, as a kubelet does."""
        for one in self.replicas:
            if not one.is_running():
                one.start()


@pytest.fixture
def pair(quiet_cluster: Cluster, operators_box: Sandbox, tmp_path: Path) -> Iterator[ProxiedPair]:
    """Two running replicas, with a synced follower."""
    credentials = find_credentials(
        str(operators_box.kubeconfig_for("koord-system", "koord-operators"))
    )
    with ExitStack() as stack:
        thread = stack.enter_context(open_fault_proxy(credentials))
        # Later tests must not wait until it expires.
        stack.callback(delete_lease, operators_box)
        replicas = [
            Replica(operators_box, tmp_path / name, thread.proxy.server)
            for name in ("first", "second")
        ]
        for one in replicas:
            stack.callback(one.end)
            one.start()
        pair = ProxiedPair(operators_box, quiet_cluster, replicas, thread)
        pair.find_leader()
        yield pair
