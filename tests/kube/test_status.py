"""Status patches on a real API server: what is written, and who owns which field."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest
from tests.kube.conftest import Pods, until

from koord.api.keys import operators
from koord.kube.client import Client, Media
from koord.kube.errors import Forbidden, KubeError, ServerUnavailable
from koord.kube.objects import ObjectRef, ref_of_pod
from koord.kube.status import (
    MERGED,
    ConditionPatch,
    Former,
    Pace,
    StatusPatch,
    StatusWriter,
    applied_by,
)
from koord_sandbox import Sandbox

GROUPS = "scheduling.sigs.k8s.io/v1alpha1"
NOBODY: dict[str, Any] = {}


@pytest.fixture(scope="module")
def pod_groups(sandbox: Sandbox) -> None:
    sandbox.apply("crds/scheduling.sigs.k8s.io_podgroups.yaml")


@pytest.fixture
async def group(pod_groups: None, client: Client, namespace: str) -> ObjectRef:
    name = f"group-{secrets.token_hex(4)}"
    body = {
        "apiVersion": GROUPS,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 2},
    }
    raw = await client.post(f"/apis/{GROUPS}/namespaces/{namespace}/podgroups", body)
    uid = msgspec.json.decode(raw)["metadata"]["uid"]
    return ObjectRef(GROUPS, "PodGroup", "podgroups", name, uid, namespace)


def placed(
    status: bool = False,  # noqa: FBT001, FBT002
    message: str = "no room",
    generation: int | None = 1,
) -> ConditionPatch:
    reason = "Planned" if status else "InsufficientNodes"
    return ConditionPatch("Placed", status, reason, message, generation)


async def status_of(client: Client, ref: ObjectRef) -> dict[str, Any]:
    found: dict[str, Any] = await client.get(ref.path, dict)
    return found.get("status", {})


@asynccontextmanager
async def running(writer: StatusWriter) -> AsyncIterator[StatusWriter]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(writer.run())
        yield writer
        task.cancel()


async def test_latest_of_a_burst_is_written_once(client: Client, group: ObjectRef) -> None:
    took: list[float] = []
    made = StatusWriter(client, applied_by("me"), lambda _: NOBODY, observe=took.append)
    async with running(made) as writer:
        for n in range(20):
            writer.submit(group, StatusPatch((placed(message=f"try {n}"),), {"attempts": n}))
            await asyncio.sleep(0.005)
        await until(lambda: writer.stats.written == 1)
    assert len(took) == 1
    assert took[0] > 0
    status = await status_of(client, group)
    assert status["attempts"] == 19
    (condition,) = status["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "Placed",
        "status": "False",
        "reason": "InsufficientNodes",
        "message": "try 19",
        "observedGeneration": 1,
    }


async def test_continuous_changes_are_written_periodically(
    client: Client, group: ObjectRef
) -> None:
    async with running(StatusWriter(client, applied_by("me"), lambda _: NOBODY)) as writer:
        async with asyncio.timeout(20):
            n = 0
            while not writer.stats.written:
                writer.submit(group, StatusPatch(fields={"attempts": (n := n + 1)}))
                await asyncio.sleep(0.1)
    assert 0 < (await status_of(client, group))["attempts"] <= n


async def test_unchanged_status_is_not_written_again(client: Client, group: ObjectRef) -> None:
    async with running(StatusWriter(client, applied_by("me"), lambda _: NOBODY)) as writer:
        writer.submit(group, StatusPatch((placed(),), {"phase": "Pending"}))
        await until(lambda: writer.stats.written == 1)
        writer.submit(group, StatusPatch((placed(),), {"phase": "Pending"}))
        await until(lambda: writer.stats.unchanged == 1)
        assert writer.stats.written == 1


async def test_status_changed_by_others_is_written_again(client: Client, group: ObjectRef) -> None:
    seen: dict[str, Any] = {}
    mine = StatusWriter(client, applied_by("me"), lambda _: seen)
    other = StatusWriter(client, applied_by("other"), lambda _: NOBODY)
    async with running(mine), running(other):
        mine.submit(group, StatusPatch((placed(),)))
        await until(lambda: mine.stats.written == 1)
        other.submit(group, StatusPatch((placed(message="quite another thing"),)))
        await until(lambda: other.stats.written == 1)
        seen |= await status_of(client, group)
        mine.submit(group, StatusPatch((placed(),)))
        await until(lambda: mine.stats.written == 2)
    (condition,) = (await status_of(client, group))["conditions"]
    assert condition["message"] == "no room"


async def test_unchanged_status_is_not_written_after_a_restart(
    client: Client, group: ObjectRef
) -> None:
    first = StatusWriter(client, applied_by("me"), lambda _: NOBODY, wall_clock=lambda: 1e9)
    async with running(first):
        first.submit(group, StatusPatch((placed(),), {"phase": "Pending"}))
        await until(lambda: first.stats.written == 1)
    seen = await status_of(client, group)
    second = StatusWriter(client, applied_by("me"), lambda _: seen, wall_clock=lambda: 2e9)
    async with running(second):
        second.submit(group, StatusPatch((placed(),), {"phase": "Pending"}))
        await until(lambda: second.stats.unchanged == 1)
        assert second.stats.written == 0
        # A new message is a change, but not a transition.
        second.submit(group, StatusPatch((placed(message="less room"),), {"phase": "Pending"}))
        await until(lambda: second.stats.written == 1)
        (condition,) = (await status_of(client, group))["conditions"]
        assert condition["lastTransitionTime"] == "2001-09-09T01:46:40Z"
        second.submit(group, StatusPatch((placed(status=True),), {"phase": "Pending"}))
        await until(lambda: second.stats.written == 2)
    (condition,) = (await status_of(client, group))["conditions"]
    assert condition["lastTransitionTime"] == "2033-05-18T03:33:20Z"


async def test_each_manager_owns_its_conditions(client: Client, group: ObjectRef) -> None:
    mine = StatusWriter(client, applied_by("me"), lambda _: NOBODY)
    other = StatusWriter(client, applied_by("other"), lambda _: NOBODY)
    async with running(mine), running(other):
        mine.submit(group, StatusPatch((placed(),)))
        bound = ConditionPatch("Bound", status=False, reason="PartiallyBound", message="1 of 2")
        other.submit(group, StatusPatch((bound,), {"phase": "Scheduling"}))
        await until(lambda: bool(mine.stats.written and other.stats.written))
        status = await status_of(client, group)
        assert {c["type"] for c in status["conditions"]} == {"Placed", "Bound"}
        mine.submit(group, StatusPatch())
        await until(lambda: mine.stats.written == 2)
    status = await status_of(client, group)
    assert [c["type"] for c in status["conditions"]] == ["Bound"]
    assert status["phase"] == "Scheduling"


async def test_deleted_object_is_not_written(client: Client, group: ObjectRef) -> None:
    never = ObjectRef(GROUPS, "PodGroup", "podgroups", "never", "some-uid", group.namespace)
    async with running(StatusWriter(client, applied_by("me"), lambda _: NOBODY)) as writer:
        writer.submit(never, StatusPatch((placed(),)))
        await until(lambda: writer.stats.gone == 1)
    async with running(StatusWriter(client, applied_by("me"), lambda _: None)) as writer:
        writer.submit(group, StatusPatch((placed(),)))
        await until(lambda: writer.stats.gone == 1)
    assert await status_of(client, group) == {}


async def test_recreated_pod_is_not_written(pods: Pods) -> None:
    pod = await pods.create()
    await pods.delete(pod)
    after = await pods.create(meta={"name": pod.name})
    waits = ConditionPatch(
        operators.PLACED, status=False, reason="MissingMembers", message="1 of 2"
    )
    async with running(StatusWriter(pods.client, MERGED, lambda _: NOBODY)) as writer:
        writer.submit(ref_of_pod(pod), StatusPatch((waits,)))
        await until(lambda: writer.stats.refused == 1)
    assert (await pods.translate(after.name)).wait_reason == ""


class Failing(Client):
    def __init__(
        self,
        inner: Client,
        failures: int,
        error: KubeError = ServerUnavailable(503, "ServiceUnavailable", "later"),  # noqa: B008 - never changed
    ) -> None:
        super().__init__(inner.credentials)
        self._inner = inner
        self._error = error
        self.failures = failures

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if self.failures:
            self.failures -= 1
            raise self._error
        return await self._inner.request(method, path, **options)


async def test_transient_errors_of_a_status_are_retried(client: Client, group: ObjectRef) -> None:
    failing = Failing(client, 2)
    async with running(StatusWriter(failing, applied_by("me"), lambda _: NOBODY)) as writer:
        writer.submit(group, StatusPatch((placed(),)))
        await until(lambda: writer.stats.written == 1)
        assert writer.stats.retried == 2
    assert (await status_of(client, group))["conditions"]


async def test_forbidden_status_is_retried(client: Client, group: ObjectRef) -> None:
    forbidden = Failing(client, 3, Forbidden(403, "Forbidden", "denied"))
    async with running(StatusWriter(forbidden, applied_by("me"), lambda _: NOBODY)) as writer:
        writer.submit(group, StatusPatch((placed(),)))
        await until(lambda: writer.stats.written == 1)
    assert (await status_of(client, group))["conditions"]


async def test_managers_can_hand_over_a_condition(client: Client, group: ObjectRef) -> None:
    """A condition that one manager drops stays partly with the other, which alone is invalid."""
    mine = StatusWriter(client, applied_by("me"), lambda _: NOBODY)
    other = StatusWriter(client, applied_by("other"), lambda _: NOBODY)
    async with running(mine), running(other):
        mine.submit(group, StatusPatch((placed(),)))
        await until(lambda: mine.stats.written == 1)
        other.submit(group, StatusPatch((placed(message="gone"),), {"phase": "Pending"}))
        await until(lambda: other.stats.written == 1)
        other.submit(group, StatusPatch(fields={"phase": "Running"}))
        await until(lambda: other.stats.retried > 0)
        mine.submit(group, StatusPatch((placed(message="no room again"),)))
        await until(lambda: other.stats.written == 2)
    assert (await status_of(client, group))["phase"] == "Running"


async def test_pod_conditions_of_others_are_kept(pods: Pods) -> None:
    pod = await pods.create()
    client, ref = pods.client, ref_of_pod(pod)
    before = await status_of(client, ref)
    assert [c["type"] for c in before["conditions"]] == ["PodScheduled"]
    waits = ConditionPatch(
        operators.PLACED, status=False, reason="MissingMembers", message="1 of 2"
    )
    async with running(StatusWriter(client, MERGED, lambda _: NOBODY)) as writer:
        writer.submit(ref, StatusPatch((waits,)))
        await until(lambda: writer.stats.written == 1)
    after = await status_of(client, ref)
    assert {c["type"]: c["reason"] for c in after["conditions"]} == {
        "PodScheduled": "SchedulingGated",
        operators.PLACED: "MissingMembers",
    }
    assert (await pods.translate(pod.name)).wait_reason == "MissingMembers"
    form = pods.translator.form_of(pod.uid)
    assert form is not None
    assert {c.type for c in form.conditions} == {"PodScheduled", operators.PLACED}

    def present(ref: ObjectRef) -> dict[str, Any]:
        return pods.translator.status_of(ref.uid)

    async with running(StatusWriter(client, MERGED, present)) as restarted:
        restarted.submit(ref, StatusPatch((waits,)))
        await until(lambda: restarted.stats.unchanged == 1)


async def test_status_patches_yield_to_urgent_writes_for_a_limited_time(
    client: Client, group: ObjectRef
) -> None:
    writer = StatusWriter(client, applied_by("koord"), lambda _: NOBODY, Pace(0.5), lambda: True)
    async with running(writer):
        writer.submit(group, StatusPatch((placed(),)))
        await asyncio.sleep(0.5)
        assert not writer.stats.written
        await until(lambda: writer.stats.written == 1)


async def test_status_patch_waits_for_the_end_of_a_burst(
    client: Client, group: ObjectRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.kube.status.LULL_SECONDS", 0.6)
    looks = iter([True])
    is_busy = lambda: next(looks, False)  # noqa: E731 - says it best
    async with running(
        StatusWriter(client, applied_by("koord"), lambda _: NOBODY, Pace(inf), is_busy)
    ) as writer:
        writer.submit(group, StatusPatch((placed(),)))
        await asyncio.sleep(0.5)
        assert not writer.stats.written
        await until(lambda: writer.stats.written == 1)


async def test_urgent_status_patch_does_not_yield(client: Client, group: ObjectRef) -> None:
    writer = StatusWriter(client, applied_by("koord"), lambda _: NOBODY, Pace(inf), lambda: True)
    async with running(writer):
        writer.submit(group, StatusPatch((placed(),), is_urgent=True))
        await until(lambda: writer.stats.written == 1)
    assert writer.stats.written == 1


NOTHING: dict[str, Any] = {"annotations": {}}


async def test_annotations_are_applied_and_removed_without_touching_others(
    client: Client, group: ObjectRef
) -> None:
    async def annotations() -> dict[str, str]:
        found: dict[str, Any] = await client.get(group.path, dict)
        return found["metadata"].get("annotations", {})

    own = {"metadata": {"annotations": {"mine": "1"}}}
    await client.patch(group.path, own, Media.MERGE_PATCH)
    seen = dict(NOTHING)
    made = StatusWriter(client, applied_by("me"), lambda _: NOBODY, present_metadata=lambda _: seen)
    async with running(made) as writer:
        phase = {"phase": "Pending"}
        wanted = {"annotations": {"a": "1", "b": "2"}}
        writer.submit(group, StatusPatch(fields=phase, metadata=wanted))
        await until(lambda: writer.stats.written == 1)
        assert await annotations() == {"mine": "1", "a": "1", "b": "2"}
        seen |= wanted
        writer.submit(group, StatusPatch(fields=phase, metadata={"annotations": {"b": "3"}}))
        await until(lambda: writer.stats.written == 2)
        assert await annotations() == {"mine": "1", "b": "3"}
        assert (await client.get(group.path, dict))["metadata"]["generation"] == 1
    assert (await status_of(client, group))["phase"] == "Pending"


async def test_annotations_of_a_recreated_object_are_not_written(
    client: Client, group: ObjectRef
) -> None:
    other = replace(group, uid="another")
    made = StatusWriter(
        client, applied_by("me"), lambda _: NOBODY, present_metadata=lambda _: NOTHING
    )
    async with running(made) as writer:
        writer.submit(other, StatusPatch(metadata={"annotations": {"a": "1"}}))
        await until(lambda: writer.stats.refused + writer.stats.retried > 0)
    assert not writer.stats.written


async def managers_of(client: Client, ref: ObjectRef) -> set[str]:
    found: dict[str, Any] = await client.get(ref.path, dict)
    return {entry["manager"] for entry in found["metadata"]["managedFields"]}


async def test_fields_of_former_managers_are_taken_over(client: Client, group: ObjectRef) -> None:
    """What is still said stays without a gap; what nobody says any more is removed."""
    path, params = f"{group.path}/status", {"force": "true"}
    since = "2030-01-01T00:00:00Z"

    async def apply(path: str, manager: str, **body: Any) -> None:
        body = {"apiVersion": GROUPS, "kind": "PodGroup", **body}
        body["metadata"] = {"name": group.name, **body.get("metadata", {})}
        await client.patch(path, body, Media.APPLY_PATCH, {**params, "fieldManager": manager})

    def condition(kind: str) -> dict[str, str]:
        texts = {"status": "False", "reason": "Old", "message": "", "lastTransitionTime": since}
        return {"type": kind, **texts}

    await apply(path, "old", status={"attempts": 7, "conditions": [condition("Placed")]})
    await apply(path, "older", status={"conditions": [condition("Stale")], "planID": "p"})
    await apply(group.path, "old-notes", metadata={"annotations": {"a": "1", "b": "2"}})
    await apply(group.path, "user", metadata={"annotations": {"own": "3"}})
    form = applied_by("me", Former("old"), Former("older"), Former("old-notes", is_of_status=False))
    seen = await status_of(client, group)
    made = StatusWriter(
        client, form, lambda _: seen, present_metadata=lambda _: {"annotations": {"a": "1"}}
    )
    patch = StatusPatch((placed(),), {"phase": "Pending"}, metadata={"annotations": {"a": "1"}})
    async with running(made) as writer:
        writer.submit(group, patch)
        await until(lambda: writer.stats.written == 1)
        await until(lambda: not writer._in_flight)
    assert await managers_of(client, group) >= {"me", "user"}
    assert not {"old", "older", "old-notes"} & await managers_of(client, group)
    status = await status_of(client, group)
    assert (status.get("attempts"), status.get("planID")) == (None, None)
    assert [one["type"] for one in status["conditions"]] == ["Placed"]
    found: dict[str, Any] = await client.get(group.path, dict)
    assert found["metadata"]["annotations"] == {"a": "1", "own": "3"}


async def test_what_an_earlier_process_said_and_nobody_says_any_more_is_removed(
    client: Client, group: ObjectRef
) -> None:
    async with running(StatusWriter(client, applied_by("me"), lambda _: NOBODY)) as first:
        first.submit(group, StatusPatch((placed(),), {"phase": "Pending", "attempts": 1}))
        await until(lambda: first.stats.written == 1)
    seen = await status_of(client, group)
    async with running(StatusWriter(client, applied_by("me"), lambda _: seen)) as second:
        second.submit(group, StatusPatch((placed(),), {"phase": "Pending"}))
        await until(lambda: second.stats.written == 1)
    assert "attempts" not in await status_of(client, group)
