"""Thousands of objects of one tenant keep neither statuses nor events of others waiting."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube import events
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef
from koord.kube.status import (
    AT_ONCE,
    MAX_BEGUN,
    MERGED,
    MOST_OF_NAMESPACE,
    StatusPatch,
    StatusWriter,
)
from koord.kube.turns import TurnQueue, in_turn

FLOOD = 1_500
Items = list[tuple[str, int]]
ITEMS = st.lists(st.tuples(st.sampled_from("abc"), st.integers()))


def make_ref(namespace: str, name: str) -> ObjectRef:
    return ObjectRef("v1", "Pod", "pods", name, f"{namespace}-{name}", namespace)


@given(ITEMS)
def test_nobody_has_a_second_turn_before_the_others_had_one(items: Items) -> None:
    order = list(in_turn(items, lambda item: item[0]))
    assert sorted(order) == sorted(items)
    waiting, had = Counter(name for name, _ in items), Counter[str]()
    for name, _ in order:
        assert all(had[name] <= had[other] or not waiting[other] for other in waiting)
        had[name] += 1
        waiting[name] -= 1


@given(ITEMS, st.integers(1, 5))
def test_a_full_queue_drops_what_the_greediest_has_put(items: Items, most: int) -> None:
    queue = TurnQueue[tuple[str, int]](most)
    dropped = sum(not queue.put(name, (name, at)) for name, at in items)
    assert dropped == max(0, len(items) - most)
    assert len(queue) == len(items) - dropped
    left = [queue.take() for _ in range(len(queue))]
    had, put = Counter(name for name, _ in left), Counter(name for name, _ in items)
    for name in put:
        assert had[name] == put[name] or had[name] >= most // len(put)


class ApiServer:
    """Takes everything, in no time, and remembers the namespaces."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.present: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()

    async def post(self, path: str, _body: Any) -> None:
        self.served.append(path.split("/")[5])

    async def patch(self, path: str, *_: Any) -> bytes:
        namespace = path.split("/")[4]
        self.served.append(namespace)
        self.present[namespace] += 1
        self.most_at_once |= self.present
        await asyncio.sleep(0)
        self.present[namespace] -= 1
        return b""


async def play(what: EventRecorder | StatusWriter, server: ApiServer) -> int:
    """Run until somebody else was served; return how many of the flood were before."""
    task = asyncio.create_task(what.run())
    while "other" not in server.served:  # noqa: ASYNC110 - filled by the task
        await asyncio.sleep(0.01)
    task.cancel()
    return server.served.index("other")


async def test_an_event_is_not_lost_in_a_flood() -> None:
    server = ApiServer()
    recorder = EventRecorder(cast("Any", server), "c", "i")
    for at in range(FLOOD):
        ref = make_ref("flood", f"f{at}")
        recorder.record(ref, EventType.NORMAL, action="A", reason="R", note="n")
    ref = make_ref("other", "one")
    recorder.record(ref, EventType.NORMAL, action="A", reason="R", note="n")
    assert await play(recorder, server) <= 1
    assert recorder.stats.dropped == FLOOD + 1 - events.MAX_QUEUED


async def test_old_events_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_AGE_SECONDS", -1)
    server = ApiServer()
    recorder = EventRecorder(cast("Any", server), "c", "i")
    ref = make_ref("other", "one")
    recorder.record(ref, EventType.NORMAL, action="A", reason="R", note="n")
    task = asyncio.create_task(recorder.run())
    while not recorder.stats.dropped:  # noqa: ASYNC110 - counted by the task
        await asyncio.sleep(0)
    task.cancel()
    assert not server.served


async def test_a_status_waits_for_few_others() -> None:
    server = ApiServer()
    client = cast("Any", SimpleNamespace(patch=server.patch))
    writer = StatusWriter(client, MERGED, lambda _: {})
    for at in range(FLOOD):
        writer.submit(make_ref("flood", f"f{at}"), StatusPatch(fields={"at": at}))
    writer.submit(make_ref("other", "one"), StatusPatch(fields={"at": 1}))
    assert await play(writer, server) <= 2 * MAX_BEGUN * AT_ONCE.most


async def test_a_namespace_has_few_statuses_in_flight() -> None:
    """Its owner decides how much work each is for the API server, by the size of its pods."""
    server = ApiServer()
    writer = StatusWriter(cast("Any", SimpleNamespace(patch=server.patch)), MERGED, lambda _: {})
    for name in ("flood", "other"):
        for at in range(2 * MAX_BEGUN * AT_ONCE.most):
            writer.submit(make_ref(name, f"{at}"), StatusPatch(fields={"at": at}))
    task = asyncio.create_task(writer.run())
    while writer.stats.written < 4 * MAX_BEGUN * AT_ONCE.most:  # noqa: ASYNC110 - counted by the task
        await asyncio.sleep(0.01)
    task.cancel()
    assert server.most_at_once == {"flood": MOST_OF_NAMESPACE, "other": MOST_OF_NAMESPACE}
