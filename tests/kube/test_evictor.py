"""Which pods may be evicted together, on a real API server."""

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.kube.conftest import Pods

from koord.core.eviction.model import write_victim_text
from koord.core.model.object_size import MOST_ANNOTATIONS
from koord.core.model.pods import Pod, PreemptedBy
from koord.kube.client import Client, Media
from koord.kube.evictor import BUDGETS_SECONDS, Eviction, Evictor

NODE = "node-a"
LABELS = {"job": "a"}


async def make_two(client: Client, pods: Pods, phase: str) -> tuple[Pod, ...]:
    """Make two pods on a node, and a budget for both that allows no eviction."""
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": LABELS}}
    path = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets"
    await client.post(path, {"metadata": {"name": "budget"}, "spec": budget})
    made: list[Pod] = []
    for _ in range(2):
        spec: dict[str, Any] = {"schedulingGates": None, "nodeName": NODE}
        pod = await pods.create(meta={"labels": LABELS}, **spec)
        status = {"status": {"phase": phase}}
        await client.patch(f"{pods.path}/{pod.name}/status", status, Media.STRATEGIC_MERGE_PATCH)
        made.append(await pods.translate(pod.name))
    return tuple(made)


@pytest.mark.parametrize(("phase", "may_go"), [("Running", False), ("Pending", True)])
async def test_budgets_protect_running_pods(
    client: Client, pods: Pods, phase: str, *, may_go: bool
) -> None:
    """The API server ignores budgets for pending pods."""
    evictor = Evictor(client, time.time)
    made = await make_two(client, pods, phase)
    assert await evictor.may_go(made) is may_go
    assert (await evictor.evict(made[0])).is_done is may_go


async def test_two_budgets_protect_as_one_does_and_can_be_overruled(
    client: Client, pods: Pods
) -> None:
    """The API server answers with an error of its own then."""
    first, second = await make_two(client, pods, "Running")
    path = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets"
    budget = {"maxUnavailable": "100%", "selector": {"matchLabels": LABELS}}
    await client.post(path, {"metadata": {"name": "another"}, "spec": budget})
    evictor = Evictor(client, time.time)
    assert await evictor.check((first,)) is Eviction.PROTECTED
    assert await evictor.check((first, second)) is Eviction.PROTECTED
    assert await evictor.protect(first, "for now", 1_000_000.0)
    assert (await pods.translate(first.name)).protected == 1_000_000.0
    assert await evictor.overrule(first) is Eviction.EVICTED


BY = PreemptedBy("plan-1", "default/high", "default/high-0")


async def test_a_pod_without_room_for_annotations_is_marked_by_its_conditions(
    client: Client, pods: Pods
) -> None:
    annotations = {"x": "x" * (MOST_ANNOTATIONS - 1)}
    pod = await pods.create(schedulingGates=None, nodeName=NODE, meta={"annotations": annotations})
    evictor = Evictor(client, time.time)
    text = write_victim_text(BY, 7, "koord-scheduler")
    assert await evictor.mark_preempted(pod, BY, text, seconds=60)
    marked = await pods.translate(pod.name)
    assert marked.preempted_by == replace(BY, pod="")
    assert marked.marked
    assert await evictor.unmark_preempted(pod, "not needed")
    assert await evictor.mark(pod, "too much", seconds=60)
    assert (await pods.translate(pod.name)).is_reclaimed


async def test_budgets_that_allow_nothing_are_asked_once_for_all(
    client: Client, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is tried for eviction meanwhile: a dry run is judged by all policies."""
    made = await make_two(client, pods, "Running")
    asked: list[str] = []
    ask, post = client.list, client.post

    async def count_list(path: str, *args: Any) -> bytes:
        asked.append(path)
        return await ask(path, *args)

    async def count_post(path: str, body: Any) -> Any:
        asked.append(path)
        return await post(path, body)

    monkeypatch.setattr(client, "list", count_list)
    monkeypatch.setattr(client, "post", count_post)
    now = 1000.0
    evictor = Evictor(client, lambda: now)
    for _ in range(20):
        for some in (made, made[:1], made[1:]):
            assert await evictor.check(some) is Eviction.PROTECTED
    assert len(asked) == 1
    now += BUDGETS_SECONDS
    assert await evictor.check(made) is Eviction.PROTECTED
    assert [path.rsplit("/")[-1] for path in asked] == ["poddisruptionbudgets"] * 2
    # What allows something is read each time: others may have used it since.
    await client.delete(f"{asked[0]}/budget")
    now += BUDGETS_SECONDS
    for _ in range(2):
        assert await evictor.check(made[:1]) is Eviction.EVICTED
    assert sum(path.endswith("budgets") for path in asked) == 4


async def test_a_pod_that_is_gone_needs_no_mark(client: Client, pods: Pods) -> None:
    spec: dict[str, Any] = {"schedulingGates": None, "nodeName": NODE}
    made = await pods.create(**spec, terminationGracePeriodSeconds=0)
    evictor, by = Evictor(client, time.time), PreemptedBy("plan", "default/high", "default/high")
    assert await evictor.mark_preempted(replace(made, uid="other"), by, "text", seconds=0)
    assert (await pods.translate(made.name)).preempted_by is None
    await client.delete(f"{pods.path}/{made.name}")
    assert await evictor.mark_preempted(made, by, "text", seconds=0)
    assert await evictor.mark(made, "text", seconds=0)
    assert await evictor.evict(made) is Eviction.GONE


async def test_nobody_gets_more_time_to_stop_than_the_limit(client: Client, pods: Pods) -> None:
    spec: dict[str, Any] = {"schedulingGates": None, "nodeName": NODE}
    made = await pods.create(**spec, terminationGracePeriodSeconds=10**9)
    pod = await pods.translate(made.name)
    assert pod.grace == 10**9
    assert await Evictor(client, time.time, 60.0).delete(pod) is Eviction.EVICTED
    deleted = await pods.translate(made.name)
    assert deleted.gone_by - deleted.deleted == 60
