"""Answers over HTTP: who gets them, in which form, and what is refused."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, make_quota
from tests.cluster import FakeCluster, make_cluster
from tests.support.laws import examples

from koord.answers import overview
from koord.answers.envelope import AnswerGap, GapCause
from koord.answers.happenings import SeenObjects
from koord.answers.leaders import Leader
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.story import make_story
from koord.kube.errors import KubeError
from koord.see import cluster_routes, snapshots
from koord.see.access import KeyAccess
from koord.see.app import BASE, Server
from koord.see.buckets import BURST, Bucket
from koord.see.manifests import ServerDefaults
from koord.see.openapi import make_document
from koord.see.paging import ListQuery, make_page
from koord.see.routes import ROUTES
from koord.see.snapshots import OnDemand, Snapshot, Snapshots
from koord.see.topics import parse_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from koord.answers.happenings import Subject
    from koord.answers.story import Story

KEY = "right"
HERE = Target(TargetKind.POD, "default", "")


def make_filled_cluster() -> FakeCluster:
    cluster = make_cluster(2).nodes(make_node("away").gpu(8).taint("x")).quotas(make_quota("a"))
    cluster.pods(
        make_pod("runs").gpu(3).running("n0"), *(make_pod(f"w{at}").gpu(8) for at in (1, 2))
    )
    return cluster.gang("train", 4)


class Changing:
    """A cluster that is read again and again; ``problem`` makes reading fail."""

    def __init__(self) -> None:
        self.cluster = make_filled_cluster()
        self.problem = ""
        self.leader: Leader | None = None

    def read(self) -> tuple[Reading, Target]:
        if self.problem:
            raise KubeError(self.problem)
        return Reading(self.cluster.state, leader=self.leader), HERE


def make_leader(holder: str, term: int) -> Leader:
    return Leader("koord-operators", holder, "2026-03-01T11:00:00Z", 2.0, None, term)


class Client:
    """Asks a server as a program would."""

    def __init__(self, session: aiohttp.ClientSession, server: Server, source: Changing) -> None:
        self.session, self.server, self.source = session, server, source
        self.root = f"http://127.0.0.1:{server.access.port}"

    async def get(self, path: str, **headers: str) -> tuple[int, Any, aiohttp.ClientResponse]:
        given = {"Authorization": f"Bearer {KEY}", **headers}
        async with self.session.get(f"{self.root}{path}", headers=given) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None, response

    async def post(self, path: str, body: str, key: str = KEY) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.session.post(f"{self.root}{path}", data=body, headers=headers) as response:
            return response.status, await response.json()


@asynccontextmanager
async def open_server(*, is_read: bool = True) -> AsyncIterator[Client]:
    source = Changing()
    readings = Snapshots(source.read)
    server = Server(readings, KeyAccess(KEY))
    runner = web.AppRunner(server.make_app(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.access.port = int(runner.addresses[0][1])
        if is_read:
            await readings.read_once()
        async with aiohttp.ClientSession() as session:
            yield Client(session, server, source)
    finally:
        readings.close()
        await runner.cleanup()


async def test_every_answer_has_the_envelope() -> None:
    async with open_server() as client:
        paths = {
            "{namespace}": "default",
            "{kind}": "podgroup",
            "explanations/podgroup/{name}": "explanations/podgroup/train",
            "quotas/{name}": "quotas/a",
        }
        for route in ROUTES:
            path = route.path
            for part, value in paths.items():
                path = path.replace(part, value)
            if route.method == "POST" or "{" in path:
                continue
            status, document, _ = await client.get(f"{BASE}/{path}")
            assert status == 200, (path, document)
            assert document["answer"] == route.answer
            assert document["asOf"]["state"] == 1
            assert document["asOf"]["instance"] == client.server.snapshots.instance
            assert document["value"] is not None


async def test_the_overview_adds_up() -> None:
    async with open_server() as client:
        _, document, _ = await client.get(f"{BASE}/overview")
    gpus = document["value"]["gpus"]
    assert gpus.pop("total") == sum(gpus.values()) == 24
    assert sum(document["value"]["waiting"].values()) == 3
    assert document["value"]["waiting"]["Room"] == 2


async def test_the_queue_is_paged_and_filtered() -> None:
    async with open_server() as client:
        _, first, _ = await client.get(f"{BASE}/queue?limit=1")
        value = first["value"]
        assert (len(value["items"]), value["total"], value["remaining"]) == (1, 3, 2)
        _, after, _ = await client.get(f"{BASE}/queue?limit=1&continue={value['continue']}")
        assert after["value"]["items"][0]["position"] == 2
        _, room, _ = await client.get(f"{BASE}/queue?class=Room&fields=names,class")
        assert {row["class"] for row in room["value"]["items"]} == {"Room"}
        status, refusal, _ = await client.get(f"{BASE}/queue?limit=x")
        assert (status, refusal["error"]) == (400, "Invalid")
        expired = await client.get(f"{BASE}/queue?class=Room&continue={value['continue']}")
        assert (expired[0], expired[1]["error"]) == (410, "Expired")


async def test_nobody_gets_an_answer_without_the_key() -> None:
    async with open_server() as client:
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}):
            status, refusal, response = await client.get(f"{BASE}/overview", **headers)
            assert (status, refusal["error"]) == (401, "Unauthorized")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        status, _ = await client.post("/session", '{"key": "wrong"}', key="")
        assert status == 401


async def test_the_key_is_traded_for_a_cookie_that_scripts_cannot_read() -> None:
    async with open_server() as client:
        async with client.session.post(f"{client.root}/session", json={"key": KEY}) as response:
            [cookie] = response.cookies.values()
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
            sent = {"Cookie": f"{cookie.key}={cookie.value}"}
        async with client.session.get(f"{client.root}{BASE}/overview", headers=sent) as response:
            assert response.status == 200


async def test_pages_of_two_clusters_are_open_in_one_browser() -> None:
    """Cookies know no ports: with one name for both, the key of one would end the other's."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        open_server() as one,
        open_server() as other,
        aiohttp.ClientSession(cookie_jar=jar) as browser,
    ):
        for page in (one, other):
            async with browser.post(f"{page.root}/session", json={"key": KEY}) as response:
                assert response.status == 200
        for page in (one, other):
            async with browser.get(f"{page.root}{BASE}/overview") as response:
                assert response.status == 200


async def test_other_names_of_the_host_are_refused() -> None:
    async with open_server() as client:
        status, refusal, _ = await client.get(f"{BASE}/overview", Host="evil.example:80")
        assert (status, refusal["error"]) == (421, "WrongHost")


async def test_an_answer_that_did_not_change_is_not_sent_again() -> None:
    async with open_server() as client:
        _, _, response = await client.get(f"{BASE}/quotas")
        tag = response.headers["ETag"]
        assert (await client.get(f"{BASE}/quotas", **{"If-None-Match": tag}))[0] == 304
        await client.server.snapshots.read_once()
        assert (await client.get(f"{BASE}/quotas", **{"If-None-Match": tag}))[0] == 200


async def test_before_the_first_reading_it_says_why_there_is_no_answer() -> None:
    async with open_server(is_read=False) as client:
        status, refusal, _ = await client.get(f"{BASE}/overview")
        assert (status, refusal["error"], refusal["retryAfterSeconds"]) == (503, "NotReady", 2)
        client.source.problem = "no way"
        await client.server.snapshots.read_once()
        _, refusal, _ = await client.get(f"{BASE}/overview")
        assert refusal["message"] == "no way"


async def test_first_answers_do_not_wait_until_all_that_waits_is_planned() -> None:
    """With thousands of units a plan takes long, and a map needs none; later the old one serves."""
    planned: list[int] = []
    async with open_server() as client:
        client.server.snapshots._parts = (lambda snapshot: planned.append(snapshot.number),)
        assert (await client.get(f"{BASE}/map"))[0] == 200
        assert planned == []
        await client.server.snapshots.read_once()
        assert planned == [2]


async def test_what_waits_is_planned_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_HEAD_START_SECONDS", 0.0)
    is_planned = threading.Event()
    async with open_server(is_read=False) as client:
        client.server.snapshots._parts = (lambda _: is_planned.set(),)
        running = asyncio.create_task(client.server.snapshots.run())
        assert await asyncio.to_thread(is_planned.wait, 60)
        running.cancel()


async def test_a_reading_that_fails_keeps_what_was_read_before() -> None:
    async with open_server() as client:
        client.source.problem = "no way"
        await client.server.snapshots.read_once()
        status, document, _ = await client.get(f"{BASE}/overview")
        assert (status, document["asOf"]["state"]) == (200, 1)


async def test_what_does_not_exist_is_not_found() -> None:
    async with open_server() as client:
        for path in ("quotas/none", "nodes/none/devices", "topologies/none"):
            status, refusal, _ = await client.get(f"{BASE}/{path}")
            assert (status, refusal["error"]) == (404, "NotFound"), path
        asked = f"{BASE}/namespaces/default/explanations"
        for path in ("podgroup/none", "spaceship/train"):
            assert (await client.get(f"{asked}/{path}"))[0] == 404
        assert (await client.get("/elsewhere"))[0] == 404


async def test_room_is_computed_from_a_body() -> None:
    async with open_server() as client:
        status, document = await client.post(f"{BASE}/room", "shape: 1x4")
        assert (status, document["value"]["shape"]) == (200, "1x4")
        for body in (
            "{",
            '{"shape": "4", "namespace": "\\ud800"}',
            "[1]",
            '{"shape": 4}',
            '{"shape": "4by8"}',
            '{"form": "4"}',
        ):
            status, refusal = await client.post(f"{BASE}/room", body)
            assert (status, refusal["error"]) == (400, "Invalid"), body


async def test_an_answer_that_fails_is_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Snapshot) -> None:
        raise ZeroDivisionError

    async with open_server() as client:
        monkeypatch.setattr(Snapshot, "queue", property(fail))
        status, refusal, _ = await client.get(f"{BASE}/overview")
        assert (status, refusal["error"]) == (500, "InternalError")
        assert (await client.get(f"{BASE}/quotas"))[0] == 200


async def test_a_stream_tells_what_is_new_and_what_is_gone() -> None:
    async with open_server() as client:
        url = f"{client.root}{BASE}/stream?topic=queue(fields=names)&topic=overview"
        headers = {"Authorization": f"Bearer {KEY}"}
        async with client.session.get(url, headers=headers) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            events = read_events(response)
            (kind, hello), (_, overview) = await anext(events), await anext(events)
            assert (kind, hello["answer"], hello["value"]["total"]) == ("hello", "Queue", 3)
            assert overview["value"]["gpus"]["total"] == 24
            client.source.cluster.delete_pods("w1")
            client.source.cluster.pods(make_pod("w3").gpu(8))
            await client.server.snapshots.read_once()
            kind, rows = await anext(events)
            assert (kind, rows["gone"]) == ("rows", ["pod/default/w1"])
            assert ["default/w3"] in [row["names"] for row in rows["set"]]


async def test_a_stream_goes_on_over_a_change_of_leader() -> None:
    async with open_server() as client:
        source = client.source
        source.leader = make_leader("koord-operators-abc", 41)
        await client.server.snapshots.read_once()
        url = f"{client.root}{BASE}/stream?topic=overview"
        async with client.session.get(url, headers={"Authorization": f"Bearer {KEY}"}) as response:
            events, told = read_events(response), []
            for leader in (None, make_leader("", 41), make_leader("koord-operators-def", 42)):
                if leader is not None:
                    source.leader = leader
                    await client.server.snapshots.read_once()
                kind, body = await anext(events)
                because = [gap["because"] for gap in body["gaps"]]
                told.append((kind, body["asOf"]["leader"], body["asOf"]["term"], because))
    assert told == [
        ("hello", "koord-operators-abc", 41, []),
        ("hello", None, 41, ["NoLeader"]),
        ("hello", "koord-operators-def", 42, []),
    ]


async def test_a_stream_says_that_it_lives_though_nothing_changes() -> None:
    async with open_server() as client:
        url = f"{client.root}{BASE}/stream?topic=overview"
        async with client.session.get(url, headers={"Authorization": f"Bearer {KEY}"}) as response:
            events = read_events(response)
            assert (await anext(events))[0] == "hello"
            await client.server.snapshots.read_once()
            kind, sign = await anext(events)
            assert (kind, sign["problem"], sign["lagSeconds"]) == ("sign", "", 0)


async def test_a_stream_says_why_there_is_nothing_to_tell() -> None:
    async with open_server(is_read=False) as client:
        client.source.problem = "no way\x1b[2J"
        await client.server.snapshots.read_once()
        url = f"{client.root}{BASE}/stream?topic=overview"
        async with client.session.get(url, headers={"Authorization": f"Bearer {KEY}"}) as response:
            kind, sign = await anext(read_events(response))
            assert (kind, sign["lagSeconds"]) == ("sign", None)
            assert sign["problem"].startswith("no way")
            assert "\x1b" not in sign["problem"]


async def test_edits_are_tried_and_change_nothing() -> None:
    async with open_server() as client:
        _, before, _ = await client.get(f"{BASE}/queue")
        body = '{"edits": [{"delete": {"ref": "pod/default/w1"}}]}'
        status, document = await client.post(f"{BASE}/whatifs", body)
        assert (status, document["answer"]) == (200, "WhatIf")
        changed = {unit["ref"]["name"]: unit["after"] for unit in document["value"]["units"]}
        assert changed["w1"]["standing"] is None
        assert changed["w2"]["standing"] == "Placeable"
        _, after, _ = await client.get(f"{BASE}/queue")
        assert before["value"] == after["value"]


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"edits": []}',
        '{"edits": "drain"}',
        '{"edits": [{"drain": {}}]}',
        '{"edits": [{"drain": {"nodes": ["none"]}}]}',
        '{"edits": [{"dance": {}}]}',
        '{"edits": [{"delete": {"ref": "pod"}}]}',
        '{"edits": [{"patch": {"ref": "quota/a", "merge": {"spec": {"max": {"cpu": "x"}}}}}]}',
        '{"edits": [{"addNodes": {"like": "n0", "count": "2"}}]}',
        '{"edits": [{"drain": {"nodes": ["n0"]}}], "more": 1}',
    ],
)
async def test_edits_that_cannot_be_meant_are_refused(body: str) -> None:
    async with open_server() as client:
        status, refusal = await client.post(f"{BASE}/whatifs", body)
        assert (status, refusal["error"]) == (400, "Invalid"), refusal


async def test_remedies_are_tried() -> None:
    async with open_server() as client:
        asked = f"{BASE}/namespaces/default/remedies/podgroup"
        status, document, _ = await client.get(f"{asked}/train")
        assert status == 200
        assert {remedy["verified"] for remedy in document["value"]["items"]} == {"Yes"}
        assert (await client.get(f"{asked}/none"))[0] == 404


async def test_an_answer_that_fails_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Snapshot) -> None:
        raise ZeroDivisionError

    async with open_server() as client:
        monkeypatch.setattr(Snapshot, "queue", property(fail))
        url = f"{client.root}{BASE}/stream?topic=queue&topic=quotas"
        async with client.session.get(url, headers={"Authorization": f"Bearer {KEY}"}) as response:
            events = read_events(response)
            assert [(await anext(events))[0] for _ in range(2)] == ["gap", "hello"]


async def test_what_happened_is_told_by_who_can_read_it() -> None:
    async with open_server() as client:
        asked = f"{BASE}/namespaces/default/stories/podgroup/train"
        assert (await client.get(asked))[0] == 404
        client.server.snapshots._on_demand = ON_DEMAND
        await client.server.snapshots.read_once()
        status, document, _ = await client.get(asked)
        assert (status, document["value"]["phases"][0]) == (200, {"phase": "Incomplete", "ms": 60})
        assert document["gaps"][-1]["because"] == "NoFeed"
        assert (await client.get(f"{BASE}/namespaces/default/stories/podgroup/none"))[0] == 404
        assert (await client.get(f"{BASE}/namespaces/default/stories/job/train"))[0] == 404


def tell(subject: Subject) -> tuple[Story, tuple[AnswerGap, ...]]:
    seen = SeenObjects(created=40, uid="u" if subject.name == "train" else "")
    gap = AnswerGap("records of decisions", GapCause.NO_FEED, "what was decided")
    return make_story(subject, (), seen, 100), (gap,)


def make_record(key: str, at: int, kind: str, **more: Any) -> dict[str, Any]:
    """Return a record as the feed has it; ``at`` are minutes after three."""
    time = f"2026-11-25T03:{at:02}:00.000Z"
    unit = {"key": key, "namespace": key.partition("/")[0], "names": [key], "pods": 4}
    return {"term": 1, "seq": at, "at": time, "kind": kind, "unit": unit, **more}


RECORDS = (
    {"term": 1, "seq": 1, "at": "2026-11-25T03:00:00.000Z", "kind": "Term", "holder": "op-1"},
    make_record("default/train", 2, "Running"),
    make_record("default/train", 5, "Evicted", policy="preemption", count=4, by="other/x"),
    make_record("other/x", 6, "Running"),
    make_record("default/train", 7, "Attempt", code="InsufficientNodes", text="no room"),
)
ON_DEMAND = OnDemand(
    tell, lambda: (RECORDS, ()), lambda namespace: ServerDefaults(namespace, "", {"": 0})
)


async def test_what_was_decided_at_a_time_is_found() -> None:
    async with open_server() as client:
        _, unread, _ = await client.get(f"{BASE}/decisions")
        assert {gap["because"] for gap in unread["gaps"]} >= {"NoFeed"}
        client.server.snapshots._on_demand = ON_DEMAND
        await client.server.snapshots.read_once()
        bounds = "from=2026-11-25T03:05:00Z&to=2026-11-25T04:07:00%2B01:00"
        status, document, _ = await client.get(f"{BASE}/decisions?{bounds}&sort=-at")
        whats = [(row["what"], row["ref"]) for row in document["value"]["items"]]
        assert (status, whats) == (200, [("Running", "other/x"), ("Preempted", "default/train")])
        _, room, _ = await client.get(f"{BASE}/decisions?class=Room&namespace=default")
        assert [row["text"] for row in room["value"]["items"]] == ["no room"]
        status, refusal, _ = await client.get(f"{BASE}/decisions?from=yesterday")
        assert (status, refusal["error"]) == (400, "Invalid")
        assert (await client.get(f"{BASE}/queue?from=2026-11-25T03:05:00Z"))[0] == 400


JOB = """
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  schedulingGates: [{name: operators.koordinator.sh/placement}]
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]
"""


async def test_a_job_that_does_not_exist_is_tried() -> None:
    async with open_server() as client:
        body = json.dumps({"edits": [{"submit": {"manifest": JOB}}]})
        status, document = await client.post(f"{BASE}/whatifs", body)
        (unit,) = document["value"]["units"]
        assert (status, unit["ref"]["name"], unit["before"]["standing"]) == (200, "new", None)
        assert unit["after"]["standing"] == "Placeable"
        unknown = {gap["missing"] for gap in document["gaps"]}
        assert unknown == {"defaults, policies and webhooks", "priorityclasses.scheduling.k8s.io"}
        folded = {"kind": "List", "items": [{"kind": "PodList", "items": [yaml.safe_load(JOB)]}]}
        body = json.dumps({"edits": [{"submit": {"manifest": folded}}]})
        assert (await client.post(f"{BASE}/whatifs", body))[1]["value"]["units"] == [unit]
        for wrong in ("a: [", "", "kind: Foo\nspec: {}", 7, None, [[]]):
            body = json.dumps({"edits": [{"submit": {"manifest": wrong}}]})
            status, refusal = await client.post(f"{BASE}/whatifs", body)
            assert (status, refusal["error"]) == (400, "Invalid"), wrong


def test_an_answer_is_computed_once_for_all_who_follow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    encode = overview.view_overview
    monkeypatch.setattr(
        cluster_routes, "view_overview", lambda *a: computed.append(1) or encode(*a)
    )
    snapshot = fill(["a"])
    values = [parse_topic("overview", "i").hello(snapshot)["value"] for _ in range(3)]
    assert (len(computed), values[0]) == (1, values[2])


async def test_a_node_is_told_with_its_pods() -> None:
    async with open_server() as client:
        _, document, _ = await client.get(f"{BASE}/nodes/n0")
        assert [pod["pod"] for pod in document["value"]["pods"]] == ["default/runs"]
        assert (await client.get(f"{BASE}/nodes/none"))[0] == 404


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            kind = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield kind, json.loads(text.removeprefix("data: "))


def fill(names: list[str]) -> Snapshot:
    cluster = make_cluster(1).pods(*(make_pod(name).gpu(8) for name in names))
    return Snapshot(Reading(cluster.state), HERE, 1, 0.0)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=2, max_size=4))
def test_changes_applied_to_the_first_answer_give_the_present_one(courses: list[set[str]]) -> None:
    topic = parse_topic("queue", "i")
    shown = {
        row["names"][0]: row for row in topic.hello(fill(sorted(courses[0])))["value"]["items"]
    }
    order = [f"pod/{name}" for name in shown]
    for names in courses[1:]:
        snapshot = fill(sorted(names))
        changes = topic.changes(snapshot) or {"set": [], "gone": []}
        shown |= {row["names"][0]: row for row in changes["set"]}
        for key in changes["gone"]:
            del shown[key.removeprefix("pod/")]
        order = changes.get("order") or [key for key in order if key not in changes["gone"]]
        fresh = parse_topic("queue", "i").hello(snapshot)["value"]["items"]
        assert order == [f"pod/{row['names'][0]}" for row in fresh]
        assert shown == {row["names"][0]: row for row in fresh}


def test_of_a_long_list_only_what_is_shown_is_written() -> None:
    (route,) = (route for route in ROUTES if route.answer == "Queue")
    assert route.form is not None
    written: list[str] = []
    form = replace(route.form, write=lambda entry: {"name": written.append(entry.names[0])})
    page = make_page(fill(list("abcd")).waiting, ListQuery(2, sort="position"), form, "i")
    assert (page["total"], written) == (4, ["default/a", "default/b"])


def test_of_a_long_list_the_first_page_is_followed() -> None:
    topic = parse_topic("queue(limit=2)", "i")
    assert len(topic.hello(fill(list("bcde")))["value"]["items"]) == 2
    changes = topic.changes(fill(list("abcde")))
    assert changes is not None
    assert [row["names"] for row in changes["set"]] == [["default/a"], ["default/b"]]
    assert (changes["total"], len(changes["order"])) == (5, 2)
    changes = topic.changes(fill(list("abcd")))
    assert changes is not None
    assert (changes["gone"], changes["total"], "order" in changes) == ([], 4, False)
    assert topic.changes(fill(list("abcd"))) is None
    changes = topic.changes(fill(list("abce")))  # who has read the rows behind reads them again
    assert changes is not None
    assert (changes["set"], changes["gone"], changes["total"]) == ([], [], 4)
    assert topic.changes(fill(list("abce"))) is None


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "nothing",
        "room",
        "queue(colour=red)",
        "queue(continue=x)",
        "overview(a=b)",
        "quota",
        "x" * 2000,
        "queue(",
    ],
)
async def test_wrong_topics_are_refused(topic: str) -> None:
    async with open_server() as client:
        status, refusal, _ = await client.get(f"{BASE}/stream?topic={topic}")
        assert (status, refusal["error"]) == (400, "Invalid")


def test_requests_are_bounded_per_second() -> None:
    now = [100.0]
    bucket = Bucket(clock=lambda: now[0])
    assert [bucket.take() for _ in range(BURST + 1)] == [True] * BURST + [False]
    now[0] += 1.0
    assert sum(bucket.take() for _ in range(BURST)) == 20


def references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(document, list):
        for value in document:
            yield from references(value)


def test_the_description_names_every_route_and_all_that_it_refers_to() -> None:
    document = make_document(ROUTES, BASE)
    assert set(document["paths"]) == {f"{BASE}/{route.path}" for route in ROUTES}
    schemas = document["components"]["schemas"]
    assert {ref.rpartition("/")[2] for ref in references(document)} <= schemas.keys()
    json.dumps(document)
    operations = [next(iter(each.values())) for each in document["paths"].values()]
    assert len({operation["operationId"] for operation in operations}) == len(ROUTES)
