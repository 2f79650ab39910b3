"""Two replicas of the operators behind a proxy that misbehaves on demand."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.operators.conftest import LEASE, Cluster, delete_lease
from tests.operators.replicas import Pair, Replica
from tests.support.fault_proxy import ProxyThread, open_fault_proxy

from koord.kube.config import find_credentials
from koord.sandbox import Component, Sandbox


class ProxiedPair(Pair[Replica]):
    """Both behind one proxy, so that no fault spares either of them."""

    def __init__(
        self, box: Sandbox, cluster: Cluster, replicas: list[Replica], thread: ProxyThread
    ) -> None:
        super().__init__(cluster, replicas)
        self._box = box
        self.thread = thread

    def free_lease(self) -> None:
        """Let the other one lead at once, as if the Lease had been handed back."""
        self.cluster.box.client.patch(LEASE, {"spec": {"holderIdentity": ""}})

    def restart(self, component: Component) -> None:
        """Kill a part of the control plane and start it again."""
        self._box.restart(component)

    def keep_running(self) -> None:
        """Start again what has ended, as a kubelet does."""
        for one in self.replicas:
            if not one.is_running():
                one.start()


@pytest.fixture
def pair(quiet_cluster: Cluster, operators_box: Sandbox, tmp_path: Path) -> Iterator[ProxiedPair]:
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
        pair = ProxiedPair(operators_box, quiet_cluster, replicas, thread)
        pair.find_leader()
        yield pair
