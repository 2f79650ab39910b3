"""The routes as a web application, for one person on her own machine or for several.

Nothing is written, and no other origin is let in. Computes no answer, and does not know by what
an asker is recognised, nor why she may see what she sees.
"""

import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

import yaml
from aiohttp import web

from koord.answers.envelope import AnswerHead
from koord.answers.redaction import Sight
from koord.api.yaml_text import load_yaml
from koord.plain_text import escape
from koord.see.access import AccessControl, Asker
from koord.see.buckets import PER_SECOND, Bucket, Buckets
from koord.see.login import make_login
from koord.see.openapi import make_document
from koord.see.page_files import ROOT, find_file
from koord.see.paging import ExpiredPage, InvalidQuery, make_page, parse_query
from koord.see.route import Ask, NothingThere, Route, WithGaps, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot, Snapshots
from koord.see.stream import MOST_STREAMS, EventStreams

BASE: Final = "/apis/answers.operators.koordinator.sh/v1alpha1"
MOST_BODY: Final = 256 * 1024
MOST_WAITING: Final = 16
"""Answers that take a plan or more, are asked for and not given yet."""
MOST_QUEUED: Final = 256
"""All answers that are asked for and not given yet."""
LEAST_COMPRESSED: Final = 1024
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
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


@dataclass(frozen=True, slots=True)
class Limits:
    """What askers may take, all of them and each."""

    per_second: float = 200.0
    """Requests of all; of one so many as ``buckets`` says."""
    streams: int = MOST_STREAMS
    streams_each: int = MOST_STREAMS
    waiting_each: int = MOST_QUEUED
    """Answers that one asker waits for."""


@dataclass(slots=True)
class Server:
    """Answers requests of those whom ``access`` lets in."""

    snapshots: Snapshots
    access: AccessControl
    limits: Limits = field(default_factory=Limits)
    observe: Observe | None = None
    """Called after each request; None: nobody wants to know."""
    asked_at: float = field(default_factory=time.monotonic)
    """When something was asked last; monotonic."""
    streams: EventStreams = field(init=False)
    _all: Bucket = field(init=False)
    _buckets: Buckets = field(default_factory=Buckets)
    _strangers: Buckets = field(default_factory=lambda: Buckets(_PER_ADDRESS, 2 * _PER_ADDRESS))
    _waiting: Counter[Hashable] = field(default_factory=Counter)
    _plans: int = 0

    def __post_init__(self) -> None:
        limits = self.limits
        self._all = Bucket(per_second=limits.per_second, burst=limits.per_second)
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
        for route in ROUTES:
            app.router.add_route(route.method, f"{BASE}/{route.path}", self._serve(route))
        return app

    # --- who asks --------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        try:
            await self._check(request)
            response = await handler(request)
        except web.HTTPException as refusal:
            response = _refuse(refusal.status_code, refusal.reason)
            response.headers.update({k: v for k, v in refusal.headers.items() if k == "Allow"})
        except Exception:
            trace = secrets.token_hex(4)
            log.exception("An answer failed", extra={"path": request.path, "trace": trace})
            response = _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the log says more: {trace}")
        if not response.prepared:
            response.headers.update(_HEADERS)
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
        # Whoever asks too much takes nothing from others.
        if not self._buckets.take(asker.key):
            raise web.HTTPTooManyRequests(reason=f"at most {PER_SECOND} requests per second")
        if not self._all.take():
            raise web.HTTPTooManyRequests(reason="the server has more requests than it can answer")

    async def _begin_session(self, request: web.Request) -> web.Response:
        is_form = request.content_type == _FORM
        body = await request.post() if is_form else await _read_body(request)
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
        return web.json_response({"instance": self.snapshots.instance, "user": asker.name or None})

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
        if self.snapshots.last is None:
            text = f"not ready: {escape(self.snapshots.why_old)}\n"
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
            tag = f'"{self.snapshots.instance}-{snapshot.number}{_tag_of(looked.sight)}"'
            if route.method == "GET" and request.headers.get("If-None-Match") == tag:
                return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
            body = await _read_body(request) if route.body else {}
            ask = Ask(dict(request.match_info), body, dict(request.query) if route.params else {})
            question = RouteQuestion(route, ask, dict(request.query), looked.sight)
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

    async def _compute(self, asker: Asker, question: RouteQuestion) -> bytes | web.Response:
        waiting, each = self._waiting, self.limits.waiting_each
        is_costly = question.route.plans
        is_full = waiting.total() >= MOST_QUEUED or (is_costly and self._plans >= MOST_WAITING)
        if is_full or waiting[asker.key] >= each:
            many = f"{waiting[asker.key]} answers of yours, and {waiting.total()} of all,"
            return _refuse(HTTPStatus.TOO_MANY_REQUESTS, f"{many} are waited for")
        waiting[asker.key] += 1
        self._plans += is_costly
        try:
            answer = await self.snapshots.answer(lambda: self._answer(question))
            if isinstance(answer, bytes | web.Response):
                return answer
            return await self.snapshots.compute_apart(answer)
        finally:
            self._plans -= is_costly
            self._waiting -= Counter([asker.key])

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
                return lambda: _encode(head, work())
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


async def _read_body(request: web.Request) -> Mapping[str, Any]:
    """Read an object, as JSON or YAML. May raise ``HTTPBadRequest``."""
    try:
        body = load_yaml(await request.read())  # JSON is YAML
    except (UnicodeDecodeError, ValueError, yaml.YAMLError, RecursionError):
        raise web.HTTPBadRequest(reason="the body is neither JSON nor YAML") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(reason="the body is no object")
    return {str(key): value for key, value in body.items()}


_NAMES: Final = {
    HTTPStatus.BAD_REQUEST: "Invalid",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
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
