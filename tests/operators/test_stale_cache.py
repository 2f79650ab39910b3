"""Behaviour while the cache of the operators is known to be stale."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from tests.operators.conftest import Cluster
from tests.support.fault_proxy import Do, FaultProxy
from tests.support.plan_keys import make_keys

from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord.runtime.registry import OPERATORS
from koord.runtime.settings import Settings
from koord.runtime.wiring import Parts


def is_about_nodes(request: web.Request) -> bool:
    return request.path == "/api/v1/nodes"


@asynccontextmanager
async def operating(client: Client) -> AsyncIterator[Parts]:
    """Run the operators in this process, without Kopf."""
    parts = Parts(client, Settings(), OPERATORS, keys=make_keys())
    assert parts.placement is not None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(parts.reader.run())]
        tasks += [group.create_task(run()) for run in parts.background]
        await parts.reader.wait_synced()
        tasks.append(group.create_task(parts.placement.run()))
        yield parts
        for task in tasks:
            task.cancel()


async def test_nothing_is_placed_while_the_watch_of_nodes_is_broken(quiet_cluster: Cluster) -> None:
    cluster = quiet_cluster
    here = asyncio.to_thread
    await here(cluster.add_nodes, 1)
    credentials = find_credentials(
        str(cluster.box.kubeconfig_for("koord-system", "koord-operators"))
    )
    async with (
        FaultProxy(credentials) as proxy,
        Client(proxy.credentials) as client,
        operating(client) as parts,
    ):
        await here(cluster.pod, "before", gpus=1)
        await here(cluster.expect_bound, "before")
        gone = {"status": 410, "reason": "Expired"}
        fault = proxy.plan(is_about_nodes, Do.ANSWER, times=1000, **gone)
        proxy.drop_streams()
        await here(cluster.expect, lambda: parts.reader.unsynced() == ["nodes"], "it is noticed")
        await here(cluster.pod, "meanwhile", gpus=1)
        key = f"{cluster.namespace}/meanwhile"
        await here(cluster.expect, lambda: parts.reader.state.pod_by_key(key), "it is known")
        await asyncio.sleep(1.0)
        assert set(await here(cluster.bound)) == {"before"}
        fault.times = 0
        await here(cluster.expect_bound, "before", "meanwhile")
