"""Which definitions there are, and whether our scheduler name is free."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from koord.api.keys import operators
from koord.kube.client import Client, Media
from koord.kube.config import find_credentials
from koord.runtime import discovery
from koord.runtime.discovery import Definitions, NameGuard, NotInstalled, check_installed
from koord_sandbox import Sandbox
from koord_sandbox.errors import SandboxApiError

NAMESPACE = "koordinator-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(find_credentials(str(sandbox.kubeconfig))) as client:
        yield client


@pytest.fixture
def twin(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The Lease of Koordinator's scheduler, held, with a short watch time."""
    monkeypatch.setattr(discovery, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(discovery, "LOOK_SECONDS", 0.4)
    with suppress(SandboxApiError):
        sandbox.create_namespace(NAMESPACE)
    with suppress(SandboxApiError):
        sandbox.client.delete(f"{LEASES}/koord-scheduler")
    return {
        "metadata": {"name": "koord-scheduler"},
        "spec": {"holderIdentity": "host_1", "leaseDurationSeconds": 1},
    }


class Guard(NameGuard):
    """A guard that counts how often its answer changed, and keeps what it has reported."""

    def __init__(self, client: Client, name: str = operators.SCHEDULER_NAME) -> None:
        self.warnings: list[str] = []
        super().__init__(
            client, name, lambda reason, note: self.warnings.append(f"{reason}: {note}")
        )


@asynccontextmanager
async def guarding(guard: Guard) -> AsyncIterator[None]:
    task = asyncio.create_task(guard.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def expect(guard: Guard, *, is_free: bool) -> None:
    changed = asyncio.Event()
    guard.on_change = changed.set
    async with asyncio.timeout(20):
        while guard.is_free() is not is_free:
            await changed.wait()
            changed.clear()


async def test_name_is_free_without_koordinator(client: Client, twin: dict[str, Any]) -> None:
    guard = Guard(client)
    assert not guard.is_free(), "it is not known yet"
    async with guarding(guard):
        await expect(guard, is_free=True)
    assert not guard.warnings


@pytest.mark.parametrize("holder", ["host_1", ""])
async def test_name_is_free_if_nobody_renews_the_lease(
    client: Client, twin: dict[str, Any], holder: str
) -> None:
    twin["spec"]["holderIdentity"] = holder
    await client.post(LEASES, twin)
    guard = Guard(client)
    async with guarding(guard):
        await expect(guard, is_free=True)
    assert not guard.warnings


async def renew(client: Client) -> None:
    for second in range(60):
        spec = {"renewTime": f"2026-01-01T00:00:{second:02d}.000000Z"}
        await client.patch(f"{LEASES}/koord-scheduler", {"spec": spec}, Media.MERGE_PATCH)
        await asyncio.sleep(0.1)


async def test_name_is_taken_while_koordinators_scheduler_runs(
    client: Client, twin: dict[str, Any]
) -> None:
    guard, other = Guard(client), Guard(client, "another-scheduler")
    async with guarding(guard), guarding(other):
        await expect(guard, is_free=True)
        await client.post(LEASES, twin)
        alive = asyncio.create_task(renew(client))
        await expect(guard, is_free=False)
        assert re.search(r"SchedulerNameTaken: .*host_1.*another schedulerName", guard.warnings[0])
        assert other.is_free()
        alive.cancel()
        await expect(guard, is_free=True)


async def test_name_is_taken_if_koordinator_was_there_first(
    client: Client, twin: dict[str, Any]
) -> None:
    await client.post(LEASES, twin)
    alive = asyncio.create_task(renew(client))
    guard = Guard(client)
    async with guarding(guard):
        async with asyncio.timeout(20):
            while not guard.warnings:  # noqa: ASYNC110 - a list
                await asyncio.sleep(0.05)
    assert not guard.is_free()
    alive.cancel()


async def test_missing_rights_are_logged_and_not_fatal(
    sandbox: Sandbox, twin: dict[str, Any], namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.client.create(LEASES, twin)
    kubeconfig = sandbox.kubeconfig_for(namespace, "default")
    async with Client(find_credentials(str(kubeconfig))) as client:
        guard = Guard(client)
        async with guarding(guard):
            await expect(guard, is_free=True)
    assert "Cannot check whether" in caplog.text


def test_definitions_that_planning_does_not_read_may_come_later() -> None:
    group = "scheduling.sigs.k8s.io/v1alpha1"
    read, other = (group, "podgroups"), ("scheduling.koordinator.sh/v1alpha1", "devices")
    found = Definitions(frozenset({"podgroups.scheduling.sigs.k8s.io"}))
    check_installed(found, [read, other])
    with pytest.raises(NotInstalled, match=r"podgroups\.scheduling\.sigs\.k8s\.io; install"):
        check_installed(Definitions(frozenset()), [read, other])
