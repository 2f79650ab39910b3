"""Events as kubectl shows them."""

import asyncio

import pytest
from tests.kube.conftest import Pods, until

from koord.kube.client import Client
from koord.kube.events import BURST, EventRecorder, EventType
from koord.kube.objects import ref_of_pod


async def settle(recorder: EventRecorder, count: int) -> None:
    stats = recorder.stats
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        await until(lambda: stats.emitted + stats.refused + stats.dropped == count)
        task.cancel()


async def events_of(client: Client, namespace: str) -> list[dict[str, object]]:
    found = await client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", dict)
    items: list[dict[str, object]] = found["items"]
    return sorted(items, key=lambda event: str(event["eventTime"]))


async def test_one_event_per_transition(client: Client, pods: Pods) -> None:
    ref = ref_of_pod(await pods.create())
    recorder = EventRecorder(client, "koord.test/placement", "me-1")
    for reason in ("MissingMembers", "MissingMembers", "InsufficientNodes", "MissingMembers"):
        recorder.record(ref, EventType.WARNING, action="Placing", reason=reason, note="é" * 2000)
    await settle(recorder, 3)
    assert recorder.stats.repeated == 1
    found = await events_of(client, pods.namespace)
    assert [e["reason"] for e in found] == ["MissingMembers", "InsufficientNodes", "MissingMembers"]
    assert found[0]["type"] == "Warning"
    assert found[0]["action"] == "Placing"
    assert found[0]["reportingController"] == "koord.test/placement"
    regarding = found[0]["regarding"]
    assert isinstance(regarding, dict)
    assert (regarding["uid"], regarding["kind"]) == (ref.uid, "Pod")
    assert str(found[0]["note"]).endswith("é…")


async def test_excess_events_are_dropped(
    client: Client, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.kube.events.MAX_AGE_SECONDS", 1.0)
    ref = ref_of_pod(await pods.create())
    recorder = EventRecorder(client, "koord.test/placement", "me-1")
    for n in range(200):
        recorder.record(ref, EventType.NORMAL, action="Placing", reason=f"Reason{n}", note="x")
    await settle(recorder, 200)
    assert recorder.stats.dropped > 0
    assert BURST <= recorder.stats.emitted < 200


async def test_events_yield_to_urgent_writes_for_a_limited_time(
    client: Client, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.kube.events.YIELD_SECONDS", 0.5)
    ref = ref_of_pod(await pods.create())
    recorder = EventRecorder(client, "koord.test", "me-1", is_busy=lambda: True)
    recorder.record(ref, EventType.NORMAL, action="Placing", reason="Planned", note="n")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        await asyncio.sleep(0.2)
        assert not recorder.stats.emitted
        await until(lambda: recorder.stats.emitted == 1)
        task.cancel()
