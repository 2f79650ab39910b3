"""The routes as a web application, for one person on her own machine or for several.

Nothing is written, and no other origin is let in. Computes no answer, and does not know by what
an asker is recognised, nor why she may see what she sees.
"""

import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from koord.answers.edits import EditError
from koord.answers.envelope import AnswerHead
from koord.answers.redaction import Sight
from koord.plain_text import escape
from koord.see.access import AccessControl, Asker
from koord.see.bodies import (
    MOST_BODY,
    MOST_FORM,
    MOST_YAML,
    InvalidBody,
    parse_body,
    read_body,
    read_form,
)
from koord.see.buckets import Buckets
from koord.see.discovery import GROUP, VERSION, add_discovery
from koord.see.edit_forms import decode_manifests
from koord.see.limits import MOST_PLANS, MOST_QUEUED, Limits, RequestRates, Seats, TooMuch
from koord.see.login import make_login
from koord.see.object_rights import see_object
from koord.see.openapi import make_document
from koord.see.page_files import ROOT, find_file
from koord.see.paging import ExpiredPage, InvalidQuery, make_page, parse_query
from koord.see.route import Ask, NothingThere, Route, WithGaps, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot, Snapshots
from koord.see.stream import EventStreams
from koord.see.visitors import Visitors

BASE: Final = f"/apis/{GROUP}/{VERSION}"
LEAST_COMPRESSED: Final = 1024
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Without any, browsers do not say from where a form comes: logging in would look foreign.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OPEN: Final = frozenset({"/", "/session"})
"""Paths that need no key; those of the page, which is the same for all, need none either."""
PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths for everybody under any name: kubelets ask by the address of the pod."""
ASKER: Final = web.RequestKey("asker", Asker)
"""Where a request keeps who has made it."""
_PER_ADDRESS: Final = 100.0
"""Requests per second for what is the same for everybody: behind a proxy many have one address."""
METRICS: Final = "/metrics"
"""Asked for by the address of the pod, too, with a token in any case."""
_FORM: Final = "application/x-www-form-urlencoded"

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Observe = Callable[[web.Request, int, float], None]
"""Called with a request, the status of its answer, and how many seconds that took."""


@dataclass(frozen=True, slots=True)
class RouteQuestion:
    """What was asked, and what whoever asks may see."""

    route: Route
    ask: Ask
    params: Mapping[str, str]
    sight: Sight


@dataclass(slots=True)
class Server:
    """Answers requests of those whom ``access`` lets in."""

    snapshots: Snapshots
    access: AccessControl
    limits: Limits = field(default_factory=Limits)
    observe: Observe | None = None
    """Called after each request; None: nobody wants to know."""
    actions: Collection[str] = ()
    """What can be done beside asking, if anything: the page looks whether a user may."""
    asked_at: float = field(default_factory=time.monotonic)
    """When something was asked last; monotonic."""
    find_hindrance: Callable[[], str] = str
    """Returns why this process is not ready, beside what was read of the cluster; or nothing."""
    visitors: Visitors = field(default_factory=Visitors)
    """Who is connected; of a server that does not count them nobody."""
    streams: EventStreams = field(init=False)
    _rates: RequestRates = field(init=False)
    _strangers: Buckets = field(default_factory=lambda: Buckets(_PER_ADDRESS, 2 * _PER_ADDRESS))
    _waiting: Seats = field(init=False)
    _planning: Seats = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self._rates = RequestRates(limits.per_second)
        self._waiting = Seats("answers are waited for", MOST_QUEUED, limits.waiting_each)
        self._planning = Seats("answers that take a plan are waited for", MOST_PLANS, MOST_PLANS)
        self.streams = EventStreams(
            self.snapshots, self.access, limits.streams, limits.streams_each
        )

    def make_app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BODY, middlewares=[self._guard])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/session", self._tell_session)
        app.router.add_post("/session", self._begin_session)
        app.router.add_delete("/session", self._end_session)
        app.router.add_get("/openapi.json", self._openapi)
        for path in ("/", ROOT):
            app.router.add_get(path, self._go_to_page)
        app.router.add_get(ROOT + "/{name:.*}", self._page)
        if self.access.login:
            app.router.add_get(self.access.login, self._login)
        app.router.add_get(f"{BASE}/stream", self._stream)
        self._add_answers(app)
        return app

    def make_aggregated_app(self) -> web.Application:
        """Return what the API server is asked for and asks here: answers, and what there is.

        No streams: nobody would ask again whether the user may still ask.
        """
        app = web.Application(client_max_size=MOST_BODY, middlewares=[self._guard])
        add_discovery(app)
        self._add_answers(app)
        return app

    def _add_answers(self, app: web.Application) -> None:
        for route in ROUTES:
            app.router.add_route(route.method, f"{BASE}/{route.path}", self._serve(route))

    # --- who asks --------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        try:
            with self.visitors.busy(request.transport):
                await self._check(request)
                response = await handler(request)
        except TooMuch as error:
            response = _refuse(HTTPStatus.TOO_MANY_REQUESTS, str(error))
        except InvalidBody as error:
            response = _refuse(error.status, str(error))
        except web.HTTPException as refusal:
            response = _refuse(refusal.status_code, refusal.reason)
            response.headers.update({k: v for k, v in refusal.headers.items() if k == "Allow"})
        except Exception:
            trace = secrets.token_hex(4)
            log.exception("An answer failed", extra={"path": request.path, "trace": trace})
            response = _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the log says more: {trace}")
        if not response.prepared:
            response.headers.update(_HEADERS)
            # Refusals and redirects, too: what one asker is told is nobody else's.
            response.headers.setdefault("Cache-Control", "private, no-store")
        if self.observe is not None:
            self.observe(request, response.status, time.monotonic() - began)
        return response

    async def _check(self, request: web.Request) -> None:
        if request.path in PROBES:
            return
        if request.path != METRICS:
            self.access.check_host(request)
        self.asked_at = time.monotonic()
        is_page = f"{request.path}/".startswith(f"{ROOT}/")
        if is_page or request.path in {*_OPEN, self.access.login}:
            if not self._strangers.take(request.remote):
                raise web.HTTPTooManyRequests(reason="too many requests from this address")
            return
        asker = await self.access.identify(request)
        request[ASKER] = asker
        self._rates.take(asker)

    async def _begin_session(self, request: web.Request) -> web.Response:
        is_form = request.content_type == _FORM
        body = await (read_form(request) if is_form else read_body(request, MOST_FORM))
        response = web.json_response({"instance": self.snapshots.instance})
        if is_form:  # of a browser, which goes on to the page
            response = web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": f"{ROOT}/"})
        try:
            await self.access.begin_session(request, body, response)
        except web.HTTPException as refusal:
            if not is_form:
                raise
            return make_login(refusal.status_code, refusal.reason)
        return response

    async def _tell_session(self, request: web.Request) -> web.Response:
        """Say who asks: a page cannot see why its stream was refused."""
        asker = await self.access.identify(request)
        return web.json_response(
            {
                "instance": self.snapshots.instance,
                "user": asker.name or None,
                "actions": sorted(self.actions),
            }
        )

    async def _end_session(self, request: web.Request) -> web.Response:
        response = web.Response(status=HTTPStatus.NO_CONTENT)
        self.access.end_session(request, response)
        return response

    async def _login(self, _: web.Request) -> web.Response:
        return make_login()

    # --- answers ---------------------------------------------------------------------------------

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        is_read = self.snapshots.last is not None
        hindrance = self.find_hindrance() if is_read else self.snapshots.why_old
        if hindrance:
            text = f"not ready: {escape(hindrance)}\n"
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text)
        return web.Response(text="ok\n")

    async def _go_to_page(self, _: web.Request) -> web.Response:
        return web.Response(status=HTTPStatus.FOUND, headers={"Location": f"{ROOT}/"})

    async def _page(self, request: web.Request) -> web.Response:
        file = find_file(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound(reason="there is no such file of the page")
        # A browser that follows a link of another site sends no cookie yet: it comes with what the
        # script asks then.
        is_linked = request.headers.get("Sec-Fetch-Site") == "cross-site"
        if self.access.login and file.content_type == "text/html" and not is_linked:
            try:
                await self.access.identify(request)
            except web.HTTPUnauthorized:
                return make_login()
        response = web.Response(body=file.body, content_type=file.content_type, charset="utf-8")
        response.headers["Cache-Control"] = file.caching
        if len(file.body) > LEAST_COMPRESSED:
            response.enable_compression()
        return response

    async def _openapi(self, _: web.Request) -> web.Response:
        return web.json_response(make_document(ROUTES, BASE))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.serve(request, _HEADERS)

    def _serve(self, route: Route) -> Handler:
        async def serve(request: web.Request) -> web.Response:
            snapshot = self.snapshots.last
            if snapshot is None:
                return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, self.snapshots.why_old)
            asker: Asker = request[ASKER]
            first = {request.match_info.get("namespace", ""), request.query.get("namespace", "")}
            looked = await asker.look(snapshot.namespaces, first - {""})
            sight = await see_object(asker, looked.sight, route.answer, request.match_info)
            tag = f'"{self.snapshots.instance}-{snapshot.number}{_tag_of(sight)}"'
            if route.method == "GET" and request.headers.get("If-None-Match") == tag:
                return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
            body = await self._read_question(request) if route.body else {}
            ask = Ask(dict(request.match_info), body, dict(request.query) if route.params else {})
            question = RouteQuestion(route, ask, dict(request.query), sight)
            answer = await self._compute(asker, question)
            if isinstance(answer, web.Response):
                return answer
            response = web.Response(body=answer, content_type="application/json")
            response.headers["Cache-Control"] = "private, no-store"
            if route.method == "GET":
                response.headers["ETag"] = tag
            if len(answer) > LEAST_COMPRESSED:
                response.enable_compression()
            return response

        return serve

    async def _read_question(self, request: web.Request) -> Mapping[str, Any]:
        """Read a body; what takes long to decode keeps nobody else waiting."""
        raw = await read_body(request, MOST_BODY, parse=False)
        return await self.snapshots.compute_apart(lambda: _decode(raw))

    async def _compute(self, asker: Asker, question: RouteQuestion) -> bytes | web.Response:
        plans = question.route.plans
        with self._waiting.seat(asker), self._planning.seat(asker) if plans else nullcontext():
            compute = self.snapshots.plan if plans else self.snapshots.answer
            answer = await compute(lambda: self._answer(question))
            if isinstance(answer, bytes | web.Response):
                return answer
            fetches, snapshots = question.route.fetches, self.snapshots
            return await (snapshots.fetch if fetches else snapshots.compute_apart)(answer)

    def _answer(
        self, question: RouteQuestion
    ) -> bytes | web.Response | Callable[[], bytes | web.Response]:
        """Compute an answer, in the thread of answers, or return what is to be computed apart."""
        instance, last = self.snapshots.instance, self.snapshots.last
        if last is None:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, self.snapshots.why_old)
        snapshot = last.seen_with(question.sight)
        route, ask, params = question.route, question.ask, question.params
        try:
            form = route.form
            query = None if form is None else parse_query(params, form, instance)
            if form is None:
                _check_params(route, params)
            if route.begin is not None:
                work = route.begin(snapshot, ask)
                head = head_for(route, snapshot, ask, instance, time.time())
                return lambda: _finish(head, work)
            answer = route.answer_from(snapshot, ask)
            if form is not None and query is not None:
                answer = replace(answer, value=make_page(answer.value, query, form, instance))
        except InvalidQuery as error:
            return _refuse(HTTPStatus.BAD_REQUEST, str(error))
        except ExpiredPage as error:
            return _refuse(HTTPStatus.GONE, str(error))
        except NothingThere as error:
            return _refuse(HTTPStatus.NOT_FOUND, str(error))
        return encode_answer(route, snapshot, ask, answer, instance)


def _check_params(route: Route, params: Mapping[str, str]) -> None:
    """Raise ``InvalidQuery`` for a parameter that a route does not have."""
    wrong = sorted(params.keys() - route.params.keys())
    if wrong:
        raise InvalidQuery(f"{wrong[0]}: no such parameter")


def _tag_of(sight: Sight) -> str:
    return f"-{sight.digest}" if sight.digest else ""


def encode_answer(
    route: Route, snapshot: Snapshot, ask: Ask, answer: WithGaps, instance: str
) -> bytes:
    """Return an answer in its envelope, as JSON."""
    head = head_for(route, snapshot, ask, instance, time.time())
    return _encode(head, answer)


def _encode(head: AnswerHead, answer: WithGaps) -> bytes:
    return json.dumps(wrap(head, answer), ensure_ascii=False).encode()


def _decode(raw: bytes) -> Mapping[str, Any]:
    try:
        return decode_manifests(parse_body(raw), MOST_YAML)
    except EditError as error:
        raise InvalidBody(f"edits: {error}") from None


def _finish(head: AnswerHead, work: Callable[[], WithGaps]) -> bytes | web.Response:
    try:
        return _encode(head, work())
    except NothingThere as error:
        return _refuse(HTTPStatus.NOT_FOUND, str(error))


_NAMES: Final = {
    HTTPStatus.BAD_REQUEST: "Invalid",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.REQUEST_TIMEOUT: "TooSlow",
    HTTPStatus.GONE: "Expired",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "TooLarge",
    HTTPStatus.MISDIRECTED_REQUEST: "WrongHost",
    HTTPStatus.TOO_MANY_REQUESTS: "TooBusy",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "NotReady",
}
_AGAIN: Final = {HTTPStatus.TOO_MANY_REQUESTS: 2, HTTPStatus.SERVICE_UNAVAILABLE: 2}
"""Status -> seconds after which to ask again."""


def _refuse(status: int, message: str) -> web.Response:
    again = _AGAIN.get(HTTPStatus(status))
    error = _NAMES.get(HTTPStatus(status), "Error")
    body = {"error": error, "message": escape(message), "retryAfterSeconds": again}
    headers = {} if again is None else {"Retry-After": str(again)}
    return web.json_response(body, status=status, headers=headers)
