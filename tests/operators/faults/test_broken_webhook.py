"""All writes to pods of one namespace fail, as with a broken admission webhook."""

import time
from collections.abc import Iterator

import pytest
from aiohttp import web
from tests.operators.conftest import Cluster, Operators, open_cluster
from tests.operators.faults.conftest import ProxiedPair
from tests.operators.judge import count_bindings, find_faults
from tests.support.fault_proxy import Do, FaultProxy
from typer.testing import CliRunner

from koord.cli.main import app
from koord_sandbox import Sandbox

NODES = 38
MEMBERS = 256
"""The maximum of pods in flight."""
SINGLES = 44
WEBHOOK = 'Internal error occurred: failed calling webhook "broken.example"'


@pytest.fixture
def neighbour(operators_box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    """Another namespace."""
    with open_cluster(operators_box, operators) as view:
        yield view


def break_webhook(pair: ProxiedPair) -> None:
    path = f"/api/v1/namespaces/{pair.cluster.namespace}/pods/"

    def is_admitted(request: web.Request) -> bool:
        is_write = request.method != "GET" and request.path.startswith(path)
        return is_write and not request.path.endswith("/status")

    how = {"times": 1 << 30, "status": 500, "reason": "InternalError", "message": WEBHOOK}
    pair.thread.do(lambda proxy: proxy.plan(is_admitted, Do.ANSWER, **how))


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_broken_webhook_blocks_only_its_own_namespace(
    pair: ProxiedPair, neighbour: Cluster
) -> None:
    stuck = pair.cluster
    stuck.add_nodes(NODES)
    neighbour.add_nodes(2)
    break_webhook(pair)
    stuck.gang("big", MEMBERS, gpus=1)
    for at in range(SINGLES):
        stuck.pod(f"single-{at}", gpus=1)
    neighbour.gang("good", 2)
    pair.expect(lambda: len(neighbour.bound()) == 2, "others are placed")

    def reasons() -> set[str]:
        said = (stuck.condition(pod, "operators.koordinator.sh/Placed") for pod in pods())
        return {reason for _, reason, _ in said}

    def pods() -> list[dict]:
        return list(stuck.pods().values())

    pair.expect(lambda: reasons() == {"BindFailed"}, "every pod says BindFailed")
    pair.expect(lambda: stuck.group_reason("big") == "BindFailed", "so does the PodGroup")
    assert WEBHOOK in stuck.group_message("big")
    assert stuck.group_reason("big", "Bound") == "BindFailed"
    assert stuck.bound() == {}
    asked = CliRunner().invoke(
        app, ["explain", f"pg/{stuck.namespace}/big", f"--kubeconfig={stuck.box.kubeconfig}"]
    )
    assert f"PodGroup {stuck.namespace}/big HeldUp" in asked.stdout
    assert WEBHOOK in asked.stdout

    before = len(pair.thread.proxy.seen)
    time.sleep(3.0)
    assert len(pair.thread.proxy.seen) - before < 3 * 100, "failed writes are retried with back-off"

    pair.thread.do(FaultProxy.heal)
    pair.expect(lambda: len(stuck.bound()) == MEMBERS + SINGLES, "all are bound")
    pair.expect(lambda: reasons() == {"Planned"}, "every pod says Planned")
    pair.expect(lambda: stuck.group_reason("big") == "Planned", "so does the PodGroup")
    assert find_faults(stuck) + find_faults(neighbour) == []
    assert set(count_bindings(stuck).values()) == {1}
