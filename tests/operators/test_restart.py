"""After a restart at any write every gang is bound whole, and no pod twice."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.operators.conftest import Cluster
from tests.operators.judge import find_faults
from tests.support.plan_keys import make_keys
from typing_extensions import override

from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord.runtime.registry import OPERATORS
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts

MEMBERS = 3


class CrashingClient(Client):
    """Allows ``writes`` writes to pods, and hangs after the last one.

    With ``is_before`` the last write does not reach the server.
    """

    def __init__(self, cluster: Cluster, writes: int, *, is_before: bool) -> None:
        kubeconfig = cluster.box.kubeconfig_for("koord-system", "koord-operators")
        super().__init__(find_credentials(str(kubeconfig)))
        self.crashed = asyncio.Event()
        self._left = writes
        self._is_before = is_before

    @override
    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if method == "GET":
            return await super().request(method, path, **options)
        if self._left == 0:
            await asyncio.Event().wait()
        self._left -= 1
        is_last = self._left == 0
        if is_last and self._is_before:
            self.crashed.set()
            await asyncio.Event().wait()
        answer = await super().request(method, path, **options)
        if is_last:
            self.crashed.set()
            await asyncio.Event().wait()
        return answer


async def operate(client: CrashingClient) -> None:
    """Run the operators in this process, without Kopf, until they crash or nothing waits."""
    async with client:
        parts = Parts(client, Settings(), OPERATORS, keys=make_keys())
        assert parts.placement is not None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(parts.reader.run())]
            tasks += [group.create_task(run()) for run in parts.background]
            await parts.reader.wait_synced()
            tasks.append(group.create_task(parts.placement.run()))
            with suppress(TimeoutError):
                await asyncio.wait_for(ended(client, parts), 5.0)
            for task in tasks:
                task.cancel()
    await asyncio.sleep(0.1)  # broken TLS connections take a moment to close


async def ended(client: CrashingClient, parts: Parts) -> None:
    while not client.crashed.is_set():
        state = parts.reader.state
        if not state.assumed and not any(pod.is_plannable for pod in state.pods.values()):
            return
        await asyncio.sleep(0.05)


KINDS = {
    "gated": {},
    "ungated": {"gated": False},
    "pinned": {"scheduler": "default-scheduler"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_before", [False, True], ids=["after", "before"])
def test_restart_after_any_write(quiet_cluster: Cluster, kind: str, *, is_before: bool) -> None:
    cluster = quiet_cluster
    cluster.add_nodes(MEMBERS)
    most = MEMBERS if kind == "ungated" else 2 * MEMBERS
    for writes in range(1, most + 1):
        cluster.gang("a", MEMBERS, **KINDS[kind])
        asyncio.run(operate(CrashingClient(cluster, writes, is_before=is_before)))
        asyncio.run(operate(CrashingClient(cluster, 10_000, is_before=False)))
        cluster.expect_bound(*(f"a-{at}" for at in range(MEMBERS)))
        assert len(set(cluster.bound().values())) == MEMBERS, (kind, writes)
        assert find_faults(cluster) == []
        clear(cluster)


def test_operators_killed_while_gangs_arrive(cluster: Cluster) -> None:
    cluster.add_nodes(12)
    for at in range(6):
        cluster.gang(f"g{at}", 2)
        time.sleep(0.05 * at)
        cluster.operators.kill()
        cluster.operators.start()
    cluster.expect(lambda: len(cluster.bound()) == 12, "all gangs are bound")
    assert len(set(cluster.bound().values())) == 12


def test_operators_exit_with_zero_after_sigterm(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    cluster.gang("a", 2)
    cluster.expect_bound("a-0", "a-1")
    assert cluster.operators.stop() == 0
    cluster.operators.start()


def clear(cluster: Cluster) -> None:
    """Delete everything that the next round creates again."""
    for name in cluster.pods():
        cluster.delete_pod(name)
    cluster.expect(lambda: not cluster.pods(), "the pods are gone")
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{cluster.namespace}/podgroups/a"
    cluster.box.client.delete(path)
