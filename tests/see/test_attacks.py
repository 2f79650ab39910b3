"""Whoever has a token lies in all that she sends: others get their answers, and learn nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import msgspec
import pytest
from tests.builders import make_pod
from tests.cluster import make_cluster
from tests.objects import upsert_reservation
from tests.reservation.make import make_reservation
from tests.see.reviewer import Reviewer
from tests.see.test_token_access import HERE, Client, names_in, open_server, read_events

from koord.answers.happenings import Happening, StorySource, Subject
from koord.answers.reading import Reading
from koord.answers.redaction import Sight
from koord.answers.story import Story
from koord.cli.object_notes import ObjectNotes
from koord.kube.wire import WirePod
from koord.runtime.reviews import AccessReviews, TokenHolder
from koord.see import bodies
from koord.see.app import BASE
from koord.see.buckets import Buckets
from koord.see.limits import MOST_PLANS
from koord.see.rights import MOST_AT_ONCE, NEW_BURST, UserRights
from koord.see.route import STALE_SECONDS, Ask, NothingThere, head_for
from koord.see.routes import ROUTES
from koord.see.sessions import MOST_EACH, MOST_OF_CROWD, MOST_SESSIONS, Sessions
from koord.see.snapshots import OnDemand, Snapshot

BY_ANSWER = {route.answer: route for route in ROUTES}
OWN_STORY = f"{BASE}/namespaces/team-a/stories/pod/team-a-job"
FORGED = Happening(1000, "Forged", "see <b>team-b/secret</b>", StorySource.EVENT)


def tell(_: Subject) -> tuple[Story, tuple[()]]:
    real = Happening(500, "Seen", "", StorySource.AUDIT)
    return Story(Subject("Pod", "team-a", "team-a-job"), (real, FORGED), traces=("u",)), ()


def on_demand(answer: Any = tell) -> OnDemand:
    return OnDemand(answer, lambda: ((), ()), None)  # type: ignore[arg-type]


async def send(client: Client, method: str, path: str, **options: Any) -> tuple[int, str]:
    async with client.session.request(method, f"{client.root}{path}", **options) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://["}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Cookie": "=; koord; @,=1; koord=" + "a" * 4000}, 200),
        ({"Host": "[::1"}, 421),
        ({"If-None-Match": '"' + "x" * 4000}, 200),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_headers_that_make_no_sense_are_refused_and_break_nothing(
    headers: dict[str, str], status: int
) -> None:
    async with open_server() as client:
        assert (await client.get(f"{BASE}/overview", "a", **headers))[0] == status


async def test_of_two_tokens_none_counts() -> None:
    async with open_server() as client:
        headers = [("Authorization", "Bearer a"), ("Authorization", "Bearer r")]
        assert (await send(client, "GET", f"{BASE}/queue", headers=headers))[0] == 400


@pytest.mark.parametrize(
    "topic",
    ["queue(a%0Ab=1)", "queue(", "%0A", "story(namespace=team-a,kind=pod,name=x)", "a" * 2000,
     "remedies(namespace=team-a,kind=pod,name=team-a-job)"],
)  # fmt: skip
async def test_topics_that_make_no_sense_are_refused(topic: str) -> None:
    async with open_server() as client:
        status, refusal = await client.get(f"{BASE}/stream?topic={topic}", "a")
        assert (status, refusal["error"]) == (400, "Invalid")


@pytest.mark.parametrize("last", ["", "x:1", "..", "9" * 4000, "00000000:1"])
async def test_whatever_a_stream_goes_on_from_it_begins_with_all(last: str) -> None:
    async with open_server() as client:
        headers = {"Authorization": "Bearer a", "Last-Event-ID": last}
        url = f"{client.root}{BASE}/stream?topic=queue"
        async with client.session.get(url, headers=headers) as stream:
            kind, hello = await anext(read_events(stream))
        assert (kind, names_in(hello)) == ("hello", ["team-a/team-a-job", None])


async def test_nothing_that_one_is_told_is_kept_for_others() -> None:
    async with open_server() as client:
        for path in (f"{BASE}/queue", f"{BASE}/quotas/none", "/session", "/nothing", "/login"):
            for token in ("a", ""):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with client.session.get(f"{client.root}{path}", headers=headers) as response:
                    assert "no-store" in response.headers["Cache-Control"], path


def test_nobody_logs_others_out_by_logging_in() -> None:
    sessions = Sessions()
    mine, _ = sessions.begin("mine", "ann")
    for at in range(2 * MOST_EACH):
        sessions.begin("t", "bob")
        sessions.begin("t", f"robot-{at}", "team-b")
    assert len(sessions) == 1 + MOST_EACH + 2 * MOST_EACH
    for at in range(2 * MOST_SESSIONS):
        sessions.begin("t", f"account-{at}", "team-b")
    assert len(sessions) == 1 + MOST_EACH + MOST_OF_CROWD
    assert sessions.find(mine) is not None


def add_accounts(client: Client, count: int) -> list[str]:
    """Let a tenant create ServiceAccounts, and return their tokens."""
    tokens = [f"robot-{at}" for at in range(count)]
    names = {token: f"system:serviceaccount:team-a:{token}" for token in tokens}
    client.reviewer.users |= names
    client.buckets.per_second = client.buckets.burst = 1000.0
    return tokens


async def test_a_tenant_with_many_accounts_leaves_streams_and_requests_for_others() -> None:
    async with open_server() as client:
        tokens = add_accounts(client, 40)
        streams = [await client.follow(token) for token in tokens]
        statuses = [stream.status for stream in streams]
        assert statuses == [200] * 25 + [429] * 15
        flood = [await client.get("/session", token) for token in tokens]
        assert {status for status, _ in flood} == {200}
        # However slow this machine is.
        client.server._rates._crowds = Buckets(0.001, 60)
        flood = [await client.get(f"{BASE}/overview", token) for token in 2 * tokens]
        assert {status for status, _ in flood} == {200, 429}
        assert (await client.get(f"{BASE}/overview", "b"))[0] == 200
        async with client.follow("b") as stream:
            assert stream.status == 200
        for each in streams:
            each.close()


async def test_whoever_plans_all_the_time_keeps_nobody_from_quick_answers() -> None:
    goes_on, plans = threading.Event(), 0

    async with open_server() as client:
        tokens = add_accounts(client, MOST_PLANS)
        snapshots = client.readings
        wait = snapshots.plan(lambda: goes_on.wait(30))
        blocked = asyncio.ensure_future(wait)
        path = f"{BASE}/namespaces/team-a/explanations/pod/team-a-job"
        asked = [asyncio.ensure_future(client.get(path, token)) for token in tokens]
        while (plans := len(client.server._planning)) < MOST_PLANS // 4:  # noqa: ASYNC110 - soon
            await asyncio.sleep(0)
        # The thread of answers has one plan to do, whoever waits for how many more.
        assert snapshots._answerer._work_queue.qsize() <= 1
        others = asyncio.ensure_future(client.get(path, "b"))
        goes_on.set()
        await blocked
        assert (await others)[0] == 404
        assert sorted({(await each)[0] for each in asked}) == [404, 429]
        assert plans == MOST_PLANS // 4


async def test_what_waits_for_the_api_server_keeps_nobody_waiting() -> None:
    is_asked, goes_on = threading.Event(), threading.Event()

    def wait(subject: Subject) -> tuple[Story, tuple[()]]:
        is_asked.set()
        goes_on.wait(30)
        return tell(subject)

    async with open_server(on_demand=on_demand(wait)) as client:
        slow = asyncio.ensure_future(client.get(OWN_STORY, "a"))
        await asyncio.to_thread(is_asked.wait, 30)
        assert (await client.get(f"{BASE}/queue", "b"))[0] == 200
        goes_on.set()
        assert (await slow)[0] == 200


async def test_bodies_are_small_and_quick_before_it_is_known_who_sends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.1)

    async def drip() -> Any:
        yield b"{"
        await asyncio.sleep(30)

    async with open_server() as client:
        for body in (b"[" * 200_000, b"{" + b" " * 100_000 + b"}"):
            assert (await send(client, "POST", "/session", data=body))[0] == 413
        for body in (b"token: a", b"[[[", b"\xff", b'{"token": "\\ud800"}'):
            assert (await send(client, "POST", "/session", data=body))[0] == 400
        assert (await send(client, "POST", "/session", data=drip()))[0] == 408


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{at + 1}: &a{at + 1} [{', '.join([f'*a{at}'] * 10)}]" for at in range(12)]
)


@pytest.mark.parametrize(
    "body",
    [
        BOMB,
        json.dumps({"edits": [{"submit": {"manifest": BOMB}}]}),
        "[" * 2000,
        '{"edits":' + "[" * 2000,
        "edits: [{submit: {manifest: {kind: Pod, spec: &s {a: *s}}}}]",
        "edits: []\n---\nedits: []",
        json.dumps({"edits": [{"submit": {"manifest": "a: [" + "x," * 3000 + "]"}}] * 32}),
    ],
    ids=["aliases", "aliases in a text", "depth", "depth of JSON", "itself", "two", "texts"],
)
async def test_bodies_that_grow_when_they_are_read_are_refused(body: str) -> None:
    async with open_server() as client:
        headers = {"Authorization": "Bearer r"}
        status, text = await send(client, "POST", f"{BASE}/whatifs", data=body, headers=headers)
        assert (status, json.loads(text)["error"]) == (400, "Invalid")
        large = "edits: [" + "x," * 50_000 + "]"
        status, _ = await send(client, "POST", f"{BASE}/whatifs", data=large, headers=headers)
        assert status == 413


def make_jobs(pods: int, label: str = "") -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"a": label}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    job = {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "j"}}
    return {"submit": {"manifest": {**job, "spec": {"parallelism": pods, "template": template}}}}


@pytest.mark.parametrize(
    "edits", [[make_jobs(5001)] * 2, [make_jobs(10_000, "x" * 100_000)]], ids=["many", "large"]
)
async def test_edits_are_bounded_together(edits: list[Any]) -> None:
    async with open_server(on_demand=None) as client:
        headers = {"Authorization": "Bearer r"}
        body = {"edits": edits}
        status, text = await send(client, "POST", f"{BASE}/whatifs", json=body, headers=headers)
        assert (status, "together too large" in text or "more than 10000 pods" in text) == (
            400,
            True,
        )


async def test_events_are_told_to_those_who_may_list_them() -> None:
    async with open_server(on_demand=on_demand()) as client:
        _, told = await client.get(OWN_STORY, "a")
        assert [item["source"] for item in told["value"]["items"]] == ["Audit"]
        assert "events" in {gap["missing"] for gap in told["gaps"]}
        client.reviewer.rights.add(("bob", "events", "team-a"))
        client.reviewer.rights.add(("bob", "pods", "team-a"))
        _, told = await client.get(OWN_STORY, "b")
        assert [item["source"] for item in told["value"]["items"]] == ["Audit", "Event"]


async def test_what_may_be_got_is_seen_by_its_name_and_nothing_else() -> None:
    async with open_server(on_demand=on_demand()) as client:
        client.reviewer.users["g"] = "eve"
        client.reviewer.gets.add(("eve", "pods", "team-a"))
        at = f"{BASE}/namespaces/team-a/explanations/pod"
        assert (await client.get(f"{at}/team-a-job", "g"))[0] == 200
        assert (await client.get(OWN_STORY, "g"))[0] == 200
        assert (await client.get(f"{at}/none", "g"))[0] == 404
        assert (await client.get(f"{BASE}/namespaces/team-b/explanations/pod/x", "g"))[0] == 404
        assert names_in((await client.get(f"{BASE}/queue", "g"))[1]) == [None, None]
        topic = "explanation(namespace=team-a,kind=pod,name=team-a-job)"
        async with client.follow("g", topic) as stream:
            kind, hello = await anext(read_events(stream))
        assert (kind, hello["value"]["standing"]) == ("hello", "Waiting")


@pytest.mark.parametrize("name", ["%00", "A", "..", "%2e%2e%2f", "a%0ab", "\u202e", "a" * 300])
async def test_names_that_nothing_can_have_are_not_asked_about(name: str) -> None:
    async with open_server(on_demand=on_demand()) as client:
        await client.get(f"{BASE}/queue", "a")
        asked = client.reviewer.asked.copy()
        for path in (f"namespaces/{name}/stories/pod/x", f"queue?namespace={name}"):
            assert (await client.get(f"{BASE}/{path}", "a"))[0] in {200, 404}
        assert client.reviewer.asked == asked


async def test_namespaces_are_those_whose_pods_one_may_list() -> None:
    async with open_server() as client:
        _, told = await client.get(f"{BASE}/namespaces", "a")
        assert told["value"] == {"items": [{"name": "team-a"}], "isComplete": True}
        _, told = await client.get(f"{BASE}/namespaces", "r")
        assert [item["name"] for item in told["value"]["items"]] == ["team-a", "team-b"]


def test_of_objects_as_large_as_they_may_be_little_is_kept() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "uid": "u", "name": "x" * 200}
    meta = {
        "name": "big",
        "namespace": "team-a",
        "uid": "u",
        "deletionTimestamp": "2026-11-27T00:00:00Z",
        "finalizers": [f"example.com/{at}" for at in range(5000)],
        "ownerReferences": [owner] * 5000,
        "labels": {f"scheduling.koordinator.sh/gang-{at}": "x" for at in range(5000)},
    }
    pod = msgspec.json.decode(msgspec.json.encode({"metadata": meta}), type=WirePod)
    notes = ObjectNotes()
    notes.see("Pod", pod)
    notes.note(pod, None)
    (details,) = notes.details.values()
    assert max(map(len, (details.owners, details.slips, *notes.finalizers.values()))) <= 32


async def test_a_tenant_with_many_accounts_floods_the_api_server_with_no_reviews() -> None:
    reviewer = Reviewer()
    rights = UserRights(AccessReviews(reviewer))  # type: ignore[arg-type]
    spaces = [f"ns-{at}" for at in range(3000)]
    robots = [TokenHolder(f"system:serviceaccount:team-a:r{at}") for at in range(30)]
    seen = [await rights.find(robot, spaces, ["team-a"]) for robot in robots]
    assert not seen[-1].is_complete
    assert "team-a" in seen[-1].namespaces
    assert reviewer.asked["SubjectAccessReview"] < 2 * NEW_BURST
    other = await rights.find(TokenHolder("bob"), spaces)
    assert len(other.namespaces) == MOST_AT_ONCE


def make_reserved() -> Snapshot:
    cluster = make_cluster(2)
    upsert_reservation(cluster.state, make_reservation("for-team-b", "n0"))
    cluster.pods(make_pod("team-a/job").gpu(16))
    return Snapshot(Reading(cluster.state), HERE, 1, 1.0)


def test_reservations_are_named_to_those_who_may_list_them() -> None:
    sight = Sight(frozenset({"team-a"}), quotas=False, reservations=False)
    hidden = make_reserved().seen_with(sight)
    answer = BY_ANSWER["Reservations"].answer_from(hidden, Ask())
    assert (answer.value, [gap.missing for gap in answer.gaps]) == ([], ["reservations"])

    def refuse(name: str) -> str:
        parts = {"namespace": "team-a", "kind": "reservation", "name": name}
        with pytest.raises(NothingThere) as refusal:
            BY_ANSWER["Explanation"].answer_from(hidden, Ask(parts))
        return str(refusal.value)

    assert refuse("for-team-b") == refuse("none").replace("none", "for-team-b")
    rows = BY_ANSWER["Reservations"].answer_from(make_reserved(), Ask()).value
    assert [row["name"] for row in rows] == ["for-team-b"]


def test_what_was_read_long_ago_says_so() -> None:
    snapshot = make_reserved()
    for age, is_stale in ((STALE_SECONDS, False), (STALE_SECONDS + 1, True)):
        head = head_for(BY_ANSWER["Overview"], snapshot, Ask(), "i", snapshot.at + age)
        assert ("Stale" in {gap.because for gap in head.gaps}) == is_stale
        assert head.lag == age
