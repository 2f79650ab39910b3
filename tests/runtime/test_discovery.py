"""What the cluster serves: the check that our scheduler name is free."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from koord.api.keys import operators
from koord.kube.client import Client, Media
from koord.kube.config import find_credentials
from koord.runtime import discovery
from koord.runtime.discovery import NameTaken, refuse_taken_name
from koord.sandbox import Sandbox
from koord.sandbox.errors import SandboxApiError

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
    with suppress(SandboxApiError):
        sandbox.create_namespace(NAMESPACE)
    with suppress(SandboxApiError):
        sandbox.client.delete(f"{LEASES}/koord-scheduler")
    return {
        "metadata": {"name": "koord-scheduler"},
        "spec": {"holderIdentity": "host_1", "leaseDurationSeconds": 1},
    }


async def assert_name_is_free(client: Client) -> None:
    """A name that is taken raises NameTaken."""
    await refuse_taken_name(client, operators.SCHEDULER_NAME)


async def test_name_is_free_without_koordinator(client: Client, twin: dict[str, Any]) -> None:
    await assert_name_is_free(client)


@pytest.mark.parametrize("holder", ["host_1", ""])
async def test_name_is_free_if_nobody_renews_the_lease(
    client: Client, twin: dict[str, Any], holder: str
) -> None:
    twin["spec"]["holderIdentity"] = holder
    await client.post(LEASES, twin)
    await assert_name_is_free(client)


async def renew(client: Client) -> None:
    for second in range(60):
        spec = {"renewTime": f"2026-01-01T00:00:{second:02d}.000000Z"}
        await client.patch(f"{LEASES}/koord-scheduler", {"spec": spec}, Media.MERGE_PATCH)
        await asyncio.sleep(0.1)


async def test_name_is_taken_by_a_running_scheduler(client: Client, twin: dict[str, Any]) -> None:
    await client.post(LEASES, twin)
    alive = asyncio.create_task(renew(client))
    with pytest.raises(NameTaken, match=r"host_1.*configure another schedulerName"):
        await refuse_taken_name(client, operators.SCHEDULER_NAME)
    await refuse_taken_name(client, "another-scheduler")
    alive.cancel()


async def test_missing_rights_are_logged_and_not_fatal(
    sandbox: Sandbox, twin: dict[str, Any], namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.client.create(LEASES, twin)
    kubeconfig = sandbox.kubeconfig_for(namespace, "default")
    async with Client(find_credentials(str(kubeconfig))) as client:
        await refuse_taken_name(client, operators.SCHEDULER_NAME)
    assert "Cannot check whether" in caplog.text
