"""Several people ask one server with their own tokens: who is let in, and for how long."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from tests.builders import make_node, make_pod
from tests.cluster import make_cluster
from tests.see.reviewer import Reviewer

from koord.answers.reading import Reading, Target, TargetKind
from koord.runtime import reviews
from koord.runtime.reviews import (
    ALLOWED_SECONDS,
    REFUSED_SECONDS,
    AccessReviews,
    NoReview,
    TokenHolder,
    TokenReviews,
    expiry_of,
)
from koord.see.app import BASE, Server
from koord.see.limits import Limits
from koord.see.rights import UserRights
from koord.see.sessions import LONGEST_SECONDS, MOST_SESSIONS, Sessions
from koord.see.snapshots import OnDemand, Snapshots
from koord.see.token_access import TokenAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from koord.see.buckets import Buckets

HERE = Target(TargetKind.POD, "default", "")
ALL = {"pods", "elasticquotas", "nodes", "devices", "reservations"}


class Client:
    """Asks a server that two tenants and an administrator know."""

    server: Server
    readings: Snapshots
    tokens: TokenReviews
    buckets: Buckets

    def __init__(self, session: aiohttp.ClientSession, root: str, reviewer: Reviewer) -> None:
        self.session, self.root, self.reviewer = session, root, reviewer

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, Any]:
        given = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        async with self.session.get(f"{self.root}{path}", headers=given) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text

    def follow(self, token: str, topic: str = "queue") -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        return self.session.get(f"{self.root}{BASE}/stream?topic={topic}", headers=headers)


def make_reading() -> tuple[Reading, Target]:
    cluster = make_cluster(0).nodes(make_node("n0").gpu(8))
    for space in ("team-a", "team-b"):
        cluster.pods(make_pod(f"{space}/{space}-job").gpu(16))
    return Reading(cluster.state), HERE


@asynccontextmanager
async def open_server(
    limits: Limits | None = None, on_demand: OnDemand | None = None
) -> AsyncIterator[Client]:
    reviewer = Reviewer({"a": "ann", "b": "bob", "r": "root"})
    reviewer.rights = {
        ("ann", "pods", "team-a"),
        ("bob", "pods", "team-b"),
        *(("root", kind, "") for kind in ALL),
    }
    readings = Snapshots(make_reading, on_demand=on_demand)
    access = TokenAccess(TokenReviews(reviewer), AccessReviews(reviewer), is_secure=False)  # type: ignore[arg-type]
    server = Server(readings, access, limits or Limits())
    runner = web.AppRunner(server.make_app(), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await readings.read_once()
        root = f"http://127.0.0.1:{runner.addresses[0][1]}"
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            client = Client(session, root, reviewer)
            client.readings, client.tokens, client.server = readings, access.tokens, server
            client.buckets = access._buckets
            yield client
    finally:
        readings.close()
        await runner.cleanup()


def names_in(document: Any) -> list[str | None]:
    return [name for row in document["value"]["items"] for name in row["names"]]


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            kind = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield kind, json.loads(text.removeprefix("data: "))


async def test_each_sees_own_names_and_the_amounts_of_all() -> None:
    async with open_server() as client:
        (_, of_a), (_, of_b), (_, of_root) = [
            await client.get(f"{BASE}/queue", token) for token in ("a", "b", "r")
        ]
        assert sorted(filter(None, names_in(of_root))) == ["team-a/team-a-job", "team-b/team-b-job"]
        assert names_in(of_a) == ["team-a/team-a-job", None]
        assert names_in(of_b) == [None, "team-b/team-b-job"]
        amounts = [
            [(row["position"], row["gpus"], row["gpusAhead"]) for row in each["value"]["items"]]
            for each in (of_a, of_b, of_root)
        ]
        assert amounts[0] == amounts[1] == amounts[2]


@pytest.mark.parametrize("token", ["", "x", "a b", "Ä", "a" * 20_000])
async def test_unknown_tokens_get_nothing(token: str) -> None:
    async with open_server() as client:
        for path in ("queue", "stream?topic=queue", "nothing"):
            header = base64.b64encode(token.encode()).decode() if "Ä" in token else token
            status, _ = await client.get(f"{BASE}/{path}", header)
            assert status in {400, 401}


async def test_what_proxies_say_of_users_counts_for_nothing() -> None:
    async with open_server() as client:
        told = {"X-Remote-User": "root", "X-Forwarded-User": "root", "Impersonate-User": "root"}
        assert (await client.get(f"{BASE}/queue", "", **told))[0] == 401
        _, document = await client.get(f"{BASE}/queue", "a", **told)
        assert names_in(document) == ["team-a/team-a-job", None]


async def test_reviews_are_kept_and_asked_for_once() -> None:
    async with open_server() as client:
        await asyncio.gather(*(client.get(f"{BASE}/queue", "a") for _ in range(4)))
        await client.get(f"{BASE}/overview", "a")
        # Of five kinds everywhere, of pods in two namespaces, of quotas in that which is hers.
        assert client.reviewer.asked == {"TokenReview": 1, "SubjectAccessReview": 8}


async def test_a_revoked_token_ends_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "ALLOWED_SECONDS", 0.2)
    async with open_server() as client, client.follow("a") as response:
        events = read_events(response)
        assert (await anext(events))[0] == "hello"
        del client.reviewer.users["a"]
        assert await anext(events) == ("bye", {"why": "Unauthorized", "again": False})
        assert [event async for event in events] == []
        assert (await client.get(f"{BASE}/queue", "a"))[0] == 401


async def test_a_right_that_is_lost_hides_names_on_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviews, "RIGHT_SECONDS", 0.2)
    async with open_server() as client, client.follow("r") as response:
        events = read_events(response)
        _, hello = await anext(events)
        assert None not in names_in(hello)
        client.reviewer.rights -= {("root", "pods", "")}
        kind, told = await anext(events)
        assert (kind, names_in(told)) == ("hello", [None, None])
        assert "Hidden" in {gap["because"] for gap in told["gaps"]}


async def test_one_asker_has_few_streams_and_requests() -> None:
    async with open_server(Limits(streams_each=1)) as client, client.follow("a") as response:
        assert response.status == 200
        status, refusal = await client.get(f"{BASE}/stream?topic=queue", "a")
        assert (status, refusal["error"]) == (429, "TooBusy")
        async with client.follow("b") as other:
            assert other.status == 200
        statuses = [(await client.get("/session", "a"))[0] for _ in range(3)]
        assert statuses == [200] * 3


async def test_many_behind_one_proxy_are_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as client:
        tokens = [f"t{at}" for at in range(60)]
        client.reviewer.users |= {token: f"user-{token}" for token in tokens}
        for round_at in range(3):
            for token in tokens[20 * round_at : 20 * round_at + 20]:
                client.buckets._by_key.clear()  # they came one after the other
                assert (await client.get("/session", token))[0] == 200
        monkeypatch.setattr(client.tokens._answers, "_clock", lambda: time.monotonic() + 60)
        statuses = {(await client.get("/session", token))[0] for token in tokens}
        assert statuses == {200}
        assert client.reviewer.asked["TokenReview"] == 2 * len(tokens)


async def test_a_reading_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as client:
        monkeypatch.setattr(client.readings, "_read", lambda: 1 / 0)
        await client.readings.read_once()
        assert client.readings.problem.startswith("what was read cannot be understood")
        assert (await client.get(f"{BASE}/queue", "a"))[0] == 200


async def test_an_address_that_tries_tokens_floods_nobody() -> None:
    async with open_server() as client:
        statuses = [(await client.get(f"{BASE}/queue", f"try-{at}"))[0] for at in range(40)]
        assert {401, 429} == set(statuses)
        assert client.reviewer.asked["TokenReview"] < 40
        client.reviewer.asked.clear()


async def test_while_nobody_can_tell_who_asks_nobody_is_answered() -> None:
    async with open_server() as client:
        client.reviewer.problem = "tokenreviews.authentication.k8s.io is forbidden\nto koord-serve"
        status, refusal = await client.get(f"{BASE}/queue", "a")
        assert (status, refusal["error"]) == (503, "NotReady")
        assert "tokenreviews.authentication.k8s.io is forbidden" in refusal["message"]


async def test_what_does_not_exist_and_what_may_not_be_seen_are_the_same() -> None:
    async with open_server() as client:
        at = f"{BASE}/namespaces/team-b/explanations/pod"
        _, theirs = await client.get(f"{at}/team-b-job", "a")
        _, none = await client.get(f"{at}/nothing-job", "a")
        assert theirs == {**none, "message": none["message"].replace("nothing-job", "team-b-job")}
        assert (await client.get(f"{at}/team-b-job", "b"))[0] == 200


async def test_an_answer_of_one_is_not_taken_for_that_of_another() -> None:
    async with open_server() as client:
        async with client.session.get(
            f"{client.root}{BASE}/queue", headers={"Authorization": "Bearer a"}
        ) as response:
            tag = response.headers["ETag"]
        assert (await client.get(f"{BASE}/queue", "a", **{"If-None-Match": tag}))[0] == 304
        assert (await client.get(f"{BASE}/queue", "b", **{"If-None-Match": tag}))[0] == 200


async def test_a_browser_gives_a_token_once_and_no_script_sees_it() -> None:
    async with open_server() as client:
        status, form = await client.get("/page/queue")
        assert (status, 'action="/session"' in form) == (200, True)
        async with client.session.post(
            f"{client.root}/session", data={"token": "wrong"}
        ) as response:
            assert (response.status, "does not know" in await response.text()) == (401, True)
        async with client.session.post(
            f"{client.root}/session", data={"token": " a "}, allow_redirects=False
        ) as response:
            assert (response.status, response.headers["Location"]) == (303, "/page/")
            cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert cookie.startswith("koord=")
        assert "<form" not in (await client.get("/page/queue"))[1]
        assert (await client.get("/session"))[1]["user"] == "ann"
        assert names_in((await client.get(f"{BASE}/queue"))[1]) == ["team-a/team-a-job", None]
        async with client.session.delete(f"{client.root}/session") as response:
            assert response.status == 204
        assert (await client.get(f"{BASE}/queue"))[0] == 401


async def test_pages_of_others_cannot_ask() -> None:
    async with open_server() as client:
        headers = {"Authorization": "Bearer r"}
        assert (await client.get("/session", "a", Host="evil.example"))[0] == 421
        assert (await client.get("/readyz", Host="10.1.2.3:8444")) == (200, "ok\n")
        for origin, status in (("https://evil.example", 403), (client.root, 200)):
            async with client.session.post(
                f"{client.root}{BASE}/room",
                json={"shape": "1x8"},
                headers={**headers, "Origin": origin},
            ) as response:
                assert response.status == status


def test_sessions_end_by_themselves_and_are_few() -> None:
    now = [1000.0]
    sessions = Sessions(lambda: now[0])
    first, seconds = sessions.begin("a")
    assert seconds == LONGEST_SECONDS
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1060}).encode()).decode().rstrip("=")
    short, seconds = sessions.begin(f"x.{claims}.y")
    assert seconds == 60
    now[0] += 61
    assert sessions.find(short) is None
    assert sessions.find(first) is not None
    for at in range(MOST_SESSIONS):
        sessions.begin("b", at)
    assert sessions.find(first) is None
    assert len(sessions) == MOST_SESSIONS


@pytest.mark.parametrize(
    "token", ["", "a", "a.b.c", "a.bnVsbA.c", "a.W10.c", "a.eyJleHAiOiJ4In0.c"]
)
def test_tokens_without_an_end_have_none(token: str) -> None:
    assert expiry_of(token) == float("inf")


async def test_an_answer_about_a_token_lasts_no_longer_than_the_token() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 5}).encode()).decode()
    token = f"x.{claims.rstrip('=')}.y"
    kept = await TokenReviews(Reviewer({token: "ann"}), lambda: 100.0).find_user(token)  # type: ignore[arg-type]
    assert kept.value is not None
    assert 100 < kept.until <= 105


async def test_everybody_may_come_at_once() -> None:
    reviewer = Reviewer({f"t{at}": f"user-{at}" for at in range(40)})
    rights = UserRights(AccessReviews(reviewer))  # type: ignore[arg-type]
    spaces = [f"ns-{at}" for at in range(40)]
    users = [TokenHolder(name) for name in reviewer.users.values()]
    reviewer.rights = {(user.username, "pods", spaces[0]) for user in users}
    seen = await asyncio.gather(*(rights.find(user, spaces) for user in users))
    assert {each.sight.namespaces for each in seen} == {frozenset(spaces[:1])}


async def test_who_goes_on_asking_waits_for_no_review_of_a_token() -> None:
    now = [100.0]
    reviewer = Reviewer({"t": "ann"})
    tokens = TokenReviews(reviewer, lambda: now[0])  # type: ignore[arg-type]
    first = await tokens.find_user("t")
    now[0] = 100 + ALLOWED_SECONDS * 0.7
    del reviewer.users["t"]
    assert await tokens.find_user("t") == first
    await asyncio.sleep(0.01)
    assert reviewer.asked["TokenReview"] == 2
    # What the review says counts at once, before the first answer would have ended.
    assert (await tokens.find_user("t")).value is None
    now[0] += REFUSED_SECONDS * 0.9
    assert (await tokens.find_user("t")).value is None
    await asyncio.sleep(0.01)
    assert reviewer.asked["TokenReview"] == 2, "a token that is no good is asked about ahead"


async def test_a_renewal_that_fails_is_one_and_the_answer_counts_until_its_end() -> None:
    now = [100.0]
    reviewer = Reviewer({"t": "ann"})
    tokens = TokenReviews(reviewer, lambda: now[0])  # type: ignore[arg-type]
    await tokens.find_user("t")
    reviewer.problem = "away"
    now[0] += ALLOWED_SECONDS * 0.9
    for _ in range(20):
        assert (await tokens.find_user("t")).value is not None
        await asyncio.sleep(0)
    assert tokens.counts.failed == 1
    now[0] = 100 + ALLOWED_SECONDS
    with pytest.raises(NoReview):
        await tokens.find_user("t")


async def test_who_goes_on_asking_waits_for_no_review_of_rights() -> None:
    now = [100.0]
    reviewer = Reviewer(rights={("ann", "pods", "a")})
    rights = UserRights(AccessReviews(reviewer, lambda: now[0]), lambda: now[0])  # type: ignore[arg-type]
    ann, spaces = TokenHolder("ann"), ["a", "b"]
    first = await rights.find(ann, spaces)
    reviewer.rights = {("ann", "pods", "b")}
    now[0] = first.until - 1
    assert (await rights.find(ann, spaces)).sight == first.sight
    await asyncio.sleep(0.01)
    asked = reviewer.asked["SubjectAccessReview"]
    now[0] = first.until
    seen = await rights.find(ann, spaces)
    assert seen.sight.namespaces == {"b"}
    # Of the quotas of a namespace that she had no pods in nobody had asked.
    assert reviewer.asked["SubjectAccessReview"] == asked + 1
    assert seen.until > first.until
