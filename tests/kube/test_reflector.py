"""Reflectors on a real API server, through a proxy that injects faults."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from tests.kube.conftest import until
from tests.kube.test_pool import scripted
from tests.support.fault_proxy import Do, FaultProxy, is_page, is_watch

from koord.kube import reflector as module
from koord.kube.client import Client, Media
from koord.kube.config import find_credentials
from koord.kube.errors import KubeError, NotFound
from koord.kube.reflector import Absence, Reflector, Source, WatchTimes
from koord.kube.retry import Backoff
from koord.kube.store import Added, Change, Deleted, Modified
from koord.kube.wire import WireNode
from koord_sandbox import Sandbox

GONE: dict[str, Any] = {"status": 410, "reason": "Expired"}
NOT_SERVED: dict[str, Any] = {"times": 1000, "status": 404, "reason": "NotFound"}
EVENTS = "/apis/events.k8s.io/v1"
EXPIRED = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "message": "too old resource version: 1 (2)",
    },
}


class Kind:
    """ConfigMaps of one namespace: plain objects that anyone may change."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    async def create(self, *names: str) -> None:
        for name in names:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            await self.client.post(self.path, body)

    async def touch(self, name: str, value: str) -> None:
        body = {"metadata": {"labels": {"touched": value}}}
        await self.client.patch(f"{self.path}/{name}", body, Media.MERGE_PATCH)

    async def delete(self, name: str) -> None:
        await self.client.delete(f"{self.path}/{name}")


class Delays(Backoff):
    """Records its calls, and returns no delay."""

    asked: ClassVar[list[int]]

    def __init__(self) -> None:
        super().__init__()
        type(self).asked = []

    def delay(self, attempt: int, error: KubeError | None = None) -> float:
        self.asked.append(attempt)
        return 0.0


class Copy:
    """Runs a reflector and keeps what it delivers: names, with the value of a label."""

    def __init__(
        self,
        client: Client,
        path: str,
        absent_on: tuple[type[KubeError], ...] = (),
        kept_seconds: float = 0.0,
        other_paths: tuple[str, ...] = (),
        *,
        may_lack_at_start: bool = False,
        **options: Any,
    ) -> None:
        self.changes: list[Change[tuple[str, str]]] = []
        self.batches: list[int] = []
        self.rejected: list[tuple[str, str]] = []
        self.forgotten: list[tuple[str, str]] = []
        self.absences: list[Absence] = []
        source = Source(
            path,
            # Any object has the metadata that this test reads.
            WireNode,
            self._translate,
            self.forgotten.append,
            lambda key, problem: self.rejected.append((key, problem)),
            absent_on=absent_on,
            other_paths=other_paths,
            kept_seconds=kept_seconds,
            may_lack_at_start=may_lack_at_start,
            note_absence=self.absences.append,
        )
        self.reflector = Reflector(client, source, self._take, **options)

    @staticmethod
    def _translate(wire: WireNode) -> tuple[str, str]:
        value = (wire.metadata.labels or {}).get("touched", "")
        if value == "poison":
            raise ValueError("poisoned")
        return wire.metadata.name, value

    def _take(self, changes: list[Change[tuple[str, str]]]) -> None:
        self.batches.append(len(changes))
        self.changes += changes

    @property
    def world(self) -> dict[str, str]:
        """The state after applying every change."""
        known: dict[str, str] = {}
        for change in self.changes:
            match change:
                case Added((name, value)):
                    assert name not in known
                    known[name] = value
                case Modified((old, before), (name, value)):
                    assert known[name] == before
                    assert old == name
                    known[name] = value
                case Deleted((name, _)):
                    del known[name]
        known.pop("kube-root-ca.crt", None)
        return known

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.reflector.run())
            async with asyncio.timeout(30):
                await self.reflector.synced.wait()
            yield
            task.cancel()


@pytest.fixture
async def proxy(sandbox: Sandbox) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(find_credentials(str(sandbox.kubeconfig))) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: FaultProxy) -> AsyncIterator[Client]:
    async with Client(proxy.credentials) as client:
        yield client


@pytest.fixture
def kind(client: Client, namespace: str) -> Kind:
    return Kind(client, namespace)


@pytest.fixture
def copy(through: Client, kind: Kind) -> Copy:
    return Copy(through, kind.path)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_SIZE", 2)


async def test_list_then_watch(copy: Copy, kind: Kind) -> None:
    await kind.create("a", "b")
    async with copy.running():
        assert copy.world == {"a": "", "b": ""}
        await kind.create("c")
        await kind.touch("a", "1")
        await kind.delete("b")
        await until(lambda: copy.world == {"a": "1", "c": ""})
    assert copy.reflector.stats.lists == 1
    assert copy.reflector.stats.inferred_deletes == 0
    assert copy.forgotten == [("b", "")]
    assert copy.reflector.get(kind.path.split("/")[4], "a") == ("a", "1")


@pytest.mark.usefixtures("small_pages")
async def test_pages(copy: Copy, kind: Kind, proxy: FaultProxy) -> None:
    names = [f"n{i}" for i in range(7)]
    await kind.create(*names)
    async with copy.running():
        assert sorted(copy.world) == names
    assert sum("limit" in seen.query for seen in proxy.seen) == 4


@pytest.mark.usefixtures("small_pages")
async def test_an_expired_page_token_starts_the_list_again(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    names = [f"n{i}" for i in range(5)]
    await kind.create(*names)
    proxy.plan(is_page(2), Do.ANSWER, **GONE)
    async with copy.running():
        assert sorted(copy.world) == names
        assert copy.reflector.stats.lists == 2


async def test_deletes_missed_over_a_410_are_inferred(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    await kind.create("stays", "goes", "changes")
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        proxy.plan(is_watch, Do.ANSWER, **GONE)
        proxy.silence_streams()
        await kind.delete("goes")
        await kind.touch("changes", "1")
        await kind.create("comes")
        proxy.drop_streams()
        await until(lambda: copy.reflector.stats.lists == 2 and copy.reflector.synced.is_set())
        assert copy.world == {"stays": "", "changes": "1", "comes": ""}
    assert Deleted(("goes", ""), is_inferred=True) in copy.changes
    assert copy.reflector.stats.inferred_deletes == 1
    # Unchanged objects are not delivered again.
    assert sum(change == Added(("stays", "")) for change in copy.changes) == 1


async def test_a_410_in_the_stream(copy: Copy, kind: Kind, proxy: FaultProxy) -> None:
    await kind.create("a")
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        await proxy.inject(EXPIRED)
        await until(lambda: copy.reflector.stats.lists == 2 and copy.reflector.synced.is_set())
        await kind.create("b")
        await until(lambda: copy.world == {"a": "", "b": ""})
    assert "too old resource version" in copy.reflector.stats.last_error


async def test_not_synced_between_a_410_and_the_list(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        fault = proxy.plan(is_page(1), Do.ANSWER, times=2, status=503)
        await proxy.inject(EXPIRED)
        # On a busy machine both failed lists may pass between two polls.
        await until(lambda: fault.times < 2)
        assert fault.times == 0 or not copy.reflector.synced.is_set()
        await until(lambda: fault.times == 0 and copy.reflector.synced.is_set())


async def test_broken_connection_resumes_from_its_revision(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        proxy.silence_streams()
        await kind.create("missed")
        proxy.drop_streams()
        await until(lambda: copy.world == {"missed": ""})
        assert copy.reflector.synced.is_set()
    assert copy.reflector.stats.lists == 1


async def test_silent_watch_is_a_broken_connection(
    through: Client, kind: Kind, proxy: FaultProxy
) -> None:
    copy = Copy(through, kind.path, times=WatchTimes(1.0))
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        proxy.silence_streams()
        await kind.create("missed")
        await until(lambda: copy.world == {"missed": ""})
    assert copy.reflector.stats.lists == 1


async def test_closed_watch_resumes_from_its_revision(through: Client, kind: Kind) -> None:
    copy = Copy(through, kind.path, times=WatchTimes(1.0))
    async with copy.running():
        await until(lambda: copy.reflector.stats.watches >= 3)
        await kind.create("a")
        await until(lambda: copy.world == {"a": ""})
    assert copy.reflector.stats.lists == 1
    assert copy.reflector.stats.errors == 0


async def test_watch_with_events_resumes_immediately(through: Client, kind: Kind) -> None:
    delays = Delays()
    copy = Copy(through, kind.path, times=WatchTimes(1.0), backoff=delays)
    async with copy.running():
        for number in range(60):
            await kind.create(f"a-{number}")
            await asyncio.sleep(0.05)
    assert copy.reflector.stats.watches >= 3
    # The first stream follows a list, which is not progress of a watch.
    assert len(delays.asked) <= 1


def test_a_dead_watch_is_noticed_within_half_a_minute() -> None:
    times = WatchTimes()
    assert {times.choose() for _ in range(100)} == set(range(12, 16))
    assert times.silence + Backoff().cap <= 30
    assert times.healthy < 12, "a watch that ends as asked is healthy"


async def test_quiet_watch_is_continued_without_a_pause(
    through: Client, kind: Kind, proxy: FaultProxy
) -> None:
    """Bookmarks of a quiet kind may say nothing new."""
    delays = Delays()
    copy = Copy(through, kind.path, times=WatchTimes(1.0), backoff=delays)
    async with copy.running():
        await until(lambda: copy.reflector.stats.watches >= 4)
    assert delays.asked == []
    assert copy.reflector.stats.lists == 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_busy_server_is_retried(
    copy: Copy, kind: Kind, proxy: FaultProxy, status: int
) -> None:
    proxy.plan(is_watch, Do.ANSWER, times=2, status=status, reason="Busy")
    async with copy.running():
        await kind.create("a")
        await until(lambda: copy.world == {"a": ""})
    assert copy.reflector.stats.lists == 1
    assert copy.reflector.stats.errors == 2


async def test_retry_after_is_honoured(copy: Copy, proxy: FaultProxy) -> None:
    proxy.plan(is_page(1), Do.ANSWER, status=429, headers={"Retry-After": "1"})
    began = time.monotonic()
    async with copy.running():
        assert time.monotonic() - began >= 1


async def test_revision_from_the_future_is_listed_again(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    message = "Too large resource version: 99, current: 5"
    proxy.plan(is_watch, Do.ANSWER, status=504, reason="Timeout", message=message)
    proxy.plan(is_watch, Do.ANSWER, status=504, reason="Timeout")
    async with copy.running():
        await kind.create("a")
        await until(lambda: copy.world == {"a": ""} and copy.reflector.synced.is_set())
        await until(lambda: copy.reflector.stats.errors == 2)
    assert copy.reflector.stats.lists == 2


async def test_watch_from_the_future_is_detected_by_its_silence(
    through: Client, kind: Kind, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALE_SECONDS", 0.5)
    copy = Copy(through, kind.path, times=WatchTimes(1.0))
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        future = {"metadata": {"resourceVersion": "99999999999"}}
        await proxy.inject({"type": "BOOKMARK", "object": future})
        await until(lambda: copy.reflector.stats.bookmarks == 1)
        proxy.drop_streams()
        await kind.create("a")
        await until(lambda: copy.world == {"a": ""})
    assert copy.reflector.stats.lists >= 2
    assert "99999999999" in [seen.query.get("resourceVersion") for seen in proxy.seen]


async def test_cache_without_contact_is_listed_again(
    copy: Copy, kind: Kind, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALE_SECONDS", 0.5)
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        fault = proxy.plan(lambda _: True, Do.DROP, times=1000)
        proxy.drop_streams()
        await until(lambda: not copy.reflector.synced.is_set())
        fault.times = 0
        await until(copy.reflector.synced.is_set)
        # Also without changes, an empty batch signals that the cache is synced.
        assert copy.batches[-1] == 0
    assert copy.reflector.stats.lists >= 2


async def test_cache_that_will_be_stale_before_the_retry_is_not_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server requests a pause, during which no events arrive."""
    monkeypatch.setattr(module, "STALE_SECONDS", 20.0)
    page = b'{"metadata": {"resourceVersion": "1"}, "items": []}'
    listed = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n"
    for seconds, is_synced in [(10, True), (25, False)]:
        async with scripted(listed, busy % seconds) as (_, client):
            copy = Copy(client, "/api/v1/nodes")
            async with copy.running():
                await until(lambda copy=copy: copy.reflector.stats.errors == 1)  # type: ignore[misc]
                assert copy.reflector.synced.is_set() is is_synced


async def test_recreated_object_replaces_the_deleted_one(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    await kind.create("a")
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        proxy.plan(is_watch, Do.ANSWER, **GONE)
        proxy.silence_streams()
        await kind.delete("a")
        await kind.create("a")
        proxy.drop_streams()
        await until(lambda: copy.reflector.stats.lists == 2 and copy.reflector.synced.is_set())
    assert copy.changes[-2:] == [Deleted(("a", "")), Added(("a", ""))]


async def test_malformed_object_does_not_affect_others(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    await kind.create("good", "bad", "worse")
    await kind.touch("worse", "poison")
    async with copy.running():
        assert copy.world == {"good": "", "bad": ""}
        await kind.touch("bad", "poison")
        await kind.touch("good", "1")
        await until(lambda: copy.world == {"good": "1", "bad": ""})
        namespace = kind.path.split("/")[4]
        assert copy.rejected == [(f"{namespace}/{name}", "poisoned") for name in ("worse", "bad")]
        # Not an object of its kind.
        odd = {"metadata": {"name": "odd", "namespace": namespace, "labels": 7}}
        await proxy.inject({"type": "ADDED", "object": odd})
        await kind.touch("good", "2")
        await until(lambda: copy.world == {"good": "2", "bad": ""})
        assert copy.rejected[-1][0] == f"{namespace}/odd"
        await kind.touch("bad", "2")
        await until(lambda: copy.world == {"good": "2", "bad": "2"})
    assert copy.reflector.stats.poison == 3


async def test_garbage_in_the_stream_is_listed_again(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    async with copy.running():
        await until(lambda: proxy.open_streams == 1)
        await proxy.inject(b"<html>bad gateway</html>\n")
        await until(lambda: copy.reflector.stats.lists == 2 and copy.reflector.synced.is_set())
        await kind.create("a")
        await until(lambda: copy.world == {"a": ""})
    assert "cannot decode" in copy.reflector.stats.last_error


async def test_periodic_lists(through: Client, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    await kind.create("a")
    monkeypatch.setattr(module, "RELIST_SECONDS", 0.5)
    copy = Copy(through, kind.path, times=WatchTimes(1.0))
    async with copy.running():
        await until(lambda: copy.reflector.stats.lists >= 3)
        assert copy.reflector.synced.is_set()
    assert copy.world == {"a": ""}


async def test_events_that_arrive_together_are_one_batch(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    def event(number: int) -> bytes:
        meta = b'{"metadata":{"name":"x%d","uid":"%d","resourceVersion":"%d"}}'
        return b'{"type":"ADDED","object":' + meta % (number, number, number) + b"}\n"

    lines = b"".join(map(event, range(10**9, 10**9 + 50)))  # newer than any real revision
    namespace = kind.path.split("/")[4]
    async with copy.running():
        # The controller manager creates this object; it must not do so between the two halves.
        await until(lambda: copy.reflector.get(namespace, "kube-root-ca.crt") is not None)
        await until(lambda: proxy.open_streams == 1)
        cut = len(lines) - 30  # in the middle of the last event
        await proxy.inject(lines[:cut])
        await until(lambda: len(copy.world) == 49)
        await proxy.inject(lines[cut:])
        await until(lambda: len(copy.world) == 50)
    assert copy.batches[-2:] == [49, 1]


async def test_repeated_events_are_ignored(copy: Copy, kind: Kind, proxy: FaultProxy) -> None:
    await kind.create("stays", "goes")
    async with copy.running():
        proxy.echo_seconds = 0.3
        await until(lambda: proxy.open_streams == 1)
        for value in ("1", "2"):
            await kind.touch("stays", value)
            await kind.touch("goes", value)
        await kind.delete("goes")
        await asyncio.sleep(0.6)
        await kind.create("last")
        await until(lambda: "last" in copy.world)
        assert copy.world == {"stays": "2", "last": ""}
        told = [change for change in copy.changes if isinstance(change, Modified)]
        assert [change.value for change in told if change.value[0] == "stays"] == [
            ("stays", "1"),
            ("stays", "2"),
        ]


async def test_optional_kind_that_is_absent_is_synced(through: Client) -> None:
    copy = Copy(through, "/apis/nobody.example/v1/things", absent_on=(NotFound,))
    async with copy.running():
        await until(lambda: copy.reflector.stats.lists >= 2)
        assert copy.reflector.synced.is_set()
        assert copy.reflector.stats.errors == 0, "nobody is to be alerted"


async def test_objects_of_a_kind_that_is_gone_are_kept_for_a_while(
    proxy: FaultProxy, through: Client, kind: Kind
) -> None:
    await kind.create("a")
    copy = Copy(through, kind.path, absent_on=(NotFound,), kept_seconds=3.0)
    async with copy.running():
        fault = proxy.plan(lambda request: request.path == kind.path, Do.ANSWER, **NOT_SERVED)
        proxy.drop_streams()
        await until(lambda: Absence.UNPROVEN in copy.absences)
        assert copy.reflector.synced.is_set()
        assert copy.world
        fault.times = 0
        await until(lambda: copy.absences[-1] is Absence.NONE)
        assert copy.world
        fault.times = 1000
        proxy.drop_streams()
        await until(lambda: copy.absences[-1] is Absence.PROVEN)
        await until(lambda: not copy.world)
        assert copy.reflector.synced.is_set()


async def test_kind_that_is_not_served_at_first_is_not_synced_for_a_while(through: Client) -> None:
    path = "/apis/nobody.example/v1/things"
    copy = Copy(through, path, absent_on=(NotFound,), kept_seconds=1.0)
    task = asyncio.ensure_future(copy.reflector.run())
    await until(lambda: copy.reflector.stats.lists >= 2)
    assert Absence.UNPROVEN not in copy.absences
    await until(copy.reflector.synced.is_set)
    assert copy.absences == [Absence.PROVEN]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_kind_that_may_lack_is_synced_at_once_and_kept_for_a_while_later(
    proxy: FaultProxy, through: Client, kind: Kind
) -> None:
    """A definition that nobody has installed keeps no cluster waiting; one that goes may return."""
    path = "/apis/nobody.example/v1/things"
    absent = {"absent_on": (NotFound,), "kept_seconds": 3600.0, "may_lack_at_start": True}
    copy = Copy(through, path, **absent)
    async with copy.running():
        await until(copy.reflector.synced.is_set)
        assert copy.reflector.stats.lists == 1
        assert copy.absences == [Absence.PROVEN]
    await kind.create("a")
    copy = Copy(through, kind.path, **absent)
    async with copy.running():
        await until(lambda: bool(copy.world))
        proxy.plan(lambda request: request.path == kind.path, Do.ANSWER, **NOT_SERVED)
        proxy.drop_streams()
        await until(lambda: Absence.UNPROVEN in copy.absences)
        assert copy.world


async def test_first_version_that_is_served_is_read(through: Client, kind: Kind) -> None:
    await kind.create("a")
    newer, new = "/apis/nobody.example/v2/things", "/apis/nobody.example/v1/things"
    copy = Copy(through, newer, absent_on=(NotFound,), other_paths=(new, kind.path))
    async with copy.running():
        assert set(copy.world) == {"a"}
        await kind.create("b")
        await until(lambda: "b" in copy.world)
        assert copy.reflector.path == kind.path
        assert not copy.reflector.is_absent


async def test_objects_stay_when_their_version_gives_way_to_another(
    proxy: FaultProxy, client: Client, through: Client, namespace: str
) -> None:
    """Events are served in two groups, which stand for two versions here."""
    old, new = (f"{root}/namespaces/{namespace}/events" for root in ("/api/v1", EVENTS))
    at_first = proxy.plan(lambda request: request.path == new, Do.ANSWER, **NOT_SERVED)
    await client.post(old, event_of(namespace, "a"))
    copy = Copy(through, new, absent_on=(NotFound,), kept_seconds=30.0, other_paths=(old,))
    async with copy.running():
        assert (set(copy.world), copy.reflector.path) == ({"a"}, old)
        at_first.times = 0
        proxy.plan(lambda request: request.path == old, Do.ANSWER, **NOT_SERVED)
        proxy.drop_streams()
        await client.post(old, event_of(namespace, "b"))
        await until(lambda: "b" in copy.world)
        assert (set(copy.world), copy.reflector.path) == ({"a", "b"}, new)
        assert not copy.forgotten
        assert Absence.PROVEN not in copy.absences


def event_of(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name},
        "reason": "Test",
        "message": "",
    }


async def test_missing_kind_is_retried(through: Client) -> None:
    copy = Copy(through, "/apis/nobody.example/v1/things")
    task = asyncio.ensure_future(copy.reflector.run())
    await until(lambda: copy.reflector.stats.errors >= 2)
    assert not copy.reflector.synced.is_set()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_list_on_demand_does_not_wait_for_a_watch_that_lags(
    copy: Copy, kind: Kind, proxy: FaultProxy
) -> None:
    """It shows what was written before, and translates also what has not changed."""
    await kind.create("a", "b")
    async with copy.running():
        proxy.silence_streams()
        await kind.touch("a", "1")
        await kind.delete("b")
        await kind.create("c")
        before = len(copy.changes)
        async with asyncio.timeout(30):
            await asyncio.gather(copy.reflector.relist(), copy.reflector.relist())
        assert copy.world == {"a": "1", "c": ""}
        told = [one for one in copy.changes[before:] if isinstance(one, Modified)]
        assert any(one.old == one.value for one in told), "those that did not change as well"
        proxy.heal()
        await kind.touch("c", "2")
        await until(lambda: copy.world == {"a": "1", "c": "2"})
    assert copy.reflector.stats.errors == 0
