"""Server-sent events: what changed in answers, for browsers that keep one connection.

A stream has topics, each one route with its parameters: ``queue(class=Room)``, ``overview``,
``explanation(namespace=a,kind=podgroup,name=b)``. It begins with the whole answer (of a list: its
first page); then come rows that are new, changed or gone, or the value as a whole if it changed, of
a large one what of it changed.
Differences are those of documents: no route knows of streams.
"""

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from koord.answers.envelope import AnswerHead
from koord.answers.redaction import Sight
from koord.core.model.text import format_milliseconds
from koord.plain_text import escape
from koord.see.access import AccessControl, Asker
from koord.see.limits import MOST_STREAMS, Seats
from koord.see.object_rights import see_object
from koord.see.paging import (
    Entry,
    ExpiredPage,
    InvalidQuery,
    ListQuery,
    Row,
    cut_page,
    parse_query,
    select,
)
from koord.see.patches import find_patch
from koord.see.route import Ask, NothingThere, Route, head_for, wrap
from koord.see.routes import ROUTES
from koord.see.snapshots import Snapshot, Snapshots

log = logging.getLogger(__name__)
CHECK_SECONDS: Final = 60.0
"""It is asked again at least as often who follows, and what she may see."""
MOST_TOPICS: Final = 8
MOST_TOPIC: Final = 1024
"""Characters."""
SIGN_SECONDS: Final = 15.0
"""Something is sent at least as often: what lies between closes connections that are silent."""
LONGEST_SECONDS: Final = 3600.0
MOST_BUFFERED: Final = 256 * 1024
_KINDS: Final = {"value": "value", "items": "patch"}
"""Part of changes -> the event that has it; others are of rows."""
_TOPIC: Final = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)
_SHARE: Final = 3
"""A stream rests for so many times as long as its last events took, so that all get their turn."""
_BY_NAME: Final = {
    route.answer.lower(): route
    for route in ROUTES
    if route.method == "GET" and route.begin is None and route.answer != "Remedies"
}
"""What is quick enough to be computed again whenever anything has changed."""


@dataclass(slots=True)
class Topic:
    """What a stream follows, and what it has sent of it."""

    name: str
    route: Route
    ask: Ask
    query: ListQuery | None
    instance: str
    sent: Mapping[str, Row] = field(default_factory=dict)
    """Rows of the first page of a list by key, or the value under an empty one."""
    total: int = 0
    """Rows of the whole list."""
    behind: list[Entry] = field(default_factory=list)
    """What is behind the first page, as it was last: of it it is only told that it changed."""
    has_begun: bool = False
    circumstances: Hashable = None
    """Who led, and what was missing, as it was sent."""

    @property
    def namespace(self) -> str:
        """The one that it is about; empty if it is about no single one."""
        filters = {} if self.query is None else self.query.filters
        return self.ask.parts.get("namespace", "") or filters.get("namespace", "")

    def hello(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the whole answer in its envelope; of a list the first page."""
        self.has_begun = True
        answer = self.route.answer_from(snapshot, self.ask)
        page = self._take(snapshot, answer.value)
        head = head_for(self.route, snapshot, self.ask, self.instance, time.time())
        self.circumstances = _circumstances_of(head)
        return wrap(head, answer if page is None else replace(answer, value=page))

    def _take(self, snapshot: Snapshot, value: Any) -> dict[str, Any] | None:
        """Note what is sent now; return it if it is the first page of a list.

        All who follow the same topic with the same rights share the documents of its rows.
        """
        form, query = self.route.form, self.query
        if form is None or query is None:
            self.sent = {"": value}
            return None

        def cut() -> tuple[dict[str, Any], dict[str, Row], list[Entry]]:
            chosen = select(value, query, form)
            page, behind = cut_page(chosen, query, form, self.instance), chosen[query.limit :]
            keys = map(form.key, chosen[: query.limit])
            return page, dict(zip(keys, page["items"], strict=True)), behind

        page, self.sent, self.behind = snapshot.keep(("topic", self.name), cut)
        self.total = page["total"]
        return page

    def changes(self, snapshot: Snapshot) -> dict[str, Any] | None:
        """Return what differs from what was sent; None if nothing does.

        Of a list the first page is followed. Without ``order`` its rows that are not gone have the
        order that they had. If only rows behind it differ nothing is set or gone: who has read
        those reads them again.
        """
        value = self.route.answer_from(snapshot, self.ask).value
        before, total, behind = self.sent, self.total, self.behind
        page = self._take(snapshot, value)
        if page is None:
            if before == self.sent:
                return None
            return find_patch(before.get(""), value) or {"value": value}
        changed = [row for key, row in self.sent.items() if before.get(key) != row]
        gone = [key for key in before if key not in self.sent]
        body = {"set": changed, "gone": gone, "total": self.total, "continue": page["continue"]}
        order = list(self.sent)
        if order != [key for key in before if key in self.sent]:
            return {**body, "order": order}
        is_same = not changed and not gone and (total, behind) == (self.total, self.behind)
        return None if is_same else body


def parse_topic(text: str, instance: str) -> Topic:
    """Read ``name(key=value,…)``. Raises ``InvalidQuery``."""
    match = _TOPIC.fullmatch(text) if len(text) <= MOST_TOPIC else None
    route = _BY_NAME.get(match[1]) if match else None
    if match is None or route is None:
        topics = ", ".join(_BY_NAME)
        raise InvalidQuery(
            f"topic: {text[:64]!r} is none of {topics}, with (key=value,…) behind it"
        )
    pairs = [pair.partition("=") for pair in (match[2] or "").split(",") if pair]
    given = {key.strip(): value.strip() for key, _, value in pairs}
    names = set(re.findall(r"\{(\w+)\}", route.path))
    missing = sorted(names - given.keys())
    if missing:
        raise InvalidQuery(f"topic: {route.answer.lower()} needs {', '.join(missing)}")
    params = {key: value for key, value in given.items() if key not in names}
    if "continue" in params:
        raise InvalidQuery("topic: of a list its first page is followed, so there is no continue")
    if route.form is None and params:
        raise InvalidQuery(f"topic: {route.answer.lower()} has no {next(iter(params))}")
    query = parse_query(params, route.form, instance) if route.form is not None else None
    return Topic(text, route, Ask({key: given[key] for key in names}), query, instance)


class EventStreams:
    """All streams of a process: so many, and so many of one asker."""

    def __init__(
        self,
        snapshots: Snapshots,
        access: AccessControl,
        most: int = MOST_STREAMS,
        most_each: int = 0,
    ) -> None:
        self._snapshots = snapshots
        self._access = access
        self._seats = Seats("streams are open", most, most_each or most)

    def __len__(self) -> int:
        return len(self._seats)

    async def serve(self, request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        """Send events until the client goes, an hour is over, or the client is too slow.

        So it ends when the API server does not know the asker any more. Raises ``TooMuch``.
        """
        asker = await self._access.identify(request)
        try:
            topics = self._topics_of(request)
        except (InvalidQuery, ExpiredPage) as error:
            reason = " ".join(str(error).split())  # it is one line
            raise web.HTTPBadRequest(reason=reason) from None
        with self._seats.seat(asker):
            return await self._send(request, headers, topics)

    async def _send(
        self, request: web.Request, headers: Mapping[str, str], topics: list[Topic]
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                **headers,
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        try:
            await response.prepare(request)
            # Not all at the same time, if this process ends.
            await _write(response, f"retry: {2000 + secrets.randbelow(6000)}\n\n".encode())
            async with asyncio.timeout(LONGEST_SECONDS):
                await self._follow(request, response, topics)
        except TimeoutError:
            await _write(response, _event("bye", {"why": "Hour", "again": True}))
        except ConnectionError:
            if request.transport is not None:
                request.transport.abort()  # nobody reads what is still to be sent
        except web.HTTPException as refusal:
            is_known = refusal.status_code != HTTPStatus.UNAUTHORIZED
            bye = {"why": "NotReady" if is_known else "Unauthorized", "again": is_known}
            await _write(response, _event("bye", bye))
        return response

    def _topics_of(self, request: web.Request) -> list[Topic]:
        texts = request.query.getall("topic", [])
        if not 1 <= len(texts) <= MOST_TOPICS:
            raise InvalidQuery(f"topic: give from 1 to {MOST_TOPICS} of them")
        return [parse_topic(text, self._snapshots.instance) for text in texts]

    async def _follow(
        self, request: web.Request, response: web.StreamResponse, topics: list[Topic]
    ) -> None:
        seen, sight, until = 0, None, 0.0
        if self._snapshots.last is None or self._snapshots.problem:
            await _write(response, self._sign())
        while True:
            wait = max(0.0, min(SIGN_SECONDS, until - time.monotonic())) if seen else SIGN_SECONDS
            snapshot = await self._snapshots.next_after(seen, wait)
            asker = await self._access.identify(request)
            last = self._snapshots.last
            if last is None:
                until = min(asker.until, time.monotonic() + CHECK_SECONDS)
                await _write(response, self._sign())
                continue
            looked = await asker.look(last.namespaces, [topic.namespace for topic in topics])
            until = min(asker.until, looked.until, time.monotonic() + CHECK_SECONDS)
            if snapshot is None and looked.sight == sight:
                if wait == SIGN_SECONDS:
                    await _write(response, self._sign())
                continue
            seen, sight = last.number, looked.sight
            began, is_silent = time.monotonic(), True
            for topic in topics:
                event = await self._next_event(topic, asker, sight)
                if event:
                    await _write(response, event)
                    is_silent = False
            if is_silent:
                await _write(response, self._sign())
            await asyncio.sleep(min(SIGN_SECONDS, _SHARE * (time.monotonic() - began)))
            transport = request.transport
            if transport is None or transport.get_write_buffer_size() > MOST_BUFFERED:
                await _write(response, _event("bye", {"why": "slow", "again": True}))
                return

    async def _next_event(self, topic: Topic, asker: Asker, sight: Sight) -> bytes:
        route, snapshots = topic.route, self._snapshots
        sight = await see_object(asker, sight, route.answer, topic.ask.parts)
        compute = snapshots.plan if route.plans else snapshots.follow
        return await compute(_NextEvent(topic, snapshots, sight))

    def _sign(self) -> bytes:
        """Return the event that says that the stream lives, and how old what it told is."""
        now, last = time.time(), self._snapshots.last
        body = {
            "at": format_milliseconds(now),
            "lagSeconds": None if last is None else max(0, int(now - last.at)),
            "problem": escape(self._snapshots.why_old),
        }
        return _event("sign", body)


async def _write(response: web.StreamResponse, event: bytes) -> None:
    """Send an event; raises ``ConnectionError`` if the client takes nothing for a minute."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await response.write(event)
    except TimeoutError:
        raise ConnectionError("the client does not read") from None


@dataclass(frozen=True, slots=True)
class _NextEvent:
    """Computes the next event of a topic, of the last snapshot; empty for nothing."""

    topic: Topic
    snapshots: Snapshots
    sight: Sight

    def __call__(self) -> bytes:
        topic, last = self.topic, self.snapshots.last
        if last is None:
            return b""
        snapshot = last.seen_with(self.sight)
        identity = f"{self.snapshots.instance}:{snapshot.number}"
        try:
            return self._make(snapshot, identity)
        except NothingThere as error:
            message = str(error)
        except Exception:
            trace = secrets.token_hex(4)
            log.exception("An answer failed", extra={"topic": topic.name, "trace": trace})
            message = f"the log says more: {trace}"
        topic.has_begun = False
        return _event("gap", {"topic": topic.name, "message": message}, identity)

    def _make(self, snapshot: Snapshot, identity: str) -> bytes:
        topic = self.topic
        head = head_for(topic.route, snapshot, topic.ask, topic.instance, time.time())
        # Changes have no gaps: who leads now, or nobody, is told with the whole answer.
        if not topic.has_begun or topic.circumstances != _circumstances_of(head):
            return _event("hello", {"topic": topic.name, **topic.hello(snapshot)}, identity)
        changes = topic.changes(snapshot)
        if changes is None:
            return b""
        kind = next((name for part, name in _KINDS.items() if part in changes), "rows")
        as_of = head.wrap(None)["asOf"]
        return _event(kind, {"topic": topic.name, **changes, "asOf": as_of}, identity)


def _circumstances_of(head: AnswerHead) -> Hashable:
    return head.leader, head.term, head.gaps


def _event(kind: str, body: Mapping[str, Any], identity: str = "") -> bytes:
    """Return an event; JSON has no line breaks of its own."""
    head = f"id: {identity}\n" if identity else ""
    return f"{head}event: {kind}\ndata: {json.dumps(body, ensure_ascii=True)}\n\n".encode()
