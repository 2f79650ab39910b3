"""Actions: the API server is asked with the token of the user, once a page has tried and confirmed.

The API server is a stand-in here, which notes what it is asked; ``tests/cases/test_serve.py`` has a
real one.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from tests.see.reviewer import Reviewer
from tests.see.test_token_access import make_reading

from koord.kube.config import Access, Credentials
from koord.kube.errors import ConfigError
from koord.runtime.reviews import AccessReviews, TokenReviews
from koord.see.action_edits import UnitAction
from koord.see.actions import CSRF_HEADER, Actions
from koord.see.app import BASE, Server
from koord.see.on_behalf import open_as
from koord.see.snapshots import Snapshots
from koord.see.token_access import TokenAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OURS = "operators.koordinator.sh/"
HOLD = f"{OURS}queue-hold"
TRAIN = f"{BASE}/actions/namespaces/team-a/podgroup/train"
JOB = TRAIN.replace("/podgroup/", "/job/")
ALL = tuple(UnitAction)
JSON = {"Content-Type": "application/json"}


class ApiServer:
    """A stand-in: a PodGroup and a Job, which only ann may change. ``asked`` is what came."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, dict[str, Any]]] = []
        self.annotations: dict[str, str] = {}
        self.suspend = False
        self.ready = 0
        self.version = 7

    @property
    def held(self) -> str | None:
        return self.annotations.get(HOLD)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        who = request.headers.get("Authorization", "")
        self.asked.append((request.method, request.path_qs, who, body))
        if who != "Bearer a":
            return _refuse(403, "Forbidden", 'podgroups "train" is forbidden: User "bob" cannot')
        if not request.path.endswith(("/podgroups/train", "/jobs/train")):
            return _refuse(404, "NotFound", "not found")
        if request.method == "PATCH":
            if body["metadata"]["resourceVersion"] != str(self.version):
                return _refuse(409, "Conflict", "the object has been modified")
            if "dryRun" not in request.query:
                said = self.annotations | body["metadata"]["annotations"]
                self.annotations = {key: text for key, text in said.items() if text is not None}
                self.suspend = body.get("spec", {}).get("suspend", self.suspend)
                self.version += 1
        metadata = {"resourceVersion": str(self.version), "annotations": self.annotations}
        document = {"metadata": metadata, "spec": {"suspend": self.suspend}}
        return web.json_response({**document, "status": {"ready": self.ready}})

    @property
    def writes(self) -> list[str]:
        return [
            path for method, path, _, _ in self.asked if method != "GET" and "dryRun" not in path
        ]


def _refuse(status: int, reason: str, message: str) -> web.Response:
    return web.json_response({"reason": reason, "message": message, "code": status}, status=status)


class Page:
    """A browser or a program that asks the server of actions."""

    def __init__(self, session: aiohttp.ClientSession, root: str, api: ApiServer) -> None:
        self.session, self.root, self.api = session, root, api

    async def ask(
        self, path: str, body: Any = None, method: str = "POST", **headers: str
    ) -> tuple[int, Any]:
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.root}{path}"
        async with self.session.request(method, url, data=data, headers=given) as response:
            return response.status, json.loads(await response.text())

    async def act(self, path: str, more: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Try an action as a program, and carry out what was tried; return the last answer."""
        headers, said = {**JSON, "Authorization": "Bearer a"}, more or {}
        status, tried = await self.ask(path, {"dryRun": True, **said}, **headers)
        if status != 200:
            return status, tried
        version = {"resourceVersion": tried["resourceVersion"], **said}
        status, done = await self.ask(path, version, **headers)
        return status, {**done, "changes": tried["changes"]}

    async def log_in(self, token: str) -> dict[str, str]:
        """Begin a session; return the headers that its page sends with an action."""
        await self.ask("/session", {"token": token}, **JSON)
        offer = (await self.ask(TRAIN, method="GET"))[1]
        return {
            **JSON,
            "Origin": self.root,
            "Sec-Fetch-Site": "same-origin",
            CSRF_HEADER: offer["csrf"],
        }


@asynccontextmanager
async def serve(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def open_page(on: tuple[UnitAction, ...] = ALL) -> AsyncIterator[Page]:
    api, reviewer = ApiServer(), Reviewer({"a": "ann", "b": "bob"})
    reviewer.rights = {("ann", kind, "team-a") for kind in ("podgroups", "pods", "jobs")}
    api_app = web.Application()
    api_app.router.add_route("*", "/{path:.*}", api.answer)
    readings = Snapshots(make_reading)
    access = TokenAccess(TokenReviews(reviewer), AccessReviews(reviewer), is_secure=False)  # type: ignore[arg-type]
    app = Server(readings, access).make_app()
    jar = aiohttp.CookieJar(unsafe=True)
    try:
        async with serve(api_app) as address:
            own = Access(address, authorization="Bearer koord-serve")
            Actions(on, Credentials(lambda: own), access).add_to(app)
            async with serve(app) as root, aiohttp.ClientSession(cookie_jar=jar) as session:
                yield Page(session, root, api)
    finally:
        readings.close()


async def test_a_unit_is_held_and_released_with_the_token_of_the_user() -> None:
    async with open_page() as page:
        headers = await page.log_in("a")
        for action, value in (("hold", "true"), ("release", None)):
            status, tried = await page.ask(f"{TRAIN}/{action}", {"dryRun": True}, **headers)
            assert (status, tried["dryRun"], tried["changes"]) == (200, True, True)
            before = page.api.held
            version = {"resourceVersion": tried["resourceVersion"]}
            status, done = await page.ask(f"{TRAIN}/{action}", version, **headers)
            assert (status, done["dryRun"]) == (200, False)
            assert (before, page.api.held) == ((None, "true") if value else ("true", None))
            again = await page.ask(f"{TRAIN}/{action}", version, **headers)
            assert (again[0], again[1]["error"]) == (409, "Conflict")
        assert {who for _, _, who, _ in page.api.asked} == {"Bearer a"}
        (_, path, _, body), *_ = [each for each in page.api.asked if each[0] == "PATCH"]
        assert "dryRun=All" in path
        assert body == {"metadata": {"resourceVersion": "7", "annotations": {HOLD: "true"}}}


async def test_others_go_first_down_to_a_priority() -> None:
    async with open_page() as page:
        for priority in (-10, 0, None):
            status, done = await page.act(f"{TRAIN}/priority", {"priority": priority})
            assert (status, done["changes"]) == (200, True)
            written = page.api.annotations.get(f"{OURS}queue-priority")
            assert written == (None if priority is None else str(priority))
        assert not (await page.act(f"{TRAIN}/priority", {"priority": None}))[1]["changes"]


@pytest.mark.parametrize("priority", ["1", 1.5, True, 10**12, [], "absent"], ids=str)
async def test_what_is_no_priority_is_refused(priority: Any) -> None:
    said = {} if priority == "absent" else {"priority": priority}
    async with open_page() as page:
        assert (await page.act(f"{TRAIN}/priority", said))[0] == 400
        assert page.api.asked == []


async def test_a_retry_is_written_with_the_time_at_which_it_was_asked_for() -> None:
    async with open_page() as page:
        for _ in range(2):
            before = page.api.annotations.get(f"{OURS}queue-retry")
            status, done = await page.act(f"{TRAIN}/retry")
            assert (status, done["changes"]) == (200, True)
            assert page.api.annotations[f"{OURS}queue-retry"] != before


async def test_a_job_is_suspended_and_resumed() -> None:
    async with open_page() as page:
        assert (await page.act(f"{JOB}/hold"))[0] == 200
        assert (page.api.suspend, page.api.held) == (True, "true")
        assert (await page.act(f"{JOB}/release"))[0] == 200
        assert (page.api.suspend, page.api.held) == (False, None)


async def test_a_job_whose_pods_run_is_not_suspended() -> None:
    async with open_page() as page:
        page.api.ready = 3
        status, refusal = await page.act(f"{JOB}/hold")
        assert (status, refusal["error"]) == (409, "Refused")
        assert "3 of its pods run" in refusal["message"]
        assert page.api.writes == []


async def test_a_job_that_the_operators_resume_is_left_suspended() -> None:
    async with open_page() as page:
        page.api.annotations, page.api.suspend = {f"{OURS}admission": "suspend"}, True
        assert (await page.act(f"{JOB}/hold"))[1]["changes"]
        assert (await page.act(f"{JOB}/release"))[1]["changes"]
        assert (page.api.suspend, page.api.held) == (True, None)


async def test_a_trial_says_whether_anything_would_change() -> None:
    async with open_page() as page:
        headers = await page.log_in("a")
        assert not (await page.ask(f"{TRAIN}/release", {"dryRun": True}, **headers))[1]["changes"]


async def test_who_has_no_right_gets_the_refusal_of_the_api_server() -> None:
    async with open_page() as page:
        headers = await page.log_in("b")
        assert (await page.ask(TRAIN, method="GET"))[1]["actions"] == []
        for body in ({"dryRun": True}, {"resourceVersion": "7"}):
            status, refusal = await page.ask(f"{TRAIN}/hold", body, **headers)
            assert (status, refusal["error"]) == (403, "Forbidden")
            assert 'User "bob" cannot' in refusal["message"]
        assert page.api.held is None
        assert {who for _, _, who, _ in page.api.asked} == {"Bearer b"}


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": None}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": None}, 403),
        ({CSRF_HEADER: None}, 403),
        ({CSRF_HEADER: "x"}, 403),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_session", [True, False])
async def test_what_another_page_could_send_is_refused(
    changed: dict[str, str | None], status: int, *, is_session: bool
) -> None:
    """Also with a token that a proxy adds to whatever a browser sends."""
    async with open_page() as page:
        headers = await page.log_in("a")
        if not is_session:
            page.session.cookie_jar.clear()
            token = {"Authorization": "Bearer a"}
            headers = {**headers, **token}
            headers[CSRF_HEADER] = (await page.ask(TRAIN, method="GET", **token))[1]["csrf"]
        accepted = await page.ask(f"{TRAIN}/hold", {"dryRun": True}, **headers)
        assert accepted[0] == 200
        wrong = {name: value for name, value in (headers | changed).items() if value is not None}
        answer = await page.ask(f"{TRAIN}/hold", {"resourceVersion": "7"}, **wrong)
        assert answer[0] == status, answer
        assert page.api.writes == []


async def test_the_secret_of_one_session_is_of_no_use_in_another() -> None:
    async with open_page() as page:
        old = await page.log_in("a")
        new = await page.log_in("a")
        assert old[CSRF_HEADER] != new[CSRF_HEADER]
        assert (await page.ask(f"{TRAIN}/hold", {"dryRun": True}, **old))[0] == 403


async def test_a_program_sends_its_token_and_nothing_else() -> None:
    async with open_page() as page:
        headers = {**JSON, "Authorization": "Bearer a"}
        assert (await page.ask(f"{TRAIN}/hold", {"resourceVersion": "7"}, **headers))[0] == 200
        assert page.api.held == "true"


NO_ACTIONS: tuple[Any, ...] = (
    "",
    "{",
    "[]",
    '"x"',
    "{}",
    "[" * 100_000,
    {"dryRun": False},
    {"dryRun": True, "resourceVersion": "7"},
    {"resourceVersion": ""},
    {"resourceVersion": 7},
    {"resourceVersion": "7", "x": 1},
)


@pytest.mark.parametrize("body", NO_ACTIONS, ids=lambda body: str(body)[:20])
async def test_what_is_no_action_is_refused(body: Any) -> None:
    async with open_page() as page:
        headers = {**JSON, "Authorization": "Bearer a"}
        status, refusal = await page.ask(f"{TRAIN}/hold", body, **headers)
        assert (status, refusal["error"]) == (400, "Invalid")
        assert page.api.asked == []


@pytest.mark.parametrize(
    "path",
    [
        f"{TRAIN}/delete",
        f"{JOB}/priority",
        f"{JOB}/retry",
        f"{TRAIN.replace('podgroup', 'pod')}/priority",
        f"{BASE}/actions/namespaces/team-a/node/n1/hold",
        f"{BASE}/actions/namespaces/team-a/podgroup/a%2Fb/hold",
        f"{BASE}/actions/namespaces/..%2Fx/podgroup/train/hold",
        f"{BASE}/actions/namespaces/team-a/podgroup/train%3Fx/hold",
    ],
)
async def test_there_are_no_other_actions_and_no_other_objects(path: str) -> None:
    async with open_page() as page:
        headers = {**JSON, "Authorization": "Bearer a"}
        assert (await page.ask(path, {"dryRun": True}, **headers))[0] == 404
        assert page.api.asked == []


async def test_actions_are_off_unless_they_are_named() -> None:
    headers = {**JSON, "Authorization": "Bearer a"}
    async with open_page(()) as page:
        assert (await page.ask(TRAIN, method="GET", Authorization="Bearer a"))[0] == 404
        assert (await page.ask(f"{TRAIN}/hold", {"dryRun": True}, **headers))[0] == 404
        assert page.api.asked == []
    async with open_page((UnitAction.HOLD,)) as page:
        assert (await page.ask(TRAIN, method="GET", Authorization="Bearer a"))[1]["actions"] == [
            "hold"
        ]
        assert (await page.ask(f"{TRAIN}/release", {"dryRun": True}, **headers))[0] == 404


async def test_a_certificate_of_this_process_never_vouches_for_a_user() -> None:
    access = Access("https://127.0.0.1:1", client_files=("cert", "key"))
    with pytest.raises(ConfigError, match="certificate"):
        async with open_as(Credentials(lambda: access), "a"):
            pass
