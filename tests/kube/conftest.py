"""A client on the sandbox, and pods as users would make them."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from tests.support.plan_keys import make_keys

from koord.api.keys import operators
from koord.core.model.plan import Assignment, Demand, Placement, Unit
from koord.core.model.pods import Pod
from koord.domains.registry import make_pod_translator
from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.pods import PodTranslator
from koord.kube.wire import WirePod
from koord_sandbox import Sandbox


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fail on calls that block the event loop."""
    with blockbuster_ctx("koord.kube") as blocker:
        for function in blocker.functions.values():
            # It runs in a thread with a separate event loop.
            function.can_block_in("koord/kube/config.py", {"load_kubeconfig"})
        yield blocker


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(find_credentials(str(sandbox.kubeconfig))) as client:
        yield client


@dataclass
class Pods:
    """Makes and reads pods of one namespace."""

    client: Client
    namespace: str
    translator: PodTranslator

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def create(self, *, meta: dict[str, Any] | None = None, **spec: Any) -> Pod:
        """Create a pod with our gate and our scheduler name, unless overridden."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{secrets.token_hex(4)}", **(meta or {})},
            "spec": {
                "schedulerName": operators.SCHEDULER_NAME,
                "schedulingGates": [{"name": operators.PLACEMENT_GATE}],
                "containers": [{"name": "main", "image": "none"}],
                **spec,
            },
        }
        made = json.loads(await self.client.post(self.path, body))
        return await self.translate(made["metadata"]["name"])

    async def translate(self, name: str) -> Pod:
        """Read a pod as the operators see it."""
        return self.translator.translate(await self.client.get(f"{self.path}/{name}", WirePod))

    async def read(self, pod: Pod) -> dict[str, Any]:
        """Read a pod as it is stored."""
        return await self.client.get(f"{self.path}/{pod.name}", dict)

    async def delete(self, pod: Pod) -> None:
        await self.client.delete(f"{self.path}/{pod.name}", grace_seconds=0)


@pytest.fixture
def pods(client: Client, namespace: str) -> Pods:
    return Pods(client, namespace, make_pod_translator(TranslatorOptions(plans=make_keys())))


def place(*assignments: tuple[Pod, str], group: str = "", plan_id: str = "plan-1") -> Placement:
    """Make the placement of one unit."""
    demand = Demand("", tuple(pod for pod, _ in assignments), len(assignments))
    placed = tuple(Assignment(pod, node) for pod, node in assignments)
    return Placement(Unit("unit", (demand,), group), plan_id, group, placed)


async def until(is_reached: Callable[[], bool]) -> None:
    """Wait until a condition of another task holds."""
    async with asyncio.timeout(30):
        while not is_reached():  # noqa: ASYNC110 - counters of the code under test, not events
            await asyncio.sleep(0.02)
