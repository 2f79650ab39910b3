"""The election over a real Lease, and the fence before every write."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
from tests.kube.conftest import until
from tests.support.fault_proxy import Do, FaultProxy, is_method

from koord.kube.client import Client, Media
from koord.kube.config import find_credentials
from koord.kube.election import (
    DEADLINE_SECONDS,
    LEASE_SECONDS,
    Fence,
    FenceClosed,
    LeadershipLost,
    read_clock,
)
from koord.kube.errors import NotFound
from koord.kube.lease import Elector, NoNamespace
from koord_sandbox import Sandbox

POD = "/api/v1/namespaces/default/pods/none"


class Clock:
    """Real time plus an offset, or a fixed time."""

    def __init__(self) -> None:
        self.added = 0.0
        self.stands_at: float | None = None

    def __call__(self) -> float:
        return time.monotonic() + self.added if self.stands_at is None else self.stands_at


class Runner:
    """One process; its elector runs while the context is open."""

    def __init__(self, client: Client, namespace: str, identity: str) -> None:
        self.clock = Clock()
        self.fence = Fence(self.clock)
        self.elector = Elector(client, namespace, "koord-test", identity, self.fence)
        self.lost: LeadershipLost | None = None

    async def run(self) -> None:
        try:
            await self.elector.run()
        except LeadershipLost as lost:
            self.lost = lost

    @property
    def leads(self) -> bool:
        return self.elector.leading.is_set() and self.lost is None


@asynccontextmanager
async def running(
    client: Client,
    namespace: str,
    identity: str,
    *,
    stands: bool = True,
    stands_still: bool = False,
) -> AsyncIterator[Runner]:
    """Run one elector; ``stands_still`` freezes its clock, so that no lease expires for it."""
    runner = Runner(client, namespace, identity)
    runner.clock.stands_at = 100.0 if stands_still else None
    if stands:
        runner.elector.stand()
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def read(client: Client, namespace: str) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/koord-test"
    return await client.get(path, dict)


async def change(client: Client, namespace: str, patch: dict[str, Any]) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/koord-test"
    await client.patch(path, patch, Media.MERGE_PATCH)


async def test_free_lease_is_acquired_immediately(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one", stands_still=True) as one:
        await until(lambda: one.leads)
        lease = await read(client, namespace)
        assert one.fence.is_open
    assert lease["spec"]["holderIdentity"] == "one"
    assert lease["spec"]["leaseDurationSeconds"] == LEASE_SECONDS
    assert lease["spec"]["leaseTransitions"] == 0


async def test_process_that_is_not_a_candidate_only_reads_the_lease(
    client: Client, namespace: str
) -> None:
    async with running(client, namespace, "one", stands=False) as one:
        await until(lambda: one.elector.has_looked)
        with pytest.raises(NotFound):
            await read(client, namespace)
        one.elector.stand()
        await until(lambda: one.leads)


async def test_lease_is_renewed_and_observed(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        first = await read(client, namespace)
        async with running(client, namespace, "two") as two:
            await until(lambda: two.elector.election.holder == "one")
            await until(lambda: one.elector.election.lease.spec.renew_time > _renewed(first))
            assert not two.leads
            assert not two.fence.is_open
        lease = await read(client, namespace)
    assert lease["spec"]["acquireTime"] == first["spec"]["acquireTime"]


def _renewed(lease: dict[str, Any]) -> str:
    return lease["spec"]["renewTime"]


async def test_released_lease_is_taken_over(client: Client, namespace: str) -> None:
    async with running(client, namespace, "two", stands=False, stands_still=True) as two:
        async with running(client, namespace, "one") as one:
            await until(lambda: one.leads)
            two.elector.stand()
            await until(lambda: two.elector.election.holder == "one")
        assert not two.leads
        await one.elector.release()
        assert not one.fence.is_open
        await until(lambda: two.leads)
        assert (await read(client, namespace))["spec"]["leaseTransitions"] == 1


async def test_follower_releases_nothing(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        follower = Runner(client, namespace, "two")
        await follower.elector.release()
        assert (await read(client, namespace))["spec"]["holderIdentity"] == "one"


async def test_lease_of_a_dead_leader_expires(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
    async with running(client, namespace, "two") as two:
        await until(lambda: two.elector.election.holder == "one")
        two.clock.added = LEASE_SECONDS - 2.0
        assert not two.leads
        two.clock.added = LEASE_SECONDS
        await until(lambda: two.leads)
    assert (await read(client, namespace))["spec"]["leaseTransitions"] == 1


async def test_only_one_of_many_is_elected(client: Client, namespace: str) -> None:
    async with (
        running(client, namespace, "one") as one,
        running(client, namespace, "two") as two,
        running(client, namespace, "three") as three,
    ):
        all_of_them = (one, two, three)
        await until(lambda: all(each.elector.election.holder for each in all_of_them))
        assert sum(each.leads for each in all_of_them) == 1


async def test_fields_of_others_on_the_lease_are_kept(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        await change(client, namespace, {"metadata": {"annotations": {"team": "blue"}}})
        before = (await read(client, namespace))["spec"]["renewTime"]
        await until(lambda: one.elector.election.lease.spec.renew_time > before)
        lease = await read(client, namespace)
        assert one.leads
    assert lease["metadata"]["annotations"]["team"] == "blue"


async def test_deleted_lease_is_recreated(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        uid = (await read(client, namespace))["metadata"]["uid"]
        await client.delete(
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/koord-test"
        )
        await until(lambda: _uid_of(one) not in {"", uid})
        assert one.leads


def _uid_of(runner: Runner) -> str:
    lease = runner.elector.election.lease
    return lease.metadata["uid"] if lease else ""


@pytest.mark.parametrize("holder", ["other", ""])
async def test_leader_that_is_not_the_holder_loses_leadership(
    client: Client, namespace: str, holder: str
) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        await change(client, namespace, {"spec": {"holderIdentity": holder}})
        await until(lambda: one.lost is not None)
    assert f"held by {holder or 'nobody'}" in str(one.lost)
    assert not one.fence.is_open


async def test_long_pause_closes_the_fence_until_a_renewal(client: Client, namespace: str) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        one.clock.added = 6 * LEASE_SECONDS
        assert not one.fence.is_open
        with pytest.raises(FenceClosed):
            one.fence.check()
        await until(lambda: one.fence.is_open)
        assert one.leads
        lease = await read(client, namespace)
    assert lease["spec"]["leaseTransitions"] == 0


async def test_leader_paused_while_another_led_loses_leadership(
    client: Client, namespace: str
) -> None:
    async with running(client, namespace, "one") as one:
        await until(lambda: one.leads)
        one.clock.added = 6 * LEASE_SECONDS
        await change(client, namespace, {"spec": {"holderIdentity": "two"}})
        await until(lambda: one.lost is not None)
        assert "held by two" in str(one.lost)
        assert not one.fence.is_open


@pytest.fixture
async def proxy(sandbox: Sandbox) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(find_credentials(str(sandbox.kubeconfig))) as proxy:
        yield proxy


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_claim_with_a_lost_response_is_repeated(
    proxy: FaultProxy, client: Client, namespace: str, method: str
) -> None:
    if method == "PUT":
        async with running(client, namespace, "before") as before:
            await until(lambda: before.leads)
        await before.elector.release()
    fault = proxy.plan(is_method(method), Do.LOSE_REPLY)
    async with Client(proxy.credentials) as through, running(through, namespace, "one") as one:
        await until(lambda: one.leads)
    assert fault.times == 0, "the reply was lost"


async def test_renewals_may_fail_for_a_while(proxy: FaultProxy, namespace: str) -> None:
    async with Client(proxy.credentials) as through, running(through, namespace, "one") as one:
        await until(lambda: one.leads)
        fault = proxy.plan(is_method("PUT"), Do.ANSWER, times=2, status=503)
        renewed = one.elector.election.lease.spec.renew_time
        await until(lambda: fault.times == 0)
        await until(lambda: one.elector.election.lease.spec.renew_time > renewed)
        assert one.leads


async def test_renewals_with_lost_responses_keep_the_leadership(
    proxy: FaultProxy, namespace: str
) -> None:
    async with Client(proxy.credentials) as through, running(through, namespace, "one") as one:
        await until(lambda: one.leads)
        proxy.plan(is_method("PUT"), Do.LOSE_REPLY, times=100)
        granted = one.elector.election.renewed_at
        await until(lambda: one.elector.election.renewed_at > granted)
        until_then = one.elector.election.deadline
        one.clock.stands_at = until_then - 0.1
        assert one.fence.is_open


async def test_renewals_failing_for_too_long_only_close_the_fence(
    proxy: FaultProxy, namespace: str
) -> None:
    async with Client(proxy.credentials) as through, running(through, namespace, "one") as one:
        await until(lambda: one.leads)
        fault = proxy.plan(is_method("PUT"), Do.DROP, times=100)
        await until(lambda: len([seen for seen in proxy.seen if seen.method == "PUT"]) > 1)
        one.clock.added = DEADLINE_SECONDS
        assert not one.fence.is_open
        fault.times = 0
        await until(lambda: one.fence.is_open)
        assert one.lost is None


async def test_late_response_does_not_elect(proxy: FaultProxy, namespace: str) -> None:
    proxy.plan(is_method("POST"), Do.DELAY, seconds=1.0)
    async with Client(proxy.credentials) as through, running(through, namespace, "one") as one:
        await until(lambda: any(seen.method == "POST" for seen in proxy.seen))
        one.clock.added = DEADLINE_SECONDS
        await until(lambda: one.elector.election.renewed_at is not None)
        assert not one.elector.leading.is_set()
        assert not one.fence.is_open
        await until(lambda: one.leads)
        assert one.fence.is_open


def fenced(proxy: FaultProxy, fence: Fence) -> AbstractAsyncContextManager[Client]:
    return Client(proxy.credentials, permit=fence.check)


WRITES = {
    "post": lambda client: client.post(f"{POD}/binding", {}),
    "patch": lambda client: client.patch(POD, {}, Media.MERGE_PATCH),
    "put": lambda client: client.put(POD, {}),
    "delete": lambda client: client.delete(POD),
}


@pytest.mark.parametrize("write", WRITES)
async def test_closed_fence_blocks_writes(proxy: FaultProxy, write: str) -> None:
    fence = Fence()
    async with fenced(proxy, fence) as client:
        with pytest.raises(FenceClosed):
            await WRITES[write](client)
        assert proxy.seen == []
        with pytest.raises(NotFound):
            await client.get(POD, dict)
        with pytest.raises(FenceClosed):
            await WRITES[write](client)
        assert [seen.method for seen in proxy.seen] == ["GET"]


async def test_open_fence_allows_writes(proxy: FaultProxy) -> None:
    fence = Fence()
    fence.open_until(read_clock() + 60.0)
    async with fenced(proxy, fence) as client:
        with pytest.raises(NotFound):
            await client.delete(POD)
        fence.close()
        with pytest.raises(FenceClosed):
            await client.delete(POD)


async def test_fence_is_checked_once_the_connection_is_open(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a connection may take long, so a check before it is not enough."""
    monkeypatch.setattr("koord.kube.pool.MAX_CONNECTIONS", 1)
    proxy.plan(is_method("GET"), Do.DELAY, seconds=0.5)
    fence = Fence()
    fence.open_until(read_clock() + 60.0)
    async with fenced(proxy, fence) as client:
        read = asyncio.create_task(client.list("/api/v1/namespaces"))
        await asyncio.sleep(0.1)
        write = asyncio.create_task(client.delete(POD))
        await asyncio.sleep(0.1)
        assert not write.done()
        fence.close()
        await read
        with pytest.raises(FenceClosed):
            await write
    assert [seen.method for seen in proxy.seen] == ["GET"]


async def test_kernel_drops_late_writes(sandbox: Sandbox, monkeypatch) -> None:
    made = []
    real = socket.socket

    def note(*arguments: Any, **keywords: Any) -> socket.socket:
        made.append(real(*arguments, **keywords))
        return made[-1]

    monkeypatch.setattr("koord.kube.streams.socket.socket", note)
    async with Client(find_credentials(str(sandbox.kubeconfig))) as client:
        await client.get("/version", dict)
        limits = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for one in made]
    assert limits
    assert all(0 < limit < (LEASE_SECONDS - DEADLINE_SECONDS) * 1000 for limit in limits)


async def test_missing_namespace_is_an_error(sandbox: Sandbox) -> None:
    async with Client(find_credentials(str(sandbox.kubeconfig))) as client:
        elector = Elector(client, "nowhere", "koord-test", "one", Fence())
        elector.stand()
        with pytest.raises(NoNamespace, match="kubectl create namespace nowhere"):
            await asyncio.wait_for(elector.run(), 10.0)
