"""The election of a process, in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from koord.kube.client import Client
from koord.kube.config import Access, find_credentials
from koord.kube.election import Fence, LeadershipLost
from koord.runtime import election
from koord.runtime.election import LeaseThread, lease_name, make_elector
from koord.runtime.registry import OPERATORS
from koord_sandbox import Sandbox

LEASE = "/apis/coordination.k8s.io/v1/namespaces/koord-system/leases/koord-device"


@pytest.mark.parametrize(
    ("operators", "name"),
    [
        (OPERATORS, "koord-operators"),
        (frozenset(OPERATORS), "koord-operators"),
        (["placement"], "koord-placement"),
        (["device"], "koord-device"),
        (["podgroup", "placement"], "koord-placement-podgroup"),
        (["placement", "podgroup"], "koord-placement-podgroup"),
    ],
)
def test_lease_name_follows_from_the_operators(operators: Any, name: str) -> None:
    assert lease_name(operators) == name


@pytest.mark.parametrize(
    ("access", "key"),
    [
        (Access("https://x", namespace="mine", in_pod=True), "mine/koord-device"),
        # Two contexts of one cluster must not lead to two leaders.
        (Access("https://x", namespace="mine"), "koord-system/koord-device"),
    ],
)
async def test_lease_is_in_the_namespace_of_the_process(access: Access, key: str) -> None:
    client = Client(find_credentials())
    first = make_elector(client, access, ["device"], Fence())
    second = make_elector(client, access, ["device"], Fence())
    assert first.key == key
    assert first.election.identity != second.election.identity


class Process:
    """A process with a thread; ``fence`` is that of its writers."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.fence = Fence()
        credentials = find_credentials(str(sandbox.kubeconfig))
        self.thread = LeaseThread(credentials, ["device"], self.fence)

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[None]:
        async with self.thread.run():
            self.thread.stand()
            await asyncio.wait_for(self.thread.leading.wait(), 20)
            yield


@pytest.fixture
async def process(sandbox: Sandbox) -> Process:
    if "koord-system" not in sandbox.kubectl("get", "namespaces", "-o", "name"):
        sandbox.create_namespace("koord-system")
    sandbox.kubectl("delete", "lease", "-n", "koord-system", "koord-device", "--ignore-not-found")
    return Process(sandbox)


async def test_lease_is_held_and_released(sandbox: Sandbox, process: Process) -> None:
    async with process.lead():
        assert process.fence.is_open
        holder = sandbox.client.get(LEASE)["spec"]["holderIdentity"]
        assert holder == process.thread.elector.election.identity
        await process.thread.release()
        assert not process.fence.is_open
    assert not sandbox.client.get(LEASE)["spec"]["holderIdentity"]
    assert "lease" not in {thread.name for thread in threading.enumerate()}


def steal(sandbox: Sandbox) -> None:
    sandbox.client.patch(LEASE, {"spec": {"holderIdentity": "another"}})


async def test_main_loop_hears_of_lost_leadership(sandbox: Sandbox, process: Process) -> None:
    async with process.lead():
        steal(sandbox)
        with pytest.raises(LeadershipLost, match="is held by another"):
            await asyncio.wait_for(process.thread.wait_failed(), 20)
        assert not process.fence.is_open


async def test_process_without_leadership_ends_although_its_main_loop_is_blocked(
    sandbox: Sandbox,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended, codes = threading.Event(), []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(election, "END_SECONDS", 0.2)
    async with process.lead():
        steal(sandbox)
        assert ended.wait(20), "this blocks the main loop"
        assert not process.fence.is_open
        with pytest.raises(LeadershipLost):
            await process.thread.wait_failed()
    assert codes == [election.EXIT_LOST]
    assert "did not end the process" in caplog.text
    (record,) = (one for one in caplog.records if one.levelname == "CRITICAL")
    assert "ended.wait(20)" in vars(record)["stack"], "it says where"
