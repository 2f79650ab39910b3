"""Reads the feed of the leader, page by page, and follows it into a store.

Which leader there is, and where, others say. What the feed sends is checked: a page has to name the
leader, its records one term, and go on after what was read. A reader that is slow, or ends, loses
what the leader keeps no longer; a gap stands in its place.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NoReturn, Protocol, TypeVar

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from koord.store.errors import StoreBusyError
from koord.store.writing import Appended, FeedPosition

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST_BYTES: Final = 32 << 20
"""Of one page."""
WAIT_SECONDS: Final = 8
"""How long the leader waits until there is something new."""
PAGE_RECORDS: Final = 2000
_TIMEOUT_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 5.0
"""After something went wrong."""
_GONE: Final = 410


class FeedError(Exception):
    """A feed does not answer as feeds do; the text is a phrase."""


@dataclass(frozen=True, slots=True)
class FeedAddress:
    """Where the records of a leader are read; ``holder`` as its Lease says, empty if unknown."""

    address: str
    holder: str = ""


class RecordPage(msgspec.Struct, frozen=True):
    """Records of one term, as lines; ``term`` is None if the page is empty."""

    holder: str
    term: int | None
    last: int
    lines: tuple[bytes, ...]


class _Head(msgspec.Struct):
    term: int
    seq: int


_HEAD: Final = msgspec.json.Decoder(_Head)


async def read_page(  # noqa: PLR0913 - the parameters of the feed
    session: ClientSession,
    source: FeedAddress,
    *,
    term: int | None,
    after: int,
    wait: int = 0,
    headers: Mapping[str, str] | None = None,
) -> RecordPage:
    """Return the records after one of a term; None stands for the present term.

    If that term is over, the page is empty and names the present one. Raises ``FeedError``,
    ``ClientError``, ``OSError`` and ``TimeoutError``.
    """
    url = f"http://{source.address}/feed"
    params = {"limit": str(PAGE_RECORDS), "after": str(after), "wait": str(wait)}
    params |= {} if term is None else {"term": str(term)}
    async with session.get(url, params=params, headers=headers, allow_redirects=False) as answer:
        body = bytearray()
        async for part in answer.content.iter_chunked(1 << 16):
            body += part
            if len(body) > MOST_BYTES:
                raise FeedError(f"{url} sends more than {MOST_BYTES >> 20} MiB")
        holder = answer.headers.get("Koord-Leader", "")
    if answer.status not in {200, _GONE}:
        raise FeedError(f"{url} answers {answer.status}: {_first_line(bytes(body))}")
    if source.holder and holder != source.holder:
        raise FeedError(f"{url} is not that of the leader {source.holder}")
    if answer.status == _GONE:
        return RecordPage(holder, _read_term(url, bytes(body)), 0, ())
    return _check(url, holder, bytes(body).splitlines(), after)


def _check(url: str, holder: str, lines: list[bytes], after: int) -> RecordPage:
    term: int | None = None
    for line in lines:
        try:
            head = _HEAD.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FeedError(f"{url} sends no records: {error}") from error
        if head.seq <= after or head.term != (head.term if term is None else term):
            raise FeedError(f"{url} sends records that do not follow each other")
        term, after = head.term, head.seq
    return RecordPage(holder, term, after, tuple(lines))


def _read_term(url: str, body: bytes) -> int:
    try:
        return msgspec.json.decode(body, type=dict[str, int])["term"]
    except (msgspec.DecodeError, KeyError, RecursionError) as error:
        raise FeedError(f"{url} does not name its term") from error


def _first_line(body: bytes) -> str:
    return body[:200].decode(errors="replace").partition("\n")[0]


class RecordSink(Protocol):
    """Keeps records, in a file or in memory. Both may raise ``StoreError``."""

    def append(self, term: int, holder: str, lines: Iterable[bytes]) -> "Future[Appended]":
        """Keep records of a leader, in their order."""

    def read_position(self) -> "Future[FeedPosition | None]":
        """Return up to where the feed was read."""


S = TypeVar("S", bound=RecordSink)


@dataclass(slots=True)
class FeedFollower(Generic[S]):
    """Writes what a leader records into a store, whoever leads.

    ``find`` returns where the feed is, or raises ``FeedError``; ``headers`` those of each request,
    for instance a token. ``problem`` says why nothing is read now.
    """

    store: S
    find: Callable[[], Awaitable[FeedAddress]]
    headers: Callable[[], Mapping[str, str]] = dict
    on_records: Callable[[tuple[bytes, ...]], None] = lambda _: None
    """Called with what was read, in another thread, page by page."""
    problem: str = "it was not read yet"
    position: FeedPosition | None = None
    read_at: float = field(default=float("-inf"))
    """When it was read last, by ``time.monotonic``."""
    _waits: int = 0

    @property
    def behind_seconds(self) -> float:
        """How long ago the feed was read to its end, about."""
        return max(0.0, time.monotonic() - self.read_at)

    async def run(self) -> NoReturn:
        """Follow until it is cancelled; whatever goes wrong is tried again.

        Raises ``StoreError`` if the store cannot be written any more.
        """
        timeout = ClientTimeout(total=_TIMEOUT_SECONDS)
        async with ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                try:
                    await self._follow(session)
                except (FeedError, ClientError, OSError, TimeoutError, StoreBusyError) as error:
                    self.problem = str(error) or "it does not answer in time"
                    await asyncio.sleep(_PAUSE_SECONDS)

    async def _follow(self, session: ClientSession) -> NoReturn:
        """Read pages of one leader until something goes wrong."""
        source = await self.find()
        position = await asyncio.wrap_future(self.store.read_position())
        is_same = position is not None and position.holder == source.holder
        self.position = position
        term, after = (position.term, position.seq) if position and is_same else (None, 0)
        while True:
            page = await read_page(
                session, source, term=term, after=after, wait=self._waits, headers=self.headers()
            )
            if not page.lines:
                self._waits, self.problem, self.read_at = WAIT_SECONDS, "", time.monotonic()
                if page.term is not None and page.term != term:
                    term, after = page.term, 0
                continue
            if page.term is None or not page.holder:
                raise FeedError(f"{source.address} does not name its leader")
            await asyncio.wrap_future(self.store.append(page.term, page.holder, page.lines))
            await asyncio.to_thread(self.on_records, page.lines)
            self.position = await asyncio.wrap_future(self.store.read_position())
            term, after, self.problem = page.term, page.last, ""
            self._waits = 0 if len(page.lines) >= PAGE_RECORDS else WAIT_SECONDS
            self.read_at = time.monotonic() if self._waits else self.read_at
