"""Server-sent events: what changed in answers, for browsers that keep one connection.

A stream has up to eight topics, and sees who it is for and what she may see again and again. What
is told of each topic is made once for all streams: ``channels`` does that.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from koord.answers.redaction import Sight
from koord.core.model.text import format_milliseconds
from koord.plain_text import escape
from koord.see.access import AccessControl, Asker
from koord.see.channels import Channels, Followed, follow, make_event
from koord.see.limits import MOST_STREAMS, Seats
from koord.see.object_rights import see_object
from koord.see.paging import ExpiredPage, InvalidQuery
from koord.see.snapshots import Snapshots
from koord.see.topics import MOST_TOPICS, Topic, parse_topic

CHECK_SECONDS: Final = 60.0
"""It is asked again at least as often who follows, and what she may see."""
SIGN_SECONDS: Final = 15.0
"""Something is sent at least as often: what lies between closes connections that are silent."""
LONGEST_SECONDS: Final = 3600.0
MOST_BUFFERED: Final = 256 * 1024
LAST: Final = "Last-Event-ID"
_SHARE: Final = 3
"""A stream rests for so many times as long as its last events took, so that all get their turn."""


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
        self._channels = Channels(snapshots)
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
            with follow(self._channels, topics) as followed:
                async with asyncio.timeout(LONGEST_SECONDS):
                    await self._follow(request, response, followed)
        except TimeoutError:
            await _write(response, make_event("bye", {"why": "Hour", "again": True}))
        except ConnectionError:
            if request.transport is not None:
                request.transport.abort()  # nobody reads what is still to be sent
        except web.HTTPException as refusal:
            is_known = refusal.status_code != HTTPStatus.UNAUTHORIZED
            bye = {"why": "NotReady" if is_known else "Unauthorized", "again": is_known}
            await _write(response, make_event("bye", bye))
        return response

    def _topics_of(self, request: web.Request) -> list[Topic]:
        texts = request.query.getall("topic", [])
        if not 1 <= len(texts) <= MOST_TOPICS:
            raise InvalidQuery(f"topic: give from 1 to {MOST_TOPICS} of them")
        return [parse_topic(text, self._snapshots.instance) for text in texts]

    async def _follow(
        self, request: web.Request, response: web.StreamResponse, followed: Followed
    ) -> None:
        seen, until, sight = 0, 0.0, None
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
            topics = followed.topics
            looked = await asker.look(last.namespaces, [topic.namespace for topic in topics])
            until = min(asker.until, looked.until, time.monotonic() + CHECK_SECONDS)
            if snapshot is None and looked.sight == sight:
                if wait == SIGN_SECONDS:
                    await _write(response, self._sign())
                continue
            sight = looked.sight
            followed.see_with([await _see(asker, sight, topic) for topic in topics])
            if not seen:
                followed.go_on_after(request.headers.get(LAST, ""))
            events, seconds = await followed.take_events()
            seen = followed.number
            await _write(response, _join(events, followed.identity) or self._sign())
            await asyncio.sleep(min(SIGN_SECONDS, _SHARE * seconds))
            transport = request.transport
            if transport is None or transport.get_write_buffer_size() > MOST_BUFFERED:
                await _write(response, make_event("bye", {"why": "slow", "again": True}))
                return

    def _sign(self) -> bytes:
        """Return the event that says that the stream lives, and how old what it told is."""
        now, last = time.time(), self._snapshots.last
        body = {
            "at": format_milliseconds(now),
            "lagSeconds": None if last is None else max(0, int(now - last.at)),
            "problem": escape(self._snapshots.why_old),
        }
        return make_event("sign", body)


async def _write(response: web.StreamResponse, event: bytes) -> None:
    """Send an event; raises ``ConnectionError`` if the client takes nothing for a minute."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await response.write(event)
    except TimeoutError:
        raise ConnectionError("the client does not read") from None


async def _see(asker: Asker, sight: Sight, topic: Topic) -> Sight:
    return await see_object(asker, sight, topic.route.answer, topic.ask.parts)


def _join(events: list[bytes], identity: str) -> bytes:
    """Return events in a row. The last one has the identity: so all before it were read, too."""
    if not events:
        return b""
    return b"".join((*events[:-1], f"id: {identity}\n".encode(), events[-1]))
