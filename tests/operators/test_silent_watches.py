"""Watches whose connections stay open although nothing arrives on them any more."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operators.conftest import Cluster, Operators, delete_lease
from tests.support.fault_proxy import FaultProxy, ProxyThread, open_fault_proxy

from koord.kube.config import find_credentials
from koord_sandbox import Sandbox


@pytest.fixture
def proxy(operators_box: Sandbox) -> Iterator[ProxyThread]:
    kubeconfig = operators_box.kubeconfig_for("koord-system", "koord-operators")
    with open_fault_proxy(find_credentials(str(kubeconfig))) as thread:
        yield thread


@pytest.fixture
def silenced(
    quiet_cluster: Cluster, operators_box: Sandbox, proxy: ProxyThread, tmp_path: Path
) -> Iterator[Operators]:
    """Operators behind a proxy, whose watches are short."""
    shipped = operators_box.kubeconfig_for("koord-system", "koord-operators").read_text()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(shipped.replace(operators_box.server, proxy.proxy.server))
    running = Operators(operators_box, tmp_path, kubeconfig, settings="watchTimeout: 3s\n")
    running.start()
    yield running
    running.end()
    delete_lease(operators_box)


def test_what_a_silent_watch_has_missed_is_seen_by_the_next_one(
    quiet_cluster: Cluster, proxy: ProxyThread, silenced: Operators
) -> None:
    """Of custom resources, too, which Kopf watches."""
    cluster = Cluster(quiet_cluster.box, silenced, quiet_cluster.namespace)
    quiet_cluster.add_nodes(1)
    cluster.pod("before", gpus=1)
    cluster.expect_bound("before")
    proxy.do(FaultProxy.silence_streams)
    cluster.gang("after", 2, gpus=1)
    cluster.expect_bound("after-0", "after-1")
    cluster.expect_group("after", "AllBound", "Bound")
    assert silenced.is_running()
