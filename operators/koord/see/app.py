"""The routes as a web application for one person, on her own machine.

Nothing is written, and no other origin is let in. Computes no answer, and does not know by what
an asker is recognised.
"""

import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

import yaml
from aiohttp import web

from koord.api.yaml_text import load_yaml
from koord.plain_text import escape
from koord.see.access import KeyAccess
from koord.see.openapi import make_document
from koord.see.page_files import ROOT, find_file
from koord.see.paging import ExpiredPage, InvalidQuery, make_page, parse_query
from koord.see.routes import ROUTES, Ask, NothingThere, Route, WithGaps, head_for, wrap
from koord.see.snapshots import Snapshot, Snapshots
from koord.see.stream import EventStreams

BASE: Final = "/apis/answers.operators.koordinator.sh/v1alpha1"
MOST_BODY: Final = 256 * 1024
MOST_WAITING: Final = 16
"""Answers that are asked for and not begun."""
PER_SECOND: Final = 20
BURST: Final = 60
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
_OPEN: Final = frozenset({"/", "/healthz", "/session"})
"""Paths that need no key; those of the page, which is the same for all, need none either."""

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Bucket:
    """How many requests may still be made; ``clock`` is monotonic."""

    clock: Callable[[], float] = time.monotonic
    left: float = BURST
    at: float = 0.0

    def take(self) -> bool:
        now = self.clock()
        self.left = min(BURST, self.left + max(0.0, now - self.at) * PER_SECOND)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class Server:
    """Answers requests of those whom ``access`` lets in."""

    snapshots: Snapshots
    access: KeyAccess
    asked_at: float = field(default_factory=time.monotonic)
    """When something was asked last; monotonic."""
    _bucket: Bucket = field(default_factory=Bucket)
    _waiting: int = 0
    _streams: EventStreams = field(init=False)

    def __post_init__(self) -> None:
        self._streams = EventStreams(self.snapshots)

    def make_app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BODY, middlewares=[self._guard])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_post("/session", self._begin_session)
        app.router.add_get("/openapi.json", self._openapi)
        for path in ("/", ROOT):
            app.router.add_get(path, self._go_to_page)
        app.router.add_get(ROOT + "/{name:.*}", self._page)
        app.router.add_get(f"{BASE}/stream", self._stream)
        for route in ROUTES:
            app.router.add_route(route.method, f"{BASE}/{route.path}", self._serve(route))
        return app

    # --- who asks --------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check(request)
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
        return response

    def _check(self, request: web.Request) -> None:
        self.access.check_host(request)
        is_page = f"{request.path}/".startswith(f"{ROOT}/")
        if not is_page and request.path not in _OPEN:
            self.access.check_asker(request)
        if request.path == "/healthz":
            return
        self.asked_at = time.monotonic()
        if not self._bucket.take():
            raise web.HTTPTooManyRequests(reason=f"at most {PER_SECOND} requests per second")

    async def _begin_session(self, request: web.Request) -> web.Response:
        response = web.json_response({"instance": self.snapshots.instance})
        self.access.begin_session(await _read_body(request), response)
        return response

    # --- answers ---------------------------------------------------------------------------------

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _go_to_page(self, _: web.Request) -> web.Response:
        return web.Response(status=HTTPStatus.FOUND, headers={"Location": f"{ROOT}/"})

    async def _page(self, request: web.Request) -> web.Response:
        file = find_file(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound(reason="there is no such file of the page")
        response = web.Response(body=file.body, content_type=file.content_type, charset="utf-8")
        response.headers["Cache-Control"] = file.caching
        if len(file.body) > LEAST_COMPRESSED:
            response.enable_compression()
        return response

    async def _openapi(self, _: web.Request) -> web.Response:
        return web.json_response(make_document(ROUTES, BASE))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.serve(request, _HEADERS)

    def _serve(self, route: Route) -> Handler:
        async def serve(request: web.Request) -> web.Response:
            snapshot = self.snapshots.last
            if snapshot is None:
                return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, self.snapshots.why_old)
            tag = f'"{self.snapshots.instance}-{snapshot.number}"'
            if route.method == "GET" and request.headers.get("If-None-Match") == tag:
                return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
            ask = Ask(dict(request.match_info), await _read_body(request) if route.body else {})
            params = dict(request.query)
            answer = await self._compute(lambda: self._answer(route, snapshot, ask, params))
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

    async def _compute(self, compute: Callable[[], bytes | web.Response]) -> bytes | web.Response:
        if self._waiting >= MOST_WAITING:
            return _refuse(HTTPStatus.TOO_MANY_REQUESTS, f"{MOST_WAITING} answers are waited for")
        self._waiting += 1
        try:
            return await self.snapshots.answer(compute)
        finally:
            self._waiting -= 1

    def _answer(
        self, route: Route, snapshot: Snapshot, ask: Ask, params: Mapping[str, str]
    ) -> bytes | web.Response:
        """Compute an answer, in the thread of answers."""
        instance = self.snapshots.instance
        try:
            form = route.form
            query = None if form is None else parse_query(params, form, instance)
            if form is None and params:
                return _refuse(HTTPStatus.BAD_REQUEST, f"{next(iter(params))}: no such parameter")
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


def encode_answer(
    route: Route, snapshot: Snapshot, ask: Ask, answer: WithGaps, instance: str
) -> bytes:
    """Return an answer in its envelope, as JSON."""
    head = head_for(route, snapshot, ask, instance, time.time())
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
