"""Debug flags of Koordinator's scheduler: their answers, who may set them, and for how long."""

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest
from aiohttp import ClientSession, StreamReader, TCPConnector
from aiohttp.test_utils import make_mocked_request
from tests.runtime.test_http import Process

from koord.runtime.address import Address
from koord.runtime.debug_flags import PAGE, DebugFlags, set_verbosity
from koord.runtime.diagnosis import NOT_LEADING, DiagnosisPage
from koord.runtime.http import make_app, serve_http
from koord.runtime.readers import DIAGNOSIS, FLAGS, Reader

DIGIT = "\N{ARABIC-INDIC DIGIT FIVE}"


@pytest.fixture
def quiet_log():
    """Log as before once the test is over."""
    yield
    set_verbosity(0)


class Source:
    """What a process answers, and the flags that it was given."""

    page = PAGE

    def __init__(self, *, leads=True):
        self.flags = DebugFlags(3600.0, lambda *news: self.set.append(news))
        self.set = []
        self.leads = leads
        self.knows_flag, self.put_flag = self.flags.knows, self.flags.put

    async def diagnose(self, path, query):
        if path == "/slow":
            raise TimeoutError
        return DiagnosisPage(503 if path == "/standby" else 200, NOT_LEADING)

    def refuse_flag(self, name):
        return None if self.leads or name == "v" else DiagnosisPage(503, NOT_LEADING)


@asynccontextmanager
async def serving(source):
    sources = replace(Process().sources, diagnosis=source)
    async with (
        serve_http(Address("127.0.0.1", 0), sources) as address,
        ClientSession(
            f"http://127.0.0.1:{address.port}", connector=TCPConnector(force_close=True)
        ) as session,
    ):
        yield session


@pytest.mark.parametrize(
    "page",
    [("GET", "/apis/v1/nodes/n1", DIAGNOSIS), ("PUT", "/debug/flags/s", FLAGS)],
)
@pytest.mark.parametrize(
    ("remote", "allowed", "status"),
    [
        ("127.0.0.1", None, 200),
        ("127.0.0.1", 403, 200),
        ("192.0.2.1", None, 403),
        ("192.0.2.1", 200, 200),
        ("192.0.2.1", 401, 401),
        ("192.0.2.1", 403, 403),
        ("192.0.2.1", 503, 503),
    ],
)
async def test_other_machines_need_the_right_to_the_path(page, remote, allowed, status):
    method, path, area = page

    async def authorize(*question):
        assert question == ("Bearer t", path, method.lower())
        return Reader(allowed or 0, "jane")

    source = Source()
    sources = replace(Process().sources, diagnosis=source)
    transport = Mock(get_extra_info={"peername": (remote, 40000)}.get)
    body = StreamReader(Mock(_reading_paused=False), 1 << 16)
    body.feed_data(b"100")
    body.feed_eof()
    headers = {"Authorization": "Bearer t"}
    request = make_mocked_request(method, path, headers=headers, transport=transport, payload=body)
    app = make_app(sources, {} if allowed is None else {area: authorize})
    match = await app.router.resolve(request)
    request._match_info = match  # what the router of a server does
    assert (await match.handler(request)).status == status
    if method == "PUT":
        by = "jane" if remote != "127.0.0.1" else "a client at 127.0.0.1"
        assert source.set == ([("s", "100", by)] if status == 200 else [])


@pytest.mark.parametrize(
    ("flag", "value", "status", "text"),
    [
        ("v", "5", 200, "successfully set klog.logging.verbosity to 5"),
        ("v", "x", 400, 'failed set klog.logging.verbosity x: strconv.ParseInt: parsing "x": '),
        ("s", "100", 200, "successfully set debugTopNScores to 100"),
        ("s", "x", 400, 'failed set debugTopNScores x: strconv.Atoi: parsing "x": invalid syntax'),
        (
            "s",
            DIGIT,
            400,
            f'failed set debugTopNScores {DIGIT}: strconv.Atoi: parsing "{DIGIT}": invalid syntax',
        ),
        ("s", "1_0", 400, "failed set debugTopNScores 1_0: strconv.Atoi"),
        ("s", "9" * 30, 400, f"failed set debugTopNScores {'9' * 30}: strconv.Atoi"),
        ("f", "true", 200, "successfully set debugFilterFailure to true"),
        ("f", "T", 200, "successfully set debugFilterFailure to T"),
        ("f", "yes", 400, 'failed set debugFilterFailure yes: strconv.ParseBool: parsing "yes": '),
        ("d", "true", 200, "successfully set debugFilterFailure to true"),
        ("db", "0", 200, "successfully set debugFilterFailure to 0"),
        ("db", "", 400, 'failed set debugFilterFailure : strconv.ParseBool: parsing "": '),
    ],
)
async def test_flags_answer_as_theirs(quiet_log, flag, value, status, text):
    async with serving(Source()) as session:
        async with session.put(f"/debug/flags/{flag}", data=value) as page:
            answer = await page.text()
            assert page.status == status
        assert answer.startswith(text)
        assert answer.count("\n") == 1
        assert answer.endswith("\n")
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.content_type == "text/plain"


async def test_flags_are_only_put():
    async with serving(Source()) as session:
        for method in ("GET", "POST", "DELETE"):
            async with session.request(method, "/debug/flags/s") as page:
                assert (page.status, await page.text()) == (406, "unsupported http method\n")
        for path in ("/debug/flags", "/debug/flags/", "/debug/flags/none"):
            async with session.get(path) as page:
                assert (page.status, page.content_type) == (200, "text/html")
                assert "<td>s</td>" in await page.text()
        async with session.put("/debug/flags/s", data="9" * 5000) as page:
            assert page.status == 413


async def test_who_does_not_lead_only_takes_how_to_log(quiet_log: None):
    async with serving(Source(leads=False)) as session:
        async with session.put("/debug/flags/s", data="1") as page:
            assert (page.status, await page.text()) == (503, NOT_LEADING.decode())
        async with session.put("/debug/flags/v", data="1") as page:
            assert page.status == 200


async def test_flags_end_after_a_while_and_with_the_term():
    flags = DebugFlags(0.0)
    flags.put("s", "5", "jane")
    flags.put("s", "7", "jane")
    assert flags.top_scores == 7
    await asyncio.sleep(0.01)
    assert flags.top_scores == 0
    flags = DebugFlags(3600.0)
    flags.put("f", "1", "jane")
    flags.put("db", "true", "jane")
    flags.put("s", "-3", "jane")
    assert (flags.shows_failures, flags.dumps, flags.top_scores) == (True, True, 0)
    flags.reset("a change of the leader")
    assert (flags.shows_failures, flags.dumps) == (False, False)


@pytest.mark.parametrize(
    ("number", "ours", "others"),
    [(0, False, False), (2, False, False), (3, True, False), (4, True, False), (5, True, True)],
)
async def test_verbosity_is_that_of_klog(quiet_log, number, ours, others):
    DebugFlags(3600.0).put("v", str(number), "jane")
    assert logging.getLogger("koord.runtime.app").isEnabledFor(logging.DEBUG) == ours
    assert logging.getLogger("other").isEnabledFor(logging.DEBUG) == others
