"""A new leader does not plan on a stale pod cache."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.builders import make_pod
from tests.cluster import make_cluster
from tests.kube.conftest import Pods, until
from tests.support.fault_proxy import Do, FaultProxy, is_method

from koord.api.keys import operators
from koord.core.engine.state import ClusterState
from koord.core.model.pods import Pod
from koord.kube.catchup import MOST_FAILURES, catch_up
from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord_sandbox import Sandbox


def state_of(*pods: Pod) -> ClusterState:
    state = make_cluster().state
    for pod in pods:
        state.upsert_pod(pod)
    return state


async def mark_of(pods: Pods, pod: Pod) -> str | None:
    return (await pods.read(pod))["metadata"].get("annotations", {}).get(operators.TAKEN_OVER_BY)


class Relist:
    """Stands for the list of all pods; counts how often it is asked for."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


async def never() -> None:
    raise AssertionError("a pod can be annotated")


async def is_pending(task: asyncio.Task[None]) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(task), 0.2)
    return not task.done()


@pytest.mark.parametrize("change", [{"node": "n1"}, {"is_terminating": True}])
async def test_nothing_is_written_without_pending_pods(
    client: Client, pods: Pods, change: dict[str, object]
) -> None:
    pod = await pods.create()
    await catch_up(client, state_of(replace(pod, **change)), "me", never)
    assert await mark_of(pods, pod) is None


async def test_waits_until_the_watch_delivers_the_mark(client: Client, pods: Pods) -> None:
    pod = await pods.create()
    state = state_of(pod)
    task = asyncio.create_task(catch_up(client, state, "me", never))
    assert await is_pending(task)
    assert await mark_of(pods, pod) == "me"
    state.upsert_pod(pod)
    assert await is_pending(task), "that was an older event"
    state.upsert_pod(await pods.translate(pod.name))
    await task


async def test_later_revisions_of_the_marked_pod_count(client: Client, pods: Pods) -> None:
    pod = await pods.create()
    state = state_of(pod)
    task = asyncio.create_task(catch_up(client, state, "me", never))
    assert await is_pending(task)
    state.remove_pod(pod.uid)
    await task


async def test_deleted_pod_proves_nothing_before_its_mark(client: Client, pods: Pods) -> None:
    gone, other = await pods.create(), await pods.create()
    await pods.delete(gone)
    state = state_of(gone, other)
    task = asyncio.create_task(catch_up(client, state, "me", never))
    assert await is_pending(task)
    assert await mark_of(pods, other) == "me"
    state.upsert_pod(await pods.translate(other.name))
    await task


async def test_recreated_pod_is_not_marked(
    client: Client, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.kube.catchup.MOST_FAILURES", 1)
    pod = await pods.create()
    stale = replace(pod, uid="11111111-0000-0000-0000-000000000000")
    await catch_up(client, state_of(stale), "me", relist := Relist())
    assert relist.count == 1
    assert await mark_of(pods, pod) is None


async def test_transient_errors_of_marks_are_retried(sandbox: Sandbox, pods: Pods) -> None:
    pod = await pods.create()
    async with FaultProxy(find_credentials(str(sandbox.kubeconfig))) as proxy:
        fault = proxy.plan(is_method("PATCH"), Do.ANSWER, times=3, status=503)
        assert fault.times < MOST_FAILURES
        async with Client(proxy.credentials) as through:
            state = state_of(pod)
            task = asyncio.create_task(catch_up(through, state, "me", never))
            await until(lambda: fault.times == 0)
            while await is_pending(task) and await mark_of(pods, pod) is None:
                pass
            state.upsert_pod(await pods.translate(pod.name))
            await task
    assert fault.times == 0


async def test_another_pod_is_marked_if_the_mark_is_not_observed(
    client: Client, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when updates of the first pod are undecodable: the cache keeps its last value."""
    monkeypatch.setattr("koord.kube.catchup.SEEN_WITHIN_SECONDS", 0.1)
    unreadable, other = await pods.create(), await pods.create()
    state = state_of(unreadable, other)
    task = asyncio.create_task(catch_up(client, state, "me", never))
    while await is_pending(task) and await mark_of(pods, other) is None:
        pass
    assert await is_pending(task)
    state.upsert_pod(await pods.translate(other.name))
    await task
    assert await mark_of(pods, unreadable) == "me"


class Babbler:
    """Responds to every write with an invalid object."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked = 0

    async def patch(self, *_: object) -> bytes:
        self.asked += 1
        return self.body


@pytest.mark.parametrize("body", [b"", b"{}", b'{"metadata":{"resourceVersion":"soon"}}'])
async def test_response_without_a_revision_is_a_failure(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.kube.catchup.MOST_FAILURES", 1)
    babbler = Babbler(body)
    relist = Relist()
    await catch_up(babbler, state_of(make_pod("p").build()), "me", relist)  # type: ignore[arg-type]
    assert relist.count == 1
    assert babbler.asked == 2
